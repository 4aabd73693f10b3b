#!/bin/bash
# The dashboards: made from their source, without a fault of the linter's rules, and every variable and query answered by a real
# Prometheus that scrapes three devices under load, of three schemes.
SCRATCH=$(mktemp -d "${TMPDIR:-/tmp}/ftld-grafana.XXXXXX")
here=$(realpath "$(dirname "$0")/../..")
. "$here/tests/lib.sh"
. "$here/tests/native/monitoring.sh"
export FTLD_RUNTIME_DIR=$SCRATCH/run FTLD_STATE_DIR=$SCRATCH
daemons=

clean_up() {
  stop_prometheus
  # shellcheck disable=SC2086
  [ -z "$daemons" ] || kill -9 $daemons 2> /dev/null
  rm -rf "$SCRATCH"
}
trap clean_up EXIT

step "the dashboards are what their source makes" "$here/deploy/grafana/dashboards.py" --check
step "no fault by the linter's rules" "$here/tests/grafana.py" lint

addresses=
for scheme in lazyftl pagemap mnftl; do
  METRICS=127.0.0.1:$(free_port)
  serve --scheme $scheme --size 64MiB --image "$SCRATCH/$scheme.ftld" --name $scheme "nbd+unix:///?socket=$SCRATCH/$scheme.sock" || finish
  daemons="$daemons $FTLD" addresses="$addresses $METRICS"
done
# shellcheck disable=SC2086
start_prometheus "$here/deploy/prometheus/ftld.rules.yml" $addresses

# load SCHEME: reads and writes until collection runs, for as long as the queries take.
load() {
  fio --name=load --ioengine=nbd --uri="nbd+unix:///?socket=$SCRATCH/$1.sock" --rw=randrw --rwmixread=30 --bs=4k --size=64m \
    --iodepth=4 --fsync=64 --rate_iops=2000 --norandommap --randrepeat=0 --time_based --runtime=120 --thread
}
fios=
for scheme in lazyftl pagemap mnftl; do
  step "$scheme is written once" fio --name=fill --ioengine=nbd --uri="nbd+unix:///?socket=$SCRATCH/$scheme.sock" --rw=write --bs=1m \
    --size=64m --thread
  load $scheme > "$SCRATCH/$scheme.fio" 2>&1 &
  fios="$fios $!"
done

collects() { [ "$(promtool query instant "$server" 'rate(ftld_gc_runs_total[10s]) > 0' | grep -c '=>')" = 3 ]; }
soon "all three collect" 60 collects
sleep 12
"$here/tests/grafana.py" evaluate "$server" 3 > "$SCRATCH/evaluated" 2>&1 && ok "$(cat "$SCRATCH/evaluated")" ||
  bad "queries of the dashboards: $(cat "$SCRATCH/evaluated")"
# shellcheck disable=SC2086
kill $fios 2> /dev/null
for daemon in $daemons; do
  kill -TERM "$daemon"
  soon "a daemon ends" 20 ended "$daemon"
done
finish
