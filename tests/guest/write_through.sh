# shellcheck shell=dash
# The kernel's write_cache switch under a volatile write cache that loses everything at a power cut.
# With "write through" the kernel sends no FLUSH, so the daemon has to detect the switch, write back
# dirty data, and acknowledge only durable writes.
# shellcheck source=tests/lib.sh
. /bin/lib.sh
image=/var/lib/ftld/ublkb0.ftld
switch=/sys/block/ublkb0/queue/write_cache
piece=65536

# piece NAME: makes a file of random bytes.
piece() { dd if=/dev/urandom of="/tmp/$1" bs="$piece" count=1 2> /dev/null; }
# shellcheck disable=SC2317 # called by soon
# put NAME PIECE [OPTION]: writes a file to the device; nothing flushes it but conv=fsync.
put() { dd if="/tmp/$1" of=/dev/ublkb0 bs="$piece" seek="$2" oflag=direct conv=notrunc${3:+,$3} 2> "$SCRATCH/dd.log"; }
# shellcheck disable=SC2317 # called by soon
# holds NAME PIECE: whether the device has the file there.
holds() { dd if=/dev/ublkb0 bs="$piece" skip="$2" count=1 iflag=direct 2> "$SCRATCH/dd.log" | cmp -s - "/tmp/$1"; }
dirty() { ftld status --json | tr -d ' \n' | grep -o '"dirty_bytes":[0-9]*' | cut -d: -f2; }
# shellcheck disable=SC2317 # called by soon
is_dirty() { [ "$(dirty)" = "$1" ]; }
start() { serve --image "$image" --size "${SIZE:-64MiB}" --write-cache 16MiB --cache-model lost /dev/ublkb0 || give_up "no device"; }
# lose_power NAME: a power cut, and a restart.
lose_power() {
  step "$1: power cut" ftld inject power-cut --seed 7
  soon "$1: the daemon ends" 20 ended "$FTLD"
  wait "$FTLD"
  same "$1: its exit code" $? 9
  start
}

for name in old unflushed waiting without_fsync with_fsync; do piece $name; done
start
for at in 0 1 2 3; do soon "piece $at: old data, flushed" 5 put old $at fsync; done
same "the kernel's switch" "$(cat $switch)" "write back"
soon "a write without FLUSH" 5 put unflushed 0
soon "it is in the cache alone" 5 is_dirty $piece
lose_power "write back"
soon "write back: the cut lost it" 1 holds old 0

soon "a write that waits in the cache" 5 put waiting 1
soon "it is dirty" 5 is_dirty $piece
flushes=$(flushes_done ublkb0)
echo "write through" > $switch
same "the kernel's switch" "$(cat $switch)" "write through"
soon "write through: dirty data is written back" 5 is_dirty 0
soon "write through: a write without FLUSH" 5 put without_fsync 2
soon "write through: a write with fsync" 5 put with_fsync 3 fsync
sleep 0.3 # figures are published ten times a second
same "write through: bytes that are dirty" "$(dirty)" 0
same "write through: FLUSHes that the kernel sent" $(($(flushes_done ublkb0) - ${flushes:--1})) 0
lose_power "write through"
soon "write through: what was dirty is there" 1 holds waiting 1
soon "write through: what was not flushed is there" 1 holds without_fsync 2
soon "write through: what fsync returned for is there" 1 holds with_fsync 3
quit ublkb0
step "ftld check" ftld check "$image"
finish
