#!/bin/bash
# The README's blocks that need neither ublk nor nbd in the kernel, line by line as printed: the demo, the
# simulation, the device to watch, a file system through nbdfuse. tests/guest/readme.sh has the rest.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tests/lib.sh"
export FTLD_STATE_DIR=$SCRATCH/state FTLD_RUNTIME_DIR=$SCRATCH/run
# Another daemon of this machine may have the default address.
port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
export FTLD_METRICS=127.0.0.1:$port
cd "$SCRATCH" || exit

# Also after a failure, no mount and no process of this script is left.
# shellcheck disable=SC2317 # called by the trap
clean_up() {
  umount -l mnt 2> /dev/null
  fusermount3 -uz fuse 2> /dev/null
  for name in demo mine disk; do ftld stop --force "$name" > /dev/null 2>&1; done
  cd / && rm -rf "$SCRATCH"
}
trap clean_up EXIT

# block HEADING: what is to be typed in a section.
# shellcheck disable=SC2016 # backquotes of Markdown
block() { sed -n "/^## $1\$/,/^## /p" "$root/README.md" | sed -n '/^```sh$/,/^```$/p' | grep -v '^```' | tr -s ' '; }

# play HEADING LEAST: every line succeeds, and what it shows is looked at by `after LINE`. Sizes and
# times are shortened.
play() {
  block "$1" > lines
  at_least "$1: lines" "$(wc -l < lines)" "$2"
  while read -r line <&3; do
    shortened=$(sed 's/^ftld demo$/timeout --preserve-status -s INT 3 ftld demo --no-open/; s/--runtime=60/--runtime=2/; /^ftld compare/s/--size 256MiB/--size 16MiB/' <<< "$line")
    if eval "$shortened" > out 2> err < /dev/null; then ok "$line"; else bad "$line"; cat out err; fi
    after "$line"
  done 3< lines
}

after() {
  case $1 in
  "ftld compare"*)
    same "schemes in both tables of both workloads" "$(grep -cE '^  (pagemap|lazyftl|fast) ' out)" 12
    at_least "plots" "$(grep -c '<svg' compare.html)" 1
    ;;
  "ftld demo")
    same "ready lines" "$(grep -c "^ready nbd+unix:.* metrics=http://127.0.0.1:$port/metrics$" out)" 1
    same "the page is named" "$(grep -c "; Ctrl-C ends the demo" err)" 1
    ;;
  *"--detach"*) same "ready lines" "$(grep -c "^ready nbd+unix:.* metrics=http://127.0.0.1:$port/metrics$" out)" 1 ;;
  fio*)
    at_least "pages programmed for the host" \
      "$(curl -s "127.0.0.1:$port/metrics" | sed -n 's/^ftld_nand_pages_programmed_total{.*cause="host"} //p')" 100
    same "live pages" "$(curl -s "127.0.0.1:$port/" | grep -c '<!doctype html>')" 1
    ;;
  "ftld status"*) same "write amplification in the status" "$(grep -c 'write amplification [1-9]' out)" 1 ;;
  mkfs*) same "the file system is mounted" "$(grep -c " $SCRATCH/mnt ext4 " /proc/mounts)" 1 ;;
  esac
}

play Look 1
play Simulate 1
play Watch 4
play "Mount without ublk" 5
step "ftld check" ftld check "$FTLD_STATE_DIR/disk.ftld"
step "nothing stays mounted" test -z "$(grep "$SCRATCH" /proc/mounts)"
finish
