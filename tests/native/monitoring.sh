#!/bin/bash
# A real Prometheus beside the daemons; sourced after lib.sh.
prometheus=

# free_port: prints a TCP port that nobody listens on.
free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# start_prometheus RULES ADDRESS...: scrapes these addresses every second and evaluates the rules. Sets server to its URL.
start_prometheus() {
  local rules=$1 port
  shift
  port=$(free_port)
  server=http://127.0.0.1:$port
  cat > "$SCRATCH/prometheus.yml" << YML
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: ["$rules"]
scrape_configs:
  - job_name: ftld
    static_configs: [{targets: [$(printf '"%s",' "$@" | sed 's/,$//')]}]
YML
  step "promtool accepts the configuration" promtool check config "$SCRATCH/prometheus.yml"
  prometheus --config.file="$SCRATCH/prometheus.yml" --storage.tsdb.path="$SCRATCH/tsdb" \
    --web.listen-address="127.0.0.1:$port" > "$SCRATCH/prometheus.log" 2>&1 &
  prometheus=$!
  wait_for 30 curl -sf "$server/-/ready" || bad "Prometheus does not start: $(tail -n 3 "$SCRATCH/prometheus.log")"
}

stop_prometheus() { [ -z "$prometheus" ] || { kill -9 "$prometheus"; wait "$prometheus"; } 2> /dev/null; }
