# shellcheck shell=dash
# `ftld inject power-cut` under the kernel's block devices: requests fail, the device goes although it is mounted, the daemon ends
# with exit code 9, and the next one mounts what the chip kept: all that fsync made durable.
# shellcheck source=tests/lib.sh
. /bin/lib.sh
markers=/tmp/markers
for device in ublkb0 nbd0; do
  image=/var/lib/ftld/$device.ftld
  rm -f $markers
  serve --scheme lazyftl --size "${SIZE:-64MiB}" --image "$image" /dev/$device || continue
  step "$device: mkfs" mkfs.ext4 -q -F -b 4096 -J size=4 /dev/$device
  step "$device: mount" mount -t ext4 /dev/$device /mnt || continue
  fsync_markers work /mnt $markers 1 > /tmp/worked &
  worker=$!
  soon "$device: something is durable" 60 is_durable $worker /tmp/worked
  sleep 1
  step "$device: inject" ftld inject power-cut $device --after 300 --seed 7
  soon "$device: the daemon ends under its holder" 20 ended "$FTLD"
  wait "$FTLD"
  same "$device: its exit code" $? 9
  soon "$device: the programs end" 20 ended "$worker"
  wait "$worker"
  same "$device: nothing but the device failed them, exit code" $? 0
  note "$device: $(tail -n 1 /tmp/worked)"
  step "$device: umount of what is left" umount /mnt
  if [ $device = ublkb0 ]; then soon "$device: the device is gone" 10 gone /dev/$device; else
    same "$device: bytes of the device" "$(cat /sys/block/$device/size)" 0
  fi
  serve --image "$image" /dev/$device || continue
  step "$device: mount after a restart" mount -t ext4 /dev/$device /mnt || continue
  step "$device: markers" fsync_markers check /mnt $markers
  note "$device: $(cat "$SCRATCH/step.log")"
  step "$device: umount" umount /mnt
  step "$device: file system check" e2fsck -fn /dev/$device
  quit "$device"
  step "$device: ftld check" ftld check "$image"
  rm "$image"
done
finish
