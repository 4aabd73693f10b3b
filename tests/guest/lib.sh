# What every guest script shares. A step prints `ok` or `FAIL` with its name; `finish` turns the steps into the exit code.
SUITE=$(basename "$0" .sh)
FAILED=0

now() { cut -d. -f1 /proc/uptime; }

ok() { echo "ok   $SUITE: $*"; }
bad() { echo "FAIL $SUITE: $*"; FAILED=1; }
note() { echo "     $SUITE: $*"; }

# step NAME COMMAND...: the command's output is shown only when it fails. A command that hangs is a failure too.
step() {
  local name=$1 begin=$(now) rc
  shift
  timeout 120 "$@" > /tmp/step.log 2>&1
  rc=$?
  if [ $rc = 0 ]; then ok "$name ($(($(now) - begin)) s)"; else bad "$name, exit code $rc"; tail -n 30 /tmp/step.log; fi
  return $rc
}

# same NAME GOT WANTED
same() { if [ "$2" = "$3" ]; then ok "$1: $2"; else bad "$1: $2 instead of $3"; fi; }

# soon NAME SECONDS COMMAND...: a step for conditions that need a moment, and for functions of this file.
soon() {
  local name=$1
  shift
  if wait_for "$@"; then ok "$name"; else bad "$name: not within $1 s"; fi
}

# wait_for SECONDS COMMAND...
wait_for() {
  local end=$(($(now) + $1))
  shift
  until "$@" > /dev/null 2>&1; do
    [ "$(now)" -lt $end ] || return 1
    sleep 0.1
  done
}

gone() { [ ! -e "$1" ]; }
ended() { ! kill -0 "$1"; }

# Counters of /sys/block/DEV: stat has completed writes in field 5 and flushes in field 16.
writes_done() { awk '{ print $5 }' /sys/block/"$1"/stat; }
flushes_done() { awk '{ print $16 }' /sys/block/"$1"/stat; }
in_flight() { awk '{ print $1 + $2 }' /sys/block/"$1"/inflight; }
io_errors() { dmesg | grep -c "I/O error, dev $1\|Buffer I/O error on dev $1"; }

# kill_9 PID DEV: kills a server and prints what was under way. It is stopped first, so that the counts are those of its death.
kill_9() {
  wait_for 20 writing "$2" || bad "nothing is being written"
  kill -STOP "$1"
  sleep 0.3
  note "kill -9: $(in_flight "$2") requests in flight, $(writes_done "$2") writes acknowledged, $(flushes_done "$2") flushes"
  kill -9 "$1"
  wait "$1" 2> /dev/null
}
writing() { local before=$(writes_done "$1"); sleep 0.1; [ "$(writes_done "$1")" != "$before" ]; }

# fio that writes at random for some seconds and then reads everything back: fio_verify SECONDS ARGS...
fio_verify() {
  local seconds=$1
  shift
  fio --name=verify --eta=never --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=16 --serialize_overlap=1 \
    --time_based --runtime="$seconds" --verify=crc32c --verify_fatal=1 --randseed=11 "$@"
}

finish() { exit $FAILED; }
