#!/bin/bash
# Boots the just-built binary in virtual machines and runs guest scripts there, each script in a machine of its own; the host
# needs neither ublk nor KVM.
# usage: run.sh all | SCRIPT...      names of guest scripts, without .sh
#   BUILT            folder with the programs; without it they are built, as a release
#   FIO_SECONDS (5)  KILLS (3)  SCHEMES (lazyftl pagemap; or all)  what the scripts do
#   STACKED (few)     what mounts stacks on a device; or all
#   NBD_CLIENT (yes)  whether nbd_kernel also connects nbd-client
#   FAULTS (3)        faults for each kind of journal in sqlite
#   CRASHES (1)       how often host_crash_ext4 has its machine killed
#   BENCH_ROUNDS (5)  BENCH_MIB (64)  BENCH_REQUESTS (4000)  rounds, size and requests of
#                     ublk_bench, which `all` leaves out
#   SWAP_MIB (80)     size of what ublk_transport has swapped out
#   SIZE              of the device; without it each script's own, small one
#   FIO_MIB (32)      how much fio writes before it reads it back
#   GUEST_TIMEOUT (1200)  seconds until a machine is taken for hung
#   GUEST_JOBS (2)        machines at a time
#   GUEST_ACCEL (tcg,thread=single)   with several threads, QEMU before 8.1 now and then loses a change that the kernel
#                                     makes to its own code, and the guest dies booting
# Prints the scripts' own lines and a summary; fails unless every step of every script succeeded.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts=("$@")
[ "$*" != all ] || scripts=(readme ublk_transport nbd_transport ublk_ext4 ublk_kill ublk_latency nbd_kernel mounts power_cut write_through host_crash_ext4 sqlite crash_lesson)
[ ${#scripts[@]} -gt 0 ] || { echo "usage: tests/guest/run.sh all | SCRIPT..." >&2; exit 2; }
here=tests/guest
. tests/lib.sh
work=$PWD/target/guest
kernel=$("$here/kernel.sh")
run=$(mktemp -d "$work/run.XXXXXX")
trap 'rm -rf "$run"' EXIT

cpio_here() { cpio -o -H newc --quiet -R 0:0 | gzip -1; }

# The tools, their libraries and the modules seldom change: they are packed once.
tools=(/bin/busybox "$(command -v fio)" "$(command -v mke2fs)" "$(command -v e2fsck)" "$(command -v nbd-client)" "$(command -v sqlite3)"
  "$(command -v strace)")
modules=("$kernel"/modules/{ublk_drv,nbd,virtio_blk}.ko)
# pack NAME FILE...: prints the archive NAME with these files, which it makes if they are new.
pack() {
  local archive
  archive=$work/$1-$(cat "${@:2}" "$here/mkroot.sh" | md5sum | cut -c1-12).cpio.gz
  [ -e "$archive" ] || "$here/mkroot.sh" "$archive" "${@:2}"
  echo "$archive"
}
base=$(pack base "${tools[@]}" "${modules[@]}")

# For the script that stacks drivers on a device: their modules and tools.
stacks=/dev/null
pack_stacks() {
  local module modules stacked=()
  read -ra modules < "$kernel/stacked"
  for module in "${modules[@]}"; do
    module=$kernel/modules/${module##*/}.ko
    [ ! -e "$module" ] || stacked+=("$module")
  done
  stacks=$(pack stacks "$(command -v lvm)" "$(command -v mdadm)" "$(command -v cryptsetup)" "${stacked[@]}")
}
[[ " ${scripts[*]} " != *" mounts "* ]] || pack_stacks

# Python with the modules that ledger.py needs, for the script that runs it.
python=$work/python-$(md5sum /usr/bin/python3 | cut -c1-12).cpio.gz
pack_python() {
  local library
  library=$(/usr/bin/python3 -c 'import os; print(os.path.dirname(os.__file__))')
  "$here/mkroot.sh" "$run/python" python3=/usr/bin/python3
  library=${library#/}
  (cd / && { echo "${library%/*/*}" "${library%/*}" | tr ' ' '\n'
    find "$library" -maxdepth 1 \( -type d -path "$library" -o -name '*.py' \)
    find "$library"/{encodings,collections,importlib,re} -type d -o -name '*.py'; } | cpio -o -H newc --quiet -R 0:0 | gzip -1) |
    cat "$run/python" - > "$python.part"
  mv "$python.part" "$python"
}
[ -e "$python" ] || pack_python

# rublk, with which ublk_bench compares ftld.
pack_rublk() {
  [ -x target/tools/bin/rublk ] || { echo "run.sh: there is no target/tools/bin/rublk: make target/tools/bin/rublk" >&2; exit 2; }
  "$here/mkroot.sh" "$run/rublk.cpio.gz" target/tools/bin/rublk
}
[[ " ${scripts[*]} " != *" ublk_bench "* ]] || pack_rublk

built=$(tests/built.sh)
for program in ftld fsync_markers examples/plain_file; do
  objcopy --strip-debug "$built/$program" "$run/${program##*/}"
done
"$here/mkroot.sh" "$run/own.cpio.gz" "$run/ftld" "$run/plain_file" "$run/fsync_markers" tests/lib.sh README.md docs/examples/ledger.py "$here"/*.sh
install -D -m 755 "$here/init" "$run/top/init"
(cd "$run/top" && echo init | cpio_here) > "$run/top.cpio.gz"

# machine SCRIPT LOG DISK: one life of a machine. A line `guest: pull the plug` has it killed outright a moment later, and marked as such.
# On a busy host the emulated timer is late; Linux would take it for broken without no_timer_check.
machine() {
  { timeout "${GUEST_TIMEOUT:-1200}" qemu-system-x86_64 -accel "${GUEST_ACCEL:-tcg,thread=single}" -cpu max -smp 2 -m 1536 \
    -nographic -no-reboot -nic none -kernel "$kernel/vmlinuz" -initrd "$run/$1.initrd" -pidfile "$run/$1.pid" \
    -drive "file=$3,if=virtio,format=raw,discard=unmap,cache=writeback" -drive "file=$3.raw,if=virtio,format=raw,cache=writeback" \
    -append "console=ttyS0 quiet panic=-1 oops=panic no_timer_check hung_task_timeout_secs=30" < /dev/null 2>&1; } 2> /dev/null |
    sed -u 's,\r,,g' | tee -a "$2" | grep --line-buffered -a "^\(ok  \|FAIL\|    \|guest:\|rc \)" |
    while IFS= read -r line; do
      echo "$line"
      [ "$line" != "guest: pull the plug" ] || (
        sleep $((RANDOM % 5 + 1)).$((RANDOM % 10))
        touch "$run/$1.killed"
        kill -9 "$(cat "$run/$1.pid")"
      )
    done || true
}

# lives SCRIPT LOG DISK: a machine on new disks, booted again after each pulled plug.
lives() {
  rm -f "$3"
  truncate -s 8G "$3"
  mke2fs -q -F -t ext4 -E lazy_itable_init=1,nodiscard "$3"
  truncate -s 64M "$3.raw"
  : > "$2"
  machine "$@"
  while [ -e "$run/$1.killed" ]; do
    rm "$run/$1.killed"
    machine "$@"
  done
}

# emulation_fault LOG: whether an exception in the guest's kernel ended the machine with no step failed, and no call trace has ublk, NBD or
# io_uring in it. Neither is ours: QEMU's emulation of the processor does so once in some hundreds of machines.
emulation_fault() {
  grep -aq 'Kernel panic - not syncing: Fatal exception' "$1" && ! grep -aq '^FAIL' "$1" &&
    ! awk '/Call Trace:/,/<\/TASK>/ { if (/ublk|nbd|io_u?ring/) found = 1 } END { exit !found }' "$1"
}

# boot SCRIPT: runs one script, leaves its output in the log and on the terminal.
boot() {
  local script=$1 disk=$run/$1.disk log=$work/$1.log more=/dev/null began
  [ "$script" != crash_lesson ] || more=$python
  [ "$script" != ublk_bench ] || more=$run/rublk.cpio.gz
  [ "$script" != mounts ] || more=$stacks
  mkdir -p "$run/$script/bin"
  cat > "$run/$script/bin/suite" <<X
SCRIPT=$script
export FIO_SECONDS=${FIO_SECONDS:-5} KILLS=${KILLS:-3} SCHEMES="${SCHEMES:-lazyftl pagemap}" STACKED=${STACKED:-few} CRASHES=${CRASHES:-1} FAULTS=${FAULTS:-3} SIZE=${SIZE:-} FIO_MIB=${FIO_MIB:-32} SWAP_MIB=${SWAP_MIB:-80} NBD_CLIENT=${NBD_CLIENT:-yes}
export BENCH_ROUNDS=${BENCH_ROUNDS:-5} BENCH_MIB=${BENCH_MIB:-64} BENCH_REQUESTS=${BENCH_REQUESTS:-4000}
X
  (cd "$run/$script" && echo bin/suite | cpio_here) | cat "$base" "$more" "$run/own.cpio.gz" "$run/top.cpio.gz" - > "$run/$script.initrd"
  began=$(now)
  lives "$script" "$log" "$disk"
  if emulation_fault "$log"; then
    mv "$log" "$log.crash"
    echo "     $script: the guest's kernel crashed outside the block drivers ($log.crash); once more, on new disks"
    grep -aE -A 30 -m 1 '^\[[ 0-9.]+\] (BUG|Oops|kernel BUG|general protection|-+\[ cut here)' "$log.crash" || tail -n 40 "$log.crash"
    lives "$script" "$log" "$disk"
  fi
  rm -f "$disk" "$disk.raw" "$run/$script.initrd"
  echo "     $script: $(($(now) - began)) s"
  if ! grep -aqx GUEST-OK "$log" || ! log_passes "$log"; then
    echo "FAIL $script: the guest's last lines, from $log:"
    tail -n 40 "$log"
    return 1
  fi
}

for script in "${scripts[@]}"; do
  [ -e "$here/$script.sh" ] || { echo "run.sh: there is no $here/$script.sh" >&2; exit 2; }
  while [ "$(jobs -rp | wc -l)" -ge "${GUEST_JOBS:-2}" ]; do wait -n || true; done
  (boot "$script" && touch "$run/$script.passed") &
done
wait
failed=0
for script in "${scripts[@]}"; do [ -e "$run/$script.passed" ] || failed=$((failed + 1)); done
passed=0
for script in "${scripts[@]}"; do passed=$((passed + $(grep -ac '^ok ' "$work/$script.log" || true))); done
result="$passed steps passed; ${#scripts[@]} scripts, $failed failed"
if [ $failed = 0 ]; then echo "guest result: ok. $result"; else echo "guest result: FAILED. $result"; exit 1; fi
