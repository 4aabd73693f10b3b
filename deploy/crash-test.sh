#!/bin/bash
# Records a run of your software on a new device, then visits the states that a power cut could have left of it. No root.
# usage: crash-test.sh [--size 64MiB] [--out FOLDER] --check CHECK [--crashes OPTION]... -- COMMAND...
#   COMMAND finds FTLD_URI (NBD), FTLD_SOCKET and FTLD_NAME, and reports what it has committed by `ftld mark TEXT`
#   CHECK   as for `ftld crashes`: finds FTLD_IMAGE, FTLD_URI and FTLD_MARK
# Writes run.rec, crashes.xml (JUnit) and crashes.html into the folder, the current one if none is named; none of them may be there.
# Exit code: 0 no state failed, 1 a state failed or could not be checked, 2 wrong use or a device that failed, 3 COMMAND failed.
set -uo pipefail
fail() { echo "crash-test.sh: $*" >&2; exit 2; }
usage() { sed -n 's/^# usage: /usage: /p' "$0" >&2; exit 2; }

# Options of another device would reach the one that is recorded.
for name in "${!FTLD_@}"; do unset "$name"; done

size=64MiB out=. check='' crashes=()
while [ $# -gt 0 ]; do
  case $1 in
  --size) size=${2:-} ;;
  --out) out=${2:-} ;;
  --check) check=${2:-} ;;
  --crashes) crashes+=("${2:-}") ;;
  --) break ;;
  *) usage ;;
  esac
  [ $# -ge 2 ] || usage
  shift 2
done
[ "${1:-}" = -- ] || usage
shift
[ -n "$check" ] || fail "no --check CHECK: what tells a good state from a bad one?"
[ $# -gt 0 ] || fail "no COMMAND after --: what is to be recorded?"
command -v ftld > /dev/null || fail "there is no program ftld on the PATH"
[ -d "$out" ] || fail "$out: no such folder; create it"
for file in run.rec crashes.xml crashes.html; do
  [ ! -e "$out/$file" ] || fail "$out/$file exists; move it away, or name another folder by --out"
done

work=$(mktemp -d "$(realpath "${TMPDIR:-/tmp}")/ftld-crash-test.XXXXXX") || fail "no folder for the device in ${TMPDIR:-/tmp}"
server=''
# shellcheck disable=SC2317 # called by the trap
clean_up() {
  [ -z "$server" ] || { kill "$server" && wait "$server"; } 2> /dev/null
  # Never across a mount: what COMMAND mounted there belongs to somebody else.
  if grep -qF " $work/" /proc/self/mountinfo; then
    echo "crash-test.sh: $work stays: something is mounted in it" >&2
  else
    rm -rf --one-file-system "$work"
  fi
}
trap clean_up EXIT
export FTLD_STATE_DIR=$work/state FTLD_RUNTIME_DIR=$work/run FTLD_CONFIG_DIR=$work/etc FTLD_METRICS=off
export FTLD_SOCKET=$work/disk.sock
FTLD_URI="nbd+unix:///?socket=$FTLD_SOCKET"

mkfifo "$work/ready"
ftld --name disk --image "$work/disk.ftld" --size "$size" --record "$out/run.rec" "$FTLD_URI" > "$work/ready" 2> "$work/log" &
server=$!
read -r ready < "$work/ready"
case $ready in
ready*) ;;
*)
  cat "$work/log" >&2
  fail "the device did not start"
  ;;
esac
export FTLD_URI FTLD_NAME=disk
"$@"
rc=$?
if [ $rc != 0 ]; then
  echo "crash-test.sh: $1 ended with exit code $rc; nothing is explored, $out/run.rec is its recording" >&2
  exit 3
fi
unset FTLD_URI FTLD_SOCKET FTLD_NAME
kill "$server"
wait "$server" || { cat "$work/log" >&2; fail "the device failed while it was recorded"; }
server=''
if grep -q "recording has ended" "$work/log"; then
  cat "$work/log" >&2
  fail "the recording is not complete"
fi
ftld crashes "$out/run.rec" --check "$check" --junit "$out/crashes.xml" --html "$out/crashes.html" "${crashes[@]}"
rc=$?
# No report of an exploration that did not begin.
for file in crashes.xml crashes.html; do [ -s "$out/$file" ] || rm -f "$out/$file"; done
exit $rc
