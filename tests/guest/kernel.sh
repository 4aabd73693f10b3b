#!/bin/bash
# Unpacks a Debian kernel that has ublk under target/guest/ and prints its folder: vmlinuz, and modules/*.ko ready to insert.
# Nothing is installed. A kernel that is already there is kept; remove target/guest/kernel-* for a newer one.
set -euo pipefail
cd "$(dirname "$0")/../.."
# Debian 12 has 6.12 beside its own 6.1, which is built without ublk; from Debian 13 on the plain name is new enough.
names="linux-image-6.12-cloud-amd64 linux-image-cloud-amd64"
modules="drivers/block/ublk_drv drivers/block/nbd drivers/block/virtio_blk"

fail() { echo "kernel.sh: $*" >&2; exit 1; }

# The package that a metapackage stands for.
resolve() {
  local name package
  for name in $names; do
    package=$(apt-cache depends "$name" 2>/dev/null | awk '$1 == "Depends:" && /linux-image/ { print $2; exit }')
    [ -z "$package" ] || { echo "$package"; return; }
  done
  return 1
}

unpack() {
  local package=$1 folder=$2 archive tree release module source
  (cd "$folder" && apt-get -o APT::Sandbox::User=root download -q "$package" >&2) || fail "cannot download $package"
  archive=$(echo "$folder"/*.deb)
  dpkg -x "$archive" "$folder/tree"
  tree=$(echo "$folder"/tree/lib/modules/*/kernel) release=$(echo "$folder"/tree/boot/vmlinuz-*)
  mkdir "$folder/modules"
  for module in $modules; do
    source=$(find "$tree" -path "*/$module.ko*" | head -n 1)
    case $source in
    *.xz) xz -dc "$source" > "$folder/modules/${module##*/}.ko" ;;
    *.ko) cp "$source" "$folder/modules/" ;;
    *) fail "$package has no module ${module##*/}" ;;
    esac
  done
  cp "$release" "$folder/vmlinuz"
  rm -r "$archive" "$folder/tree"
}

for ready in target/guest/kernel-*/vmlinuz; do
  [ -e "$ready" ] && { echo "$PWD/$(dirname "$ready")"; exit; }
done
package=$(resolve) || { [ "$(id -u)" = 0 ] && apt-get update -q >&2 && package=$(resolve); } ||
  fail "none of the packages $names is known to apt: as root, run apt-get update"
mkdir -p target/guest
part=$(mktemp -d target/guest/part.XXXXXX)
trap 'rm -rf "$part"' EXIT
unpack "$package" "$part"
mv "$part" "target/guest/kernel-$package"
trap - EXIT
echo "$PWD/target/guest/kernel-$package"
