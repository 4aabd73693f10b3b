#!/bin/bash
# Builds packages with Debian's dpkg-deb and rpmbuild, and a static archive: the program, manual pages, completions, documents and
# licences; the packages also have units, udev rule and configuration file.
# usage: packages.sh deb|rpm|static|documents...      prints the path of each; documents: the folder that the others contain
#   OUT      folder for them; without it target/packages. It is emptied
#   BUILT    folder with the programs; without it deploy/build.sh builds them. The static program is always built
#   VERSION  of the packages; without it that of Cargo.toml. Tests of upgrades need an older one
#   FAST     if set, .deb and .rpm are not compressed
# The same commit gives the same bytes: times are SOURCE_DATE_EPOCH, without it the commit's.
# Nothing in a package stops or restarts a running device: its users would wait.
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC
cd "$(dirname "$0")/.."
[ $# -gt 0 ] || { echo "usage: deploy/packages.sh deb|rpm|static|documents..." >&2; exit 2; }
for kind; do
  case $kind in
  deb | rpm | static | documents) ;;
  *) echo "packages: $kind is none of deb, rpm, static, documents" >&2; exit 2 ;;
  esac
done
out=$(realpath -m "${OUT:-target/packages}")
version=${VERSION:-$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | sed -n 1p)}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
[ -n "$SOURCE_DATE_EPOCH" ] || { echo "packages: without a repository, set SOURCE_DATE_EPOCH" >&2; exit 1; }
export SOURCE_DATE_EPOCH

# put MODE FOLDER FILE...
put() { install -D -m "$1" -t "$2" "${@:3}"; }

# put_documents FOLDER: the documents in the folders of the repository, so that their links hold, with pictures, examples and results.
put_documents() {
  local file
  put 644 "$1" README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md LICENSE-MIT LICENSE-APACHE
  while read -r file; do
    install -D -m "$([ -x "$file" ] && echo 755 || echo 644)" "$file" "$1/$file"
  done < <(find docs -name target -prune -o -name __pycache__ -prune -o -type f -print | sort)
  put 644 "$1/tests/results" tests/results/*.md
}

build_documents() {
  put_documents "$out/documents"
  echo "$out/documents"
}

# lay_out PROGRAM WORK: manual pages and completions as the program prints them.
lay_out() {
  mkdir -p "$2"
  strip -o "$2/ftld" "$1"
  chmod 755 "$2/ftld"
  "$1" man "$2/man"
  gzip -9n "$2"/man/*
  for shell in bash zsh fish; do "$1" completions $shell > "$2/$shell"; done
}

# lay_out_system: what the .deb and the .rpm have in common, in $root.
lay_out_system() {
  local program work=$out/system doc=$root/usr/share/doc/ftld
  [ ! -d "$root" ] || return 0
  program=${BUILT:+$(realpath "$BUILT")/ftld}
  lay_out "${program:=$(deploy/build.sh)}" "$work"
  put 755 "$root/usr/bin" "$work/ftld"
  for section in 5 7 8; do put 644 "$root/usr/share/man/man$section" "$work"/man/*."$section".gz; done
  install -D -m 644 "$work/bash" "$root/usr/share/bash-completion/completions/ftld"
  install -D -m 644 "$work/fish" "$root/usr/share/fish/vendor_completions.d/ftld.fish"
  put 644 "$root/etc/ftld" deploy/ublkb0.toml
  put 644 "$root/usr/lib/systemd/system" deploy/systemd/*
  put 644 "$root/usr/lib/udev/rules.d" deploy/udev/*
  put_documents "$doc"
  deploy/licences.py > "$doc/LICENCES-OF-CRATES"
  put 644 "$doc/prometheus" deploy/prometheus/ftld.rules.yml
  put 644 "$doc/examples" deploy/slurm-array.sh deploy/parallel.sh
  put 755 "$doc/examples" docs/examples/ledger.py docs/examples/orders.py
  put 755 "$doc/examples/checks" deploy/checks/*
  put 755 "$doc/examples/recipes" docs/examples/recipes/*
  put 644 "$doc/grafana/dashboards" deploy/grafana/dashboards/*
  for kind in dashboards datasources; do
    put 644 "$doc/grafana/provisioning/$kind" deploy/grafana/provisioning/$kind/*
  done
}

# build_deb: libraries are those that dpkg-shlibdeps finds.
build_deb() {
  local tree=$out/deb libraries size
  lay_out_system
  cp -a "$root" "$tree"
  install -D -m 644 "$out/system/zsh" "$tree/usr/share/zsh/vendor-completions/_ftld"
  install -D -m 644 deploy/debian/copyright "$tree/usr/share/doc/ftld/copyright"
  install -D -m 755 -t "$tree/DEBIAN" deploy/debian/postinst deploy/debian/postrm
  echo /etc/ftld/ublkb0.toml > "$tree/DEBIAN/conffiles"
  mkdir -p "$out/shlibdeps/debian"
  echo "Source: ftld" > "$out/shlibdeps/debian/control"
  libraries=$(cd "$out/shlibdeps" && dpkg-shlibdeps -O "$root/usr/bin/ftld" 2> /dev/null | sed -n 's/^shlibs:Depends=//p')
  [ -n "$libraries" ] || { echo "packages: dpkg-shlibdeps names no library" >&2; exit 1; }
  # As dpkg-gencontrol counts: independent of the file system that holds the tree.
  size=$(find "$tree/etc" "$tree/usr" -type f -printf '%s\n' -o -printf '1\n' | awk '{ sum += int(($1 + 1023) / 1024) } END { print sum }')
  sed -e "s/@VERSION@/$version-1/; s/@LIBRARIES@/$libraries/; s/@ARCH@/$(dpkg --print-architecture)/; s/@SIZE@/$size/" \
    deploy/debian/control > "$tree/DEBIAN/control"
  (cd "$tree" && find etc usr -type f -print0 | sort -z | xargs -0 md5sum) > "$tree/DEBIAN/md5sums"
  dpkg-deb ${FAST:+-Znone} --threads-max=1 --root-owner-group --build "$tree" "$out/ftld.deb" > /dev/null
  echo "$out/ftld.deb"
}

build_rpm() {
  local tree=$out/rpm
  lay_out_system
  cp -a "$root" "$tree"
  install -D -m 644 "$out/system/zsh" "$tree/usr/share/zsh/site-functions/_ftld"
  (cd "$tree" && find etc usr -type f | sort | sed 's,^,/,; s,^/etc/,%config(noreplace) &,; s,^/usr/share/\(doc\|man\)/,%doc &,') > "$out/list"
  rpmbuild --quiet -bb --target "$(uname -m)" --buildroot "$out/buildroot" --define "_topdir $out/rpmbuild" \
    --define "_rpmdir $out" --define "_build_name_fmt ftld.rpm" --define "tree $tree" --define "list $out/list" \
    --define "_buildhost reproducible" --define "use_source_date_epoch_as_buildtime 1" \
    --define "clamp_mtime_to_source_date_epoch 1" \
    --define "version $version" ${FAST:+--define "_binary_payload w0.gzdio"} deploy/ftld.spec
  echo "$out/ftld.rpm"
}

# build_static: one folder, to be unpacked anywhere.
build_static() {
  local program name work=$out/static top musl=/usr/share/doc/musl-dev/copyright
  name=ftld-$version-$(uname -m)-linux-musl top=$work/$name
  program=$(deploy/build.sh static)
  lay_out "$program" "$out/static-parts"
  put 755 "$top" "$out/static-parts/ftld"
  put_documents "$top"
  for section in 5 7 8; do put 644 "$top/man/man$section" "$out/static-parts"/man/*."$section".gz; done
  put 755 "$top/examples" docs/examples/ledger.py docs/examples/orders.py
  put 755 "$top/examples/checks" deploy/checks/*
  put 755 "$top/examples/recipes" docs/examples/recipes/*
  install -D -m 644 "$out/static-parts/bash" "$top/completions/ftld.bash"
  install -D -m 644 "$out/static-parts/zsh" "$top/completions/_ftld"
  install -D -m 644 "$out/static-parts/fish" "$top/completions/ftld.fish"
  [ -s "$musl" ] || { echo "packages: there is no $musl: apt-get install musl-dev" >&2; exit 1; }
  {
    deploy/licences.py --no-default-features --target "$(uname -m)-unknown-linux-musl"
    printf '\n%s\nmusl\n%s\n' "$(printf '=%.0s' {1..80})" "$(printf -- '-%.0s' {1..80})"
    cat "$musl"
  } > "$top/LICENCES-OF-CRATES"
  tar --sort=name --format=ustar --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work" -c "$name" |
    gzip -9n > "$out/ftld-static.tar.gz"
  echo "$out/ftld-static.tar.gz"
}

root=$out/root
rm -rf "$out"
for kind; do "build_$kind"; done
