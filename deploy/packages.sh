#!/bin/bash
# Builds packages with Debian's dpkg-deb and rpmbuild: the program, manual pages, completions, units, udev rule, configuration
# file, documents.
# usage: packages.sh deb|rpm...      prints the path of each
#   OUT     folder for them; without it target/package
#   BUILT   folder with the programs; without it they are built, as a release
#   FAST    if set, nothing is compressed
# Nothing in a package stops or restarts a running device: its users would wait.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: deploy/packages.sh deb|rpm..." >&2; exit 2; }
out=$(realpath -m "${OUT:-target/package}")
root=$out/root
built=$(tests/built.sh)
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)

# put MODE FOLDER FILE...
put() {
  local mode=$1 folder=$root$2
  shift 2
  install -D -m "$mode" -t "$folder" "$@"
}

rm -rf "$out"
install -d "$root/usr/bin"
strip -o "$root/usr/bin/ftld" "$built/ftld"
chmod 755 "$root/usr/bin/ftld"
"$built/ftld" man "$out/man"
gzip -9n "$out"/man/*
for section in 5 7 8; do put 644 "/usr/share/man/man$section" "$out"/man/*."$section".gz; done
for shell in bash zsh fish; do "$built/ftld" completions $shell > "$out/$shell"; done
install -D -m 644 "$out/bash" "$root/usr/share/bash-completion/completions/ftld"
install -D -m 644 "$out/fish" "$root/usr/share/fish/vendor_completions.d/ftld.fish"
put 644 /etc/ftld deploy/ublkb0.toml
put 644 /usr/lib/systemd/system deploy/systemd/*
put 644 /usr/lib/udev/rules.d deploy/udev/*
put 644 /usr/share/doc/ftld docs/*.md README.md CHANGELOG.md SECURITY.md LICENSE-MIT LICENSE-APACHE
put 644 /usr/share/doc/ftld/prometheus deploy/prometheus/ftld.rules.yml
put 644 /usr/share/doc/ftld/examples deploy/slurm-array.sh deploy/parallel.sh
put 644 /usr/share/doc/ftld/grafana/dashboards deploy/grafana/dashboards/*
for kind in dashboards datasources; do
  put 644 "/usr/share/doc/ftld/grafana/provisioning/$kind" deploy/grafana/provisioning/$kind/*
done

# build_deb: libraries are those that dpkg-shlibdeps finds.
build_deb() {
  local tree=$out/deb libraries
  cp -a "$root" "$tree"
  install -D -m 644 "$out/zsh" "$tree/usr/share/zsh/vendor-completions/_ftld"
  install -D -m 644 deploy/debian/copyright "$tree/usr/share/doc/ftld/copyright"
  install -D -m 755 -t "$tree/DEBIAN" deploy/debian/postinst deploy/debian/postrm
  echo /etc/ftld/ublkb0.toml > "$tree/DEBIAN/conffiles"
  mkdir -p "$out/shlibdeps/debian"
  echo "Source: ftld" > "$out/shlibdeps/debian/control"
  libraries=$(cd "$out/shlibdeps" && dpkg-shlibdeps -O "$root/usr/bin/ftld" 2> /dev/null | sed -n 's/^shlibs:Depends=//p')
  [ -n "$libraries" ] || { echo "packages: dpkg-shlibdeps names no library" >&2; exit 1; }
  sed -e "s/@VERSION@/$version-1/; s/@LIBRARIES@/$libraries/; s/@ARCH@/$(dpkg --print-architecture)/" \
    -e "s/@SIZE@/$(du -sk --apparent-size "$tree" | cut -f 1)/" deploy/debian/control > "$tree/DEBIAN/control"
  (cd "$tree" && find etc usr -type f -print0 | sort -z | xargs -0 md5sum) > "$tree/DEBIAN/md5sums"
  dpkg-deb ${FAST:+-Znone} --root-owner-group --build "$tree" "$out/ftld.deb" > /dev/null
  echo "$out/ftld.deb"
}

build_rpm() {
  local tree=$out/rpm
  cp -a "$root" "$tree"
  install -D -m 644 "$out/zsh" "$tree/usr/share/zsh/site-functions/_ftld"
  (cd "$tree" && find etc usr -type f | sort | sed 's,^,/,; s,^/etc/,%config(noreplace) &,; s,^/usr/share/\(doc\|man\)/,%doc &,') > "$out/list"
  rpmbuild --quiet -bb --target "$(uname -m)" --buildroot "$out/buildroot" --define "_topdir $out/rpmbuild" \
    --define "_rpmdir $out" --define "_build_name_fmt ftld.rpm" --define "tree $tree" --define "list $out/list" \
    --define "version $version" ${FAST:+--define "_binary_payload w0.gzdio"} deploy/ftld.spec
  echo "$out/ftld.rpm"
}

for kind; do
  case $kind in
    deb | rpm) "build_$kind" ;;
    *) echo "packages: $kind is neither deb nor rpm" >&2; exit 2 ;;
  esac
done
