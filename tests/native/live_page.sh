#!/bin/bash
# The live page of a device under load, used in a real browser; `ftld pause`, `step` and `resume`; and what an open page costs.
#   CPU_SECONDS (10)   how long that is measured
# Screenshots stay under target/live-page.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-page.XXXXXX")
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/monitoring.sh"
: "${CPU_SECONDS:=10}"
export FTLD_RUNTIME_DIR=$SCRATCH/run FTLD_STATE_DIR=$SCRATCH
browse=$(realpath "$(dirname "$0")/../live_page.py")
shots=$PWD/target/live-page
mkdir -p "$shots"

clean_up() {
  [ -z "${load:-}" ] || kill "$load" 2> /dev/null
  [ -z "${FTLD:-}" ] || kill -9 "$FTLD" 2> /dev/null
  rm -rf "$SCRATCH"
}
trap clean_up EXIT

# status PATH: a value of /status, such as host.write.completed.
status() { curl -sf "http://$METRICS/status" | python3 -c "import functools, json, sys; print(functools.reduce(lambda v, k: v[k], sys.argv[1].split('.'), json.load(sys.stdin)))" "$1"; }
written() { status host.write.completed; }
is() { [ "$(status "$1")" = "$2" ]; }

# load SECONDS: writes and reads by several requests at a time.
load() {
  exec fio --name=load --ioengine=nbd --uri="nbd+unix:///?socket=$SCRATCH/nbd.sock" --rw=randrw --rwmixread=30 --bs=4k --size=60m --iodepth=8 \
    --fsync=256 --norandommap --random_distribution=zipf:1.1 --randrepeat=0 --time_based --runtime="$1" --rate_iops=3000 --thread
}

# cpu_ms: CPU time of all threads of the daemon so far, in milliseconds.
cpu_ms() { cat /proc/"$FTLD"/task/*/schedstat | awk '{ sum += $1 } END { printf "%d", sum / 1e6 }'; }
# spent COMMAND...: CPU time of the daemon while the command runs, in milliseconds.
spent() {
  local before=$(cpu_ms)
  "$@" > "$SCRATCH/spent.log" 2>&1 || { cat "$SCRATCH/spent.log" >&2; echo 999999; return 1; }
  echo $(($(cpu_ms) - before))
}

METRICS=127.0.0.1:$(free_port)
serve --scheme lazyftl --size 64MiB --image "$SCRATCH/p.ftld" --name page "nbd+unix:///?socket=$SCRATCH/nbd.sock" || finish
refused_name() { curl -s -H 'Host: rebound.example' "http://$METRICS$1" | grep -q 'metrics-host'; }
soon "another name is refused, and the message says what to do" 5 refused_name /status
head_only() { curl -sfI "http://$METRICS/" | grep -qi "content-security-policy: default-src 'none'" && [ "$(curl -s -o /dev/null -w '%{http_code}' -X POST "http://$METRICS/")" = 405 ]; }
soon "there is a strict policy, and nothing but GET and HEAD" 5 head_only

load 600 > "$SCRATCH/fio.log" 2>&1 &
load=$!
collects() { [ "$(status scheme_stats.gc_runs)" -gt 50 ]; }
soon "the device is written until it collects" 90 collects
python3 "$browse" "http://$METRICS/" "$shots" > "$SCRATCH/browse.log" 2>&1 && ok "$(cat "$SCRATCH/browse.log")" || bad "$(tail -n 5 "$SCRATCH/browse.log")"

# The device itself.
step "pause" ftld pause page --for 60s
before=$(written) errors=$(status host.write.errors.eio)
is state paused && [ "$(curl -s "http://$METRICS/healthz")" = paused ] && ok "everything says paused" || bad "state is $(status state)"
sleep 1
same "writes served in a second of the pause" "$(($(written) - before))" 0
step "step by requests" ftld step page --requests 10
sleep 0.5
served() { echo $(($(written) + $(status host.read.completed) + $(status host.flush.completed))); }
at=$(served)
sleep 1
same "requests served after the step" "$(($(served) - at))" 0
ftld step page --events 2 --json > "$SCRATCH/step.json" && python3 -c "
import json, sys
answer = json.load(open(sys.argv[1]))
assert len(answer['events']) >= 2 and answer['paused'] and not answer['stepping'], answer" "$SCRATCH/step.json" && ok "a step by events tells them" || bad "step: $(cat "$SCRATCH/step.json")"
step "resume" ftld resume page
goes_on() { [ "$(served)" -gt $((at + 1000)) ]; }
soon "requests go on" 30 goes_on
same "writes that failed" "$(status host.write.errors.eio)" "$errors"
step "a short pause" ftld pause page --for 2s
soon "it ends by itself" 10 is state serving
kill "$load" && wait "$load"
load=

# An idle device, when what it had left to do is done.
settled() { local a=$(status nand.gc.programs); sleep 2; [ "$(status nand.gc.programs)" = "$a" ]; }
soon "the device settles" 60 settled
watched=$(spent python3 "$browse" "http://$METRICS/" --watch "$CPU_SECONDS")
note "$(cat "$SCRATCH/spent.log")"
# Not a page that somebody looked at a moment ago.
sleep 5
alone=$(spent sleep "$CPU_SECONDS")
# The browser's start and the page's first requests are within.
extra=$((watched - alone))
note "an open page for $CPU_SECONDS s: $extra ms of the daemon's CPU time ($watched ms with it, $alone ms without)"
step "an open page costs at most 1 % of a core" test $extra -le $((CPU_SECONDS * 10))

# A pause does not stand in the way of an end, and what was acknowledged is there afterwards.
load 600 > "$SCRATCH/fio.log" 2>&1 &
load=$!
sleep 1
step "pause again" ftld pause page --for 10m
quit lazyftl
finish
