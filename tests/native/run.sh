#!/bin/bash
# Runs the native scripts against the just-built binary: no kernel module, but root, /dev/fuse and loop devices.
# usage: run.sh [SCRIPT...]     NAME is NAME.sh or test_NAME.py; all if none is given
#        run.sh list            prints the names
#   BUILT            folder with the programs; without it they are built, as a release
#   FIO_SECONDS (5)  CPU_SECONDS (10)  SCHEMES (lazyftl pagemap; or all)  SESSIONS (10000)  CUTS (12)  CANARY (no)  FSX_OPS (5000)
#   FS (ext4)  WRITES (200)  of uml
#   FAULTS (3)  STACKS (sqlite redb ext4)  SEED (1; for the stacks also new)  BLOCK_CALLS (400)
#   BROWSERS (chromium; or firefox, or both)
#   SELECT           tests of the pytest modules, as an expression of pytest's option -k; without it all
# Prints the scripts' own lines and a summary; fails unless every step succeeded.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=tests/native
. tests/lib.sh
fail() { echo "native result: FAILED. $*"; exit 1; }
[ "$(id -u)" = 0 ] || fail "mounting takes root"
[ -c /dev/fuse ] || fail "there is no /dev/fuse: modprobe fuse, or give it to this container"
[ -c /dev/loop-control ] || fail "there is no /dev/loop-control: modprobe loop, or give it to this container"
scripts=("$@")
case $* in "" | list)
  scripts=(readme lessons crash_lesson crash_test crash_interrupt recipes analysis sweep ext4_nbdfuse device_file_ext4 packages rpm prometheus metrics grafana live_page top nbd_data block_calls host_calls host_reads uml nbd_tls nbd_hostile kill_nbd power_cut_ext4 fsx_ext4 stacks atomic_unit file_systems) ;;
esac
[ "$*" != list ] || { printf '%s\n' "${scripts[@]}"; exit; }

built=$(tests/built.sh)
PATH=$built:$PWD/target/tools/bin:$PATH
mkdir -p target/native
failed=0 passed=0
for script in "${scripts[@]}"; do
  log=$PWD/target/native/$script.log
  rc=0 began=$(now)
  if [ -e "$here/test_$script.py" ]; then
    # Debian's python has pytest and libnbd; another one on the PATH may not.
    suite=(/usr/bin/python3 -B -m pytest -q -p no:cacheprovider ${SELECT:+-k "$SELECT"} "$here/test_$script.py")
  else
    suite=(bash "$here/$script.sh")
  fi
  "${suite[@]}" 2>&1 | tee "$log" || rc=$?
  [ "$rc" = 0 ] && log_passes "$log" || failed=$((failed + 1))
  echo "     $script: $(($(now) - began)) s"
  passed=$((passed + $(grep -c '^ok ' "$log" || true)))
done
[ $failed = 0 ] || fail "$passed steps passed; ${#scripts[@]} scripts, $failed failed"
echo "native result: ok. $passed steps passed; ${#scripts[@]} scripts, 0 failed"
