#!/bin/bash
# `ftld crash-test` ended by Ctrl-C at moments from its start to its end, by SIGTERM and by SIGKILL, leaves nothing: no mount, loop
# device, process or file, but for its recording once it explores. As an ordinary user, in User-Mode Linux, and as root, on this kernel.
#   MOMENTS (25)          of Ctrl-C, on ext4; a third of them on xfs
#   AS (nobody:nogroup)   the user
# In a mount namespace: what is in its /tmp and /dev/shm, and its mounts, are of these runs alone.
if [ -z "${OWN_MOUNTS:-}" ]; then exec unshare --mount env OWN_MOUNTS=yes bash "$0" "$@"; fi
root=$(cd "$(dirname "$0")/../.." && pwd)
mount -t tmpfs tmpfs /dev/shm && mount -t tmpfs tmpfs /tmp || exit
SCRATCH=$(mktemp -d /tmp/ftld-native.XXXXXX)
. "$root/tests/lib.sh"
: "${MOMENTS:=25}" "${AS:=nobody:nogroup}"
trap 'cd / && rm -rf "$SCRATCH"' EXIT
chmod 755 "$SCRATCH"
install -m 755 "$(command -v ftld)" "$SCRATCH"
common=(env -u XDG_RUNTIME_DIR --default-signal=INT PATH="$SCRATCH:/usr/sbin:/usr/bin:/sbin:/bin" FTLD_INTERRUPTED="$SCRATCH")
# what_is: mounts, devices, processes of the run, files. One line each.
what_is() {
  cat /proc/self/mountinfo
  losetup --noheadings --output NAME,BACK-FILE | grep -F "$SCRATCH"
  find /dev -maxdepth 1 -name 'ublkb*'
  find /sys/block/nbd*/pid 2> /dev/null
  grep -lszF "FTLD_INTERRUPTED=$SCRATCH" /proc/[0-9]*/environ | cut -d / -f 3 | while read -r process; do
    # A process that ends meanwhile has no more command line.
    tr '\0' ' ' < "/proc/$process/cmdline" 2> /dev/null | sed "s/^/process $process: /;s/\$/\n/" | grep .
  done
  find "$SCRATCH/$who/tmp" "$SCRATCH/$who/home" -mindepth 1
  find "$SCRATCH/$who" -mindepth 1 -maxdepth 1 ! -name crash-test.rec ! -name tmp ! -name home ! -name out
  find /dev/shm /tmp -mindepth 1 -maxdepth 1 ! -path "$SCRATCH"
}
# shellcheck disable=SC2317 # called by wait_for
as_before() { [ "$(what_is | sort)" = "$before" ]; }
# shellcheck disable=SC2317 # called by soon
seen() { what_is | grep -q "^process .*crash-test" && what_is | grep -q "^$SCRATCH/$who/tmp/"; }
# begin FS: starts a run of some seconds; sets process, which is a group, too.
begin() {
  rm -f crash-test.rec
  # shellcheck disable=SC2016 # for the inner shells
  setsid "${user[@]}" ftld crash-test --fs "$1" --size 320MiB --at flush --failures 0 --for 3s --check 'sleep 0.1 && test -d "$FTLD_FILES"' \
    -- sh -c 'for number in 1 2 3 4 5 6 7 8; do echo $number > $0/file; sync $0/file; echo ACK $number; read -r answer; sleep 0.1; done' '{}' > out 2>&1 &
  process=$!
}
# shellcheck disable=SC2317 # called by wait_for
over() { ! kill -0 "$process"; }
# shellcheck disable=SC2317 # called by wait_for
has_begun() { grep -q ^ftld "/proc/$process/comm"; }
# after FS SIGNAL TARGET MILLISECONDS: a run that gets the signal so long after its start. Counts it, and what it left.
after() {
  local fs=$1 signal=$2 target=$3 moment=$4 sent code name="$who, $1, SIG$2 to the $3 after $4 ms"
  before=$(what_is | sort)
  begin "$fs"
  # Until then the shell's own ways with signals count.
  wait_for 20 has_begun || bad "$name: it does not begin"
  sleep "$(printf '%d.%03d' $((moment / 1000)) $((moment % 1000)))"
  sent=$(date +%s%3N)
  # The shell says that a process was killed; a run that is over gets no signal.
  exec 3>&2 2> /dev/null
  if [ "$target" = group ]; then kill "-$signal" -- "-$process"; else kill "-$signal" "$process"; fi
  if ! wait_for 60 over; then
    bad "$name: it does not end"
    kill -KILL -- "-$process"
  fi
  wait "$process"
  code=$?
  exec 2>&3
  [ $(($(date +%s%3N) - sent)) -le "$slowest" ] || slowest=$(($(date +%s%3N) - sent))
  codes[code]=$((${codes[code]:-0} + 1))
  runs=$((runs + 1))
  case $signal:$code in
  # 128 + SIGINT or SIGTERM: the program had not yet begun.
  INT:0 | INT:1 | INT:130 | TERM:0 | TERM:1 | TERM:143 | KILL:0 | KILL:137) ;;
  *)
    bad "$name: exit code $code"
    cat out
    ;;
  esac
  if ! wait_for 15 as_before; then
    bad "$name: left, 15 s later"
    what_is | sort | comm -13 <(echo "$before") - | sed 's/^/       /'
    tail -n 5 out | sed 's/^/       output: /'
    left=$((left + 1))
    return
  fi
  # A recording stays once it is explored, and is whole.
  if [ -e crash-test.rec ]; then
    recordings=$((recordings + 1))
    ftld inspect crash-test.rec > /dev/null 2> why || bad "$name: crash-test.rec: $(cat why)"
    rm -f why
    ! grep -q "nothing is explored" out || bad "$name: a recording of what is not explored"
  fi
}
# series FS MOMENTS: Ctrl-C, which a terminal sends to the group, and SIGINT to the program in turns.
series() {
  local fs=$1 moments=$2 began number targets=(group program)
  began=$(date +%s%3N)
  begin "$fs"
  soon "$who, $fs: a run's processes and files are seen" 10 seen
  wait "$process"
  same "$who, $fs, not interrupted: exit code" $? 0
  grep -q ' 0 failed' out || cat out
  local length=$(($(date +%s%3N) - began))
  codes=() runs=0 left=0 recordings=0 slowest=0
  for number in $(seq 0 $((moments - 1))); do
    after "$fs" INT "${targets[number % 2]}" $((length * number / (moments - 1)))
  done
  for number in 1 3; do
    after "$fs" TERM program $((length * number / 4))
    after "$fs" KILL program $((length * number / 4))
  done
  note "$who, $fs: a run takes $length ms; exit codes (times): $(for number in "${!codes[@]}"; do printf '%s (%s) ' "$number" "${codes[number]}"; done)"
  note "$who, $fs: the slowest end took $slowest ms; recordings that stay: $recordings"
  # Some were interrupted in COMMAND, some in the exploration.
  at_least "$who, $fs: interrupted" "${codes[1]:-0}" $((moments / 3))
  at_least "$who, $fs: interrupted in the exploration" "$recordings" $((moments / 6))
  same "$who, $fs: runs of $runs that left something" "$left" 0
}
# of NAME USER:GROUP: the folder, and the environment of runs.
of() {
  who=$1
  install -d -o "${2%:*}" "$SCRATCH/$who" "$SCRATCH/$who/tmp" "$SCRATCH/$who/home"
  cd "$SCRATCH/$who" || exit
  user=(setpriv --reuid "${2%:*}" --regid "${2#*:}" --clear-groups "${common[@]}" HOME="$PWD/home" TMPDIR="$PWD/tmp")
}
of user "$AS"
series ext4 "$MOMENTS"
series xfs $((MOMENTS / 3))
of root root:root
series ext4 "$MOMENTS"
series xfs $((MOMENTS / 3))
finish
