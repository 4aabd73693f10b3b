#!/bin/bash
# ext4 on our NBD server without the kernel modules ublk and nbd, under every scheme.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/nbdfuse.sh"

# All of them also in the short form: that is where people will use them. Those that are not in $SCHEMES get one round of fio.
seconds=$FIO_SECONDS
wanted=$(schemes) || give_up "no scheme to test"
names=$(SCHEMES=all schemes) || give_up "ftld names no scheme"
for scheme in $names; do
  FIO_SECONDS=$seconds
  grep -qx "$scheme" <<< "$wanted" || { FIO_SECONDS=1; note "$scheme: fio for $FIO_SECONDS s instead of $seconds"; }
  image=$SCRATCH/$scheme.ftld
  serve --scheme "$scheme" --size 256MiB --image "$image" "$uri" || continue
  if attach; then
    file_system "$scheme" "$loop" "$at"
    detach
  fi
  quit "$scheme"
  step "$scheme: ftld check" ftld check "$image"
  rm -f "$image"
done
finish
