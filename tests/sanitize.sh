#!/bin/bash
# Runs unit tests under tools that need a nightly toolchain.
# usage: sanitize.sh asan|miri...
#   asan: the daemon, whose system calls and ublk buffers are the only unsafe code, and the whole NBD suite
#   miri: nand-model and ftl-core, but for the tests that work on files
# A tool that is not there fails the run.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "sanitize result: FAILED. $*"; exit 1; }
[ $# -gt 0 ] || fail "usage: sanitize.sh asan|miri..."
triple=$(rustc -vV | sed -n 's/^host: //p')
cargo +nightly --version > /dev/null 2>&1 || fail "there is no nightly toolchain: rustup toolchain install nightly"
for tool in "$@"; do
  case $tool in
    asan)
      # Leaks are what a test leaves behind on purpose: threads that hang in a device.
      RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 cargo +nightly test -q -p ftld --target "$triple" --target-dir target/asan ||
        fail "asan"
      ;;
    miri)
      cargo +nightly miri --version > /dev/null 2>&1 || fail "there is no Miri: rustup +nightly component add miri rust-src"
      MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -q -p nand-model -p ftl-core --lib --target-dir target/miri -- --skip store::file ||
        fail "miri"
      ;;
    *) fail "$tool is neither asan nor miri" ;;
  esac
  echo "ok   sanitize: $tool"
done
echo "sanitize result: ok. $# passed, 0 failed"
