#!/bin/bash
# The kernel of User-Mode Linux on vhost-user:///PATH, as an ordinary user: every FLUSH of its block layer is one of the device, and
# files are there at the next start. The guest's root is the host's (hostfs), so its programs are the host's.
#   FS (ext4)       file system: ext4, xfs, btrfs
#   WRITES (200)    writes of 4 KiB, each with an fsync
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/lib.sh"
: "${FS:=ext4}" "${WRITES:=200}"
user=(setpriv --reuid nobody --regid nogroup --clear-groups env FTLD_STATE_DIR="$SCRATCH/state" FTLD_RUNTIME_DIR="$SCRATCH/run")
trap 'cd / && "${user[@]}" "$SCRATCH/ftld" stop guest > /dev/null 2>&1; rm -rf "$SCRATCH"' EXIT
chmod 755 "$SCRATCH"
cd "$SCRATCH" || exit
for folder in state run mnt uml; do install -d -o nobody "$folder"; done
install -m 755 "$(command -v ftld)" ftld
case $FS in
ext4) mkfs="mkfs.ext4 -q" ;;
*) mkfs="mkfs.$FS -q" ;;
esac

serve=("${user[@]}" ./ftld --detach --name guest --size 512MiB --metrics off "vhost-user://$SCRATCH/uml/vu")
# device: requests that the device has completed, and the sectors that it has written or zeroed: a line "OP NUMBER" each.
device() {
  "${user[@]}" ./ftld status guest --json | /usr/bin/python3 -c 'import json, sys
host = json.load(sys.stdin)["host"]
for op in "flush", "read", "discard": print(op, host[op]["completed"])
print("sectors", (host["write"]["bytes"] + host["write_zeroes"]["bytes"]) // 512)'
}
# guest COMMAND: boots a guest that runs COMMAND; its output, and the counters of its block layer, are in `out`.
guest() {
  cat > init << END
#!/bin/busybox sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
# By its path: without /proc the shell takes an applet for the host's /proc/self/exe.
/bin/mount -t proc proc /proc
mount -t sysfs sysfs /sys
insmod /usr/lib/uml/modules/\$(uname -r)/kernel/drivers/block/virtio_blk.ko
tries=0
until [ -b /dev/vda ] || [ \$tries = 50 ]; do tries=\$((tries + 1)); sleep 0.1; done
{ cd $SCRATCH && $1; } 2>&1
echo "exit \$?"
echo "cache \$(cat /sys/block/vda/queue/write_cache)"
echo "stat \$(cat /sys/block/vda/stat)"
busybox poweroff -f
END
  chmod 755 init
  "${user[@]}" env -u LD_PRELOAD TMPDIR=/dev/shm timeout 120 linux.uml mem=256M quiet umid=guest uml_dir="$SCRATCH/uml/" \
    "virtio_uml.device=$SCRATCH/uml/vu:2" root=/dev/root rootfstype=hostfs rw init="$SCRATCH/init" \
    con0=null,fd:1 con=null ssl=null < /dev/null > out 2> uml.log
  sed -i 's/\r$//' out
  grep -qx 'exit 0' out || { cat out uml.log; bad "the guest"; }
}
# kernel COLUMN: of /sys/block/vda/stat, as the kernel's Documentation/block/stat.rst numbers them.
kernel() { awk -v column="$1" '$1 == "stat" { print $(column + 1) }' out; }

step "served" "${serve[@]}" --record "$SCRATCH/uml/run.rec"
cat > writes.py << 'END'
import os, sys
file = os.open("mnt/file", os.O_WRONLY | os.O_CREAT)
for number in range(int(sys.argv[1])):
    os.pwrite(file, number.to_bytes(4, "little") * 1024, number * 4096)
    os.fsync(file)
END
began=$(now)
guest "$mkfs /dev/vda && mount -t $FS /dev/vda mnt && /usr/bin/python3 writes.py $WRITES && fstrim mnt && umount mnt"
note "$FS, $WRITES fsyncs: $(($(now) - began)) s"
same "cache of the guest's disk" "$(sed -n 's/^cache //p' out)" "write back"
at_least "FLUSHes for $WRITES fsyncs" "$(kernel 16)" "$WRITES"
device > counts
# The kernel counts an empty FLUSH among the writes, too; so sectors are compared.
for column in 16:flush 1:read 12:discard 7:sectors; do
  same "${column#*:}: device as kernel" "$(awk -v op="${column#*:}" '$1 == op { print $2 }' counts)" "$(kernel "${column%:*}")"
done
step "stopped" "${user[@]}" ./ftld stop guest
same "recorded FLUSHes" "$(./ftld inspect uml/run.rec --entries | grep -cw flush)" "$(kernel 16)"
step "served again" "${serve[@]}"
guest "mount -t $FS /dev/vda mnt && sha256sum < mnt/file && umount mnt"
wanted=$(cd mnt && /usr/bin/python3 -c 'import sys
for number in range(int(sys.argv[1])): sys.stdout.buffer.write(number.to_bytes(4, "little") * 1024)' "$WRITES" | sha256sum)
same "content after a restart" "$(grep ' -$' out)" "$wanted"
step "stopped again" "${user[@]}" ./ftld stop guest
finish
