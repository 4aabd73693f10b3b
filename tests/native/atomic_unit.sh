#!/bin/bash
# --atomic-unit 16KiB: a power cut leaves each aligned write of a page of tlc-16k old or new as a whole, under every scheme; of two pages
# it may leave one.
#   WRITES (200)    writes of each scheme      CUTS (10)    cuts after each
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/lib.sh"
: "${WRITES:=200}" "${CUTS:=10}"
export FTLD_STATE_DIR=$SCRATCH/state FTLD_RUNTIME_DIR=$SCRATCH/run FTLD_METRICS=off
trap 'ftld stop --force unit > /dev/null 2>&1; cd / && rm -rf "$SCRATCH"' EXIT
cd "$SCRATCH" || exit
mkdir state run
uri="nbd+unix:///?socket=$PWD/socket"

# Each write has a number of its own in all of its words.
cat > load.py << 'END'
import nbd, random, sys
uri, bytes, writes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
disk = nbd.NBD()
disk.connect_uri(uri)
rng = random.Random(1)
for number in range(1, writes + 1):
    disk.pwrite(number.to_bytes(4, "little") * (bytes // 4), rng.randrange((1 << 20) // bytes) * bytes)
    if number % 7 == 0:
        disk.flush()
disk.shutdown()
END
cat > check.py << 'END'
import sys
bytes = int(sys.argv[1])
for line in sys.stdin:
    with open(line.rstrip("\n").split("\t")[0], "rb") as image:
        units = [image.read(bytes) for _ in range((1 << 20) // bytes)]
    torn = [str(number) for number, unit in enumerate(units) if unit != unit[:4] * (bytes // 4)]
    print("torn: " + " ".join(torn) if torn else "ok", flush=True)
END

# explored SCHEME BYTES CODE [MODEL]: writes of BYTES bytes, and cuts; the exit code of the exploration.
explored() {
  local scheme=$1 bytes=$2 model=${4:-flash}
  rm -f "$scheme.rec"
  ftld --detach --name unit --image unit.img --scheme "$scheme" --profile tlc-16k --size 64MiB --atomic-unit "${UNIT:-16KiB}" \
    --record "$scheme.rec" "$uri" > log 2>&1 || cat log
  /usr/bin/python3 load.py "$uri" "$bytes" "$WRITES" || cat log
  ftld stop unit > log 2>&1 || cat log
  rm -f unit.img
  ftld crashes "$scheme.rec" --model "$model" --states "$CUTS" --failures 3 --server --check "exec /usr/bin/python3 check.py $bytes" > out 2>&1
  same "$scheme, $model, writes of $bytes bytes in units of ${UNIT:-16KiB}: exit code" $? "$3"
}
SCHEMES=all
for scheme in $(schemes); do
  explored "$scheme" 16384 0
  note "$scheme: $(grep -o '[0-9,]* states, [0-9,]* different ones checked, [0-9,]* failed' out)"
done
at_least "schemes" "$PASSED" 16
explored pagemap 32768 1
step "two pages: torn" grep -F "torn: " out
# A cache loses whole units: those of the option, from the head of the recording, and the usual 4 KiB.
explored pagemap 16384 0 cache
UNIT=4KiB explored pagemap 16384 1 cache
step "usual units: torn" grep -F "torn: " out
finish
