#!/bin/bash
# deploy/crash-test.sh as an ordinary user: a careless program fails, a careful one passes, wrong use makes nothing. Then the pytest
# fixture's own tests.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/lib.sh"
trap 'cd / && rm -rf "$SCRATCH"' EXIT
chmod 755 "$SCRATCH"
cd "$SCRATCH" || exit
cp "$root/deploy/crash-test.sh" "$root/docs/examples/ledger.py" "$(command -v ftld)" .
chmod 755 ./*
# shellcheck disable=SC2016 # for the shell of the check
check='/usr/bin/python3 ledger.py check $FTLD_IMAGE'
# as_user OUT OPTION...: runs the script as nobody.
as_user() {
  install -d -o nobody "$1"
  setpriv --reuid nobody --regid nogroup --clear-groups env -u XDG_RUNTIME_DIR HOME="$SCRATCH/$1" TMPDIR="$SCRATCH/$1" \
    PATH="$SCRATCH:/usr/bin:/bin" ./crash-test.sh --out "$@"
}
# exits NAME CODE OUT OPTION...
exits() {
  local name=$1 wanted=$2
  shift 2
  as_user "$@" > out 2>&1
  same "$name: exit code" $? "$wanted"
}
# shellcheck disable=SC2016 # for the shell of the load
run='/usr/bin/python3 ledger.py run "$FTLD_URI" 10'
exits careless 1 careless --check "$check" --crashes --failures --crashes 0 -- sh -c "$run careless"
step "careless: report" grep -F "the head counts 1 orders, but order 1 is missing" out
step "careless: JUnit" grep -F "<failure" careless/crashes.xml
step "careless: page" test -s careless/crashes.html
exits careful 0 careful --check "$check" -- sh -c "$run"
step "careful: JUnit" grep -F 'failures="0"' careful/crashes.xml
exits "the same folder again" 2 careful --check "$check" -- sh -c "$run"
step "the same folder again: way out" grep -F "careful/run.rec exists; move it away, or name another folder by --out" out
exits "a load that fails" 3 fails --check "$check" -- sh -c 'exit 7'
exits "no check" 2 none -- sh -c "$run"
exits "no load" 2 none --check "$check" --
exits "a size that cannot be" 2 size --size 1KiB --check "$check" -- true
same "nothing is left" "$(ls none size)" "$(printf 'none:\n\nsize:\n')"

log=fixture.log
if FTLD_PROGRAM=$SCRATCH/ftld PYTHONPATH=$root/deploy/python /usr/bin/python3 -B -m pytest -q -p no:cacheprovider -p pytest_ftld \
  "$root/deploy/python" > $log 2>&1; then ok "fixture: $(tail -n 1 $log)"
else
  cat $log
  bad "fixture"
fi
finish
