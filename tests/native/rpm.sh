#!/bin/bash
# The .rpm installed, upgraded and erased by Debian's rpm in a root of its own. --nodeps, because that root's database knows no
# glibc; the libraries are this machine's. The rpm of Fedora is another build of the same program.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-native.XXXXXX")
. "$(dirname "$0")/../lib.sh"
trap 'rm -rf "$SCRATCH"' EXIT
root=$SCRATCH/root new=$SCRATCH/new/ftld.rpm old=$SCRATCH/old/ftld.rpm
program=$(command -v ftld)
export FAST=yes
BUILT=$(dirname "$program")
export BUILT

step "built" env OUT="$SCRATCH/new" deploy/packages.sh rpm
step "built as 0.1.0" env OUT="$SCRATCH/old" VERSION=0.1.0 deploy/packages.sh rpm
version=$(rpm -qp --qf '%{VERSION}' "$new" 2> /dev/null)
differ "its version" "$version" 0.1.0
wanted=$(rpm -qp --requires "$new" 2> /dev/null | grep -vE '^(rpmlib|config|rtld)\(' | sed 's/(.*//' | sort -u | tr '\n' ' ')
same "it requires" "$wanted" "/bin/sh ld-linux-x86-64.so.2 libc.so.6 libgcc_s.so.1 libm.so.6 "

# A root with a shell for the scriptlets and the libraries of the program.
install -D -m 755 /bin/busybox "$root/bin/sh"
ldd "$program" | grep -oE '/[^ ]+' | sort -u | while read -r library; do install -D -m 755 "$library" "$root$library"; done
mkdir -p "$root/var/lib" "$root/run" "$root/proc"
rpm_here() { rpm --root "$root" --dbpath /var/lib/rpm "$@"; }
in_root() { chroot "$root" /usr/bin/ftld "$@"; }
step "a database" rpm --root "$root" --dbpath /var/lib/rpm --initdb

step "install 0.1.0" rpm --root "$root" --dbpath /var/lib/rpm -i --nodeps "$old"
step "every file is as packed" rpm --root "$root" --dbpath /var/lib/rpm -V --nodeps ftld
for file in /usr/bin/ftld /usr/lib/systemd/system/ftld@.service /usr/lib/udev/rules.d/61-ftld.rules \
  /usr/share/man/man8/ftld.8.gz /usr/share/bash-completion/completions/ftld /usr/share/zsh/site-functions/_ftld \
  /usr/share/doc/ftld/docs/OPERATING.md /usr/share/doc/ftld/LICENSE-MIT; do
  step "$file" test -s "$root$file"
done
same "configuration files" "$(rpm_here -qc ftld)" /etc/ftld/ublkb0.toml
same "the program runs in it" "$(in_root --version | head -n 1)" "ftld $("$program" --version | sed -n '1s/^ftld //p')"
step "it accepts the configuration" chroot "$root" /usr/bin/ftld --print-config /dev/ublkb0
step "it makes an image" chroot "$root" /usr/bin/ftld create --size 8MiB --image /var/lib/ftld/ublkb0.ftld
sum=$(md5sum < "$root/var/lib/ftld/ublkb0.ftld")
echo '# a line of the administrator' >> "$root/etc/ftld/ublkb0.toml"

step "upgrade" rpm --root "$root" --dbpath /var/lib/rpm -U --nodeps "$new"
same "packages" "$(rpm_here -q ftld)" "ftld-$version-1.$(uname -m)"
step "the administrator's line is still in the configuration" grep -q "a line of the administrator" "$root/etc/ftld/ublkb0.toml"
same "the image" "$(md5sum < "$root/var/lib/ftld/ublkb0.ftld")" "$sum"
step "the program still opens it" chroot "$root" /usr/bin/ftld check /var/lib/ftld/ublkb0.ftld

step "erase" rpm --root "$root" --dbpath /var/lib/rpm -e ftld
step "the program is gone" test ! -e "$root/usr/bin/ftld"
step "the units are gone" test ! -e "$root/usr/lib/systemd/system/ftld@.service"
step "the changed configuration stays, as .rpmsave" grep -q "a line of the administrator" "$root/etc/ftld/ublkb0.toml.rpmsave"
same "the image stays" "$(md5sum < "$root/var/lib/ftld/ublkb0.ftld")" "$sum"
finish
