#!/bin/bash
# Makes sure that what the build and the tests need is there: Debian packages, and a Rust toolchain. As root it installs what
# is missing; as another user it prints what to type and fails. With everything there it takes no time.
# usage: deps.sh [long|release]      long: also what only `make long-test` needs; release: what `make release` needs, and no more
set -euo pipefail

packages="build-essential pkg-config clang libclang-dev qemu-system-x86 busybox-static cpio xz-utils e2fsprogs fuse3 fio
  libnbd-bin python3-libnbd nbdkit nbd-client nbd-server qemu-utils mmdebstrap prometheus chromium curl ca-certificates
  git openssl mandoc rpm python3-pytest python3-pandas python3-matplotlib python3-zstandard
  parallel shellcheck sqlite3 strace tmux lvm2 mdadm cryptsetup-bin"
static=x86_64-unknown-linux-musl
case ${1:-} in
"") ;;
long) packages="$packages postgresql-15 python3-psycopg2 firefox-esr python3-websocket musl-tools buildah crun" ;;
release) packages="build-essential pkg-config clang libclang-dev musl-tools rpm git python3" ;;
*) echo "usage: tests/deps.sh [long|release]" >&2; exit 2 ;;
esac
rust=1.88 # as in Cargo.toml

fail() { echo "deps: $*" >&2; exit 1; }

installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null | awk '$1 == "ii" { print $2 }') ||
  fail "this is not a Debian machine; install these by hand: $packages"
missing=$(comm -23 <(tr -s ' ' '\n' <<<"$packages" | grep . | sort) <(sort -u <<<"$installed") | tr '\n' ' ')
if [ -n "$missing" ]; then
  [ "$(id -u)" = 0 ] || fail "packages are missing: sudo apt-get install -y --no-install-recommends $missing"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  # shellcheck disable=SC2086 # one word a package
  apt-get install -q -y --no-install-recommends -o Dpkg::Options::=--force-confold $missing
fi

found=$(cargo --version 2>/dev/null | awk '{ print $2 }') || true
[ -n "$found" ] || fail "there is no cargo: curl --proto '=https' -sSf https://sh.rustup.rs | sh -s -- -y"
[ "$(printf '%s\n' "$rust" "$found" | sort -V | head -n 1)" = "$rust" ] || fail "cargo $found is older than $rust: rustup update"
if [ -n "${1:-}" ] && [ ! -d "$(rustc --print target-libdir --target "$static")" ]; then
  command -v rustup > /dev/null || fail "there is no Rust for $static, and no rustup to install it"
  rustup target add "$static"
fi
