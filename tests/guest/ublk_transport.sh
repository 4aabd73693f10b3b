# shellcheck shell=dash
# The ublk transport alone, over a plain file: what the kernel is told, kill -9 under load, stop with and without users.
#   SWAP_MIB (80)   size of the file that has to be swapped out, of which 2/5 may stay in memory
# shellcheck source=tests/lib.sh
. /bin/lib.sh
IMAGE=/var/lib/ftld/plain
SIZE=268435456
# room_in_use: of the plain file, what its file system has allocated.
room_in_use() { sync; stat -c '%b' $IMAGE | awk '{ print $1 * 512 }'; }
QUEUE=/sys/block/ublkb0/queue

# start [FLUSH_MS]: starts the server and waits for its ready line.
start() {
  : > /tmp/server.log # or the line of the last one would do
  plain_file /dev/ublkb0 $IMAGE $SIZE "$@" > /tmp/server.log 2>&1 &
  SERVER=$!
  wait_for 20 grep -q '^ready /dev/ublkb0' /tmp/server.log || { bad "no ready line"; cat /tmp/server.log; finish; }
}
limit() { cat $QUEUE/"$1"; }

start
same "size" "$(cat /sys/block/ublkb0/size)" $((SIZE / 512))
same "logical block" "$(limit logical_block_size)" 512
same "physical block" "$(limit physical_block_size)" 4096
same "write cache" "$(limit write_cache)" "write back"
same "FUA" "$(limit fua)" 1
same "largest discard" "$(limit discard_max_bytes)" 4294966784
same "largest write of zeros" "$(limit write_zeroes_max_bytes)" 4294966784
at_least "memory is locked, KiB" "$(awk '/^VmLck/ { print $2 }' /proc/$SERVER/status)" 16385
differ "mount namespace of its own" "$(readlink /proc/$SERVER/ns/mnt)" "$(readlink /proc/1/ns/mnt)"
step "discard of the whole device" blkdiscard /dev/ublkb0
plain_file /dev/ublkb0 $IMAGE $SIZE > /tmp/second.log 2>&1 && bad "a second server on a live device"
same "a second server names the first" "$(grep -o "served by process $SERVER" /tmp/second.log)" "served by process $SERVER"

fio_verify $((KILLS * 3 + 3)) --filename=/dev/ublkb0 &
FIO=$!
kill=0
while [ $kill -lt "$KILLS" ]; do
  kill=$((kill + 1))
  kill_9 $SERVER ublkb0
  begin=$(cut -d' ' -f1 /proc/uptime)
  start
  note "reattached after $(echo "$(cut -d' ' -f1 /proc/uptime) $begin" | awk '{ print $1 - $2 }') s: $(cat /tmp/server.log)"
done
wait $FIO
same "fio verify across $KILLS kills, exit code" $? 0
same "I/O errors" "$(io_errors ublkb0)" 0

step "mkfs" mkfs.ext4 -q -F /dev/ublkb0
step "mount" mount -t ext4 -o discard /dev/ublkb0 /mnt
dd if=/dev/urandom of=/tmp/data bs=1M count=32 2> /dev/null
cp /tmp/data /mnt/data
plain_file --stop 0 > /tmp/stop.log 2>&1 && bad "stop under a mounted file system"
same "stop names the mount" "$(grep -o 'mounted on /mnt' /tmp/stop.log)" "mounted on /mnt"
note "kill -9 under the file system"
kill -9 $SERVER
wait $SERVER 2> /dev/null
other=$(plain_file /dev/ublkb0 /var/lib/ftld/other $SIZE 2>&1) && bad "another image on a quiesced device"
same "the quiesced device names its image" "$(echo "$other" | grep -o "image $IMAGE")" "image $IMAGE"
start
note "left by a process that ends, while it is written to"
cp /tmp/data /mnt/more &
copy=$!
sleep 0.3
kill -TERM $SERVER
wait $SERVER
same "exit code of leaving" $? 4
start
wait $copy
same "copying across the change, exit code" $? 0
sync
echo 3 > /proc/sys/vm/drop_caches
step "copy across the change" cmp /tmp/data /mnt/more
step "copy after the kill" cmp /tmp/data /mnt/data
trims "ext4" /mnt $((24 << 20)) /mnt/more # of its 32 MiB; the journal takes some
step "umount" umount /mnt
step "file system check" e2fsck -fn /dev/ublkb0
step "stop" plain_file --stop 0
soon "the server ends by itself" 5 ended $SERVER
soon "the device is gone" 5 gone /dev/ublkb0

note "swap on the device"
start
step "mkswap" mkswap /dev/ublkb0 || finish
step "swapon" swapon /dev/ublkb0 || finish # or memory would run out
plain_file --stop 0 > /tmp/stop.log 2>&1 && bad "stop under swap"
same "stop names the swap" "$(grep -o 'swap on /dev/ublkb0' /tmp/stop.log)" "swap on /dev/ublkb0"
# More than its control group may keep in memory. Not more than the machine has: then the server's own disk could need memory that
# only the server can free, as with every device whose blocks lie in a file.
mkdir -p /tmp/big /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
echo +memory > /sys/fs/cgroup/cgroup.subtree_control
mkdir /sys/fs/cgroup/tight
: "${SWAP_MIB:=80}"
kept=$((SWAP_MIB * 2 / 5))
echo ${kept}M > /sys/fs/cgroup/tight/memory.max
mount -t tmpfs -o size=$((SWAP_MIB + 8))m tmpfs /tmp/big
tightly() { (sh -c 'echo 0 > /sys/fs/cgroup/tight/cgroup.procs; exec "$@"' sh "$@"); }
lines() { yes "a line that is told again and again" | head -c $((SWAP_MIB << 20)); }
lines | tightly dd of=/tmp/big/file bs=1M 2> /dev/null
at_least "swapped out, MiB" "$(awk '/ublkb0/ { print int($4 / 1024) }' /proc/swaps)" $((kept + 1))
if lines | tightly cmp - /tmp/big/file; then ok "swapped in: the same bytes"; else bad "swapped in: other bytes"; fi
umount /tmp/big
step "swapoff" swapoff /dev/ublkb0
step "stop after swap" plain_file --stop 0
soon "the device is gone after swap" 5 gone /dev/ublkb0

start 3000
note "reads during a FLUSH that takes 3 s"
dd if=/dev/zero of=/dev/ublkb0 bs=4k count=1 conv=fsync 2> /dev/null &
sleep 1
begin=$(now)
step "read" dd if=/dev/ublkb0 of=/dev/null bs=4k count=16 skip=256 iflag=direct
spent=$(($(now) - begin))
if [ $spent -lt 2 ] && alive $!; then ok "it did not wait"; else bad "it took $spent s"; fi
wait $!
step "forced stop" plain_file --force 0
soon "the device is gone again" 5 gone /dev/ublkb0
finish
