# shellcheck shell=dash
# The machine is killed from outside while programs fsync on ext4 on /dev/ublkb0, again and again. The image is on the machine's
# own disk, so everything that its kernel had not yet synced is lost: a host crash. After each boot the image opens, ext4 replays its
# journal, everything that fsync made durable is there (fsync_markers.rs; its markers go straight to a disk of their own), and the
# file system check is clean.
#   CRASHES (1)   shared out between two schemes
#   SHARDS (1)    chips of the device
# shellcheck source=tests/lib.sh
. /bin/lib.sh
folder=/var/lib/ftld markers=/dev/vdb
crashes=$(cat $folder/crashes 2> /dev/null || echo 0)
: "${CRASHES:=1}"
scheme_at() { if [ $(($1 * 2)) -lt "$CRASHES" ] || [ "$CRASHES" = 1 ]; then echo lazyftl; else echo pagemap; fi; }

# durable_in FILE: the count in the line of `fsync_markers check`.
durable_in() { grep -o 'durable=[0-9]*' "$1" | cut -d= -f2; }

if [ "$crashes" -gt 0 ]; then
  name="crash $crashes of $CRASHES, $(scheme_at $((crashes - 1)))"
  image=$folder/$(scheme_at $((crashes - 1))).ftld
  serve --image "$image" /dev/ublkb0 || finish
  step "$name: mount" mount -t ext4 /dev/ublkb0 /mnt || finish
  note "$name: $(dmesg | grep -c 'ublkb0): recovery complete') journal replayed"
  step "$name: markers" fsync_markers check /mnt $markers || finish
  note "$name: $(cat "$SCRATCH/step.log")"
  # `durable` is what was there before the programs that the crash hit.
  at_least "$name: operations noted as durable" "$(durable_in "$SCRATCH/step.log")" $(($(cat $folder/durable) + 1))
  durable_in "$SCRATCH/step.log" > $folder/durable
  step "$name: umount" umount /mnt
  step "$name: file system check" e2fsck -fn /dev/ublkb0
  quit "$name"
fi
[ "$crashes" -lt "$CRASHES" ] || finish

image=$folder/$(scheme_at "$crashes").ftld
if [ ! -e "$image" ]; then
  rm -f $folder/*.ftld
  dd if=/dev/zero of=$markers bs=1M conv=fsync 2> /dev/null
  echo 0 > $folder/durable
  serve --scheme "$(scheme_at "$crashes")" --size "${SIZE:-64MiB}" --shards "${SHARDS:-1}" --image "$image" \
    /dev/ublkb0 || finish
  step "$(scheme_at "$crashes"): mkfs" mkfs.ext4 -q -F -b 4096 -J size=4 /dev/ublkb0 || finish
else
  serve --image "$image" /dev/ublkb0 || finish
fi
step "crash $((crashes + 1)) of $CRASHES: mount before it" mount -t ext4 -o discard /dev/ublkb0 /mnt || finish
echo $((crashes + 1)) > $folder/crashes
sync
fsync_markers work /mnt $markers $((crashes + 1)) > /tmp/worked &
worker=$!
soon "crash $((crashes + 1)) of $CRASHES: something is durable" 60 is_durable $worker /tmp/worked || finish
echo "guest: pull the plug"
if wait_for 120 ended $worker; then
  wait $worker
  give_up "the programs ended before the plug was pulled, exit code $?: $(tail -n 1 /tmp/worked)"
fi
give_up "nobody pulled the plug"
