# shellcheck shell=dash
# The kernel's NBD client set up over netlink, over a plain file: limits, kill -9 under load, end.
export FIO_MIB=8 # the kernel's client is slow under emulation
# shellcheck source=tests/lib.sh
. /bin/lib.sh
IMAGE=/var/lib/ftld/plain
SIZE=268435456
# room_in_use: space that the file system has allocated to the plain file.
room_in_use() { sync; stat -c '%b' $IMAGE | awk '{ print $1 * 512 }'; }
QUEUE=/sys/block/nbd0/queue

start() {
  : > /tmp/server.log # or the line of the last one would do
  plain_file /dev/nbd0 $IMAGE $SIZE > /tmp/server.log 2>&1 &
  SERVER=$!
  wait_for 20 grep -q '^ready /dev/nbd0' /tmp/server.log || { bad "no ready line"; cat /tmp/server.log; dmesg | tail -5; finish; }
}

start
same "size" "$(cat /sys/block/nbd0/size)" $((SIZE / 512))
same "write cache" "$(cat $QUEUE/write_cache)" "write back"
same "FUA" "$(cat $QUEUE/fua)" 1
at_least "largest discard" "$(cat $QUEUE/discard_max_bytes)" 1000000000
plain_file /dev/nbd0 $IMAGE $SIZE > /tmp/second.log 2>&1 && bad "a second server on a live device"
same "a second server names the first" "$(grep -o "by process $SERVER" /tmp/second.log)" "by process $SERVER"
file_system "plain file" /dev/nbd0 /mnt

fio_verify $((KILLS * 3 + 3)) --filename=/dev/nbd0 &
FIO=$!
kill=0
while [ $kill -lt "$KILLS" ]; do
  kill=$((kill + 1))
  kill_9 $SERVER nbd0
  start
  note "reattached: $(cat /tmp/server.log)"
done
wait $FIO
same "fio verify across $KILLS kills, exit code" $? 0
same "I/O errors" "$(io_errors nbd0)" 0
kill -TERM $SERVER
wait $SERVER
same "exit code at the end" $? 0
soon "the device is free" 5 gone /sys/block/nbd0/pid
finish
