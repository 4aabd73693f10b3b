#!/bin/bash
# One task of a Slurm array runs one job of an ftld sweep:
#
#     ftld compare --plan uniform zipf --size 1GiB > jobs.ndjson
#     mkdir -p rows
#     sbatch --array=1-"$(wc -l < jobs.ndjson)" deploy/slurm-array.sh jobs.ndjson rows
#     ftld compare --rows rows/*.json --html compare.html         # when the array is done
#
# JOBS has one job a line, ROWS is a folder that all nodes see; task N writes ROWS/N.json whole or not at all, so a task that was lost
# can be run again. FTLD names the program, if it is not on the PATH. A run holds its tables and 32 bytes per flash page: raise --mem
# for devices beyond some tens of GiB.
#SBATCH --job-name=ftld
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=1G
#SBATCH --time=24:00:00
#SBATCH --output=ftld-%A_%a.log
set -euo pipefail

[ $# -eq 2 ] || { echo "usage: sbatch --array=1-N $0 JOBS ROWS" >&2; exit 2; }
jobs=$1 rows=$2
task=${SLURM_ARRAY_TASK_ID:?not a task of an array: sbatch --array=1-N}

job=$(sed -n "${task}p" "$jobs")
[ -n "$job" ] || { echo "$jobs: no line $task" >&2; exit 2; }
row=$rows/$(printf %06d "$task").json

# A run that fails has a row too, one that says why; the exit code is its own.
status=0
"${FTLD:-ftld}" compare --job - <<< "$job" > "$row.part" || status=$?
if [ -s "$row.part" ]; then
  mv "$row.part" "$row"
elif [ "$status" = 0 ]; then
  echo "$row: the run ended without a row" >&2
  status=1
fi
exit "$status"
