# ext4 on our NBD server without any module of ours: ftld -> nbdfuse -> loop device -> mount, under every scheme.
# qemu-storage-daemon's FUSE export would look the same, but loses data under a loop device with direct I/O.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
. "$(dirname "$0")/../lib.sh"
export FTLD_RUNTIME_DIR=$SCRATCH/run FTLD_STATE_DIR=$SCRATCH
mkdir "$SCRATCH/mnt" "$SCRATCH/fuse"
loop=

# Whatever happens, nothing of ours stays mounted.
clean_up() {
  umount -l "$SCRATCH/mnt" 2> /dev/null
  detach 2> /dev/null
  [ -z "${FTLD:-}" ] || kill -9 "$FTLD" 2> /dev/null
  rm -rf "$SCRATCH"
}
trap clean_up EXIT

# attach: sets `loop` to a block device on the export.
attach() {
  nbdfuse "$SCRATCH/fuse/disk" "nbd+unix:///?socket=$SCRATCH/nbd.sock" 2> "$SCRATCH/nbdfuse.log" &
  wait_for 10 test -s "$SCRATCH/fuse/disk" || { bad "nbdfuse does not serve"; cat "$SCRATCH/nbdfuse.log"; return 1; }
  loop=$(losetup --find --show --direct-io=on "$SCRATCH/fuse/disk") || { bad "no loop device"; return 1; }
}

detach() {
  [ -z "$loop" ] || losetup -d "$loop"
  loop=
  fusermount3 -u "$SCRATCH/fuse"
}

for scheme in $(schemes); do
  image=$SCRATCH/$scheme.ftld
  serve --scheme "$scheme" --size 256MiB --image "$image" "nbd+unix:///?socket=$SCRATCH/nbd.sock" || continue
  if attach; then
    file_system "$scheme" "$loop" "$SCRATCH/mnt"
    detach
  fi
  quit "$scheme"
  step "$scheme: ftld check" ftld check "$image"
  rm -f "$image"
done
finish
