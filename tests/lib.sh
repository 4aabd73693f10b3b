# What the scripts of both suites share; for busybox sh and bash alike. A step prints `ok` or `FAIL` with its name; `finish`
# turns the steps into the exit code.
SUITE=$(basename "$0" .sh)
FAILED=0
: "${SCRATCH:=/tmp}" "${FIO_SECONDS:=5}" "${FIO_MIB:=32}" "${KILLS:=3}" "${SCHEMES:=lazyftl pagemap}"

now() { cut -d. -f1 /proc/uptime; }

ok() { echo "ok   $SUITE: $*"; }
bad() { echo "FAIL $SUITE: $*"; FAILED=1; }
note() { echo "     $SUITE: $*"; }
finish() { exit $FAILED; }

# step NAME COMMAND...: the command's output is shown only when it fails. A command that hangs is a failure too.
step() {
  local name=$1 begin=$(now) rc
  shift
  timeout 300 "$@" > "$SCRATCH/step.log" 2>&1
  rc=$?
  if [ $rc = 0 ]; then ok "$name ($(($(now) - begin)) s)"; else bad "$name, exit code $rc"; tail -n 30 "$SCRATCH/step.log"; fi
  return $rc
}

# same NAME GOT WANTED
same() { if [ "$2" = "$3" ]; then ok "$1: $2"; else bad "$1: $2 instead of $3"; fi; }

# soon NAME SECONDS COMMAND...: a step for conditions that need a moment, and for functions of this file.
soon() {
  local name=$1
  shift
  if wait_for "$@"; then ok "$name"; else bad "$name: not within $1 s"; return 1; fi
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

# Names of the schemes to test: those in $SCHEMES, or all in the program's table.
schemes() {
  if [ "$SCHEMES" = all ]; then
    ftld schemes --json | grep -o '"name": *"[^"]*"' | cut -d'"' -f4
  else
    echo "$SCHEMES" | tr ', ' '\n\n' | grep .
  fi
}

# refused NAME CODE TEXT COMMAND...: the command must fail with this exit code, and say this.
refused() {
  local name=$1 code=$2 text=$3 rc
  shift 3
  timeout 60 "$@" > "$SCRATCH/step.log" 2>&1
  rc=$?
  if [ $rc = "$code" ] && grep -qF -- "$text" "$SCRATCH/step.log"; then ok "$name: exit code $rc"; else
    bad "$name, exit code $rc instead of $code, or not a word of: $text"
    tail -n 30 "$SCRATCH/step.log"
  fi
}

# serve [recover] ARGS...: starts ftld, with metrics on $METRICS if that is set, and waits for its ready line; sets FTLD to its
# process.
serve() {
  local command=
  [ "$1" != recover ] || { command=recover && shift; }
  : > "$SCRATCH/ftld.out"
  ftld $command --metrics "${METRICS:-off}" "$@" > "$SCRATCH/ftld.out" 2> "$SCRATCH/ftld.log" &
  FTLD=$!
  wait_for 60 grep -q '^ready ' "$SCRATCH/ftld.out" || { bad "ftld $*: no ready line"; tail -n 20 "$SCRATCH/ftld.log"; return 1; }
}

# quit NAME: SIGTERM without users ends the daemon within 5 s, with exit code 0.
quit() {
  kill -TERM "$FTLD"
  wait_for 5 ended "$FTLD" || { bad "$1: the daemon did not end within 5 s"; kill -9 "$FTLD"; }
  wait "$FTLD"
  local rc=$?
  if [ $rc = 0 ]; then ok "$1: SIGTERM ends the daemon"; else bad "$1: exit code $rc"; tail -n 20 "$SCRATCH/ftld.log"; fi
}

# fio_verify SECONDS ARGS...: writes at random for about so long, in rounds of $FIO_MIB MiB, each read back and compared. Fails
# unless everything that was written has also been read.
fio_verify() {
  local seconds=$1 rounds
  shift
  rounds=$((seconds * 8 / FIO_MIB + 1))
  timeout $((seconds * 20 + 300)) fio --name=verify --eta=never --ioengine=libaio --direct=1 --rw=randwrite --bs=4k --iodepth=16 \
    --size=${FIO_MIB}m --loops=$rounds --rate_iops=,2000 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --randseed=11 "$@" > "$SCRATCH/fio.log" 2>&1 ||
    { tail -n 30 "$SCRATCH/fio.log"; return 1; }
  awk -F '[=,]' '/issued rwts: total=/ { found = 1; if ($2 != $3 || $3 < 1024) exit 1 } END { exit !found }' "$SCRATCH/fio.log" ||
    { echo "fio did not read everything back"; grep 'issued rwts' "$SCRATCH/fio.log"; return 1; }
}

# with_fio NAME SECONDS ARGS...: fio_verify as a step.
with_fio() {
  local name=$1 begin=$(now)
  shift
  if fio_verify "$@"; then ok "$name ($(($(now) - begin)) s)"; else bad "$name"; fi
}

# file_system NAME DEVICE MOUNTPOINT: ext4 from mkfs to a clean check, with verified writes, copies, deletions and fstrim.
file_system() {
  local name=$1 device=$2 at=$3 data=$SCRATCH/data
  step "$name: mkfs" mkfs.ext4 -q -F "$device" || return
  step "$name: mount" mount -t ext4 "$device" "$at" || return
  with_fio "$name: fio verify on ext4" "$FIO_SECONDS" --directory="$at"
  [ -e "$data" ] || dd if=/dev/urandom of="$data" bs=1M count=24 2> /dev/null
  step "$name: copy" cp "$data" "$at/one"
  step "$name: copy again" cp "$data" "$at/two"
  rm "$at/one" "$at"/verify*
  step "$name: fstrim" fstrim "$at"
  step "$name: copy into the trimmed space" cp "$data" "$at/three"
  step "$name: umount" umount "$at"
  step "$name: file system check" e2fsck -fn "$device"
  step "$name: mount again" mount -t ext4 "$device" "$at" || return
  step "$name: first copy is whole" cmp "$data" "$at/two"
  step "$name: second copy is whole" cmp "$data" "$at/three"
  step "$name: umount again" umount "$at"
}

# pauses NAME DEVICE: a reader of a paused device waits, a step lets it have its request, and nothing fails.
pauses() {
  local name=$1 reader
  step "$name: pause" ftld pause --for 60s
  dd if="$2" of=/dev/null bs=4k count=2 iflag=direct 2> "$SCRATCH/reader.log" &
  reader=$!
  sleep 2
  if ended "$reader"; then bad "$name: a paused device was read"; else ok "$name: a reader waits"; fi
  step "$name: a request's step" ftld step --requests 1
  sleep 1
  if ended "$reader"; then bad "$name: both of two requests were served"; else ok "$name: it waits again"; fi
  step "$name: resume" ftld resume
  soon "$name: the reader is through" 10 ended "$reader"
  wait "$reader"
  same "$name: its exit code" $? 0
}

# Counters of /sys/block/DEV: stat has completed writes in field 5 and flushes in field 16.
writes_done() { awk '{ print $5 }' /sys/block/"$1"/stat; }
flushes_done() { awk '{ print $16 }' /sys/block/"$1"/stat; }
in_flight() { awk '{ print $1 + $2 }' /sys/block/"$1"/inflight; }
io_errors() { dmesg | grep -c "I/O error, dev $1\|Buffer I/O error on dev $1"; }
writing() { local before=$(writes_done "$1"); sleep 0.1; [ "$(writes_done "$1")" != "$before" ]; }

# kill_9 PID DEV: kills a server that is being written to, and prints what was under way; fails unless that was a request, and a
# write acknowledged after the last FLUSH. The server is stopped first, so that the counts are those of its death.
kill_9() {
  local flushes=$(flushes_done "$2") unflushed=$(writes_done "$2")
  # The kernel's NBD client sends again what a dead connection took with it only after 30 s.
  wait_for 60 writing "$2" || bad "nothing is being written"
  sleep 1
  kill -STOP "$1"
  sleep 0.3
  unflushed=$(($(writes_done "$2") - unflushed))
  [ "$(flushes_done "$2")" = "$flushes" ] || unflushed=0
  note "kill -9: $(in_flight "$2") requests in flight, $unflushed or more writes acknowledged after the last FLUSH"
  [ "$(in_flight "$2")" -ge 1 ] && [ $unflushed -ge 1 ] || bad "the kill hit nothing"
  kill -9 "$1"
  wait "$1" 2> /dev/null
}
