#!/bin/bash
# Runs cargo in a copy of docs/examples/my-scheme, as its author would, with the versions of Cargo.lock.
# usage: template.sh check --all-targets --features program      it builds
#        template.sh test -- --nocapture                         it passes every battery; prints the score
set -euo pipefail
cd "$(dirname "$0")/.."
copy=target/examples/my-scheme # as deep as the original: its manifest says ../../..
rm -rf "$copy"
mkdir -p target/examples
cp -r docs/examples/my-scheme target/examples/
cp Cargo.lock "$copy/"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/target}
cd "$copy"
cargo "$@"
