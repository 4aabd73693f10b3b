# shellcheck shell=dash
# --latency emulate on /dev/ublkb0: completions are held until the emulated flash is done, also across kill -9, and a forced stop
# does not wait for them.
export FIO_MIB=8 # a program takes a millisecond
# shellcheck source=tests/lib.sh
. /bin/lib.sh
image=/var/lib/ftld/slow.ftld

# held OP: how many requests of this kind were held.
held() { ftld status ublkb0 --json | tr -d ' \n' | grep -oE "\"$1\":\{([^{}]|\{[^{}]*\})*\}" | grep -o '"delayed":[0-9]*' | cut -d: -f2; }

# shellcheck disable=SC2317 # called by wait_for
many_in_flight() {
  local flying
  flying=$(in_flight ublkb0)
  number "$flying" && [ "$flying" -ge 16 ]
}

serve --latency emulate --scheme lazyftl --size 128MiB --image "$image" /dev/ublkb0 || finish
file_system "ext4" /dev/ublkb0 /mnt
pauses "ublk" /dev/ublkb0
for op in write discard; do
  at_least "requests held, $op" "$(held $op)" 1
done

fio_verify $((KILLS * 3 + 3)) --filename=/dev/ublkb0 &
fio=$!
kill=0
while [ $kill -lt "$KILLS" ]; do
  kill=$((kill + 1))
  kill_9 "$FTLD" ublkb0
  serve --latency emulate --image "$image" /dev/ublkb0 || break
done
wait "$fio"
same "fio verify across $KILLS kills, exit code" $? 0
same "I/O errors" "$(io_errors ublkb0)" 0

note "forced stop with seconds of held writes"
dd if=/dev/zero of=/dev/ublkb0 bs=1M count=64 2> /dev/null &
wait_for 20 many_in_flight || bad "nothing was held"
step "forced stop" ftld stop --force ublkb0
wait "$FTLD"
same "exit code after the forced stop" $? 0
soon "the device is gone" 5 gone /dev/ublkb0
step "ftld check" ftld check "$image"
finish
