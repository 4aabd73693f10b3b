# shellcheck shell=dash
# ext4 on /dev/ublkb0 under every scheme, and the same bytes after a restart.
# shellcheck source=tests/lib.sh
. /bin/lib.sh
names=$(schemes) || give_up "ftld names no scheme"
for scheme in $names; do
  image=/var/lib/ftld/$scheme.ftld
  serve --scheme "$scheme" --size "${SIZE:-256MiB}" --image "$image" /dev/ublkb0 || continue
  file_system "$scheme" /dev/ublkb0 /mnt
  quit "$scheme"
  soon "$scheme: the device is gone" 5 gone /dev/ublkb0
  serve --image "$image" /dev/ublkb0 || continue
  step "$scheme: mount after a restart" mount -t ext4 -o ro /dev/ublkb0 /mnt
  step "$scheme: copy after a restart" cmp /tmp/data /mnt/three
  step "$scheme: umount after a restart" umount /mnt
  quit "$scheme, second time"
  step "$scheme: ftld check" ftld check "$image"
  same "$scheme: I/O errors" "$(io_errors ublkb0)" 0
  rm "$image"
done
finish
