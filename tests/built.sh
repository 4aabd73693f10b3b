#!/bin/bash
# Prints the folder with the programs that the native and the guest scripts run: $BUILT, or that of a release, which it builds. One
# build for both: other features of a dependency would mean another one.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${BUILT:-}" ]; then
  BUILT=target/release
  cargo build --release -q -p ftld -p ftld-device -p ftld-tests --bin ftld --bin nbd_storm --bin fsync_markers --bin redb_commits --example plain_file >&2
fi
for program in ftld nbd_storm fsync_markers redb_commits examples/plain_file; do
  [ -x "$BUILT/$program" ] || { echo "built.sh: there is no $BUILT/$program: cargo test --workspace --no-run" >&2; exit 1; }
done
realpath "$BUILT"
