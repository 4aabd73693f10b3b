#!/bin/bash
# Runs unit tests under tools that need a nightly toolchain.
# usage: sanitize.sh asan|miri...
#   asan: the daemon, whose system calls and ublk buffers are the only unsafe code, and the whole NBD suite
#   miri: what takes numbers and bytes apart in nand-model and ftl-core. Interpreted, a test takes thousands of times as long: statistics,
#         whole schemes and tests that work on files are left out.
# A tool that is not there fails the run.
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "sanitize result: FAILED. $*"; exit 1; }
# ran COMMAND...: a run of tests; fails as well if its filters leave no test.
ran() {
  local log tests
  log=$(mktemp)
  "$@" 2>&1 | tee "$log"
  tests=$(awk '/^test result: ok\./ { sum += $4 } END { print sum + 0 }' "$log")
  rm "$log"
  [ "$tests" -gt 0 ]
}
[ $# -gt 0 ] || fail "usage: sanitize.sh asan|miri..."
triple=$(rustc -vV | sed -n 's/^host: //p')
cargo +nightly --version > /dev/null 2>&1 || fail "there is no nightly toolchain: rustup toolchain install nightly"
for tool in "$@"; do
  case $tool in
    asan)
      # Leaks are what a test leaves behind on purpose: threads that hang in a device.
      RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 ran cargo +nightly test -q -p ftld -p ftld-crash -p ftld-lab -p ftld-device -p ftld-kit --target "$triple" --target-dir target/asan ||
        fail "asan"
      ;;
    miri)
      cargo +nightly miri --version > /dev/null 2>&1 || fail "there is no Miri: rustup +nightly component add miri rust-src"
      # Two runs of one computation shall give one result.
      export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-deterministic-floats"
      ran cargo +nightly miri test -q -p nand-model --lib --target-dir target/miri -- --skip store:: --skip errors_ --skip retries_ \
        --skip chances_ --skip every_flipped_byte_ --skip victims_and_threats_ --skip as_many_blocks_ || fail "miri"
      ran cargo +nightly miri test -q -p ftld-core --lib --target-dir target/miri -- addr:: events:: format:: || fail "miri"
      ;;
    *) fail "$tool is neither asan nor miri" ;;
  esac
  echo "ok   sanitize: $tool"
done
echo "sanitize result: ok. $# passed, 0 failed"
