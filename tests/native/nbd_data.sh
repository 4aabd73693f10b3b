# A whole device of random bytes in and out by nbdcopy, and fio's verified random writes of any size, for every scheme.
#   DATA_MIB (128)  size of the device
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
. "$(dirname "$0")/../lib.sh"
export FTLD_RUNTIME_DIR=$SCRATCH/run FTLD_STATE_DIR=$SCRATCH
trap '[ -z "${FTLD:-}" ] || kill -9 "$FTLD" 2> /dev/null; rm -rf "$SCRATCH"' EXIT
mib=${DATA_MIB:-128}
uri="nbd+unix:///?socket=$SCRATCH/nbd.sock"
dd if=/dev/urandom of="$SCRATCH/in" bs=1M count="$mib" 2> /dev/null

for scheme in $(schemes); do
  serve --scheme "$scheme" --size "${mib}MiB" --image "$SCRATCH/$scheme.ftld" "$uri" || continue
  step "$scheme: nbdcopy of $mib MiB in" nbdcopy --flush "$SCRATCH/in" "$uri"
  step "$scheme: nbdcopy out" nbdcopy "$uri" "$SCRATCH/out"
  step "$scheme: the same bytes" cmp "$SCRATCH/in" "$SCRATCH/out"
  begin=$(now)
  # Verified as it is written, so that it may run for a time instead of for a size.
  if timeout $((FIO_SECONDS * 10 + 120)) fio --name=verify --eta=never --ioengine=nbd --uri="$uri" --rw=randwrite \
    --bsrange=512-256k --bs_unaligned=0 --blockalign=512 --iodepth=16 --size="${mib}m" --time_based --runtime="$FIO_SECONDS" \
    --verify=crc32c --verify_backlog=256 --verify_fatal=1 --verify_state_save=0 --serialize_overlap=1 --randseed=11 > "$SCRATCH/fio.log" 2>&1; then
    ok "$scheme: fio verify 512 B to 256 KiB ($(($(now) - begin)) s, $(grep -o 'issued rwts: total=[0-9,]*' "$SCRATCH/fio.log" | cut -d= -f2) reads, writes)"
  else
    bad "$scheme: fio verify"
    tail -n 30 "$SCRATCH/fio.log"
  fi
  quit "$scheme"
  step "$scheme: ftld check" ftld check "$SCRATCH/$scheme.ftld"
  rm -f "$SCRATCH/$scheme.ftld" "$SCRATCH/out"
done
finish
