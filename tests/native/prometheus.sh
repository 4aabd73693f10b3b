# A real Prometheus scrapes a live daemon: promtool has nothing to say about the page, and every catalogued metric and every
# formula of docs/METRICS.md answers with values.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-prometheus.XXXXXX")
. "$(dirname "$0")/../lib.sh"
. "$(dirname "$0")/monitoring.sh"
export FTLD_RUNTIME_DIR=$SCRATCH/run FTLD_STATE_DIR=$SCRATCH
document=$(dirname "$0")/../../docs/METRICS.md
rules=$(realpath "$(dirname "$0")/../../deploy/prometheus")

clean_up() {
  stop_prometheus
  [ -z "${FTLD:-}" ] || kill -9 "$FTLD" 2> /dev/null
  rm -rf "$SCRATCH"
}
trap clean_up EXIT

# check NAME FUNCTION: a step for functions of this file.
check() {
  if "$2" > "$SCRATCH/check.log" 2>&1; then ok "$1"; else bad "$1"; cat "$SCRATCH/check.log"; fi
}

# lint: fails if promtool finds anything to say about the page.
lint() {
  curl -sf "http://$METRICS/metrics" > "$SCRATCH/page" && promtool check metrics < "$SCRATCH/page" > "$SCRATCH/lint" 2>&1
  local rc=$?
  cat "$SCRATCH/lint"
  [ $rc = 0 ] && [ ! -s "$SCRATCH/lint" ]
}

# alerts FILE PATTERN: prints the names of alerts in a file, sorted.
alerts() { sed -n "s/$2/\\1/p" "$1" | sort -u; }

# rules_hold: the rules are well formed, their tests pass, and every alert has a test and a row in the document.
rules_hold() {
  (cd "$rules" && promtool check rules ftld.rules.yml && promtool test rules ftld.rules.test.yml) || return 1
  alerts "$rules/ftld.rules.yml" '^ *- alert: \(.*\)' > "$SCRATCH/alerts"
  [ "$(wc -l < "$SCRATCH/alerts")" -ge 10 ] &&
    diff "$SCRATCH/alerts" <(alerts "$rules/ftld.rules.test.yml" '^ *- name: "\(Ftld[A-Za-z]*\):.*') &&
    diff "$SCRATCH/alerts" <(alerts "$document" '^| `\(Ftld[A-Za-z]*\)` .*')
}

# every_record: all that the rules record has values.
every_record() {
  local name wrong=0
  while read -r name; do instant "$name" || wrong=1; done < <(sed -n 's/^ *- record: //p' "$rules/ftld.rules.yml")
  return $wrong
}

# instant QUERY: fails unless Prometheus answers with at least one sample that is a number.
instant() {
  promtool query instant "$server" "$1" > "$SCRATCH/answer" 2>&1 && grep -q '=>' "$SCRATCH/answer" &&
    ! grep -q '=> NaN' "$SCRATCH/answer" || { echo "  $1"; sed 's/^/    /' "$SCRATCH/answer"; return 1; }
}

# value QUERY: prints the one number it answers with.
value() { promtool query instant "$server" "$1" | sed -n 's/.*=> \([^ ]*\) @.*/\1/p' | head -n 1; }

every_metric() {
  local name kind wrong=0
  while read -r name kind; do
    [ "$kind" != histogram ] || name=${name}_count
    instant "$name{device=\"default\"}" || wrong=1
  done < <(sed -n '/^## Catalogue/,/^## Formulas/s/^| `\(ftld_[a-z_]*\)` | \([a-z]*\) .*/\1 \2/p' "$document")
  return $wrong
}

every_formula() {
  # Indented paragraphs; a line that begins with an operator goes on from the one above.
  local formula wrong=0 count=0
  while read -r formula; do
    formula=${formula//15s/1s}
    instant "${formula//5m/10s}" || wrong=1
    count=$((count + 1))
  done < <(sed -n '/^## Formulas/,/^## What/s/^    \(.*\)/\1/p' "$document" | sed -e ':a' -e 'N' -e '$!ba' -e 's/\n  */ /g')
  [ $count -ge 8 ] && [ $wrong = 0 ]
}

METRICS=127.0.0.1:$(free_port)
serve --scheme pagemap --size 64MiB --image "$SCRATCH/p.ftld" --name default "nbd+unix:///?socket=$SCRATCH/nbd.sock" || finish
check "promtool has nothing to say about a fresh page" lint
check "the rules are in order, and every alert has a test and is documented" rules_hold

start_prometheus "$rules/ftld.rules.yml" "$METRICS"
uri="nbd+unix:///?socket=$SCRATCH/nbd.sock"
# Rates need a load as long as somebody asks.
fio --name=load --ioengine=nbd --uri="$uri" --rw=randrw --rwmixread=20 --bs=4k --size=64m --iodepth=8 --fsync=64 \
  --norandommap --randrepeat=0 --time_based --runtime=600 --rate_iops=4000 --thread > "$SCRATCH/fio.log" 2>&1 &
load=$!
collects() { instant 'rate(ftld_gc_runs_total[10s]) > 0'; }
soon "the device is written until it collects" 90 collects
sleep 12

step "the daemon is up" test "$(value 'up{job="ftld"}')" = 1
check "every metric of the catalogue has values" every_metric
check "every formula of the document has values" every_formula
check "everything the rules record has values" every_record
step "no critical alert fires" test -z "$(promtool query instant "$server" 'ALERTS{alertstate="firing",severity="critical"}')"
written=$(value 'ftld_host_written_bytes_total') collected=$(value 'ftld_gc_runs_total')
step "collections were counted ($collected, after $written bytes)" test "${collected%.*}" -gt 0
waf=$(value 'ftld_write_amplification_ratio')
step "write amplification is plausible ($waf)" python3 -c "import sys; sys.exit(not 1 <= float(sys.argv[1]) < 20)" "$waf"
check "promtool has nothing to say about a busy page" lint
kill "$load" && wait "$load"
quit pagemap
finish
