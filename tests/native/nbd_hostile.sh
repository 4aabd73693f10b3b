#!/bin/bash
# Hostile clients against a real daemon, while an honest one's data is written and checked: malformed sessions, then a flood.
#   SESSIONS (10000)  SEED (1)
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
. "$(dirname "$0")/../lib.sh"
export FTLD_RUNTIME_DIR=$SCRATCH/run FTLD_STATE_DIR=$SCRATCH
trap '[ -z "${FTLD:-}" ] || kill -9 "$FTLD" 2> /dev/null; rm -rf "$SCRATCH"' EXIT
# Sessions end by the hundred a second; each end is a line below this.
export FTLD_LOG=error

serve --size 64MiB "nbd+unix:///?socket=$SCRATCH/nbd.sock" || finish
# storm NAME ARGS...
storm() {
  local name=$1
  shift
  if nbd_storm "$@" > "$SCRATCH/storm.log" 2>&1; then ok "$name: $(cat "$SCRATCH/storm.log")"; else bad "$name: $(cat "$SCRATCH/storm.log")"; fi
}
storm sessions sessions "$SCRATCH/nbd.sock" "$FTLD" "${SESSIONS:-10000}" "${SEED:-1}"
storm flood flood "$SCRATCH/nbd.sock" "$FTLD"
quit "after the storm"
step "ftld check" ftld check "$SCRATCH/default.ftld"
finish
