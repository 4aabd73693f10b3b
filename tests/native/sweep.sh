#!/bin/bash
# A sweep by GNU parallel (deploy/parallel.sh), killed in the middle and completed by the same command: every job has one row, rows
# that were there stay, and a wrong row is named.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/lib.sh"
cd "$SCRATCH" || exit
trap 'cd / && rm -rf "$SCRATCH"' EXIT
rows() { cat rows/*.ndjson 2> /dev/null | wc -l; }
# shellcheck disable=SC2317 # called by soon
some_rows() { [ "$(rows)" -ge 8 ]; }

ftld compare --plan zipf:requests=20K uniform:requests=20K --scheme pagemap,lazyftl,dftl --size 16MiB --op 7,28 --seeds 2 > jobs.ndjson
same "jobs" "$(wc -l < jobs.ndjson)" 24

# The third task waits to be killed, however slow this machine is.
cat > waits << 'END'
#!/bin/bash
while [ "$(cat rows/*.ndjson 2> /dev/null | wc -l)" -ge 8 ]; do sleep 0.1; done
exec ftld "$@"
END
chmod +x waits
FTLD=$PWD/waits PARALLEL="-j 1" setsid "$root/deploy/parallel.sh" jobs.ndjson rows 4 > killed.log 2>&1 &
sweep=$!
soon "some rows are there" 60 some_rows
# Its jobs have their own process groups, but share its session.
disown "$sweep"
pkill -9 -s "$sweep"
wait_for 10 ended "$sweep"
before=$(rows)
at_least "rows that a killed sweep lacks" $((24 - before)) 16
refused "they are missing" 1 "$((24 - before)) missing" ftld compare --against jobs.ndjson --rows rows/*.ndjson
cat rows/*.ndjson > before

step "the same command completes it" "$root/deploy/parallel.sh" jobs.ndjson rows 4
same "rows" "$(rows)" 24
step "every job has one row" ftld compare --against jobs.ndjson --rows rows/*.ndjson
# CPU seconds are in a row: one that was run again would differ.
same "rows that stayed" "$(cat rows/*.ndjson | grep -cxFf before)" "$before"

# A task that outlived its sweep holds the file.
exec 8>> rows/000003.ndjson
flock 8
refused "a file that another run appends to" 7 "rows/000003.ndjson: another run appends rows to it" \
  ftld compare --job jobs.ndjson --append rows/000003.ndjson
exec 8>&-
refused "another K" 2 "rows: has rows of another plan, or of another K: 4 jobs a task" "$root/deploy/parallel.sh" jobs.ndjson rows 5
head -n 1 rows/000001.ndjson > rows/twice.ndjson
: > rows/empty.ndjson
sed 's/"seed":1/"seed":9/g' rows/twice.ndjson > rows/zero.ndjson
refused "double, empty and foreign rows" 1 "1 double, 1 empty, 1 foreign" ftld compare --against jobs.ndjson --rows rows/*.ndjson
same "files that are named" "$(grep -cE 'rows/(twice|empty|zero).ndjson' step.log)" 3
finish
