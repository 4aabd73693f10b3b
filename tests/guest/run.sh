#!/bin/bash
# Boots the just-built binary in a virtual machine and runs guest scripts there; the host needs neither ublk nor KVM.
# usage: run.sh SCRIPT...      names of scripts in this folder, without .sh
#   FIO_SECONDS (5)  KILLS (3)  SCHEMES (all)  what the scripts do
#   GUEST_TIMEOUT (900)  seconds until the machine is taken for hung
#   GUEST_ACCEL (tcg,thread=single)  GUEST_CPUS (2)
# Prints the scripts' own lines and a summary; fails unless every step of every script succeeded.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ $# -gt 0 ] || { echo "usage: tests/guest/run.sh SCRIPT..." >&2; exit 2; }
here=tests/guest
work=$PWD/target/guest
kernel=$("$here/kernel.sh")
run=$(mktemp -d "$work/run.XXXXXX")
trap 'rm -rf "$run"' EXIT

tools=(/bin/busybox "$(command -v fio)" "$(command -v mke2fs)" "$(command -v e2fsck)" "$(command -v nbd-client)")
base=$work/base-$(md5sum "${tools[@]}" "$kernel"/modules/*.ko "$here/mkroot.sh" | md5sum | cut -c1-12).cpio.gz
[ -e "$base" ] || "$here/mkroot.sh" "$base" "${tools[@]}" "$kernel"/modules/*.ko

cargo build --release -q -p ftld --bins --examples
for program in ftld examples/ublk_file; do
  objcopy --strip-debug "target/release/$program" "$run/${program##*/}"
done
cat > "$run/suite" <<X
SCRIPTS="$*"
FIO_SECONDS=${FIO_SECONDS:-5}
KILLS=${KILLS:-3}
SCHEMES="${SCHEMES:-all}"
export FIO_SECONDS KILLS SCHEMES
X
"$here/mkroot.sh" "$run/own.cpio.gz" "$run/ftld" "$run/ublk_file" "$run/suite" "$here"/*.sh "$here/init"
# /init has to lie at the top.
(cd "$run" && mkdir top && cp "$OLDPWD/$here/init" top/init && cd top && echo init | cpio -o -H newc --quiet -R 0:0 | gzip -1) > "$run/init.cpio.gz"
cat "$base" "$run/own.cpio.gz" "$run/init.cpio.gz" > "$run/initrd"
truncate -s 8G "$run/disk"
mke2fs -q -F -t ext4 -E lazy_itable_init=1,nodiscard "$run/disk"

log=$work/last.log
timeout "${GUEST_TIMEOUT:-900}" qemu-system-x86_64 -accel "${GUEST_ACCEL:-tcg,thread=single}" -cpu max -smp "${GUEST_CPUS:-2}" -m 1536 \
  -nographic -no-reboot -nic none -kernel "$kernel/vmlinuz" -initrd "$run/initrd" \
  -drive "file=$run/disk,if=virtio,format=raw,discard=unmap,cache=writeback" \
  -append "console=ttyS0 quiet panic=-1" < /dev/null 2>&1 | tr -d '\r' | tee "$log" | grep --line-buffered -a -v '^\s*$' || true

passed=$(grep -ac '^ok ' "$log" || true) failed=$(grep -ac '^FAIL ' "$log" || true)
scripts=$(grep -ac '^rc [a-z_0-9]* 0$' "$log" || true)
if grep -aqx GUEST-OK "$log" && [ "$failed" = 0 ] && [ "$scripts" = $# ] && [ "$passed" -gt 0 ]; then
  echo "guest result: ok. $passed steps passed; 0 failed; $scripts of $# scripts"
else
  echo "guest result: FAILED. $passed steps passed; $failed failed; $scripts of $# scripts ended well; log in $log"
  exit 1
fi
