#!/bin/bash
# Boots a Debian with systemd in a virtual machine with the .deb of the just-built program: a fresh one for newcomer.sh, and one
# for systemd.sh, over two boots. systemd.sh begins with a package of version 0.1.0, which it upgrades.
# usage: run.sh [CASE...]      cases of systemd.sh; all if none is given
#   DEBIAN (bookworm)     release of Debian: trixie, testing
#   BUILT                 folder with the programs; without it they are built, as a release
#   GUEST_TIMEOUT (600)   seconds until a machine is taken for hung
#   GUEST_ACCEL (tcg,thread=single)   see tests/guest/run.sh
# Prints the guest's own lines and a summary; fails unless every step succeeded.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tests/systemd
. tests/lib.sh
mkdir -p target/guest
run=$(mktemp -d "$PWD/target/guest/run.XXXXXX")
debian=${DEBIAN:-bookworm}
[ "$debian" != bookworm ] || unset DEBIAN # its kernel is one that this machine's apt knows
log=$PWD/target/guest/systemd-$debian.log
server=
trap '[ -z "$server" ] || kill "$server" 2> /dev/null || true; rm -rf "$run"' EXIT
built=$(tests/built.sh)
kernel=$(tests/guest/kernel.sh)
root=$("$here/root.sh")
seconds() { cut -d' ' -f1 /proc/uptime; }
since() { awk -v began="$1" '{ printf "%.1f s", $1 - began }' /proc/uptime; }

export BUILT=$built FAST=1
OUT=$run/package deploy/packages.sh deb > "$run/package.log" 2>&1 || { cat "$run/package.log"; exit 1; }
VERSION=0.1.0 OUT=$run/old deploy/packages.sh deb > "$run/package.log" 2>&1 || { cat "$run/package.log"; exit 1; }

# machine SUITE CASES: a fresh machine that runs SUITE.sh; what is tested goes into the initial RAM disk, to be installed by the first boot.
machine() {
  local overlay=$run/$1/overlay
  install -D -m 644 -t "$overlay/root" "$run/package/ftld.deb" docs/OPERATING.md "$here/$1.sh" "$here/install.sh" tests/lib.sh
  install -D -m 644 "$run/old/ftld.deb" "$overlay/root/old.deb"
  echo "SUITE=$1 CASES=\"$2\"" > "$overlay/root/settings"
  install -m 755 "$here/init" "$run/$1/init"
  install -D -m 755 /bin/busybox "$run/$1/bin/busybox"
  install -m 644 "$kernel/modules/virtio_blk.ko" "$run/$1"
  (cd "$run/$1" && find . | cpio -o -H newc --quiet -R 0:0 | gzip -1) > "$run/$1.initrd"
  qemu-img create -q -f qcow2 -F raw -b "$root" "$run/$1.qcow2"
}

# boot SUITE WHICH [DISK]: one life of its machine.
boot() {
  local began
  began=$(seconds)
  { timeout "${GUEST_TIMEOUT:-600}" qemu-system-x86_64 -accel "${GUEST_ACCEL:-tcg,thread=single}" -cpu max -smp 2 -m 1024 \
    -nographic -no-reboot -nic none -kernel "$kernel/vmlinuz" -initrd "$run/$1.initrd" \
    -drive "file=$run/$1.qcow2,if=virtio,format=qcow2,cache=unsafe" \
    ${3:+-drive "file=$3,if=virtio,format=raw,cache=unsafe"} \
    -append "console=ttyS0 quiet panic=-1 no_timer_check systemd.show_status=0 hung_task_timeout_secs=30" < /dev/null 2>&1 || echo "guest: QEMU ended with $?"; } |
    sed -u 's,\r,,g' | tee -a "$log" | grep --line-buffered -a "^\(ok  \|FAIL\|    \|guest:\)" || true
  echo "     $1: the $2 boot, from start to power off: $(since "$began")"
}

# Images are on a disk of their own, with a file system already on the device: the first boot mounts it through fstab.
mkdir "$run/images"
"$built/ftld" --metrics off --size 64MiB --image "$run/images/ublkb0.ftld" "nbd+unix:///?socket=$run/nbd.sock" > "$run/ready" 2> "$run/ftld.log" &
server=$!
for _ in $(seq 300); do ! grep -q '^ready' "$run/ready" || break; sleep 0.1; done
mke2fs -q -t ext4 -U 5f3a7c1e-0d7b-4b52-9b53-6a1d8a3f2c10 "$run/ext4" 64M
nbdcopy "$run/ext4" "nbd+unix:///?socket=$run/nbd.sock"
kill "$server" && wait "$server"
server=
mke2fs -q -t ext4 -L images -d "$run/images" "$run/images.disk" 2G

: > "$log"
machine newcomer ""
machine systemd "$*"
boot newcomer only &
boot systemd first "$run/images.disk"
boot systemd second "$run/images.disk"
wait
passed=$(grep -ac '^ok ' "$log" || true)
if [ "$(grep -acx BOOT-OK "$log")" = 3 ] && log_passes "$log"; then
  echo "systemd result: ok. $debian, $passed steps passed"
else
  echo "FAIL systemd: the guest's last lines, from $log:"
  tail -n 40 "$log"
  echo "systemd result: FAILED. $debian, $passed steps passed"
  exit 1
fi
