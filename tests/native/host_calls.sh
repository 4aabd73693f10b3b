#!/bin/bash
# A kernel that interrupts reads and writes of the image, or does only a part of them: nothing may come of it. Every third call meddled
# with, then every second, so that sooner or later each call of the code is.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
here=$(dirname "$0")
. "$here/../lib.sh"
export FTLD_RUNTIME_DIR=$SCRATCH/run FTLD_STATE_DIR=$SCRATCH
trap '[ -z "${FTLD:-}" ] || kill -9 "$FTLD" 2> /dev/null; rm -rf "$SCRATCH"' EXIT
uri="nbd+unix:///?socket=$SCRATCH/nbd.sock"
mib=16
step "the meddler is built" cc -O2 -shared -fPIC -o "$SCRATCH/meddle.so" "$here/meddle.c" -ldl || finish
dd if=/dev/urandom of="$SCRATCH/in" bs=1M count=$mib 2> /dev/null

# meddled COMMAND...: with the meddler in between.
meddled() { LD_PRELOAD=$SCRATCH/meddle.so "$@"; }

names=$(schemes) || give_up "ftld names no scheme"
for scheme in $names; do
  for nth in 3 2; do
    export NTH=$nth COUNT=$SCRATCH/count
    image=$SCRATCH/$scheme.ftld
    meddled serve --scheme "$scheme" --size "${mib}MiB" --image "$image" "$uri" || continue
    step "$scheme, 1 of $nth calls: nbdcopy in" nbdcopy --flush "$SCRATCH/in" "$uri"
    step "$scheme: written over" fio --name=over --eta=never --ioengine=nbd --uri="$uri" --rw=randwrite --bs=4k --size=${mib}m \
      --loops=3 --verify=crc32c --verify_fatal=1 --verify_state_save=0 --randseed=3
    step "$scheme: nbdcopy in again" nbdcopy --flush "$SCRATCH/in" "$uri"
    step "$scheme: nbdcopy out" nbdcopy "$uri" "$SCRATCH/out"
    step "$scheme: the same bytes" cmp "$SCRATCH/in" "$SCRATCH/out"
    kill -9 "$FTLD"
    wait "$FTLD" 2> /dev/null
    meddled serve --image "$image" "$uri" || continue
    step "$scheme: nbdcopy out after a kill" nbdcopy "$uri" "$SCRATCH/out"
    step "$scheme: the same bytes after a kill" cmp "$SCRATCH/in" "$SCRATCH/out"
    quit "$scheme"
    count=$(cat "$SCRATCH/count")
    if [ "$count" -gt 100 ]; then ok "$scheme: meddled with $count calls since the kill"; else bad "$scheme: only $count calls"; fi
    step "$scheme: ftld check" ftld check "$image"
    rm -f "$image" "$SCRATCH/out"
  done
done
finish
