#!/bin/bash
# Unpacks a Debian kernel that has ublk under target/guest/ and prints its folder: vmlinuz, and modules/*.ko ready to insert.
# Nothing is installed. A kernel that is already there is kept; remove target/guest/kernel-* for a newer one.
# usage: kernel.sh
#   DEBIAN   release of Debian (trixie, testing); without it the one that this machine's apt knows
set -euo pipefail
cd "$(dirname "$0")/../.."
# Debian 12 has 6.12 besides its own 6.1, which is built without ublk; from Debian 13 on the plain name is new enough.
names="linux-image-6.12-cloud-amd64 linux-image-cloud-amd64"
modules="drivers/block/ublk_drv drivers/block/nbd drivers/block/virtio_blk"
# Modules of the stacks on a device; a kernel may have some of them built in.
stacked="drivers/md/dm-mod drivers/md/dm-crypt drivers/md/md-mod drivers/md/raid1 drivers/block/loop crypto/xts"

fail() { echo "kernel.sh: $*" >&2; exit 1; }

# Another release has an apt of its own: its lists, no packages installed.
options=()
if [ -n "${DEBIAN:-}" ]; then
  names=linux-image-cloud-amd64
  state=$PWD/target/guest/apt-$DEBIAN
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
  # shellcheck disable=SC2016 # a format of apt
  mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep -v security | sed -n 1p)
  [ -n "$mirror" ] || fail "apt knows no mirror of Debian"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $DEBIAN main" > "$state/sources.list"
  options=(-o "Dir::State=$state" -o "Dir::Cache=$state/cache" -o "Dir::Etc::SourceList=$state/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::State::Status=/dev/null -o Acquire::Check-Valid-Until=false)
fi

# The package that a metapackage stands for.
resolve() {
  local name package
  for name in $names; do
    package=$(apt-cache "${options[@]}" depends "$name" 2>/dev/null | awk '$1 == "Depends:" && /linux-image/ && !found++ { print $2 }')
    [ -z "$package" ] || { echo "$package"; return; }
  done
  return 1
}

unpack() {
  local package=$1 folder=$2 archive tree release module source parts
  # Debian 14 has the kernel and its modules in packages of their own.
  mapfile -t parts < <(apt-cache "${options[@]}" depends "$package" | awk '$1 == "Depends:" && $2 ~ /^linux-(binary|modules)-/ { print $2 }')
  (cd "$folder" && apt-get "${options[@]}" -o APT::Sandbox::User=root download -q "$package" "${parts[@]}" >&2) ||
    fail "cannot download $package ${parts[*]}"
  for archive in "$folder"/*.deb; do dpkg -x "$archive" "$folder/tree"; done
  tree=$(find "$folder/tree" -path "*/lib/modules/*/kernel" -prune) release=$(find "$folder/tree" -name "vmlinuz*" -type f)
  if [ ! -d "$tree" ] || [ ! -s "$release" ]; then fail "$package has no kernel, or no modules"; fi
  mkdir "$folder/modules"
  for module in $modules $stacked; do
    source=$(find "$tree" -path "*/$module.ko*" | sed -n 1p)
    [ -n "$source" ] || [[ " $stacked " != *" $module "* ]] || continue
    case $source in
    *.xz) xz -dc "$source" > "$folder/modules/${module##*/}.ko" ;;
    *.zst) zstd -qdc "$source" > "$folder/modules/${module##*/}.ko" ;;
    *.ko) cp "$source" "$folder/modules/" ;;
    *) fail "$package has no module ${module##*/}" ;;
    esac
  done
  cp "$release" "$folder/vmlinuz"
  echo "$stacked" > "$folder/stacked" # one without this file is older, and lacks them
  rm -r "$folder"/*.deb "$folder/tree"
}

kind=${DEBIAN:+$DEBIAN-}linux
for ready in target/guest/kernel-"$kind"-*/stacked; do
  [ -e "$ready" ] && { echo "$PWD/$(dirname "$ready")"; exit; }
done
package=$(resolve) || { [ "$(id -u)" = 0 ] && apt-get "${options[@]}" -o APT::Sandbox::User=root update -q >&2 && package=$(resolve); } ||
  fail "none of the packages $names is known to apt: as root, run apt-get update"
mkdir -p target/guest
part=$(mktemp -d target/guest/part.XXXXXX)
trap 'rm -rf "$part"' EXIT
unpack "$package" "$part"
ready=target/guest/kernel-${DEBIAN:+$DEBIAN-}$package
rm -rf "$ready"
mv "$part" "$ready"
trap - EXIT
echo "$PWD/$ready"
