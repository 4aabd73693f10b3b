#!/bin/bash
# Makes everything that a release has, in target/release-VERSION: .deb, .rpm, static archive, one archive of fuzz inputs per target,
# SHA256SUMS, and the notes from CHANGELOG.md. Prints the files. Publishes nothing: CONTRIBUTING.md ("A release") has those steps.
# usage: release.sh [--trial]      --trial: before the tag; says what a release would still refuse
#   BUILT    in a trial only: as in packages.sh
set -euo pipefail
export LC_ALL=C
cd "$(dirname "$0")/.."
trial=
case $*:$# in
:0) ;;
--trial:1) trial=yes ;;
*) echo "usage: deploy/release.sh [--trial]" >&2; exit 2 ;;
esac
fail() { echo "release: $*" >&2; exit 1; }
# unready WHY: an error, except in a trial.
unready() { if [ "$trial" ]; then echo "release: a trial; a release refuses this: $*" >&2; else fail "$*"; fi; }

# of_manifest KEY: its value under [workspace.package].
of_manifest() { sed -n "/^\[workspace.package\]/,/^\[workspace.dep/s/^$1 = \"\(.*\)\"$/\1/p" Cargo.toml; }
version=$(of_manifest version) address=$(of_manifest repository)
[ -n "$version" ] || fail "Cargo.toml names no version"

# One version everywhere.
named() { [ "$2" = "$version" ] || fail "$1 has version ${2:-none}, Cargo.toml $version"; }
named CITATION.cff "$(sed -n 's/^version: //p' CITATION.cff)"
named deploy/python/pyproject.toml "$(sed -n 's/^version = "\(.*\)"$/\1/p' deploy/python/pyproject.toml)"
others=$(sed -n "/^\[workspace.dependencies\]/,/^$/s/^\(.*\) = .*path = .*version = \"\(.*\)\".*/\1 \2/p" Cargo.toml | grep -v " $version\$" || true)
[ -z "$others" ] || fail "[workspace.dependencies] of Cargo.toml has another version than $version: $others"
cargo metadata --locked --offline --no-deps --format-version 1 > /dev/null 2>&1 || fail "Cargo.lock is outdated: cargo check"
title=$(grep -m 1 '^## ' CHANGELOG.md) || true
case $title in
"## $version") ;;
"## $version "*) unready "CHANGELOG.md calls section $version '$title': remove what follows the version" ;;
*) fail "the first section of CHANGELOG.md is '$title', not '## $version'" ;;
esac
notes=$(awk -v version="$version" '/^## / { on = $2 == version; next } on' CHANGELOG.md | sed '/./,$!d')
[ -n "$notes" ] || fail "section $version of CHANGELOG.md is empty"

# The tag, the commit, the address.
tags=$(git tag --points-at HEAD 'v*')
grep -qx "v$version" <<< "$tags" || unready "HEAD has ${tags:-no tag}, not v$version: git tag -s v$version"
[ -z "$(git status --porcelain)" ] || unready "files differ from the commit: git status"
home=${GITHUB_REPOSITORY:+${GITHUB_SERVER_URL:-https://github.com}/$GITHUB_REPOSITORY}
case $address in
"" | *.example/*) unready "repository in Cargo.toml is '$address', not the address of this repository${home:+, $home}" ;;
*) [ "${home:-$address}" = "$address" ] || unready "repository in Cargo.toml is $address, this is $home" ;;
esac

for tool in cargo git dpkg-deb dpkg-shlibdeps rpmbuild tar sha256sum musl-gcc; do
  command -v $tool > /dev/null || fail "there is no $tool: tests/deps.sh release"
done

# A trial may pack programs that are built already; a release builds its own.
[ "$trial" ] || unset BUILT VERSION FAST

out=$PWD/target/release-$version machine=$(uname -m)
rm -rf "$out"
mkdir -p "$out"
OUT=$out/work deploy/packages.sh static deb rpm > /dev/null
mv "$out/work/ftld.deb" "$out/ftld_$version-1_$(dpkg --print-architecture).deb"
mv "$out/work/ftld.rpm" "$out/ftld-$version-1.$machine.rpm"
mv "$out/work/ftld-static.tar.gz" "$out/ftld-$version-$machine-linux-musl.tar.gz"
rm -rf "$out/work"
tests/fuzz/corpus.sh pack "$out" > /dev/null
printf '%s\n' "$notes" > "$out/notes.md"
(cd "$out" && sha256sum -- *.deb *.rpm *.tar.gz > SHA256SUMS)
wc -c "$out"/* | sed "s,$PWD/,,"
