#!/bin/bash
# Grown fuzz corpora as files, to take to another machine or into a release. The repository keeps small readable inputs, each a file
# with a name (tests/fuzz/corpus/TARGET); a grown corpus is thousands of files that nobody reads, so it travels as an archive.
# usage: corpus.sh pack FOLDER [TARGET...]     writes FOLDER/ftld-fuzz-TARGET.tar.gz: inputs of the repository and those found here
#        corpus.sh unpack ARCHIVE...           adds the inputs of archives to target/fuzz/corpus, for tests/fuzz/run.sh
set -euo pipefail
umask 022
export LC_ALL=C
usage() { sed -n 's/^# usage: /usage: /p; s/^#        corpus.sh/       corpus.sh/p' "$0" >&2; exit 2; }
fail() { echo "corpus.sh: $*" >&2; exit 1; }
[ $# -ge 2 ] || usage
command=$1
shift
case $command in
pack) folder=$(realpath -m "$1") && shift ;;
unpack) archives=() && for archive; do archives+=("$(realpath "$archive")"); done ;;
*) usage ;;
esac
cd "$(dirname "$0")/../.."
mapfile -t known < <(basename -a tests/fuzz/corpus/*)

is_known() {
  local name
  for name in "${known[@]}"; do [ "$name" != "$1" ] || return 0; done
  return 1
}

# The same inputs give the same bytes: an input's name is its sum, as libFuzzer names it, and its time is 0.
pack() {
  local target sum input
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$folder"
  for target; do
    is_known "$target" || fail "there is no fuzz target $target; there are ${known[*]}"
    mkdir "$work/$target"
    find "tests/fuzz/corpus/$target" "target/fuzz/corpus/$target" -type f 2> /dev/null > "$work/inputs" || true
    [ -s "$work/inputs" ] || fail "$target has no input"
    tr '\n' '\0' < "$work/inputs" | xargs -0 sha1sum | while read -r sum input; do cp "$input" "$work/$target/$sum"; done
    (cd "$work" && find "$target" -type f | sort) |
      tar --format=ustar --owner=0 --group=0 --numeric-owner --mode=644 --mtime=@0 -C "$work" -c --files-from - |
      gzip -9n > "$folder/ftld-fuzz-$target.tar.gz"
    echo "$folder/ftld-fuzz-$target.tar.gz: $(find "$work/$target" -type f | wc -l) inputs"
  done
}

unpack() {
  local archive target other
  for archive in "${archives[@]}"; do
    target=$(tar -tzf "$archive" | cut -d/ -f1 | sort -u)
    is_known "$target" || fail "$archive has inputs of '$target', which is no fuzz target here"
    other=$(tar -tzf "$archive" | grep -vxE "$target/[0-9a-f]{40}") || true
    [ -z "$other" ] || fail "$archive has other files than inputs: ${other%%$'\n'*}"
    mkdir -p target/fuzz/corpus
    tar -xzf "$archive" --no-same-owner -C target/fuzz/corpus
    echo "target/fuzz/corpus/$target: $(find "target/fuzz/corpus/$target" -type f | wc -l) inputs"
  done
}

case $command in
pack)
  [ $# -gt 0 ] || set -- "${known[@]}"
  pack "$@"
  ;;
unpack) unpack ;;
esac
