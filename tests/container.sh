#!/bin/bash
# Builds deploy/Dockerfile with Debian's buildah and runs the image: a comparison, and an NBD server that a client of this machine
# reads and writes, over two lives of the container. Takes root, and as long as a build of a release.
# Base images come from their registry. Where none is reachable, mmdebstrap makes both of the Debian that they are made of, and the
# Rust is this machine's; SELF_MADE=yes does so in any case.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-container.XXXXXX")
cd "$(dirname "$0")/.." || exit
. tests/lib.sh
server='' container=''
# shellcheck disable=SC2317 # called by the trap
clean() {
  [ -z "$server" ] || kill "$server" 2> /dev/null
  [ -z "$container" ] || buildah rm "$container" > /dev/null
  rm -rf "$SCRATCH"
}
trap clean EXIT
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
for tool in buildah mmdebstrap nbdcopy nbdinfo; do
  command -v $tool > /dev/null || give_up "there is no $tool: tests/deps.sh long"
done

# self_made IMAGE: a stand-in for a base image of Dockerfile, by its name.
self_made() {
  local rust
  case $1 in
  debian:*)
    mmdebstrap --quiet --variant=minbase --skip=check/empty --dpkgopt=force-unsafe-io bookworm "$SCRATCH/debian.tar" || return
    printf 'FROM scratch\nADD debian.tar /\n' > "$SCRATCH/Dockerfile"
    ;;
  rust:*)
    rust=$(rustc --print sysroot)
    mkdir -p "$SCRATCH/rust/lib/rustlib"
    cp -rL "$rust/bin" "$SCRATCH/rust/"
    cp -r "$rust"/lib/*.so* "$SCRATCH/rust/lib/"
    cp -r "$rust/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')" "$SCRATCH/rust/lib/rustlib/"
    cp /etc/ssl/certs/ca-certificates.crt "$SCRATCH/rust/"
    cat > "$SCRATCH/Dockerfile" << 'X'
FROM docker.io/library/debian:bookworm-slim
RUN apt-get update -q && apt-get install -y -q --no-install-recommends build-essential git ca-certificates pkg-config
COPY rust /usr/local
ENV CARGO_HTTP_CAINFO=/usr/local/ca-certificates.crt
X
    ;;
  *) return 1 ;;
  esac
  buildah build -t "docker.io/library/$1" -f "$SCRATCH/Dockerfile" "$SCRATCH" && rm -rf "$SCRATCH"/{rust,debian.tar}
}

# Debian's comes first: the other one is made from it.
mapfile -t bases < <(sed -n 's/^FROM \([^ ]*\).*/\1/p' deploy/Dockerfile | sort)
for base in "${bases[@]}"; do
  if buildah inspect --type image "docker.io/library/$base" > /dev/null 2>&1; then note "base image $base is here"
  elif [ -z "${SELF_MADE:-}" ] && timeout 120 buildah pull -q "docker.io/library/$base" > "$SCRATCH/pull.log" 2>&1; then note "base image $base from its registry"
  elif self_made "$base" > "$SCRATCH/base.log" 2>&1; then note "base image $base made here"
  else
    tail -n 20 "$SCRATCH/pull.log" "$SCRATCH/base.log"
    give_up "no base image $base"
  fi
done

began=$(now)
if buildah build -t ftld -f deploy/Dockerfile . > "$SCRATCH/build.log" 2>&1; then ok "build ($(($(now) - began)) s)"
else
  tail -n 30 "$SCRATCH/build.log"
  give_up "build"
fi
same "it runs as" "$(buildah inspect --type image --format '{{.OCIv1.Config.User}}' ftld)" ftld
same "entry point" "$(buildah inspect --type image --format '{{.OCIv1.Config.Entrypoint}}' ftld)" "[ftld]"
container=$(buildah from ftld) || give_up "no container"
in_container() { buildah run "$@"; }
same "its program" "$(in_container "$container" -- ftld --version | head -n 1)" "ftld $(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)"
step "a comparison" buildah run "$container" -- ftld compare uniform zipf --size 64MiB --scheme pagemap,lazyftl

# A folder of this machine for socket and image, as deploy/compose.yaml has it.
mkdir -m 777 "$SCRATCH/run"
uri="nbd+unix:///disk?socket=$SCRATCH/run/disk.sock"
serve_in_container() {
  : > "$SCRATCH/out"
  buildah run -v "$SCRATCH/run:/run/ftld" --env FTLD_STATE_DIR=/run/ftld/images --env FTLD_RUNTIME_DIR=/run/ftld/instances "$container" -- \
    ftld --name disk --size 32MiB --metrics 127.0.0.1:9931 'nbd+unix:///disk?socket=/run/ftld/disk.sock' > "$SCRATCH/out" 2> "$SCRATCH/log" &
  server=$!
  soon "$1: it serves" 60 grep -q '^ready ' "$SCRATCH/out" || tail -n 20 "$SCRATCH/log"
}
stop_in_container() {
  step "$1: stop" buildah run -v "$SCRATCH/run:/run/ftld" --env FTLD_RUNTIME_DIR=/run/ftld/instances "$container" -- ftld stop disk
  wait "$server"
  same "$1: its exit code" $? 0
  server=
}
serve_in_container "first life"
same "size" "$(nbdinfo --size "$uri")" $((32 << 20))
step "the live page" sh -c 'curl -sf http://127.0.0.1:9931/ | grep -q "<title>"'
dd if=/dev/urandom of="$SCRATCH/data" bs=1M count=32 status=none
step "copy in" nbdcopy --flush "$SCRATCH/data" "$uri"
stop_in_container "first life"
serve_in_container "second life"
step "copy out" nbdcopy "$uri" "$SCRATCH/copy"
step "the same bytes" cmp "$SCRATCH/data" "$SCRATCH/copy"
stop_in_container "second life"
finish
