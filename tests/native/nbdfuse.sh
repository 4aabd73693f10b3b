#!/bin/bash
# For scripts that need a block device without ublk and nbd in the kernel: ftld at $uri -> nbdfuse at $fuse -> loop device
# $loop, to be mounted at $at. Sourced after lib.sh. qemu-storage-daemon's FUSE export would look the same, but loses data under a
# loop device with direct I/O.
export FTLD_RUNTIME_DIR=$SCRATCH/run FTLD_STATE_DIR=$SCRATCH
at=$SCRATCH/mnt fuse=$SCRATCH/fuse uri="nbd+unix:///?socket=$SCRATCH/nbd.sock"
mkdir "$at" "$fuse"
loop="" FTLD=""

# Also after a failure, no mount of this script is left.
clean_up() {
  umount -l "$at" 2> /dev/null
  detach 2> /dev/null
  [ -z "$FTLD" ] || kill -9 "$FTLD" 2> /dev/null
  rm -rf "$SCRATCH"
}
trap clean_up EXIT

# attach: sets `loop` to a block device on the export.
attach() {
  nbdfuse "$fuse/disk" "$uri" 2> "$SCRATCH/nbdfuse.log" &
  wait_for 10 test -s "$fuse/disk" || { bad "nbdfuse does not serve"; cat "$SCRATCH/nbdfuse.log"; return 1; }
  loop=$(losetup --find --show --direct-io=on "$fuse/disk") || { bad "no loop device"; return 1; }
}

detach() {
  [ -z "$loop" ] || losetup -d "$loop"
  loop=
  fusermount3 -u "$fuse" || fusermount3 -uz "$fuse"
}
