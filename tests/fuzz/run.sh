#!/bin/bash
# Fuzzes with libFuzzer: a stable toolchain and a C++ compiler are enough.
# usage: run.sh [TARGET...]     all if none is given
#   FUZZ_SECONDS (60)  per target, on one core
#   MINIMISE (0)       1: afterwards shrinks corpus/TARGET to what reaches everything found so far
# What it learns is kept in target/fuzz/corpus/TARGET (corpus.sh packs it); corpus/TARGET is what the repository keeps. Fails with the input of the first
# crash, hang (10 s) or use of more than 512 MiB, left in target/fuzz/found/. Repeat one: target/fuzz/bin/TARGET FILE
set -euo pipefail
cd "$(dirname "$0")/../.."
fail() { echo "fuzz result: FAILED. $*"; exit 1; }
command -v c++ > /dev/null || fail "there is no C++ compiler: apt-get install build-essential"
targets=("$@")
[ $# -gt 0 ] || targets=(nbd image flash codec config recording)
triple=$(rustc -vV | sed -n 's/^host: //p')
out=$PWD/target/fuzz
mkdir -p "$out/bin" "$out/found"
# What cargo-fuzz passes, without an address sanitizer: the fuzzed crates forbid unsafe code.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
  -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing"
RUSTFLAGS=$(tr -s ' \n' ' ' <<< "$coverage") cargo build -q --release --manifest-path tests/fuzz/Cargo.toml --target "$triple" --target-dir "$out/build"
[ -d /dev/shm ] && export TMPDIR=/dev/shm
for target in "${targets[@]}"; do
  cp "$out/build/$triple/release/$target" "$out/bin/"
  own=$out/corpus/$target kept=tests/fuzz/corpus/$target log=$out/$target.log
  mkdir -p "$own" "$kept"
  "$out/bin/$target" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=10 -rss_limit_mb=512 -max_len=4096 -print_final_stats=1 -use_value_profile=1 \
    -artifact_prefix="$out/found/$target-" "$own" "$kept" > "$log" 2>&1 || { tail -n 40 "$log"; fail "$target: input and log are in $out"; }
  runs=$(awk '/number_of_executed_units/ { print $2 }' "$log")
  [ "${runs:-0}" -gt 0 ] || { tail -n 40 "$log"; fail "$target: no input was run"; }
  echo "ok   fuzz: $target: $(awk '/number_of_executed_units/ { runs = $2 } /peak_rss_mb/ { rss = $2 } / cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
    END { print runs " inputs, " cov " edges, at most " rss " MiB" }' "$log")"
  if [ "${MINIMISE:-0}" = 1 ]; then
    small=$out/small/$target
    rm -rf "$small" && mkdir -p "$small"
    "$out/bin/$target" -merge=1 -rss_limit_mb=512 "$small" "$own" "$kept" > "$log.merge" 2>&1 || fail "$target: merging"
    rm -rf "$kept" && cp -r "$small" "$kept"
    echo "     fuzz: $target: $(find "$kept" -type f | wc -l) inputs kept, $(du -sh "$kept" | cut -f1)"
  fi
done
echo "fuzz result: ok. ${#targets[@]} passed, 0 failed"
