#!/bin/bash
# Draws a flame graph of ftld under a load over NBD: where its CPU time goes, user and kernel.
# usage: flame.sh LOAD FILE.svg
#   LOAD     4k-read, 4k-write (queue depth 32), 128k-read, 128k-write (queue depth 4),
#            fill (a new image, sequentially)
#   SCHEME (pagemap)  OP (28)  SIZE (1GiB)  of the device; all loads but fill run on an aged one
#   SECONDS_OF (5)    duration of the sampling
#   FTLD     program to profile, instead of building this tree
#   MINWIDTH (0.5)    percent of the width below which a frame is left out
# Samples the CPU clock 997 times a second by perf, which needs no hardware counters; inferno draws.
# Prints the ten functions with the largest own share.
set -euo pipefail
cd "$(dirname "$0")/../.."
fail() { echo "flame.sh: $*" >&2; exit 1; }
[ $# = 2 ] || fail "usage: tests/bench/flame.sh 4k-read|4k-write|128k-read|128k-write|fill FILE.svg"
name=$1 output=$2
case $name in
4k-read) load=(--rw=randread --bs=4k --iodepth=32) ;;
4k-write) load=(--rw=randwrite --bs=4k --iodepth=32) ;;
128k-read) load=(--rw=read --bs=128k --iodepth=4) ;;
128k-write) load=(--rw=write --bs=128k --iodepth=4) ;;
fill) load=(--rw=write --bs=128k --iodepth=8) ;;
*) fail "no load $name" ;;
esac
command -v perf > /dev/null || fail "perf is missing: apt-get install linux-perf"
command -v fio > /dev/null || fail "fio is missing: apt-get install fio"
tools=target/tools/bin
[ -x $tools/inferno-flamegraph ] || make --no-print-directory $tools/inferno-flamegraph >&2
if [ -z "${FTLD:-}" ]; then
  cargo build --release -q -p ftld --bin ftld
  FTLD=target/release/ftld
fi

mkdir -p target/bench
work=$(mktemp -d "$PWD/target/bench/flame.XXXXXX")
daemon=
stop() {
  if [ -n "$daemon" ]; then
    kill "$daemon" 2> /dev/null || true
    wait "$daemon" 2> /dev/null || true
  fi
  rm -rf "$work"
}
trap stop EXIT
uri="nbd+unix:///?socket=$work/flame.sock"
export FTLD_STATE_DIR=$work FTLD_RUNTIME_DIR=$work/run
"$FTLD" --scheme "${SCHEME:-pagemap}" --profile mlc-4k --op "${OP:-28}" --size "${SIZE:-1GiB}" --image "$work/flame.ftld" --name flame \
  --metrics off "$uri" > "$work/ready" 2> "$work/log" &
daemon=$!
until grep -q '^ready ' "$work/ready"; do
  kill -0 "$daemon" 2> /dev/null || fail "no ready line: $(tail -n 3 "$work/log")"
  sleep 0.1
done
run_fio() { fio --name=flame --ioengine=nbd --uri="$uri" --size=100% --thread --norandommap --randrepeat=0 "$@" > "$work/fio.log" || fail "fio: $(tail -n 3 "$work/fio.log")"; }
if [ "$name" != fill ]; then
  run_fio --rw=write --bs=128k --iodepth=8
  run_fio --rw=randwrite --bs=4k --iodepth=32 --loops=3
  load+=(--time_based --runtime="${SECONDS_OF:-5}")
fi
perf record -q -e cpu-clock -F 997 --call-graph dwarf,16384 -p "$daemon" -o "$work/perf.data" -- sleep "${SECONDS_OF:-5}" 2> "$work/perf.log" &
sampler=$!
run_fio "${load[@]}"
wait "$sampler" || fail "perf: $(tail -n 3 "$work/perf.log")"
perf script --no-inline -i "$work/perf.data" 2> /dev/null > "$work/samples"
# A thread that has ended is known by its number alone.
$tools/inferno-collapse-perf < "$work/samples" 2> /dev/null | sed -E 's/^:[0-9]+[^;]*;/connection;/; s/;\[unknown\]//g' > "$work/stacks"
[ -s "$work/stacks" ] || fail "perf took no sample"
title="ftld ${SCHEME:-pagemap}, $name, over-provisioning ${OP:-28} %: CPU time"
$tools/inferno-flamegraph --minwidth "${MINWIDTH:-0.5}" --title "$title" --countname samples --deterministic < "$work/stacks" > "$output"
awk '{ count = $NF; sub(/ [0-9]+$/, ""); n = split($0, frames, ";"); self[frames[n]] += count; all += count }
  END { for (frame in self) printf "%5.1f %%  %s\n", 100 * self[frame] / all, frame }' "$work/stacks" | sort -rn | sed -n 1,10p
