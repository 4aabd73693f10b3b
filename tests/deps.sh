#!/bin/bash
# Makes sure that what the build and the tests need is there. As root on Debian it installs what is missing; otherwise it prints
# what to type and fails. With everything there it takes no time.
# usage: deps.sh [run|packages|long|release]
#   run       what `make run` needs: a C compiler, libclang, cargo. It looks for these, not for packages
#   (none)    what `make test` needs: Debian packages, and a Rust toolchain
#   packages  what `make packages` needs, and no more
#   long      what `make test` needs, and what only `make long-test` does
#   release   what `make release` needs, and no more
set -euo pipefail
usage="usage: tests/deps.sh [run|packages|long|release]"

packages="build-essential pkg-config clang libclang-dev qemu-system-x86 busybox-static cpio xz-utils e2fsprogs fuse3 fio
  libnbd-bin python3-libnbd nbdkit nbd-client nbd-server qemu-utils mmdebstrap prometheus chromium curl ca-certificates
  git openssl mandoc rpm python3-pytest python3-pandas python3-matplotlib python3-zstandard
  parallel shellcheck sqlite3 strace tmux lvm2 mdadm cryptsetup-bin user-mode-linux xfsprogs btrfs-progs f2fs-tools
  python3-lmdb python3-plyvel fish zsh"
static=x86_64-unknown-linux-musl
case ${1:-} in
"" | run) ;;
long) packages="$packages zstd postgresql-15 python3-psycopg2 firefox-esr python3-websocket musl-tools buildah crun" ;;
packages) packages="build-essential pkg-config clang libclang-dev rpm git python3" ;;
release) packages="build-essential pkg-config clang libclang-dev musl-tools rpm git python3" ;;
*) echo "$usage" >&2; exit 2 ;;
esac
rust=1.88 # as in Cargo.toml

fail() { echo "deps: $*" >&2; exit 1; }

install_packages() {
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -q
  apt-get install -q -y --no-install-recommends -o Dpkg::Options::=--force-confold "$@"
}

# A compiler that finds the C library: the build compiles C and links by it.
links_c() {
  local out rc=0
  out=$(mktemp -d)
  cc -x c -o "$out/main" - <<< 'int main(void) { return 0; }' > /dev/null 2>&1 || rc=$?
  rm -rf "$out"
  return $rc
}

# has_file PATTERN...: one of the files is there.
has_file() { compgen -G "$1" > /dev/null || { [ $# -gt 1 ] && shift && has_file "$@"; }; }

# libclang, as the build looks for it: in $LIBCLANG_PATH if that is set, else with other libraries and with each LLVM.
# libclang-cpp.so.14 is another library, which bpftrace brings along.
has_libclang() {
  local folder folders=(/usr/lib /usr/lib64 /usr/lib/*-linux-gnu /usr/lib/llvm* /usr/lib/llvm*/lib* /usr/lib64/llvm*/lib* /usr/local/lib*
    /usr/local/llvm*/lib*)
  ! command -v llvm-config > /dev/null || folders+=("$(llvm-config --libdir)")
  [ -z "${LIBCLANG_PATH:-}" ] || { [ ! -f "$LIBCLANG_PATH" ] || return 0; folders=("$LIBCLANG_PATH"); }
  for folder in "${folders[@]}"; do
    ! has_file "$folder/libclang.so" "$folder/libclang.so.*" "$folder/libclang-[0-9]*.so" "$folder/libclang-[0-9]*.so.*" || return 0
  done
  return 1
}

# What `make run` needs and this machine lacks.
lacking() {
  links_c || echo cc
  has_libclang || echo libclang
}

for_run() {
  local missing
  missing=$(lacking)
  if [ -n "$missing" ] && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    # shellcheck disable=SC2046 # one word a package
    install_packages $(sed 's/^cc$/gcc libc6-dev/; s/^libclang$/libclang-dev/' <<< "$missing")
    missing=$(lacking)
  fi
  [ -z "$missing" ] || fail "not found: $(tr '\n' ' ' <<< "$missing")
  Debian, Ubuntu:  sudo apt-get install -y --no-install-recommends gcc libc6-dev libclang-dev
  Fedora:          sudo dnf install gcc clang-devel
  Arch Linux:      sudo pacman -S gcc clang
  libclang.so in another folder:      LIBCLANG_PATH=FOLDER make run
  without libclang, and without ublk: cargo run --release -p ftld --no-default-features"
}

for_tests() {
  local installed missing
  installed=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 2>/dev/null | awk '$1 == "ii" { print $2 }') ||
    fail "this is not a Debian machine; install these by hand: $packages"
  missing=$(comm -23 <(tr -s ' ' '\n' <<<"$packages" | grep . | sort) <(sort -u <<<"$installed") | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  [ "$(id -u)" = 0 ] || fail "packages are missing: sudo apt-get install -y --no-install-recommends $missing"
  # shellcheck disable=SC2086 # one word a package
  install_packages $missing
}

if [ "${1:-}" = run ]; then for_run; else for_tests; fi

found=$(cargo --version 2>/dev/null | awk '{ print $2 }') || true
[ -n "$found" ] || [ ! -x ~/.cargo/bin/cargo ] || fail "cargo is not on the PATH: . ~/.cargo/env"
[ -n "$found" ] || fail "there is no cargo: curl --proto '=https' -sSf https://sh.rustup.rs | sh -s -- -y"
[ "$(printf '%s\n' "$rust" "$found" | sort -V | sed -n 1p)" = "$rust" ] || fail "cargo $found is older than $rust: rustup update"
case ${1:-} in long | release)
  if [ ! -d "$(rustc --print target-libdir --target "$static")" ]; then
    command -v rustup > /dev/null || fail "there is no Rust for $static, and no rustup to install it"
    rustup target add "$static"
  fi
  ;;
esac
