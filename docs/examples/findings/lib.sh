# What the run.sh of each finding shares. A finding runs as an ordinary user in User-Mode Linux, on ext4.
# FINDINGS_MACHINE=host, as root: on this kernel.
# Libraries and programs that are built are kept below FINDINGS_CACHE (~/.cache/ftld-findings); the registries are asked once.
# shellcheck shell=sh
set -eu
export RUST_BACKTRACE=0
here=$(cd "$(dirname "$0")" && pwd)
name=$(basename "$here")
cache=${FINDINGS_CACHE:-$HOME/.cache/ftld-findings}/$name
mkdir -p "$cache"
unavailable() {
  echo "$name: $*"
  exit 77
}
# python PACKAGE==VERSION: from PyPI.
python() {
  [ -e "$cache/$1" ] || { python3 -m pip install -q --target "$cache/$1" "$1" || unavailable "pip does not install $1"; }
  export PYTHONPATH="$cache/$1" PYTHONDONTWRITEBYTECODE=1
}
# rust: builds the package of the folder; the program is $cache/base.
rust() {
  [ ! -x "$cache/base" ] || return 0
  CARGO_TARGET_DIR=$cache/target cargo build -q --manifest-path "$here/Cargo.toml" || unavailable "cargo does not build it"
  cp "$cache/target/debug/base" "$cache/base"
}
# finding CODE TEXT OPTION... -- COMMAND...: `ftld crash-test` ends with the exit code, and its report has the text.
# With RECORDED=yes, instead of running COMMAND: `ftld crashes` on the recording of the published figures, if the text is a failure.
finding() {
  wanted=$1 text=$2 code=0 options=0
  shift 2
  [ -z "${RECORDED:-}" ] || [ "$wanted" = 1 ] || return 0
  scratch=$(mktemp -d)
  if [ -n "${RECORDED:-}" ]; then
    for argument; do
      [ "$argument" != -- ] || break
      options=$((options + 1))
    done
    # The options alone.
    for argument; do
      shift
      [ "$options" -le 0 ] || set -- "$@" "$argument"
      options=$((options - 1))
    done
    set -- crashes "$here/run.rec" --files=/ --at flush --after-mark --failures 0 "$@"
  else
    set -- crash-test --machine "${FINDINGS_MACHINE:-uml}" --memory 512MiB --at flush --after-mark --failures 0 "$@"
  fi
  report=$cache/report-$wanted
  (cd "$scratch" && ftld "$@") > "$report" 2>&1 || code=$?
  [ -n "${RECORDED:-}" ] || [ "$wanted" != 1 ] || cp "$scratch/crash-test.rec" "$cache/run.rec"
  rm -rf "$scratch"
  counts=$(grep -o '[0-9,]* states, .* failed$' "$report") || counts="no report"
  if [ "$code" = "$wanted" ] && grep -qF -- "$text" "$report"; then
    echo "$name: as recorded: $counts; the report is $report"
    sed -n '/^shortest failing case/,/^show it again/p' "$report" | sed '$d'
  else
    cat "$report"
    echo "$name: not as recorded: exit code $code, $counts"
    exit 1
  fi
}
