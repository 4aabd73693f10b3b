#!/bin/bash
# Builds the release of this commit a second time elsewhere and compares the bytes: in a clone in another folder, with another
# cargo home, host name, umask, time zone and language. Takes as long as two builds of a release, and as root a host name of its own.
# usage: reproducible.sh [KIND...]      deb, rpm, static (see deploy/packages.sh); all if none is given
# Prints each sum. On a difference both files are left in target/reproducible.
set -euo pipefail
cd "$(dirname "$0")/.."
kinds=("$@")
[ $# -gt 0 ] || kinds=(deb rpm static)
fail() { echo "reproducible result: FAILED. $*"; exit 1; }
[ -z "$(git status --porcelain)" ] || fail "files differ from the commit: git status"

work=$PWD/target/reproducible
rm -rf "$work"
mkdir -p "$work"
other=$(mktemp -d "${TMPDIR:-/tmp}/another-folder.XXXXXX")
trap 'rm -rf "$other"' EXIT
git clone -q --no-hardlinks . "$other/ftld-of-another-user"
mkdir "$other/cargo"
cp -r "${CARGO_HOME:-$HOME/.cargo}/registry" "$other/cargo/"

OUT=$work/first deploy/packages.sh "${kinds[@]}" > /dev/null
cat > "$work/second.sh" <<X
hostname another-host 2> /dev/null || true
umask 077
cd "$other/ftld-of-another-user"
CARGO_HOME="$other/cargo" TZ=Asia/Kathmandu LANG=tr_TR.UTF-8 LC_ALL=C.UTF-8 OUT="$work/second" deploy/packages.sh ${kinds[*]} > /dev/null
X
separate=()
[ "$(id -u)" != 0 ] || separate=(unshare --uts)
"${separate[@]}" bash -e "$work/second.sh" || fail "the second build"

differences=0
for file in "$work"/first/ftld.deb "$work"/first/ftld.rpm "$work"/first/ftld-static.tar.gz \
  "$work"/first/system/ftld "$work"/first/static-parts/ftld; do
  [ -e "$file" ] || continue
  name=${file#"$work"/first/}
  if cmp "$file" "$work/second/$name"; then
    echo "ok   reproducible: $name: $(sha256sum < "$file" | cut -c1-64), $(stat -c %s "$file") bytes"
  else
    echo "FAIL reproducible: $name differs"
    differences=$((differences + 1))
  fi
done
[ $differences = 0 ] || fail "$differences files differ; diffoscope shows where"
rm -rf "$work"
echo "reproducible result: ok. ${kinds[*]} are the same"
