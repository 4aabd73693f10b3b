#!/bin/bash
# Random file I/O on ext4 on our device by a tool we did not write: fsx writes, maps, truncates, punches holes, copies ranges, syncs,
# and compares every read with what the file should hold. Afterwards the files are compared once more through a fresh mount.
#   FSX_OPS (5000)  operations on each file   SEED (1)   CUT_SCHEMES (lazyftl pagemap)
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/nbdfuse.sh"
: "${FSX_OPS:=5000}" "${SEED:=1}" "${CUT_SCHEMES:=lazyftl pagemap}"
command -v fsx > /dev/null || { bad "there is no fsx: make target/tools/bin/fsx"; finish; }

# One file in the page cache's easy reach, one that is written back while it is worked on.
for file in small:262144:65536 large:8388608:1048576; do
  IFS=: read -r name bytes most <<< "$file"
  cat > "$SCRATCH/$name.toml" <<X
flen = $bytes
[opsize]
max = $most
[weights]
close_open = 1
invalidate = 1
truncate = 2
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 4
sendfile = 2
posix_fadvise = 2
copy_file_range = 2
X
done

for scheme in $CUT_SCHEMES; do
  image=$SCRATCH/$scheme.ftld
  serve --scheme "$scheme" --size 64MiB --image "$image" "$uri" || continue
  if attach; then
    step "$scheme: mkfs" mkfs.ext4 -q -F "$loop"
    step "$scheme: mount" mount -t ext4 -o discard "$loop" "$at"
    for name in small large; do
      ops=$FSX_OPS
      [ $name = small ] || ops=$((FSX_OPS / 20))
      begin=$(now)
      # The good copy and the log of a failure lie outside the device.
      if timeout 3600 fsx -N "$ops" -S "$SEED" -f "$SCRATCH/$name.toml" -P "$SCRATCH" "$at/$name" > "$SCRATCH/fsx.log" 2>&1; then
        ok "$scheme: $ops operations of fsx on the $name file ($(($(now) - begin)) s)"
      else
        bad "$scheme: fsx -N $ops -S $SEED on the $name file"
        tail -n 30 "$SCRATCH/fsx.log"
      fi
    done
    cp "$at"/{small,large} "$SCRATCH"
    step "$scheme: umount" umount "$at"
    step "$scheme: file system check" e2fsck -fn "$loop"
    step "$scheme: mount again" mount -t ext4 -o ro "$loop" "$at"
    for name in small large; do step "$scheme: the $name file is whole" cmp "$SCRATCH/$name" "$at/$name"; done
    step "$scheme: umount again" umount "$at"
    detach
  fi
  quit "$scheme"
  step "$scheme: ftld check" ftld check "$image"
  rm -f "$image" "$SCRATCH"/{small,large}
done
finish
