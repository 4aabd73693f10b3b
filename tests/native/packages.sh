#!/bin/bash
# The packages hold what they promise: the program runs from them, pages and completions are clean, nothing restarts a device.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
. "$(dirname "$0")/../lib.sh"
trap 'rm -rf "$SCRATCH"' EXIT
export TERM=dumb

deb=target/packages/ftld.deb rpm=target/packages/ftld.rpm
step "built" env FAST=yes BUILT="$(dirname "$(command -v ftld)")" deploy/packages.sh deb rpm
root=$SCRATCH/root
step "the .deb unpacks" dpkg-deb -x "$deb" "$root"
step "its control files too" dpkg-deb -e "$deb" "$SCRATCH/control"
# shellcheck disable=SC2317 # called by count
control() { cat "$SCRATCH/control"/{postinst,postrm}; }
same "the program runs from it" "$("$root/usr/bin/ftld" -V)" "ftld $(dpkg-deb -f "$deb" Version | cut -d- -f1)"
for file in /usr/lib/systemd/system/ftld@.service /usr/lib/systemd/system/ftld-nbd@.socket /usr/lib/udev/rules.d/61-ftld.rules \
  /etc/ftld/ublkb0.toml /usr/share/man/man8/ftld.8.gz /usr/share/man/man5/ftld.toml.5.gz /usr/share/man/man7/ftld-schemes.7.gz \
  /usr/share/bash-completion/completions/ftld /usr/share/doc/ftld/docs/OPERATING.md; do
  step "$file is in it" test -s "$root$file"
  step "$file is in the .rpm" sh -c "rpm -qlp $rpm 2> /dev/null | grep -qx '$file'"
done
same "the configuration file is the administrator's" "$(cat "$SCRATCH/control/conffiles")" /etc/ftld/ublkb0.toml
step "it is accepted as it is" env FTLD_CONFIG_DIR="$root/etc/ftld" "$root/usr/bin/ftld" --print-config /dev/ublkb0

# Every default that it shows is one: as --print-config has it, without its comment.
value() { sed -n "s/^#*$1 = \("'"[^"]*"'"\|[^ #]*\).*/\1/p" "$2"; }
"$root/usr/bin/ftld" --print-config /dev/ublkb0 > "$SCRATCH/printed"
for key in scheme profile latency metrics; do
  same "its $key is the default" "$(value $key "$root/etc/ftld/ublkb0.toml")" "$(value $key "$SCRATCH/printed")"
done

step "manual pages are clean" bash -c "zcat $root/usr/share/man/man*/*.gz > /dev/null &&
  for page in $root/usr/share/man/man*/*.gz; do mandoc -T lint -W error \"\$page\" || exit 1; done"
step "completions are a script of bash" bash -n "$root/usr/share/bash-completion/completions/ftld"
same "lines of its scripts that start or stop a service" \
  "$(count 'systemctl +(try-)?(re)?(start|stop|load-or)|invoke-rc|deb-systemd-invoke' control)" 0
same "the .rpm has the same version" "$(rpm -qp --qf '%{VERSION}' "$rpm" 2> /dev/null)" "$(dpkg-deb -f "$deb" Version | cut -d- -f1)"
step "no link of its documents is dead" tests/dead_links.py "$root/usr/share/doc/ftld"
finish
