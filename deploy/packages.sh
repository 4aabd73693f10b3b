#!/bin/bash
# Builds packages: the program, manual pages, completions, units, udev rule, configuration file, documents.
# usage: packages.sh deb|rpm...      prints the path of each, below target/package
#   BUILT   folder with the programs; without it they are built, as a release
#   FAST    if set, compress little
# Needs cargo-deb and cargo-generate-rpm: `make packages` installs them.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: deploy/packages.sh deb|rpm..." >&2; exit 2; }
out=$PWD/target/package
tools=$PWD/target/tools/bin
built=$(tests/built.sh)
program=$built/ftld

rm -rf "$out"
mkdir -p "$out/completions"
"$program" man "$out/man"
gzip -9n "$out"/man/*
"$program" completions bash > "$out/completions/ftld"
"$program" completions zsh > "$out/completions/_ftld"
"$program" completions fish > "$out/completions/ftld.fish"
# The tools take the program from where a release lies.
strip -o "$out/ftld" "$program"

for kind; do
  case $kind in
    deb)
      "$tools/cargo-deb" -q -p ftld --no-build --no-strip ${FAST:+--fast} --output "$out/ftld.deb"
      ;;
    rpm)
      "$tools/cargo-generate-rpm" -p daemon ${FAST:+--payload-compress none} --output "$out/ftld.rpm"
      echo "$out/ftld.rpm"
      ;;
    *)
      echo "packages: $kind is neither deb nor rpm" >&2
      exit 2
      ;;
  esac
done
