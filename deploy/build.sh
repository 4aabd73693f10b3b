#!/bin/bash
# Builds the program of a release and prints its path. Its bytes follow from the commit, the toolchain and the C compiler: not
# from the folder, the user or the time.
# usage: build.sh [static]      static: without ublk, linked with musl; it needs nothing but a kernel
set -euo pipefail
cd "$(dirname "$0")/.."
fail() { echo "build.sh: $*" >&2; exit 1; }

options=() triple=$(rustc -vV | sed -n 's/^host: //p')
case ${1:-} in
"") ;;
static)
  triple=$(uname -m)-unknown-linux-musl
  options=(--no-default-features)
  command -v musl-gcc > /dev/null || fail "there is no musl-gcc: apt-get install musl-tools"
  [ -d "$(rustc --print target-libdir --target "$triple")" ] || fail "there is no Rust for $triple: rustup target add $triple"
  ;;
*) echo "usage: deploy/build.sh [static]" >&2; exit 2 ;;
esac

# Paths that compilers would store: of the source, of the crates, of Rust's own source.
cargo_home=$(realpath -m "${CARGO_HOME:-$HOME/.cargo}") separator=$'\x1f'
rust=$(rustc --print sysroot)/lib/rustlib/src/rust
commit=$(rustc -vV | sed -n 's/^commit-hash: //p')
CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=$PWD=/ftld$separator--remap-path-prefix=$cargo_home=/cargo"
CARGO_ENCODED_RUSTFLAGS+="$separator--remap-path-prefix=$rust=/rustc/$commit"
# Relative relocations as a bit map: 340 KB. musl 1.2.4 reads it; a glibc below 2.36 does not.
[ "${1:-}" != static ] || CARGO_ENCODED_RUSTFLAGS+="$separator-Clink-arg=-Wl,-z,pack-relative-relocs"
CFLAGS="${CFLAGS:-} -ffile-prefix-map=$PWD=/ftld -ffile-prefix-map=$cargo_home=/cargo"
# Without the strategies of zstd that our levels do not use (ZSTD_LEVEL in log.rs, LEVEL in recording/write.rs): 330 KB.
for strategy in DFAST GREEDY LAZY LAZY2 BTLAZY2 BTOPT BTULTRA; do CFLAGS+=" -DZSTD_EXCLUDE_${strategy}_BLOCK_COMPRESSOR"; done
# The packages hold the stripped program; one code generation unit, over all crates, makes it smaller.
CARGO_PROFILE_RELEASE_LTO=true CARGO_PROFILE_RELEASE_DEBUG=false CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1 CARGO_INCREMENTAL=0
export CARGO_ENCODED_RUSTFLAGS CFLAGS CARGO_PROFILE_RELEASE_LTO CARGO_PROFILE_RELEASE_DEBUG CARGO_PROFILE_RELEASE_STRIP CARGO_PROFILE_RELEASE_CODEGEN_UNITS CARGO_INCREMENTAL
unset RUSTFLAGS
cargo build -q --locked --release --target "$triple" --target-dir target/dist "${options[@]}" -p ftld --bin ftld >&2
realpath "target/dist/$triple/release/ftld"
