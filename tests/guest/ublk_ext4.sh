# shellcheck shell=dash
# ext4 on /dev/ublkb0 under every scheme, and the same bytes after a restart.
# shellcheck source=tests/lib.sh
. /bin/lib.sh
# places_of NAME: three versions of a file; `ftld where` shows the last one's page, and where the others are left.
places_of() {
  local round
  step "$1: mount for a file's places" mount -t ext4 /dev/ublkb0 /mnt || return
  for round in 1 2 3; do
    head -c 65536 /dev/urandom > /tmp/round$round
    dd if=/tmp/round$round of=/mnt/places bs=64k conv=notrunc,fsync 2> /dev/null || bad "$1: round $round"
  done
  step "$1: ftld where" ftld where /mnt/places
  # The second page, since blocks of the file system may be smaller: offset, logical page, version, place, dead copies.
  awk 'NR == 4 { print $1, $4, $5, $7 }' "$SCRATCH/step.log" > /tmp/places
  at_least "$1: pages of the file" "$(grep -c '^ *[0-9]* ' "$SCRATCH/step.log")" 16
  if ftld where /tmp/round1 2> /tmp/refused; then bad "$1: a file in memory is said to be on flash"; fi
  same "$1: a file in memory" "$(grep -c 'is on no block device' /tmp/refused)" 1
  step "$1: umount after that" umount /mnt
}
# head_of FILE OFFSET: 32 bytes of it.
head_of() { tail -c +$(($2 + 1)) "$1" | head -c 32 | od -A n -t x1 | tr -d ' \n'; }
# head_at IMAGE PAGE
head_at() { ftld inspect "$1" --page "$2" --json | sed -n 's/.*"data_head": "\(.*\)".*/\1/p'; }
names=$(schemes) || give_up "ftld names no scheme"
for scheme in $names; do
  image=/var/lib/ftld/$scheme.ftld
  serve --scheme "$scheme" --size "${SIZE:-256MiB}" --image "$image" /dev/ublkb0 || continue
  file_system "$scheme" /dev/ublkb0 /mnt
  [ "$scheme" != lazyftl ] || places_of "$scheme"
  quit "$scheme"
  if [ "$scheme" = lazyftl ]; then
    read -r offset current dead older < /tmp/places
    same "$scheme: the page of the file" "$(head_at "$image" "$current")" "$(head_of /tmp/round3 "$offset")"
    same "$scheme: its newest dead copy" "$(head_at "$image" "$dead")" "$(head_of /tmp/round2 "$offset")"
    same "$scheme: an older one" "$(head_at "$image" "$older")" "$(head_of /tmp/round1 "$offset")"
  fi
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
