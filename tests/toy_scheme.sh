#!/bin/bash
# Adds the schemes docs/examples/toy-scheme.rs and docs/examples/my-scheme in a copy of the tree: a folder and a line in the table each.
# Runs the battery of every scheme on them.
# usage: toy_scheme.sh [SUITE...]     modules of tests/tests/suites; without any, all but those that need no scheme
set -euo pipefail
cd "$(dirname "$0")/.."
suites=("$@")
[ $# -gt 0 ] || suites=(conformance power_cut host_crash recovery_scenarios wear faulty_parts differential regressions)

tree=$(mktemp -d "${TMPDIR:-/tmp}/ftld-toy.XXXXXX")
trap 'rm -rf "$tree"' EXIT
git ls-files -z | xargs -0 cp --parents -t "$tree"
export CARGO_TARGET_DIR=$PWD/target
cd "$tree"

schemes=ftl-core/src/schemes
mkdir $schemes/toy
cp docs/examples/toy-scheme.rs $schemes/toy/mod.rs
mkdir $schemes/my_scheme
for file in map policy; do
  sed 's/ftl_core::/crate::/' docs/examples/my-scheme/src/$file.rs > $schemes/my_scheme/$file.rs
done
sed 's/ftl_core::/crate::/; s/^pub const/pub(super) const/' docs/examples/my-scheme/src/lib.rs > $schemes/my_scheme/mod.rs
sed -i 's/^mod nftl1;/mod my_scheme;\n&/; s/^mod tpftl;/mod toy;\n&/; s/^    pagemap::SCHEME,/&\n    my_scheme::SCHEME,\n    toy::SCHEME,/' $schemes/mod.rs
grep -q toy::SCHEME $schemes/mod.rs || { echo "toy_scheme: the line of its table is not where it was" >&2; exit 1; }
diff -r "$OLDPWD/$schemes" $schemes || true

for scheme in toy my-scheme; do
  FTLD_CASE=$scheme FTLD_DECISIONS=write cargo test -p ftld-tests --test suites -- "${suites[@]/%/::}"
done
cargo clippy -q -p ftld-core -- -D warnings
cargo fmt --check
