#!/bin/bash
# ext4 over NBD on a device from a file: QLC, 4 channels of 2 chips of 2 dies of 2 planes, word lines of four pages.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/nbdfuse.sh"

device=$(dirname "$0")/../../docs/examples/qlc-16-dies.toml
for scheme in lazyftl pagemap mnftl; do
  image=$SCRATCH/$scheme.ftld
  serve --scheme "$scheme" --profile "$device" --size 1GiB --image "$image" "$uri" || continue
  if attach; then
    step "$scheme: mkfs.ext4" mkfs.ext4 -q "$loop"
    step "$scheme: mount" mount "$loop" "$at"
    step "$scheme: 64 MiB in 16 files" bash -c "for n in {1..16}; do head -c 4M /dev/urandom > '$at/'\$n || exit 1; done"
    (cd "$at" && sha256sum {1..16}) > "$SCRATCH/sums"
    step "$scheme: unmount" umount "$at"
    detach
  fi
  quit "$scheme"
  # The image says what the device is; the file is not needed again.
  serve --image "$image" "$uri" || continue
  if attach; then
    step "$scheme: e2fsck" e2fsck -fn "$loop"
    step "$scheme: mount again" mount "$loop" "$at"
    step "$scheme: every byte" bash -c "cd '$at' && sha256sum --quiet -c '$SCRATCH/sums'"
    step "$scheme: unmount again" umount "$at"
    detach
  fi
  quit "$scheme"
  step "$scheme: ftld check" ftld check "$image"
  rm -f "$image"
done
finish
