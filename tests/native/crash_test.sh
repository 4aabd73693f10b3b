#!/bin/bash
# `ftld crash-test` as an ordinary user: the commands of docs/CRASH_TESTING.md in User-Mode Linux, file systems whose states are mounted
# there, a raw device over NBD, messages before anything is made, and endings that leave nothing. As root, a file system on this kernel.
# Then the pytest fixture's own tests.
#   FILE_SYSTEMS (xfs btrfs f2fs)   those that are mounted
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/lib.sh"
. "$root/tests/page.sh"
trap 'cd / && rm -rf "$SCRATCH"' EXIT
chmod 755 "$SCRATCH"
install -m 755 "$(command -v ftld)" "$root/docs/examples/ledger.py" "$root/docs/examples/orders.py" "$SCRATCH"
install -d -o nobody "$SCRATCH/user" "$SCRATCH/user/tmp"
cd "$SCRATCH/user" || exit
user=(setpriv --reuid nobody --regid nogroup --clear-groups env -u XDG_RUNTIME_DIR HOME="$PWD" TMPDIR="$PWD/tmp" PATH="$SCRATCH:/usr/bin:/bin")
# exits NAME CODE OPTION...
exits() {
  local name=$1 wanted=$2
  shift 2
  "${user[@]}" ftld crash-test "$@" > out 2>&1
  same "$name: exit code" $? "$wanted"
}
# shows NAME TEXT: in what the last run printed.
shows() { if grep -qF -- "$2" out; then ok "$1"; else bad "$1: no '$2'"; cat out; fi; }
# left: what runs left on this host, but for the folder of a demo that a script beside this one serves: it has a socket.
left() {
  pgrep -u nobody -x linux.uml
  pgrep -u nobody -f "$SCRATCH"
  find "$PWD/tmp" /dev/shm -mindepth 1 -user nobody | while read -r path; do
    [ -S "/dev/shm/$(cut -d/ -f4 <<< "$path")/socket" ] || echo "$path"
  done
  grep -F "$SCRATCH" /proc/self/mountinfo
}
# shellcheck disable=SC2317 # called by soon
nothing() { [ -z "$(left)" ]; }
untouched() { soon "$1: nothing is left" 10 nothing || left; }

# The page, typed by an ordinary user.
# shellcheck disable=SC2317 # called by page_play
typed() {
  local line=${1/\/usr\/share\/doc\/ftld\/examples/$SCRATCH}
  printf '%q ' "${user[@]}" sh -c "${line//python3 //usr/bin/python3 }"
}
page_play page 3 8 "$root/docs/CRASH_TESTING.md" "## One command"
untouched page

# shellcheck disable=SC2016 # for the shell of the check
check='/usr/bin/python3 ../ledger.py check $FTLD_IMAGE'
run=(/usr/bin/python3 ../ledger.py run '{}' 10)
exits careful 0 --fs none --size 64MiB --check "$check" --junit careful.xml -- "${run[@]}"
step "careful: JUnit" grep -F 'failures="0"' careful.xml
shows "careful: FLUSHes" "20 FLUSHes by the kernel's count and the device's"
shows "careful: marks" "10 marks"
exits "a load that fails" 1 --fs none --machine nbd --check true -- sh -c 'exit 7' '{}'
shows "a load that fails: its exit code" "COMMAND ended with exit code 7, so nothing is explored; its recording is crash-test.rec"
# shellcheck disable=SC2016 # for the inner shell
exits "what is left" 0 --fs none --machine nbd --check true -- sh -c 'setsid sleep 1000 & exec /usr/bin/python3 -c "$1" "$2"' sh \
  'import nbd, sys; disk = nbd.NBD(); disk.connect_uri(sys.argv[1]); disk.pwrite(bytes(512), 0)' '{}'
shows "what is left: ended" "COMMAND left 1 running process: ended"
shows "what is left: no marks" "no mark: the checks can tell consistency, not durability"
untouched "what is left"

# Two runs in one folder: the second one replaces the recording of the first.
"${user[@]}" ftld crash-test --fs none --machine nbd --check true -- \
  sh -c "echo > $PWD/one; until [ -e $PWD/two ]; do sleep 0.1; done; : {}" > first 2>&1 &
process=$!
soon "two runs: COMMAND runs" 20 test -e one
exits "two runs: the second one" 0 --fs none --machine nbd --check true -- sh -c 'echo ACK 1; read -r ok; : {}'
touch two
wait $process
same "two runs: the first one: exit code" $? 1
step "two runs: the first one: message" grep -F "another program has replaced this recording" first
untouched "two runs"

# What was synced is there at every mark, in each state that a machine mounts; what was not is found missing.
# shellcheck disable=SC2016 # for the inner shells
{
  load='for i in 1 2 3; do echo "content $i" > $0/f$i; $1 $0/f$i $0; echo ACK $i; read -r answer; done'
  check='grep -qx "content $FTLD_MARK" "$FTLD_FILES/f$FTLD_MARK"; rc=$?; echo more > "$FTLD_FILES/more"; exit $rc'
}
for fs in ${FILE_SYSTEMS:-xfs btrfs f2fs}; do
  mounted=(--fs "$fs" --size 320MiB --at mark --check "$check" -- sh -c "$load" '{}')
  exits "$fs, synced" 0 "${mounted[@]}" sync
  shows "$fs, synced: all states" "3 states, 3 different ones checked, 0 failed"
  exits "$fs, not synced" 1 "${mounted[@]}" true
  shows "$fs, not synced: found" "f1: No such file or directory"
  shows "$fs, not synced: the check's own end" "the check: exit code 2"
done
# The line that shows a failed state again, typed.
sed -n '/^show it again:/{n;s/^  //p;}' out > again
same "shown again: a line" "$(grep -c '^ftld crashes ' again)" 1
"${user[@]}" sh again > out 2>&1
same "shown again: exit code" $? 1
shows "shown again" "f1: No such file or directory"
exits "no check" 1 --fs xfs --at mark --check ./missing -- sh -c "$load" '{}' true
shows "no check: as a shell says it" "the check cannot be run (exit code 127)"
# A check that stays up in the machine. `held` keeps a file open on the first state that is asked after the newest one.
# shellcheck disable=SC2016 # for the shell of the check
{
  server='echo started >> starts; while IFS="$(printf "\t")" read -r folder mark; do
    if grep -qx "content $mark" "$folder/f$mark" && [ ! -e "$folder/more" ]; then echo ok; else echo "no content $mark"; fi
    echo more > "$folder/more"; done'
  held='echo started >> starts; while IFS="$(printf "\t")" read -r folder mark; do [ "$mark" = 1 ] && exec 3> "$folder/held"; echo ok; done'
}
# stays FS CODE STARTS CHECK SYNC OPTION...
stays() {
  local fs=$1 code=$2 starts=$3 check=$4 sync=$5
  rm -f starts
  exits "$fs, stays up, $sync" "$code" --fs "$fs" --size 320MiB --at mark --jobs 1 --server --check "$check" -- sh -c "$load" '{}' "$sync"
  same "$fs, stays up, $sync: starts" "$(grep -c started starts)" "$starts"
}
for fs in ${FILE_SYSTEMS:-xfs btrfs f2fs}; do
  stays "$fs" 0 1 "$server" sync
  shows "$fs, stays up: all states" "3 states, 3 different ones checked, 0 failed"
done
stays xfs 1 1 "$server" true
shows "stays up, not synced: its own words" "no content 1"
stays xfs 1 2 "$held" sync
shows "stays up, a file that is kept open" 'the check answered "ok", and still uses the state'
shows "stays up, a file that is kept open: that state alone" "3 different ones checked, 1 failed"
exits "stays up: none" 1 --fs xfs --at mark --server --check true -- sh -c "$load" '{}' true
shows "stays up: none: why" "with --server it reads a line per state"
untouched "mounted states"

# The options of a mount are those of COMMAND and of the states; a check that stays up has them, too.
mounted_with() { # FS OPTION
  # shellcheck disable=SC2016 # for the inner shells
  local at='" /proc/mounts' name="--mount-options $2 on $1" check load
  check="grep -q \"\$FTLD_FILES $1 .*$2$at"
  load="grep -q \"\$0 $1 .*$2$at && : > \$0/file && sync \$0/file && echo ACK 1 && read -r ok"
  exits "$name" 0 --fs "$1" --size 320MiB --at mark --mount-options "$2" --check "$check" -- sh -c "$load" '{}'
  exits "$name, defaults" 1 --fs "$1" --size 320MiB --at mark --mount-options defaults --check true -- sh -c "$load" '{}'
  exits "$name, a check that fails" 1 --fs "$1" --size 320MiB --at mark --mount-options "$2" --check false -- sh -c "$load" '{}'
  shows "$name, shown again" "--fs $1 --mount-options=$2"
}
mounted_with xfs wsync
mounted_with f2fs fsync_mode=strict
# A file that is replaced without fsync, while another one is synced: ext4 writes it back before, unless it is mounted without that.
# shellcheck disable=SC2016 # for the inner shells
{
  load='echo old > $0/file; sync $0/file $0; echo ACK 0; read -r ok
    for i in 1 2 3; do head -c 20000 /dev/urandom > $0/new; mv $0/new $0/file; : > $0/other$i; sync $0/other$i; done'
  check='[ -s "$FTLD_FILES/file" ] || { echo "the file is empty"; exit 1; }'
}
exits "a file that is replaced" 0 --after-mark --check "$check" -- sh -c "$load" '{}'
exits "a file that is replaced, noauto_da_alloc" 1 --after-mark --mount-options noauto_da_alloc --check "$check" -- sh -c "$load" '{}'
shows "a file that is replaced, noauto_da_alloc: why" "the file is empty"
for option in data=journal data=writeback journal_async_commit; do
  # shellcheck disable=SC2016 # for the inner shells
  exits "ext4 with $option" 0 --at mark --mount-options "$option" --check 'grep -qx "content $FTLD_MARK" "$FTLD_FILES/f$FTLD_MARK"' -- \
    sh -c 'grep -q "$0 ext4 .*$1" /proc/mounts && for i in 1 2 3; do echo "content $i" > $0/f$i; sync $0/f$i $0; echo ACK $i; read -r ok; done' '{}' "$option"
done
untouched "options of a mount"

# Pages of 16 KiB without a journal: torn, unless the device keeps them whole.
pages=(--fs none --machine nbd --size 64MiB)
# shellcheck disable=SC2016 # for the shell of the check
check='/usr/bin/python3 -c "import sys; sys.exit(len(set(open(sys.argv[1], \"rb\").read(16384))) > 1)" "$FTLD_IMAGE"'
run=(/usr/bin/python3 -c "import nbd, sys
disk = nbd.NBD()
disk.connect_uri(sys.argv[1])
for i in 1, 2, 3:
    disk.pwrite(bytes([i]) * 16384, 0)
    disk.flush()" '{}')
exits "pages of 16 KiB" 1 "${pages[@]}" --check "$check" -- "${run[@]}"
exits "pages of 16 KiB, --atomic-unit" 0 "${pages[@]}" --atomic-unit 16KiB --check "$check" -- "${run[@]}"

# The recording has the rights of other new files.
same "rights of a recording" "$(stat -c %a crash-test.rec)" "$(printf '%o' $((0666 & ~0$(umask))))"

# A run per seed: a report for each, and a sum that names those that failed.
exits "seeds" 0 --agitate=3..4 --at mark --check true --record seeds.rec -- sh -c "$load" '{}'
shows "seeds: the first" "seed 3"
shows "seeds: the sum" "2 of 2 seeds: "
step "seeds: recordings" ftld inspect seeds.rec
step "seeds: recordings" ftld inspect seeds.rec.2
exits "seeds that fail" 1 --agitate=3..5 --at mark --failures 2 --check false --json --record failing.rec -- sh -c "$load" '{}'
same "seeds that fail: JSON" "$(sed -n '/^{/,/^}/p' out | /usr/bin/python3 -c 'import json, sys
# The failure is a second document.
of, _ = json.JSONDecoder().raw_decode(sys.stdin.read())
print(of["schema"], of["seeds"][0]["agitate"], of["seeds_all"], of["states_failed"])')" "ftld.crashes-of-seeds/1 3 3 2"

# Each verdict is that on its own state and mark, and no state has what the check of another one wrote.
install -d -o nobody states
truncate -s 320M states/good states/bad
printf '/\n0 0\nd--777 0 0\n$\n' > proto
step "states: a file system" /usr/sbin/mkfs.xfs -q -p proto states/good
# shellcheck disable=SC2016 # for the shell of the check
check='test ! -e "$FTLD_FILES/more" && echo more > "$FTLD_FILES/more" && test "$FTLD_MARK" = one && test "$FTLD_CASE" = cache/8'
for state in "good one" "bad one" "good one" "bad one" "good two" "good one"; do
  printf '%s/states/%s\tcache/%s\t%s\n' "$PWD" "${state% *}" "${#state}" "${state#* }"
done > asked
"${user[@]}" FTLD_WORK="$PWD/states" ftld check-states --fs xfs -- "$check" < asked > verdicts
same "states: exit code" $? 0
same "states: verdicts" "$(sed 's/^the mount fails: .*/no mount/' verdicts | paste -sd ,)" "ok,no mount,ok,no mount,exit code 1,ok"
rm -r states

# Messages, before anything is made.
rm -f crash-test.rec
refused() { # NAME TEXT OPTION...
  local name=$1 text=$2
  shift 2
  exits "$name" 2 "$@"
  shows "$name: way out" "$text"
}
refused "no place" "COMMAND without {}" --check true -- sh -c true
refused "no files to agitate" "--agitate: with --fs none there are no files" --agitate --fs none --machine nbd --check true -- true '{}'
refused "options of another file system" "--fs ext4 does not have it, but noauto_da_alloc" --mount-options wsync --check true -- true '{}'
refused "no option" "[possible values: noauto_da_alloc" --mount-options nosuch --check true -- true '{}'
refused "no unit" "need a power of two from 4KiB" --atomic-unit 32KiB --check true -- true '{}'
refused "no seeds" "such as 1..5 for 1 to 5" --agitate=5..1 --check true -- true '{}'
refused "no check" "--check <COMMAND>" -- true '{}'
refused "too small" "--size 64 MiB: xfs needs 300 MiB or more" --fs xfs --size 64MiB --check true -- true '{}'
install -o nobody /dev/null taken
refused "a recording that is there" "no recording overwrites one" --record taken --check true -- true '{}'
refused "a case" "\`ftld crashes crash-test.rec\`" --case cache/1 --check true -- true '{}'
# hidden FILE NAME TEXT: a run on a host that lacks this program.
hidden() {
  # shellcheck disable=SC2016 # for the inner shell
  unshare -m sh -c 'mount --bind /dev/null "$0" && exec "$@"' "$(realpath "$1")" "${user[@]}" \
    ftld crash-test --machine uml --check true -- true '{}' > out 2>&1
  same "without $2: exit code" $? 1
  shows "without $2: its package" "$3"
}
# shellcheck disable=SC2016 # as printed
hidden /usr/sbin/mkfs.ext4 mkfs.ext4 'there is no mkfs.ext4: `apt install e2fsprogs`'
# shellcheck disable=SC2016 # as printed
hidden /usr/bin/linux.uml linux.uml 'there is no linux.uml: `apt install user-mode-linux`, or run as root'
step "refused: no recording" test ! -e crash-test.rec
untouched refused

# begin: a run that would not end, in the machine; waits for COMMAND.
begin() {
  rm -f started
  setsid "${user[@]}" ftld crash-test --check true -- sh -c "echo > $PWD/started; sleep 1000; : {}" > out 2>&1 &
  process=$!
  soon "$1: COMMAND runs" 60 test -e started
}
# ends NAME CODE: how the run that was begun ends.
ends() {
  wait $process
  same "$1: exit code" $? "$2"
  untouched "$1"
  step "$1: no recording" test ! -e crash-test.rec
}
begin interrupted
kill -INT $process
ends interrupted 1
shows "interrupted: message" "interrupted while COMMAND ran"
begin killed
kill -KILL $process
ends killed 137
begin "terminal closed"
kill -HUP -- -$process
ends "terminal closed" 129
begin "machine killed"
pkill -KILL -u nobody -o -x linux.uml
ends "machine killed" 1
shows "machine killed: message" "the machine died"

# As root, on this kernel.
mkdir host
export FTLD_STATE_DIR=$SCRATCH/state TMPDIR=$PWD/host
step "root: ext4 on this kernel, the check of SQLite" ftld crash-test --machine host --size 64MiB --at mark \
  --check "$root/deploy/checks/sqlite.sh /o orders" --record host.rec -- /usr/bin/python3 ../orders.py run '{}/o' 5 extra
step "root: nothing is left" rmdir host
mkdir host
ftld crash-test --machine host --size 64MiB --check true --record host2.rec -- sh -c "echo > $PWD/ran; sleep 1000; : {}" > out 2>&1 &
process=$!
soon "root: COMMAND runs" 60 test -e ran
# The process that does the work.
kill -KILL "$(pgrep -P $process)"
wait $process
same "root, worker killed: exit code" $? 1
# shellcheck disable=SC2317 # called by soon
detached() { ! losetup -l | grep -qF "$SCRATCH"; }
soon "root, worker killed: no loop device is left" 10 detached
step "root, worker killed: its daemon had time to end" ftld inspect host2.rec
step "root, worker killed: nothing is left" rmdir host
unset TMPDIR

log=$SCRATCH/fixture.log
if FTLD_PROGRAM=$SCRATCH/ftld PYTHONPATH=$root/deploy/python /usr/bin/python3 -B -m pytest -q -p no:cacheprovider -p pytest_ftld \
  "$root/deploy/python" > "$log" 2>&1; then ok "fixture: $(tail -n 1 "$log")"
else
  cat "$log"
  bad "fixture"
fi
finish
