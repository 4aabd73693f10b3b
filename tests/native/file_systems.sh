#!/bin/bash
# File systems alone, on the host's kernel as root: each state that a power cut can leave of a churned ext4, XFS or btrfs is mounted, has
# every file that was synced with its content, can be read and written, and is clean for the file system's own checker afterwards.
#   FS (ext4 xfs btrfs)   file systems      STATES (300)   different states of each, at least      SEED (1)
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/lib.sh"
: "${FS:=ext4 xfs btrfs}" "${STATES:=300}" "${SEED:=1}"
trap 'cd / && rm -rf "$SCRATCH"' EXIT
cd "$SCRATCH" || exit

# churn.py run FOLDER STEPS SEED: files are made, renamed, linked, cut off and removed; each step keeps a file: it is written, synced with
# its folder, and reported.      churn.py check FS: a check that stays up. It mounts a state; the kept files are there, all can be read, one
# more can be written; after the unmount the file system's checker finds nothing.
cat > churn.py << 'END'
import hashlib, os, random, subprocess, sys

def content(number):
    block = hashlib.sha256(b"%d" % number).digest()
    return (block * 700)[: 37 + number * 1021 % 20000]

def sync(path):
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.close(file)

def run(folder, steps, seed):
    rng = random.Random(seed)
    os.chdir(folder)
    os.mkdir("kept")
    sync(".")
    for step in range(1, steps + 1):
        for _ in range(rng.randrange(1, 6)):
            churn(rng)
        name = "kept/%d" % step
        with open(name, "wb") as file:
            file.write(content(step))
            file.flush()
            os.fsync(file.fileno())
        sync("kept")
        print("ACK", step, flush=True)
        if sys.stdin.readline().strip() != "OK":
            sys.exit("no mark")

def churn(rng):
    folder = rng.choice(["a", "b", "a/c"])
    os.makedirs(folder, exist_ok=True)
    one, other = ("%s/%d" % (rng.choice([folder, "a"]), rng.randrange(12)) for _ in range(2))
    kind = rng.randrange(7)
    try:
        if kind < 3:
            with open(one, rng.choice(["wb", "ab", "r+b"])) as file:
                file.write(rng.randbytes(rng.randrange(1, 60000)))
                if rng.randrange(3) == 0:
                    os.fsync(file.fileno())
        elif kind == 3:
            os.rename(one, other)
        elif kind == 4:
            os.link(one, other)
        elif kind == 5:
            os.truncate(one, rng.randrange(50000))
        else:
            os.unlink(one)
    except OSError:
        pass

def check(folder, mark):
    for number in range(1, int(mark or 0) + 1):
        with open("%s/kept/%d" % (folder, number), "rb") as file:
            if file.read() != content(number):
                return "a kept file has another content"
    for at, _, files in os.walk(folder):
        for name in files:
            with open(os.path.join(at, name), "rb") as file:
                file.read()
    with open(folder + "/after", "wb") as file:
        file.write(bytes(10000))
        os.fsync(file.fileno())

CHECKERS = {"ext4": ["e2fsck", "-fn"], "xfs": ["xfs_repair", "-n"], "btrfs": ["btrfs", "check", "--readonly"]}

def done(*words):
    ran = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return None if ran.returncode == 0 else " ".join(words[:1] + tuple(ran.stdout.decode(errors="replace").split()[-20:]))

def verdict(fs, image, mark):
    folder = os.environ["FTLD_WORK"] + "/mnt"
    os.makedirs(folder, exist_ok=True)
    wrong = done("mount", "-t", fs, "-o", "loop,nouuid" if fs == "xfs" else "loop", image, folder)
    if wrong:
        return wrong
    try:
        wrong = check(folder, mark)
    except OSError as error:
        wrong = str(error)
    return wrong or done("umount", folder) or done(*CHECKERS[fs], image)

if sys.argv[1] == "run":
    run(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
else:
    for line in sys.stdin:
        print(verdict(sys.argv[2], *line.rstrip("\n").split("\t")) or "ok", flush=True)
END
# run.sh FS OPTIONS DEVICE STEPS SEED: the file system is made, mounted and churned.
cat > run.sh << 'END'
set -eu
case $1 in ext4) mkfs.ext4 -q -F "$3" ;; *) "mkfs.$1" -q -f "$3" ;; esac
mkdir -p mnt
mount -t "$1" -o "$2" "$3" mnt
python3 churn.py run "$PWD/mnt" "$4" "$5"
umount mnt
END
# explored FS OPTIONS STATES [OPTION...]: records a run of so many states, about, and checks them; the exit code of the exploration.
explored() {
  local fs=$1 options=$2 states=$3 each
  shift 3
  # Different states of a step.
  case $fs in ext4) each=20 ;; xfs) each=15 ;; btrfs) each=70 ;; esac
  rm -f run.rec
  ftld crash-test --machine host --fs none --size 320MiB --record run.rec --model prefix --at mark --check true \
    -- sh run.sh "$fs" "$options" '{}' $((states / each + 3)) "$SEED" > out 2>&1 || return 2
  ftld crashes run.rec --after-mark --server --check "exec python3 $PWD/churn.py check $fs" "$@" > out 2>&1
}

for fs in $FS; do
  began=$(now)
  explored "$fs" defaults "$STATES"
  same "$fs: exit code" $? 0
  different=$(grep -o '[0-9,]* different ones checked' out | tr -dc 0-9)
  [ "${different:-0}" -ge "$STATES" ] || bad "$fs: ${different:-no} different states; $STATES are wanted"
  if grep -q ', 0 failed' out; then ok "$fs: $different states, 0 failed"; else bad "$fs"; cat out; fi
  note "$fs: $(($(now) - began)) s"
  # Without barriers the kept files are lost, and the check says so.
  case $fs in ext4) options=barrier=0 ;; btrfs) options=nobarrier ;; *) continue ;; esac
  explored "$fs" "$options" 60 --failures 1
  same "$fs, $options: exit code" $? 1
  if grep -q 'shortest failing case' out; then ok "$fs, $options: found"; else bad "$fs, $options"; cat out; fi
done
finish
