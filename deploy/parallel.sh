#!/bin/bash
# An ftld sweep on the cores of this machine, or of several, by GNU parallel:
#
#     ftld compare --plan uniform zipf --size 1GiB > jobs.ndjson
#     deploy/parallel.sh jobs.ndjson rows                          # or K as the third argument
#     ftld compare --rows rows/*.ndjson --against jobs.ndjson --html compare.html
#
# A task runs K jobs (50 by default) and appends their rows to ROWS/N.ndjson. A job that has a row there is not run again, so a
# sweep that was interrupted is completed by the same command. Options for parallel go into the variable PARALLEL, which it reads
# itself: "-j 8", or "--sshloginfile NODES --wd ." on machines that see the same folder. FTLD names the program, if it is not on
# the PATH. deploy/slurm-array.sh writes the same files as a Slurm array.
set -euo pipefail

case $# in 2 | 3) ;; *) echo "usage: $0 JOBS ROWS [K]" >&2; exit 2 ;; esac
jobs=$1 rows=$2 chunk=${3:-50}
command -v parallel > /dev/null || { echo "there is no GNU parallel: apt-get install parallel" >&2; exit 1; }
[ -r "$jobs" ] || { echo "$jobs: cannot be read; make it by ftld compare --plan" >&2; exit 2; }
# The last line may have no end.
count=$(grep -c "" "$jobs" || true)
[ "$count" -gt 0 ] || { echo "$jobs: no job in it" >&2; exit 2; }
case $chunk in *[!0-9]* | 0*) echo "K is $chunk: need the number of jobs per task" >&2; exit 2 ;; esac

mkdir -p "$rows"
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

# The exit code is the number of tasks with a failed run, 101 for more.
awk -v n="$count" -v k="$chunk" 'BEGIN { for (at = 1; at <= n; at += k) printf "%06d %d %d\n", ++task, at, at + k - 1 }' |
  parallel --will-cite --colsep ' ' \
    "sed -n {2},{3}p $(printf %q "$jobs") | $(printf %q "${FTLD:-ftld}") compare --job - --append $(printf %q "$rows")/{1}.ndjson"
