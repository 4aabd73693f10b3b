#!/bin/bash
# Boots a Debian with systemd in a virtual machine with the .deb of the just-built program, and runs systemd.sh there, over two
# boots.
# usage: run.sh [CASE...]      cases of systemd.sh; all if none is given
#   BUILT                 folder with the programs; without it they are built, as a release
#   GUEST_TIMEOUT (600)   seconds until a machine is taken for hung
#   GUEST_ACCEL (tcg,thread=single)   see tests/guest/run.sh
# Prints the guest's own lines and a summary; fails unless every step succeeded.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tests/systemd
kernel=$(tests/guest/kernel.sh)
root=$("$here/root.sh")
run=$(mktemp -d "$PWD/target/guest/run.XXXXXX")
log=$PWD/target/guest/systemd.log
server=
trap '[ -z "$server" ] || kill "$server" 2> /dev/null || true; rm -rf "$run"' EXIT
built=$(tests/built.sh)
seconds() { cut -d' ' -f1 /proc/uptime; }
since() { awk -v began="$1" '{ printf "%.1f s", $1 - began }' /proc/uptime; }

# What is tested goes into the initial RAM disk, to be installed by the first boot.
overlay=$run/initrd/overlay
FAST=1 deploy/packages.sh deb > "$run/package.log" 2>&1 || { cat "$run/package.log"; exit 1; }
install -D -m 644 -t "$overlay/root" target/package/ftld.deb "$here/systemd.sh" "$here/install.sh" tests/lib.sh
echo "CASES=\"$*\"" > "$overlay/root/settings"
install -m 755 "$here/init" "$run/initrd/init"
install -D -m 755 /bin/busybox "$run/initrd/bin/busybox"
install -m 644 "$kernel/modules/virtio_blk.ko" "$run/initrd"
(cd "$run/initrd" && find . | cpio -o -H newc --quiet -R 0:0 | gzip -1) > "$run/initrd.gz"

# Images lie on a disk of their own, with a file system already on the device: the first boot mounts it through fstab.
mkdir "$run/images"
"$built/ftld" --metrics off --size 64MiB --image "$run/images/ublkb0.ftld" "nbd+unix:///?socket=$run/nbd.sock" > "$run/ready" 2> "$run/ftld.log" &
server=$!
for _ in $(seq 300); do ! grep -q '^ready' "$run/ready" || break; sleep 0.1; done
mke2fs -q -t ext4 -U 5f3a7c1e-0d7b-4b52-9b53-6a1d8a3f2c10 "$run/ext4" 64M
nbdcopy "$run/ext4" "nbd+unix:///?socket=$run/nbd.sock"
kill "$server" && wait "$server"
server=
mke2fs -q -t ext4 -L images -d "$run/images" "$run/images.disk" 2G
qemu-img create -q -f qcow2 -F raw -b "$root" "$run/root.qcow2"

: > "$log"
for boot in first second; do
  began=$(seconds)
  { timeout "${GUEST_TIMEOUT:-600}" qemu-system-x86_64 -accel "${GUEST_ACCEL:-tcg,thread=single}" -cpu max -smp 2 -m 1024 \
    -nographic -no-reboot -nic none -kernel "$kernel/vmlinuz" -initrd "$run/initrd.gz" \
    -drive "file=$run/root.qcow2,if=virtio,format=qcow2,cache=unsafe" \
    -drive "file=$run/images.disk,if=virtio,format=raw,cache=unsafe" \
    -append "console=ttyS0 quiet panic=-1 systemd.show_status=0 hung_task_timeout_secs=30" < /dev/null 2>&1 || echo "guest: QEMU ended with $?"; } |
    sed -u 's,\r,,g' | tee -a "$log" | grep --line-buffered -a "^\(ok  \|FAIL\|    \|guest:\)" || true
  echo "     systemd: the $boot boot, from start to power off: $(since "$began")"
done
passed=$(grep -ac '^ok ' "$log" || true)
if [ "$(grep -acx BOOT-OK "$log")" = 2 ] && ! grep -aq '^FAIL ' "$log"; then
  echo "systemd result: ok. $passed steps passed"
else
  echo "FAIL systemd: the guest's last lines, from $log:"
  tail -n 40 "$log"
  echo "systemd result: FAILED. $passed steps passed"
  exit 1
fi
