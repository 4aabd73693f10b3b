# shellcheck shell=dash
# Shared parts of the shell suites; for busybox sh and bash alike. A step prints `ok` or `FAIL` with
# its name; `finish` turns the steps into the exit code.
#
# A helper that cannot read its evidence fails: an empty value equals nothing, a counter prints
# nothing if its source cannot be read, a process has to be known before it can have ended.
# `tests/test_helpers.py` takes the evidence away from each helper and expects FAIL.
SUITE=$(basename "$0" .sh)
FAILED=0 PASSED=0
: "${SCRATCH:=/tmp}" "${FIO_SECONDS:=5}" "${FIO_MIB:=32}" "${KILLS:=3}" "${SCHEMES:=lazyftl pagemap}"

now() { cut -d. -f1 /proc/uptime; }

ok() { echo "ok   $SUITE: $*"; PASSED=$((PASSED + 1)); }
bad() { echo "FAIL $SUITE: $*"; FAILED=1; }
note() { echo "     $SUITE: $*"; }
# finish: ends the script; one without a passed step fails.
finish() {
  [ $PASSED -gt 0 ] || bad "no step passed"
  exit $FAILED
}
# give_up WHY: ends the script as failed.
give_up() { bad "$@"; finish; }

# number TEXT: whether it is a whole number, 0 or more.
number() { case ${1:-} in "" | *[!0-9]*) return 1 ;; esac }

# step NAME COMMAND...: the command's output is shown only when it fails. A command that hangs is a failure too.
step() {
  local name=$1 begin rc
  begin=$(now)
  shift
  timeout 300 "$@" > "$SCRATCH/step.log" 2>&1
  rc=$?
  if [ $rc = 0 ]; then ok "$name ($(($(now) - begin)) s)"; else bad "$name, exit code $rc"; tail -n 30 "$SCRATCH/step.log"; fi
  return $rc
}

# same NAME GOT WANTED
same() {
  if [ -z "${3:-}" ]; then bad "$1: nothing to compare '$2' with"
  elif [ "$2" = "$3" ]; then ok "$1: $2"
  else bad "$1: ${2:-nothing} instead of $3"
  fi
}

# differ NAME GOT UNWANTED
differ() {
  if [ -z "${2:-}" ] || [ -z "${3:-}" ]; then bad "$1: cannot compare '$2' with '$3'"
  elif [ "$2" != "$3" ]; then ok "$1: $2, not $3"
  else bad "$1: both are $2"
  fi
}

# at_least NAME GOT LEAST
at_least() {
  if number "${2:-}" && number "${3:-}" && [ "$2" -ge "$3" ]; then ok "$1: $2"
  else bad "$1: ${2:-nothing}, expected ${3:-nothing} or more"
  fi
}

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

# gone PATH: the folder that would hold it can be read, and it is not there.
gone() { [ -n "${1:-}" ] && [ -d "$(dirname "$1")" ] && [ ! -e "$1" ]; }
alive() { number "${1:-}" && [ "$1" -gt 0 ] && kill -0 "$1" 2> /dev/null; }
# ended PID: a process whose number is known has ended.
ended() { number "${1:-}" && [ "$1" -gt 0 ] && ! kill -0 "$1" 2> /dev/null; }

# count PATTERN COMMAND...: prints how many lines of the command's output match; prints nothing and
# fails if the command does, or says nothing.
count() {
  local pattern=$1 text
  shift
  text=$("$@") && [ -n "$text" ] || return 1
  printf '%s\n' "$text" | grep -cE -- "$pattern" || [ $? = 1 ]
}

# kernel_log: the kernel's messages; fails unless they reach back to the boot.
kernel_log() {
  local log
  log=$(dmesg) || return 1
  case $log in *"Linux version"*) printf '%s\n' "$log" ;; *) return 1 ;; esac
}

# mounts_of DEVICE: on how many places it is mounted.
mounts_of() { count "^${1:?} " cat /proc/self/mounts; }

# schemes: names of the schemes to test, those in $SCHEMES or all in the program's table; fails if
# there are none. Called as: names=$(schemes) || give_up "ftld names no scheme"
schemes() {
  if [ "$SCHEMES" = all ]; then
    ftld schemes --json | grep -o '"name": *"[^"]*"' | cut -d'"' -f4 | grep .
  else
    echo "$SCHEMES" | tr -s ', ' '\n' | grep .
  fi
}

# refused NAME CODE TEXT COMMAND...: the command must fail with this exit code, and say this.
refused() {
  local name=$1 code=$2 text=$3 rc
  shift 3
  # 124 and above: it hung, could not be run, or was killed. None of them is a refusal.
  if [ -z "$text" ] || ! number "$code" || [ "$code" = 0 ] || [ "$code" -ge 124 ]; then
    bad "$name: exit code '$code' with '$text' would be no refusal"
    return
  fi
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
  ftld ${command:+"$command"} --metrics "${METRICS:-off}" "$@" > "$SCRATCH/ftld.out" 2> "$SCRATCH/ftld.log" &
  FTLD=$!
  wait_for 60 is_ready_or_ended "$SCRATCH/ftld.out" "$FTLD"
  is_ready "$SCRATCH/ftld.out" || { bad "ftld $*: no ready line"; tail -n 20 "$SCRATCH/ftld.log"; return 1; }
}
is_ready() { grep -q '^ready ' "$1"; }
is_ready_or_ended() { is_ready "$1" || ended "$2"; }

# quit NAME: SIGTERM without users ends the daemon within 5 s, with exit code 0.
quit() {
  alive "$FTLD" || { bad "$1: the daemon ended before SIGTERM"; tail -n 20 "$SCRATCH/ftld.log"; return 1; }
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
    --size="${FIO_MIB}m" --loops=$rounds --rate_iops=,2000 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --randseed=11 "$@" > "$SCRATCH/fio.log" 2>&1 ||
    { tail -n 30 "$SCRATCH/fio.log"; return 1; }
  awk -F '[=,]' '/issued rwts: total=/ { found = 1; if ($2 != $3 || $3 < 1024) wrong = 1 } END { exit !found || wrong }' "$SCRATCH/fio.log" ||
    { echo "fio did not read everything back"; grep 'issued rwts' "$SCRATCH/fio.log"; return 1; }
}

# with_fio NAME SECONDS ARGS...: fio_verify as a step.
with_fio() {
  local name=$1 begin
  begin=$(now)
  shift
  if fio_verify "$@"; then ok "$name ($(($(now) - begin)) s)"; else bad "$name"; fi
}

# room_in_use: bytes of the device that hold data, by the daemon's own count.
room_in_use() {
  local pages
  pages=$(ftld status --json | tr -d ' \n' | grep -o '"mapped_pages":[0-9]*' | cut -d: -f2)
  number "$pages" && echo $((pages * 4096))
}
room_below() {
  local room
  room=$(room_in_use)
  number "$room" && [ "$room" -le "$1" ]
}

# trims NAME MOUNTPOINT BYTES FILE...: removes the files; fstrim gives back at least BYTES bytes.
trims() {
  local name=$1 at=$2 bytes=$3 before
  shift 3
  sync
  sleep 1 # figures are published ten times a second
  before=$(room_in_use)
  rm "$@"
  sync # ext4 trims blocks after the commit that frees them
  step "$name: fstrim" fstrim "$at" || return
  if ! number "$before" || [ "$before" -le "$bytes" ]; then
    bad "$name: ${before:-unknown} bytes in use before fstrim, expected more than $bytes"
    return
  fi
  soon "$name: fstrim gave back $bytes bytes or more of $before" 10 room_below $((before - bytes))
}

# file_system NAME DEVICE MOUNTPOINT: ext4 from mkfs to a clean check, with verified writes, copies, deletions and fstrim.
file_system() {
  local name=$1 device=$2 at=$3 data=$SCRATCH/data
  step "$name: mkfs" mkfs.ext4 -q -F "$device" || return
  step "$name: mount" mount -t ext4 "$device" "$at" || return
  with_fio "$name: fio verify on ext4" "$FIO_SECONDS" --directory="$at"
  [ -s "$data" ] || dd if=/dev/urandom of="$data" bs=1M count=24 2> /dev/null
  step "$name: copy" cp "$data" "$at/one"
  step "$name: copy again" cp "$data" "$at/two"
  trims "$name" "$at" $((24 << 20)) "$at/one" "$at"/verify*
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
  if alive "$reader"; then ok "$name: a reader waits"; else bad "$name: a paused device was read"; fi
  step "$name: a request's step" ftld step --requests 1
  sleep 1
  if alive "$reader"; then ok "$name: it waits again"; else bad "$name: both of two requests were served"; fi
  step "$name: resume" ftld resume
  soon "$name: the reader is through" 10 ended "$reader"
  wait "$reader"
  same "$name: its exit code" $? 0
}

# Counters of /sys/block/DEV: stat has completed writes in field 5 and flushes in field 16.
writes_done() { awk '{ print $5 }' /sys/block/"$1"/stat; }
flushes_done() { awk '{ print $16 }' /sys/block/"$1"/stat; }
in_flight() { awk '{ print $1 + $2 }' /sys/block/"$1"/inflight; }
# io_errors DEV: I/O errors of the device in the kernel's log.
io_errors() { count "I/O error, dev ${1:?}|Buffer I/O error on dev $1" kernel_log; }
writing() {
  local before
  before=$(writes_done "$1") && number "$before" || return
  sleep 0.1
  [ "$(writes_done "$1")" != "$before" ]
}

# kill_9 PID DEV: kills a server that is being written to, and prints the requests in flight; fails unless a request was in flight
# and a write was acknowledged after the last FLUSH. The server is stopped first, so that the counts are those of its death.
kill_9() {
  local flushes before unflushed=0 flying after
  flushes=$(flushes_done "$2") before=$(writes_done "$2")
  # The kernel's NBD client sends again what a dead connection took with it only after 30 s.
  wait_for 60 writing "$2" || bad "nothing is being written"
  sleep 1
  kill -STOP "$1" || bad "there is no process $1 to be killed"
  sleep 0.3
  after=$(writes_done "$2") flying=$(in_flight "$2")
  if number "$flushes" && number "$before" && number "$after" && [ "$(flushes_done "$2")" = "$flushes" ]; then
    unflushed=$((after - before))
  fi
  note "kill -9: ${flying:-unknown} requests in flight, $unflushed or more writes acknowledged after the last FLUSH"
  if ! number "$flying" || [ "$flying" -lt 1 ] || [ "$unflushed" -lt 1 ]; then bad "the kill hit nothing"; fi
  kill -9 "$1"
  wait "$1" 2> /dev/null
}

# is_durable PID FILE: `fsync_markers work`, whose output goes to FILE, is at work and made something
# durable. A crash before that would prove nothing.
is_durable() { alive "$1" && grep -q '^durable: ' "$2"; }

# log_passes LOG: it has steps that passed, none that failed, and no line that the shell could not
# run; a step on such a line would be missing without a trace.
log_passes() {
  [ -s "$1" ] && grep -aq '^ok ' "$1" && ! grep -aq '^FAIL' "$1" && ! shell_errors "$1"
}
# shell_errors LOG: prints the lines on which a shell says that it could not run something.
shell_errors() {
  grep -aE "^(sh|bash|[^ ]*\.sh|/bin/suite): .*(syntax error|operand|bad number|integer expression|operator|too many arguments|not found|unbound|parameter not set)" "$1"
}
