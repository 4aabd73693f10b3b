#!/bin/bash
# Pages that need neither ublk nor nbd in the kernel, line by line as printed: docs/course without root, its lesson for researchers
# with the cells of docs/REPLAY.md that it names; the recipe of docs/LIMITS.md.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/lib.sh"
. "$root/tests/page.sh"
export FTLD_STATE_DIR=$SCRATCH/state FTLD_RUNTIME_DIR=$SCRATCH/run
# Another daemon of this machine may have the default address.
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export FTLD_METRICS=127.0.0.1:$port

# Also after a failure, no mount and no process of this script is left.
# shellcheck disable=SC2317 # called by the trap
clean_up() {
  fusermount3 -uz "$SCRATCH/rescue/copy" 2> /dev/null
  for name in demo lesson disk copy; do ftld stop --force "$name" > /dev/null 2>&1; done
  cd / && rm -rf "$SCRATCH"
}
trap clean_up EXIT
# shellcheck disable=SC2317 # called by page_play
typed() {
  case $1 in curl* | "ftld status"*) echo "sleep 0.3" ;; esac # figures are published ten times a second
  echo "${1//127.0.0.1:9917/127.0.0.1:$port}"
}
# shellcheck disable=SC2317 # called by page_play
after() {
  case $1 in
  "ftld step"*) at_least "events of a step" "$(grep -c '^  event [0-9]*: gc, ' "$SCRATCH/page.out")" 1 ;;
  *pages_programmed_total*) note "programs: $(sed 's,.*cause=,,' "$SCRATCH/page.out" | tr -d '"}' | tr '\n' " ")" ;;
  *ftld_recovery_*) at_least "pages discarded" "$(sed -n 's/^ftld_recovery_discarded_pages.* //p' "$SCRATCH/page.out")" 1 ;;
  esac
}

course=$root/docs/course
if [ "${1:-}" = without_root ]; then
  cd "$SCRATCH" || exit
  page_play "why" 11 8 "$course/1-why.md" "# 1. Why flash needs a translation layer"
  page_play "load" 7 16 "$course/2-load.md" "# 2. Load, spare flash and TRIM"
  page_play "schemes" 4 10 "$course/3-schemes.md" "# 3. Schemes compared"
  page_play "power cuts" 21 9 "$course/4-power-cuts.md" "# 4. Power cuts"
  same "daemons that are left" "$(ftld list)" "no instance is running"
  finish
fi

mkdir "$SCRATCH/research" && cd "$SCRATCH/research" || exit
page_play "research" 12 18 "$course/research.md" "# A lesson for researchers"
same "rows and summaries" "$(wc -l < rows.ndjson)" 64
# shellcheck disable=SC2016 # backquotes of Markdown
for heading in "Rows and plots" Ratios; do
  sed -n "/^### $heading\$/,/^###* /p" "$root/docs/REPLAY.md" | sed -n '/^```python$/,/^```$/p' | grep -v '^```'
done > cells.py
step "the cells of docs/REPLAY.md" env MPLBACKEND=Agg /usr/bin/python3 cells.py
at_least "cells of the sweep that they print" "$(grep -cE '^[0-9]+ .*zipf' "$SCRATCH/step.log")" 16

# docs/LIMITS.md: three pages of an image are lost, every other one is saved.
mkdir "$SCRATCH/rescue" && cd "$SCRATCH/rescue" || exit
step "a file system to lose" bash -c 'truncate -s 64M disk.img && mkfs.ext4 -q disk.img &&
  head -c 20M /dev/urandom > data && debugfs -w -R "write data data" disk.img &&
  ftld --detach --metrics off --size 64MiB --name disk "nbd+unix:///?socket=disk.sock" && nbdcopy --flush disk.img "nbd+unix:///?socket=disk.sock" &&
  ftld inject bit-errors disk --count 3 --seed 1 && ftld stop disk'
# shellcheck disable=SC2317 # called by page_play
typed() {
  echo "${1//\/var\/lib\/ftld/$FTLD_STATE_DIR}"
  case $1 in "ftld check"*) echo '[ $? = 8 ]' ;; esac
}
page_play rescue 8 0 "$root/docs/LIMITS.md" "## When an image is damaged"
same "bytes saved" "$(stat -c %s saved.raw)" $((64 << 20))
same "pages that are zeros" "$(cmp -l saved.raw disk.img | awk '$1 > 4096 { if ($2 != 0) exit 1; page[int(($1 - 1) / 4096)] } END { print length(page) }')" 3
step "nothing stays mounted" test -z "$(grep "$SCRATCH" /proc/mounts)"

# The program and the page where any user can read them.
chmod 755 "$SCRATCH"
mkdir -p "$SCRATCH/tree/tests/native" "$SCRATCH/tree/docs" "$SCRATCH/bin"
cp "$root/tests/lib.sh" "$root/tests/page.sh" "$SCRATCH/tree/tests"
cp "$root/tests/native/$SUITE.sh" "$SCRATCH/tree/tests/native"
cp -r "$course" "$SCRATCH/tree/docs"
cp "$(command -v ftld)" "$SCRATCH/bin"
PATH=$SCRATCH/bin:$PATH TMPDIR=/tmp setpriv --reuid 65534 --regid 65534 --clear-groups \
  bash "$SCRATCH/tree/tests/native/$SUITE.sh" without_root || bad "the course without root"
finish
