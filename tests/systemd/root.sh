#!/bin/bash
# Makes the disk of a small Debian with systemd under target/guest/ and prints its path; one that is already there is kept. Takes
# root, and a minute the first time. The kernel's modules are those of tests/guest/kernel.sh.
# usage: root.sh
#   DEBIAN (bookworm)   release of Debian, as in tests/guest/kernel.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
packages=systemd,systemd-sysv,udev,dbus,kmod,e2fsprogs,libgcc-s1,libnbd-bin

kernel=$(tests/guest/kernel.sh)
disk=$PWD/target/guest/systemd-${DEBIAN:-bookworm}-$(cat "$0" <(basename "$kernel") | md5sum | cut -c1-12).img
[ ! -e "$disk" ] || { echo "$disk"; exit; }
[ "$(id -u)" = 0 ] || { echo "root.sh: making a root file system takes root" >&2; exit 1; }
rm -f target/guest/systemd-"${DEBIAN:-bookworm}"-*.img
part=$(mktemp -d target/guest/systemd.XXXXXX)
trap 'rm -rf "$part"' EXIT
root=$part/root
# A mirror may be a snapshot whose lists have expired; their signatures are checked all the same.
mmdebstrap --quiet --variant=minbase --skip=check/empty --dpkgopt=force-unsafe-io --include="$packages" \
  --aptopt="Acquire::Check-Valid-Until \"false\"" "${DEBIAN:-bookworm}" "$root" >&2

release=$(grep -aom1 'vermagic=[^ ]*' "$kernel/modules/ublk_drv.ko" | cut -d= -f2)
install -D -m 644 -t "$root/usr/lib/modules/$release/extra" "$kernel"/modules/*.ko
# Complains that the kernel's own lists are not there: nothing here is built in.
chroot "$root" depmod "$release" 2> /dev/null

rm -rf "$root"/var/cache/apt "$root"/var/lib/apt/lists "$root"/usr/share/{doc,man,locale}
mkdir -p "$root"/var/log/journal "$root"/mnt/flash
echo 0123456789abcdef0123456789abcdef > "$root/etc/machine-id"
echo guest > "$root/etc/hostname"
# The console belongs to the suite; nothing else shall start by itself.
for unit in serial-getty@ttyS0.service apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
  fstrim.timer systemd-timesyncd.service e2scrub_reap.service; do
  ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
mke2fs -q -t ext4 -L root -d "$root" "$part/disk" 1G >&2
mv "$part/disk" "$disk"
echo "$disk"
