#!/bin/bash
# An ftld sweep as a Slurm array. Run here, it submits itself; each task runs K jobs of the plan:
#
#     ftld compare --plan uniform zipf --size 1GiB > jobs.ndjson
#     deploy/slurm-array.sh jobs.ndjson rows                       # or K as the third argument
#     ftld compare --rows rows/*.ndjson --against jobs.ndjson --html compare.html   # when the array is done
#
# JOBS has one job a line; ROWS is a folder that all nodes see. Without K, it is the least for which the array fits into the
# cluster's MaxArraySize. Options for sbatch go into SBATCH_... variables, which it reads itself (SBATCH_PARTITION and others).
#
# Task N appends the rows of its jobs to ROWS/N.ndjson; what it says goes to ROWS/log. A job that has a row there is not run
# again, so a sweep that was interrupted is completed by the same command: only tasks with rows to write are submitted. FTLD
# names the program, if it is not on the PATH. A run holds its tables and 32 bytes per flash page: `ftld compare --estimate`
# prints the memory; raise --mem for devices beyond some tens of GiB. deploy/parallel.sh does the same without Slurm.
#SBATCH --job-name=ftld
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=1G
#SBATCH --time=24:00:00
set -euo pipefail

case $# in 2 | 3) ;; *) echo "usage: $0 JOBS ROWS [K]" >&2; exit 2 ;; esac
jobs=$1 rows=$2 chunk=${3:-}
[ -r "$jobs" ] || { echo "$jobs: cannot be read; make it by ftld compare --plan" >&2; exit 2; }
# The last line may have no end.
count=$(grep -c "" "$jobs" || true)
[ "$count" -gt 0 ] || { echo "$jobs: no job in it" >&2; exit 2; }
case $chunk in
  '') ;;
  *[!0-9]* | 0*) echo "K is $chunk: need the number of jobs per task" >&2; exit 2 ;;
esac

if [ -z "${SLURM_ARRAY_TASK_ID:-}" ]; then
  # The largest index is one less than MaxArraySize; its default is 1001.
  most=$(scontrol show config | sed -n 's/^MaxArraySize *= *\([0-9]*\).*/\1/p')
  [ "${most:-0}" -gt 1 ] || { echo "scontrol show config names no MaxArraySize above 1" >&2; exit 1; }
  least=$(((count + most - 2) / (most - 1)))
  chunk=${chunk:-$least}
  if [ "$chunk" -lt "$least" ]; then
    echo "K is $chunk: $count jobs need at least $least per task, because MaxArraySize is $most" >&2
    exit 2
  fi
  mkdir -p "$rows/log"
  # Other jobs, or another K, would leave rows in files of other tasks, and run these jobs twice.
  plan="$chunk jobs a task of $(sha256sum < "$jobs" | cut -c 1-64)"
  if [ ! -e "$rows/plan" ]; then
    if compgen -G "$rows/*.ndjson" > /dev/null; then
      echo "$rows: has rows, but no file plan that names their jobs and K; take another folder" >&2
      exit 2
    fi
    echo "$plan" > "$rows/plan"
  fi
  if [ "$(cat "$rows/plan")" != "$plan" ]; then
    echo "$rows: has rows of another plan, or of another K: $(cat "$rows/plan"); this is $plan. Take another folder" >&2
    exit 2
  fi
  # Whether a file has so many rows, the last one whole. The row of a failed run has another schema: that run is repeated.
  has() { [ -s "$1" ] && [ -z "$(tail -c 1 "$1")" ] && [ "$(grep -c '"schema":"ftld.replay/' "$1")" -ge "$2" ]; }
  # Ranges of tasks with a job that has no row.
  tasks=$(((count + chunk - 1) / chunk)) ranges='' from=0
  for ((task = 1; task <= tasks + 1; task++)); do
    file=$rows/$(printf %06d "$task").ndjson own=$chunk
    [ "$task" -lt "$tasks" ] || own=$((count - (tasks - 1) * chunk))
    if [ "$task" -le "$tasks" ] && ! has "$file" "$own"; then
      [ "$from" -gt 0 ] || from=$task
    elif [ "$from" -gt 0 ]; then
      ranges+=,$from-$((task - 1)) from=0
    fi
  done
  [ -n "$ranges" ] || { echo "all $count jobs have a row in $rows"; exit 0; }
  exec sbatch --array="${ranges#,}" --output="$rows/log/%a.log" "$0" "$jobs" "$rows" "$chunk"
fi

task=$SLURM_ARRAY_TASK_ID
chunk=${chunk:-1}
first=$(((task - 1) * chunk + 1))
[ "$first" -le "$count" ] || { echo "$jobs: no line $first for task $task" >&2; exit 2; }
# A run that fails has a row too, one with the reason; the exit code is its own.
sed -n "$first,$((first + chunk - 1))p" "$jobs" |
  "${FTLD:-ftld}" compare --job - --append "$rows/$(printf %06d "$task").ndjson"
