#!/bin/bash
# The static archive in a root that contains nothing else, not even /proc or /dev: a comparison, an image, an NBD server that a
# client outside reads and writes, kill -9. Takes root.
# usage: static.sh [ARCHIVE]      without one deploy/packages.sh builds it
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-static.XXXXXX")
archive=${1:+$(realpath "$1")}
cd "$(dirname "$0")/.." || exit
. tests/lib.sh
FTLD=
trap '[ -z "$FTLD" ] || kill -9 "$FTLD" 2> /dev/null; rm -rf "$SCRATCH"' EXIT
: "${archive:=$(OUT=target/packages-static deploy/packages.sh static)}"
[ -s "$archive" ] || give_up "there is no archive"

step "it unpacks" tar xzf "$archive" -C "$SCRATCH"
folder=$(echo "$SCRATCH"/ftld-*-linux-musl) root=$SCRATCH/root
program=$folder/ftld
mkdir "$root"
cp "$program" "$root/ftld"
size=$(stat -c %s "$program")
note "the program has $size bytes, the archive $(stat -c %s "$archive")"
at_least "bytes below 13 MB" $((13000000 - size)) 0
same "libraries that it names" "$(count NEEDED readelf -d "$program")" 0
same "sections of symbols" "$(count '\.(symtab|debug_info)' readelf -SW "$program")" 0
for file in man/man8/ftld.8.gz completions/ftld.bash completions/_ftld completions/ftld.fish docs/OPERATING.md README.md \
  examples/ledger.py examples/checks/ext4.sh LICENSE-MIT LICENSE-APACHE LICENCES-OF-CRATES; do
  step "$file" test -s "$folder/$file"
done
step "no link of its documents is dead" tests/dead_links.py "$folder"
step "the licence of musl" grep -qx musl "$folder/LICENCES-OF-CRATES"

in_root() { chroot "$root" /ftld "$@"; }
same "files in its root" "$(find "$root" -mindepth 1 | wc -l)" 1
same "version" "$(in_root --version | head -n 1)" "ftld $(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)"
step "a comparison" chroot "$root" /ftld compare uniform --size 64MiB --scheme pagemap,lazyftl
step "its page" sh -c "chroot $root /ftld compare uniform --size 16MiB --scheme pagemap,fast --html /page.html > /dev/null && grep -q '<svg' $root/page.html"

uri="nbd+unix:///?socket=$root/nbd.sock"
serve_here() {
  : > "$SCRATCH/ftld.out"
  chroot "$root" /ftld --size 64MiB --metrics 127.0.0.1:9932 'nbd+unix:///?socket=/nbd.sock' > "$SCRATCH/ftld.out" 2> "$SCRATCH/ftld.log" &
  FTLD=$!
  soon "$1: it serves" 60 is_ready "$SCRATCH/ftld.out" || tail -n 20 "$SCRATCH/ftld.log"
}
serve_here "first life"
same "size for libnbd" "$(nbdinfo --size "$uri")" $((64 << 20))
step "the live page" sh -c 'curl -sf http://127.0.0.1:9932/ | grep -q "<title>"'
step "ftld status" chroot "$root" /ftld status
dd if=/dev/urandom of="$SCRATCH/data" bs=1M count=64 status=none
step "copy in" nbdcopy --flush "$SCRATCH/data" "$uri"
kill -9 "$FTLD"
wait "$FTLD" 2> /dev/null
serve_here "after kill -9"
step "copy out" nbdcopy "$uri" "$SCRATCH/copy"
step "the same bytes" cmp "$SCRATCH/data" "$SCRATCH/copy"
quit "at the end"
FTLD=
step "ftld check" chroot "$root" /ftld check default
finish
