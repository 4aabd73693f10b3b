#!/bin/bash
# Packs a folder tree for the guest into a compressed cpio archive: each file goes to /bin, together with the shared libraries
# it needs, at their own paths.
# usage: mkroot.sh ARCHIVE FILE...        a FILE may be NAME=FILE, to be called NAME in the guest
# Linux unpacks several archives one over the other, so what seldom changes has its own.
set -euo pipefail
fail() { echo "mkroot.sh: $*" >&2; exit 1; }
[ $# -ge 2 ] || fail "usage: mkroot.sh ARCHIVE FILE..."
archive=$1; shift
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root" # it becomes the guest's /
mkdir "$root/bin"

libraries_of() {
  local found
  found=$(ldd "$1" 2>/dev/null) || return 0 # a script, or linked statically
  ! grep "not found" <<<"$found" >&2 || fail "$1 lacks a shared library"
  grep -o '/[^ ]*' <<<"$found"
}

for item in "$@"; do
  file=${item#*=} name=${item%%=*}
  [ -f "$file" ] || fail "$file does not exist"
  cp -L "$file" "$root/bin/${name##*/}"
  for library in $(libraries_of "$file"); do
    mkdir -p "$root${library%/*}"
    cp -Lu "$library" "$root$library"
  done
done
(cd "$root" && find . | cpio -o -H newc --quiet -R 0:0 | gzip -1) > "$archive.part"
mv "$archive.part" "$archive"
