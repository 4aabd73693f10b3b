#!/bin/sh
# A recipe for `ftld crash-test`: versions of a package, which dpkg installs below a folder. A version is reported once dpkg has ended.
# usage: dpkg.sh run FOLDER VERSIONS [OPTION]   of dpkg: --force-unsafe-io syncs less
#        dpkg.sh check FOLDER                      is the reported version there, or a later one; does dpkg repair what was cut?
set -eu
# install FOLDER OPTION: the package that was built.
install() {
  dpkg --root="$1/root" --log=/dev/null --force-not-root --force-bad-path "$2" --install "$work/thing.deb" > "$work/out" 2>&1 || {
    cat "$work/out"
    return 1
  }
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PATH="$PATH:/usr/sbin:/sbin"
# package VERSION: builds it.
package() {
  mkdir -p "$work/tree/DEBIAN" "$work/tree/opt"
  printf 'Package: thing\nVersion: %s\nArchitecture: all\nMaintainer: nobody <nobody@localhost>\nDescription: a thing\n' "$1" > "$work/tree/DEBIAN/control"
  yes "version $1" | head -n 2000 > "$work/tree/opt/thing"
  dpkg-deb --root-owner-group -b "$work/tree" "$work/thing.deb" > /dev/null
}
case ${1:-} in
run)
  folder=$2 versions=$3
  shift 3
  mkdir -p "$folder/root/var/lib/dpkg/updates" "$folder/root/var/lib/dpkg/info"
  : > "$folder/root/var/lib/dpkg/status"
  number=0
  while [ "$number" -lt "$versions" ]; do
    number=$((number + 1))
    package "$number"
    install "$folder" "${1:---force-bad-path}"
    echo "ACK $number"
    read -r answer && [ "$answer" = OK ]
  done
  ;;
check)
  [ -n "$FTLD_MARK" ] || exit 0
  found=$(sed -n '1s/version //p' "$2/root/opt/thing")
  [ "${found:-0}" -ge "$FTLD_MARK" ] || { echo "version ${found:-none} is there"; exit 1; }
  [ "$(grep -cx "version $found" "$2/root/opt/thing")" = 2000 ] || { echo "the file of version $found is not whole"; exit 1; }
  # What was cut is repaired by an installation of the next version.
  package $((found + 1))
  install "$2" --force-bad-path
  ;;
*)
  sed -n '3,4s/^# *//p' "$0" >&2
  exit 126
  ;;
esac
