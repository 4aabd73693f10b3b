#!/bin/bash
# The lesson of docs/CRASH_TESTING.md as printed, as an ordinary user: a program that forgets an fsync is found out, the careful one is
# not. Then a shipped check: ext4 with and without barriers.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/lib.sh"
. "$root/tests/page.sh"
export FTLD_STATE_DIR=$SCRATCH/state FTLD_RUNTIME_DIR=$SCRATCH/run FTLD_METRICS=off
page=$root/docs/CRASH_TESTING.md

# shellcheck disable=SC2317 # called by the trap
clean_up() {
  umount -l "$SCRATCH/mnt" 2> /dev/null
  fusermount3 -uz "$SCRATCH/fuse" 2> /dev/null
  ftld stop --force ledger > /dev/null 2>&1
  cd / && rm -rf "$SCRATCH"
}
trap clean_up EXIT
# shellcheck disable=SC2317 # called by page_play
typed() {
  local line=${1//\/usr\/share\/doc\/ftld\/examples/$root/docs/examples}
  echo "${line//python3 //usr/bin/python3 }"
}
cd "$SCRATCH" || exit
if [ "${1:-}" = without_root ]; then
  page_play lesson 4 12 "$page" "## A lesson"
  finish
fi

# record OPTION NAME COMMAND...: runs the command on ext4, mounted with this option, on a device that records to NAME.rec.
record() {
  local option=$1 name=$2
  shift 2
  mkdir -p fuse mnt
  ftld --detach --name ledger --image "$name.ftld" --size 64MiB --record "$name.rec" 'nbd+unix:///?socket=ext4.sock' > /dev/null 2>&1
  nbdfuse fuse/disk 'nbd+unix:///?socket=ext4.sock' &
  soon "$name: a file of the device" 5 test -e fuse/disk
  step "$name: mkfs" mkfs.ext4 -q fuse/disk
  step "$name: mount" mount -o "loop,$option" fuse/disk mnt
  step "$name: sync" sync -f mnt
  step "$name: mark" ftld mark 0
  if "$@" > "$SCRATCH/load.log" 2>&1; then ok "$name: the load"; else bad "$name: the load"; cat "$SCRATCH/load.log"; fi
  step "$name: umount" umount mnt
  soon "$name: the file of the device goes" 10 fusermount3 -u fuse
  wait
  step "$name: stop" ftld stop ledger
}
# counts NAME WANTED: replaces 20 files and counts them in a synced one; a mark per file.
# shellcheck disable=SC2317 # called by record
counts() {
  local i
  for i in $(seq 20); do
    head -c $((i % 4 * 5000 + 1)) /dev/urandom > mnt/new && sync mnt/new && mv mnt/new "mnt/file$((i % 3))" &&
      echo "$i" > mnt/count.new && sync mnt/count.new && mv mnt/count.new mnt/count && sync mnt && ftld mark "$i" > /dev/null || return
  done
}
# explores NAME EXIT CHECK...: the exit code of an exploration, its counts, its time.
explores() {
  local name=$1 wanted=$2 rc=0 begin
  shift 2
  begin=$(now)
  ftld crashes "$name.rec" --states "${STATES:-4}" --check "$*" --junit "$name.xml" > "$name.out" 2>&1 || rc=$?
  same "$name: exit code of ftld crashes" "$rc" "$wanted"
  note "$name: $(sed -n 's/ states, /&/p' "$name.out" | head -n 1), $(($(now) - begin)) s"
  at_least "$name: seconds below a minute" $((60 - $(now) + begin)) 0
  [ "$rc" = "$wanted" ] || cat "$name.out"
}
checks=$root/deploy/checks
record barrier=0 without_barriers counts
explores without_barriers 1 "$checks/ext4.sh /count"
step "without_barriers: the report names a case" grep -q -- '--case cache/' without_barriers.out
record barrier=1 with_barriers counts
explores with_barriers 0 "$checks/ext4.sh /count"

# The program and the page where any user can read them.
chmod 755 "$SCRATCH"
mkdir -p "$SCRATCH/tree/tests/native" "$SCRATCH/tree/docs/examples" "$SCRATCH/bin"
cp "$root/tests/lib.sh" "$root/tests/page.sh" "$SCRATCH/tree/tests"
cp "$root/tests/native/$SUITE.sh" "$SCRATCH/tree/tests/native"
cp "$page" "$SCRATCH/tree/docs"
cp "$root/docs/examples/ledger.py" "$SCRATCH/tree/docs/examples"
cp "$(command -v ftld)" "$SCRATCH/bin"
PATH=$SCRATCH/bin:$PATH TMPDIR=/tmp setpriv --reuid 65534 --regid 65534 --clear-groups \
  bash "$SCRATCH/tree/tests/native/$SUITE.sh" without_root || bad "the lesson without root"
finish
