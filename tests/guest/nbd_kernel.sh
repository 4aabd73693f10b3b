# The kernel's own NBD client: set up by ftld over netlink, and by nbd-client over the network protocol.
FIO_MIB=8 # the kernel's client is slow under emulation
. /bin/lib.sh
for scheme in $(schemes); do
  image=/var/lib/ftld/$scheme.ftld
  serve --scheme "$scheme" --size 256MiB --image "$image" /dev/nbd0 || continue
  same "$scheme: size" "$(cat /sys/block/nbd0/size)" 524288
  same "$scheme: write cache" "$(cat /sys/block/nbd0/queue/write_cache)" "write back"
  same "$scheme: FUA" "$(cat /sys/block/nbd0/queue/fua)" 1
  file_system "$scheme on /dev/nbd0" /dev/nbd0 /mnt
  quit "$scheme on /dev/nbd0"
  soon "$scheme: /dev/nbd0 is free again" 5 gone /sys/block/nbd0/pid
  same "$scheme: I/O errors" "$(io_errors nbd0)" 0

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
  step "$scheme: ftld check" ftld check "$image"
  rm "$image"
done
finish
