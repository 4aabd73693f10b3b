#!/bin/bash
# What `make test` does: the check of a push; or `make nightly`: everything that one machine can run.
# usage: run.sh [nightly]
# docs/TESTING.md says why a push leaves out the rest. One build makes and lints everything; then suites and scripts run in two
# lanes side by side: on two cores a machine under QEMU takes one. Both lanes end with native
# scripts, which they share. Prints each part's own lines when it ends and, at the end, the seconds
# of each. A part that fails ends its lane; the other one continues, so that one run tests both.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
# Nothing is edited and built again here: incremental building would only cost.
export CARGO_INCREMENTAL=0
case $* in
"") nightly=no ;;
nightly) nightly=yes ;;
*) echo "usage: tests/run.sh [nightly]" >&2; exit 2 ;;
esac
guest_scripts=(all) systemd_cases=(kill9 stop_mounted nbd security) at_night="" guest_env=() native_env=(env)
swarm_seconds=120 # other suites run beside the swarm
if [ $nightly = no ]; then
  swarm_seconds=24
  # A fifth of the places of the power cuts, from a fresh seed that the suite prints.
  export FTLD_SAMPLE=${FTLD_SAMPLE:-5}
  guest_scripts=(readme ublk_transport ublk_ext4 ublk_kill ublk_latency nbd_kernel power_cut write_through host_crash_ext4)
  guest_env=(NBD_CLIENT=no SCHEMES=lazyftl)
  systemd_cases=(kill9 nbd)
  # One view of the live page in the browser, without the measurement of an open page.
  native_env=(env "SELECT=not test_browser and not cost_of_an_open_page" FILE_SYSTEMS=xfs)
  at_night="ext4_nbdfuse grafana uml crash_interrupt recipes atomic_unit file_systems"
fi
# Each swarm draws so long, from a seed of its own that it prints.
export FTLD_SWARM_SECONDS=${FTLD_SWARM_SECONDS:-$swarm_seconds}
# Programs run as the build of the suites made them, with the same checks of overflow as a release.
export BUILT=target/debug

work=$PWD/target/parts
rm -rf "$work"
mkdir -p "$work"
seconds() { cut -d. -f1 /proc/uptime; }

# part NAME COMMAND...: its lines come together.
part() {
  local name=$1 began rc=0
  began=$(seconds)
  shift
  "$@" > "$work/$name.log" 2>&1 || rc=$?
  (
    flock 9
    echo "== $name: $*"
    cat "$work/$name.log"
    [ $rc = 0 ] && echo "== $name: ok, $(($(seconds) - began)) s" || echo "== $name: FAILED, exit code $rc"
  ) 9> "$work/lock"
  echo "$name $(($(seconds) - began)) $rc" >> "$work/times"
  return $rc
}

# The build itself judges lints: clippy-driver is rustc with more of them. `cargo clippy` would be one more build.
command -v clippy-driver > /dev/null || { echo "run.sh: there is no clippy-driver: rustup component add clippy" >&2; exit 1; }
linted() { RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__ cargo "$@"; }

# lane PART...: functions below, one after the other.
lane() { for one; do "$one" || return; done; }

format() { part format cargo fmt --check; }
build() { part build linted test -q --workspace --no-run; }
# It has to build where there is no libclang.
without_ublk() { part without_ublk linted check -q -p ftld --no-default-features; }
template() { part template tests/template.sh check -q --all-targets --features program; }
suites() { part suites linted test --workspace --no-fail-fast; }
canaries() { part canaries tests/canaries/run.py --named --count 2; }
scripts() { part scripts make scripts; }
policy() { part policy sha256sum --check --quiet tests/policy.sha256 || { echo "Cargo.lock or deny.toml changed: make policy"; return 1; }; }
tools() { part tools make target/tools/bin/fsx; }
# native: the scripts of its list, one after the other; the lane that is free takes the next one.
native() {
  local script rc=0
  while script=$(next); do part "native_$script" "${native_env[@]}" tests/native/run.sh "$script" || rc=1; done
  return $rc
}
# next: takes the first line off the list; fails if there is none.
next() {
  (
    flock 8
    grep -m 1 . "$work/list" && sed -i 1d "$work/list"
  ) 8> "$work/list.lock"
}
# Emulation makes fio's rounds and the kills the longest steps.
guest() { part guest env GUEST_JOBS=1 FIO_SECONDS=3 KILLS=2 "${guest_env[@]}" tests/guest/run.sh "${guest_scripts[@]}"; }
systemd() { part systemd tests/systemd/run.sh "${systemd_cases[@]}"; }

began=$(seconds) failed=0
lane format policy build || exit
tests/native/run.sh list | grep -vxF "$(tr ' ' '\n' <<< "$at_night")" > "$work/list" && [ -s "$work/list" ] || exit
lane tools without_ublk template suites scripts canaries native &
lane guest systemd native &
for _ in 1 2; do wait -n || failed=1; done
echo "== seconds"
sort -k 2 -n -r "$work/times" | while read -r name took rc; do
  printf '     %-24s%5d%s\n' "$name" "$took" "$([ "$rc" = 0 ] || echo "  FAILED")"
done
if [ $failed = 0 ]; then echo "test result: ok. everything in $(($(seconds) - began)) s"; else echo "test result: FAILED"; exit 1; fi
