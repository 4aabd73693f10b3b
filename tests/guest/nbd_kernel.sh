# shellcheck shell=dash
# The kernel's own NBD client: set up by ftld over netlink, and with NBD_CLIENT=yes also by nbd-client over the network protocol.
export FIO_MIB=8 # the kernel's client is slow under emulation
# shellcheck source=tests/lib.sh
. /bin/lib.sh
names=$(schemes) || give_up "ftld names no scheme"
for scheme in $names; do
  image=/var/lib/ftld/$scheme.ftld
  serve --scheme "$scheme" --size 256MiB --image "$image" /dev/nbd0 || continue
  same "$scheme: size" "$(cat /sys/block/nbd0/size)" 524288
  same "$scheme: write cache" "$(cat /sys/block/nbd0/queue/write_cache)" "write back"
  same "$scheme: FUA" "$(cat /sys/block/nbd0/queue/fua)" 1
  file_system "$scheme on /dev/nbd0" /dev/nbd0 /mnt
  pauses "$scheme on /dev/nbd0" /dev/nbd0
  quit "$scheme on /dev/nbd0"
  soon "$scheme: /dev/nbd0 is free again" 5 gone /sys/block/nbd0/pid
  same "$scheme: I/O errors" "$(io_errors nbd0)" 0
  if [ "$NBD_CLIENT" = yes ]; then
    serve --image "$image" 'nbd+unix:///?socket=/tmp/nbd.sock' || continue
    if step "$scheme: nbd-client" nbd-client -unix /tmp/nbd.sock /dev/nbd1 -b 512 -C 2; then
      step "$scheme: mount over nbd-client" mount -t ext4 /dev/nbd1 /mnt
      step "$scheme: copy made over netlink" cmp /tmp/data /mnt/three
      with_fio "$scheme: fio verify over nbd-client" "$FIO_SECONDS" --directory=/mnt
      step "$scheme: umount" umount /mnt
      step "$scheme: file system check" e2fsck -fn /dev/nbd1
      step "$scheme: disconnect" nbd-client -d /dev/nbd1
    fi
    quit "$scheme, served to nbd-client"
  fi
  step "$scheme: ftld check" ftld check "$image"
  rm "$image"
done

note "quiesced: its daemon died"
image=/var/lib/ftld/left.ftld
# leave: kills the daemon while somebody waits for the device.
leave() {
  kill -9 "$FTLD" || bad "there is no daemon to be killed"
  wait "$FTLD" 2> /dev/null
  dd if=/dev/nbd0 of=/tmp/back bs=1M count=8 iflag=direct 2> /dev/null &
  READER=$!
  sleep 1
  if alive $READER; then ok "a reader waits for the device"; else bad "the reader did not wait for the device"; fi
}
serve --latency emulate --size 64MiB --image "$image" /dev/nbd0 || finish
step "write, at the pace of the flash" dd if=/tmp/data of=/dev/nbd0 bs=1M count=8 oflag=direct
dd if=/tmp/data of=/tmp/wanted bs=1M count=8 2> /dev/null
refused "recover while it is served" 7 "served by process $FTLD" ftld recover --metrics off --name again --image "$image" /dev/nbd0
leave
refused "stop of a quiesced device" 4 "reattach with \`ftld recover /dev/nbd0\`" ftld stop nbd0
refused "another image" 4 "quiesced with image $image" ftld --metrics off --size 64MiB --image /var/lib/ftld/other.ftld /dev/nbd0
serve recover --image "$image" /dev/nbd0 || finish
wait $READER
same "a read that waited, exit code" $? 0
step "what it read" cmp /tmp/wanted /tmp/back
leave
step "forced stop of a quiesced device" ftld stop --force nbd0
soon "/dev/nbd0 is free" 5 gone /sys/block/nbd0/pid
begin=$(now)
wait $READER && bad "a read of a removed device succeeded"
note "the reader was told after $(($(now) - begin)) s"
refused "forced stop of nothing" 3 "not running" ftld stop --force nbd0
refused "recover of nothing" 3 "/dev/nbd0 is not quiesced" ftld recover --metrics off --image "$image" /dev/nbd0
serve --image "$image" /dev/nbd0 || finish
step "read anew" dd if=/dev/nbd0 of=/tmp/back bs=1M count=8 iflag=direct
step "what was read anew" cmp /tmp/wanted /tmp/back
quit "served anew"
finish
