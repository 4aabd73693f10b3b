#!/usr/bin/env python3
"""The four Grafana dashboards, from one source.

    deploy/grafana/dashboards.py            writes dashboards/*.json
    deploy/grafana/dashboards.py --check    fails if those are not what this file makes

A query names its metrics with `{$}` or `{$, op="read"}` behind them: the dollar stands for the matchers of the dashboard's variables. Beside
each query stands within which bounds its values lie on a healthy device under load; `tests/grafana.py` holds a live one against them.
"""

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "dashboards"
MATCHERS = 'job=~"$job", instance=~"$instance", device=~"$device"'
RATE = "[$__rate_interval]"
WIDTH = 24

# Bounds of values.
SHARE = (0, 1)
COUNT = (0, 1e9)
RATES = (0, 1e7)
BYTES = (0, 1e12)
BYTE_RATES = (0, 1e11)
SECONDS = (0, 60)
FACTOR = (0, 200)


def query(expr, legend, bounds):
    return {"expr": expr, "legend": legend, "bounds": bounds}


def rate(metric, labels="", by=""):
    """The rate of a counter, summed by device and perhaps more."""
    matchers = "$, " + labels if labels else "$"
    return f"sum by (device{', ' + by if by else ''}) (rate({metric}{{{matchers}}}{RATE}))"


def quantile(share, metric, by="", labels=""):
    """A percentile; no sample where nothing happened, instead of NaN."""
    matchers, more = ("$, " + labels if labels else "$"), (f", {by}" if by else "")
    return (
        f"histogram_quantile({share}, sum by (device{more}, le) (rate({metric}_bucket{{{matchers}}}{RATE})))"
        f" and sum by (device{more}) (rate({metric}_count{{{matchers}}}{RATE})) > 0"
    )


def scheme_of(expr):
    """The same with the name of the device's scheme."""
    return f"({expr}) * on (device) group_left (scheme) max by (device, scheme) (ftld_device_info{{$}})"


def panel(kind, title, description, unit, queries, width=8, height=8, stack=False):
    return {
        "kind": kind,
        "title": title,
        "description": description,
        "unit": unit,
        "queries": queries,
        "width": width,
        "height": height,
        "stack": stack,
    }


def graph(title, description, unit, *queries, stack=False, width=8):
    return panel("timeseries", title, description, unit, queries, width=width, stack=stack)


def stat(title, description, unit, *queries):
    return panel("stat", title, description, unit, queries, width=4, height=4)


def bars(title, description, unit, *queries):
    return panel("bargauge", title, description, unit, queries)


WAF = f"{rate('ftld_nand_programmed_bytes_total')} / (sum by (device) (rate(ftld_host_written_bytes_total{{$}}{RATE})) > 0)"
WAF_BY_CAUSE = (
    f"{rate('ftld_nand_programmed_bytes_total', by='cause')}"
    f" / on (device) group_left () (sum by (device) (rate(ftld_host_written_bytes_total{{$}}{RATE})) > 0)"
)
HIT = 'result="hit"'
HITS = f"{rate('ftld_map_cache_lookups_total', HIT)} / (sum by (device) (rate(ftld_map_cache_lookups_total{{$}}{RATE})) > 0)"
HITS_BY_OP = f"{rate('ftld_map_cache_lookups_total', HIT, by='op')} / (sum by (device, op) (rate(ftld_map_cache_lookups_total{{$}}{RATE})) > 0)"
VICTIMS = (
    f"{rate('ftld_gc_pages_moved_total')} / (sum by (device) (rate(ftld_gc_runs_total{{$}}{RATE})) > 0)"
    " / on (device) max by (device) (ftld_nand_block_pages{$})"
)

OVERVIEW = [
    stat("Write amplification", "Bytes programmed per byte the host wrote, since the daemon started.", "none",
         query("ftld_write_amplification_ratio{$}", "{{device}}", (1, 200))),
    stat("Free blocks", "Erased blocks that can be taken now.", "short", query('ftld_blocks{$, state="free"}', "{{device}}", (1, 1e9))),
    stat("Endurance used", "Mean erases as a share of the rated ones.", "percentunit",
         query("ftld_endurance_used_ratio{$}", "{{device}}", SHARE)),
    stat("Refuses writes", "1 while writes are refused for any reason.", "none",
         query("sum by (device) (ftld_device_read_only{$})", "{{device}}", (0, 0))),
    stat("Unreadable pages", "Flash page reads with an uncorrectable ECC error, within an hour.", "short",
         query("sum by (device) (increase(ftld_ecc_uncorrectable_total{$}[1h]))", "{{device}}", (0, 0))),
    stat("Uptime", "Time since the instance started.", "s", query("time() - ftld_device_start_time_seconds{$}", "{{device}}", (0, 1e9))),
    graph("Throughput", "Host reads, writes and trims.", "Bps",
          query(rate("ftld_host_read_bytes_total"), "{{device}} read", BYTE_RATES),
          query(rate("ftld_host_written_bytes_total"), "{{device}} written", BYTE_RATES),
          query(rate("ftld_host_discarded_bytes_total"), "{{device}} trimmed", BYTE_RATES)),
    graph("Requests", "Host requests that succeeded, by kind.", "iops",
          query(rate("ftld_host_ios_total", by="op"), "{{device}} {{op}}", RATES)),
    graph("Requests in flight", "Queue depth of the volume.", "short",
          query("sum by (device, op) (ftld_host_ios_in_flight{$})", "{{device}} {{op}}", COUNT)),
    graph("Latency (wall clock)", "Time that the host waited: median, 99th and 99.9th percentile.", "s",
          query(quantile(0.5, "ftld_host_io_duration_seconds", "op"), "{{device}} {{op}} p50", SECONDS),
          query(quantile(0.99, "ftld_host_io_duration_seconds", "op"), "{{device}} {{op}} p99", SECONDS),
          query(quantile(0.999, "ftld_host_io_duration_seconds", "op"), "{{device}} {{op}} p99.9", SECONDS)),
    graph("Latency (emulated flash)", "Duration of the same requests on the emulated flash: median, 99th and 99.9th percentile.", "s",
          query(quantile(0.5, "ftld_device_io_duration_seconds", "op"), "{{device}} {{op}} p50", SECONDS),
          query(quantile(0.99, "ftld_device_io_duration_seconds", "op"), "{{device}} {{op}} p99", SECONDS),
          query(quantile(0.999, "ftld_device_io_duration_seconds", "op"), "{{device}} {{op}} p99.9", SECONDS)),
    graph("Syncs of the image", "How long a FLUSH waits for this machine's storage, 99th percentile.", "s",
          query(quantile(0.99, "ftld_image_sync_duration_seconds"), "{{device}}", SECONDS)),
    graph("Write amplification by cause", "Bytes programmed per byte the host wrote, by cause.", "none",
          query(WAF_BY_CAUSE, "{{device}} {{cause}}", FACTOR), stack=True),
    graph("Mapped data", "Logical pages with data, and the size of the device.", "bytes",
          query("ftld_logical_mapped_bytes{$}", "{{device}} mapped", BYTES), query("ftld_device_capacity_bytes{$}", "{{device}} size", BYTES)),
    graph("Errors", "Host requests that failed, by kind and error.", "iops",
          query(f"sum by (device, op, errno) (rate(ftld_host_io_errors_total{{$}}{RATE}))", "{{device}} {{op}} {{errno}}", (0, 0))),
]

INTERNALS = [
    graph("Programs by cause", "Flash pages programmed.", "wps",
          query(rate("ftld_nand_pages_programmed_total", by="cause"), "{{device}} {{cause}}", RATES), stack=True),
    graph("Reads by cause", "Flash pages read in full, and short reads such as of spare bytes.", "rps",
          query(rate("ftld_nand_pages_read_total", by="cause"), "{{device}} {{cause}}", RATES),
          query(rate("ftld_nand_partial_reads_total", by="cause"), "{{device}} {{cause}} short", RATES), stack=True),
    graph("Erases by cause", "Flash blocks erased.", "ops",
          query(rate("ftld_nand_erases_total", by="cause"), "{{device}} {{cause}}", RATES), stack=True),
    graph("GC runs", "Victims of GC, or log blocks merged.", "ops", query(rate("ftld_gc_runs_total"), "{{device}}", RATES)),
    graph("Valid pages per victim", "Share of a victim that GC relocated: the lower, the cheaper.", "percentunit",
          query(VICTIMS, "{{device}}", FACTOR)),
    graph("Free blocks and GC threshold", "Below the threshold writes wait for GC.", "short",
          query('ftld_blocks{$, state="free"}', "{{device}} free", COUNT), query("ftld_gc_free_threshold_blocks{$}", "{{device}} threshold", COUNT)),
    graph("Blocks by state", "They add up to all blocks.", "short", query("ftld_blocks{$}", "{{device}} {{state}}", COUNT), stack=True),
    graph("Pages by state", "They add up to all pages.", "short", query("ftld_pages{$}", "{{device}} {{state}}", COUNT), stack=True),
    graph("Die busy time", "Seconds per second that dies read, program and erase.", "none",
          query(rate("ftld_nand_busy_seconds_total", by="kind"), "{{device}} {{kind}}", (0, 1e4)), stack=True),
    graph("Stalled writes", "Host writes that waited for other work, by its cause.", "wps",
          query(rate("ftld_write_stalls_total", by="cause"), "{{device}} {{cause}}", RATES)),
    graph("Time of write stalls", "Emulated seconds per second, by cause.", "none",
          query(rate("ftld_write_stall_device_seconds_total", by="cause"), "{{device}} {{cause}}", (0, 1e4)), stack=True),
    graph("Map cache hit ratio", "Share of mapping lookups that read no flash.", "percentunit",
          query(HITS_BY_OP, "{{device}} {{op}}", SHARE)),
    graph("Mapping lookups", "Of pages that the host reads and writes; a miss reads flash.", "ops",
          query(rate("ftld_map_cache_lookups_total", by="op, result"), "{{device}} {{op}} {{result}}", RATES)),
    graph("Scheme events", "Background operations of the scheme.", "ops",
          query(rate("ftld_scheme_events_total", by="event"), "{{device}} {{event}}", RATES)),
    graph("Pages of scheme events", "Pages copied; for conversions and checkpoints, pages written.", "short",
          query(rate("ftld_scheme_event_pages_total", by="event"), "{{device}} {{event}}", RATES)),
    graph("Time of scheme events", "Emulated seconds per second.", "none",
          query(rate("ftld_scheme_event_device_seconds_total", by="event"), "{{device}} {{event}}", (0, 1e4)), stack=True),
    bars("RAM of the tables (allocated)", "Allocated bytes.", "bytes", query("ftld_ram_bytes{$}", "{{device}} {{part}}", BYTES)),
    bars("RAM of the tables (paper)", "Bytes by the formula of the scheme's paper.", "bytes",
         query("ftld_ram_paper_bytes{$}", "{{device}} {{part}}", BYTES)),
    graph("NBD requests", "By command; 0 where NBD is not served.", "reqps",
          query(rate("ftld_nbd_requests_total", by="command"), "{{device}} {{command}}", RATES)),
    graph("NBD connections", "Negotiating and connected.", "short",
          query("ftld_nbd_connections{$}", "{{device}} {{state}}", COUNT)),
    graph("Checkpoints", "Completed.", "ops", query(rate("ftld_checkpoints_total"), "{{device}}", RATES)),
    graph("Snapshot age", "The flash snapshot is published ten times a second.", "s",
          query("ftld_snapshot_age_seconds{$}", "{{device}}", (0, 10))),
]

WEAR = [
    stat("Rated erases", "Of one block.", "short", query("ftld_block_erase_limit{$}", "{{device}}", (1, 1e6))),
    stat("Endurance used", "Mean erases as a share of the rated ones.", "percentunit",
         query("ftld_endurance_used_ratio{$}", "{{device}}", SHARE)),
    stat("Bytes until worn out", "Host writes, at the present write amplification, until the mean block reaches its rated erases.", "bytes",
         query("(ftld_block_erase_limit{$} - ftld_block_erases_avg{$}) * ftld_nand_capacity_bytes{$} / (ftld_write_amplification_ratio{$} > 0)",
               "{{device}}", (1, 1e18))),
    stat("Bad blocks", "Of the factory, and grown.", "short", query("ftld_bad_blocks{$}", "{{device}} {{origin}}", COUNT)),
    stat("Clean shutdown", "0 if the last mount followed a crash or a power cut.", "none",
         query("ftld_recovery_clean{$}", "{{device}}", SHARE)),
    stat("Mount", "From opening the image to serving.", "s",
         query("ftld_recovery_duration_seconds{$}", "{{device}}", SECONDS)),
    graph("Erases of the blocks", "Fewest, mean and most.", "short",
          query("ftld_block_erases_min{$}", "{{device}} min", COUNT), query("ftld_block_erases_avg{$}", "{{device}} mean", COUNT),
          query("ftld_block_erases_max{$}", "{{device}} max", COUNT)),
    graph("Unevenness", "Standard deviation of the erases.", "short", query("ftld_block_erases_stddev{$}", "{{device}}", COUNT)),
    bars("Blocks by erases", "Blocks with at most this many erases.", "short",
         query("ftld_block_erase_distribution_blocks{$}", "{{device}} <= {{at_most}}", COUNT)),
    graph("Wear levelling and refreshing", "Blocks relocated to even out wear, and blocks rewritten near their ECC limit.", "ops",
          query(rate("ftld_wear_level_moves_total"), "{{device}} levelled", RATES),
          query(rate("ftld_refresh_moves_total"), "{{device}} refreshed", RATES)),
    graph("Corrected bits", "Wrong bits that ECC corrected, and read retries.", "ops",
          query(rate("ftld_ecc_corrected_bit_errors_total"), "{{device}} bits", RATES),
          query(rate("ftld_ecc_read_retries_total"), "{{device}} retries", RATES)),
    graph("Unreadable pages", "Flash page reads with an uncorrectable ECC error.", "ops",
          query(rate("ftld_ecc_uncorrectable_total"), "{{device}}", (0, 0))),
    graph("Failed programs and erases", "Each costs a block.", "ops",
          query(rate("ftld_nand_program_fails_total"), "{{device}} programs", RATES),
          query(rate("ftld_nand_erase_fails_total"), "{{device}} erases", RATES)),
    graph("Blocks to be refreshed", "Blocks near their ECC limit.", "short",
          query("ftld_ecc_refresh_blocks{$}", "{{device}}", COUNT)),
    graph("Faults injected", "By `ftld inject`, and by the fault plan.", "ops",
          query(rate("ftld_faults_injected_total", by="kind"), "{{device}} {{kind}}", RATES),
          query(rate("ftld_nand_faults_injected_total", by="fault"), "{{device}} {{fault}}", RATES)),
    graph("Last mount on the emulated flash", "Emulated time, pages scanned and pages dropped.", "none",
          query("ftld_recovery_device_seconds{$}", "{{device}} seconds", COUNT),
          query("ftld_recovery_pages_scanned{$}", "{{device}} pages", COUNT),
          query("ftld_recovery_discarded_pages{$}", "{{device}} dropped", COUNT)),
]

SCHEMES = [
    panel("table", "Devices", "Properties of each device.", "none",
          [query("max by (device, scheme, transport, cell, profile) (ftld_device_info{$})", "", (1, 1))], width=24, height=6),
    graph("Write amplification", "Bytes programmed per byte the host wrote.", "none", query(scheme_of(WAF), "{{scheme}} ({{device}})", (0.5, 200))),
    graph("Writes on the emulated flash, p99 and p99.9", "Duration of a write on the emulated flash.", "s",
          query(scheme_of(quantile(0.99, "ftld_device_io_duration_seconds", labels='op="write"')), "{{scheme}} ({{device}}) p99", SECONDS),
          query(scheme_of(quantile(0.999, "ftld_device_io_duration_seconds", labels='op="write"')), "{{scheme}} ({{device}}) p99.9", SECONDS)),
    graph("Reads on the emulated flash, p99 and p99.9", "Duration of a read on the emulated flash.", "s",
          query(scheme_of(quantile(0.99, "ftld_device_io_duration_seconds", labels='op="read"')), "{{scheme}} ({{device}}) p99", SECONDS),
          query(scheme_of(quantile(0.999, "ftld_device_io_duration_seconds", labels='op="read"')), "{{scheme}} ({{device}}) p99.9", SECONDS)),
    graph("Erases per GiB written", "Wear per amount of host data.", "short",
          query(scheme_of(f"{rate('ftld_nand_erases_total')} / (sum by (device) (rate(ftld_host_written_bytes_total{{$}}{RATE})) > 0) * 2^30"),
                "{{scheme}} ({{device}})", (0, 1e6))),
    graph("Valid pages per victim", "Share of a victim that GC relocated.", "percentunit",
          query(scheme_of(VICTIMS), "{{scheme}} ({{device}})", FACTOR)),
    graph("Map cache hit ratio", "Share of mapping lookups answered from RAM.", "percentunit", query(scheme_of(HITS), "{{scheme}} ({{device}})", SHARE)),
    graph("RAM of the tables (allocated)", "Allocated bytes.", "bytes",
          query(scheme_of("sum by (device) (ftld_ram_bytes{$})"), "{{scheme}} ({{device}})", BYTES)),
    graph("RAM of the tables (paper)", "Bytes by the formula of the scheme's paper.", "bytes",
          query(scheme_of("sum by (device) (ftld_ram_paper_bytes{$})"), "{{scheme}} ({{device}})", BYTES)),
    graph("Flash time per byte written", "Die busy time per MiB that the host writes.", "s",
          query(scheme_of(f"{rate('ftld_nand_busy_seconds_total')} / (sum by (device) (rate(ftld_host_written_bytes_total{{$}}{RATE})) > 0) * 2^20"),
                "{{scheme}} ({{device}})", SECONDS)),
]

DASHBOARDS = {
    "ftld-overview": ("ftld: overview", "Host requests, and their cost on flash.", OVERVIEW),
    "ftld-internals": ("ftld: FTL internals", "Operations of the translation layer, by cause.", INTERNALS),
    "ftld-wear": ("ftld: wear and reliability", "Remaining endurance, errors and faults.", WEAR),
    "ftld-schemes": ("ftld: schemes compared", "Devices side by side, named by their schemes.", SCHEMES),
}


def variable(name, label, what):
    matchers = {"job": "", "instance": 'job=~"$job"', "device": 'job=~"$job", instance=~"$instance"'}[name]
    found = f"label_values(ftld_build_info{{{matchers}}}, {name})" if name != "device" else f"label_values(ftld_device_info{{{matchers}}}, {name})"
    return {
        "name": name,
        "label": label,
        "description": what,
        "type": "query",
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": found, "refId": name},
        "definition": found,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": "All", "value": "$__all"},
    }


def rendered(number, panel, x, y):
    datasource = {"type": "prometheus", "uid": "${datasource}"}
    instant = panel["kind"] in ("stat", "bargauge", "table")
    targets = [
        {
            "refId": chr(ord("A") + i),
            "datasource": datasource,
            "expr": query["expr"].replace("{$", "{" + MATCHERS),
            "legendFormat": query["legend"],
            "editorMode": "code",
            "instant": instant,
            "range": not instant,
            **({"format": "table"} if panel["kind"] == "table" else {}),
        }
        for i, query in enumerate(panel["queries"])
    ]
    custom = {"fillOpacity": 60 if panel["stack"] else 8, "lineWidth": 1, "showPoints": "never"}
    if panel["stack"]:
        custom["stacking"] = {"mode": "normal", "group": "A"}
    options = {
        "timeseries": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
        "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "none"},
        "bargauge": {"reduceOptions": {"calcs": ["lastNotNull"]}, "orientation": "horizontal", "displayMode": "basic"},
        "table": {},
    }[panel["kind"]]
    return {
        "id": number,
        "type": panel["kind"],
        "title": panel["title"],
        "description": panel["description"],
        "datasource": datasource,
        "gridPos": {"x": x, "y": y, "w": panel["width"], "h": panel["height"]},
        "fieldConfig": {
            "defaults": {"unit": panel["unit"], **({"custom": custom} if panel["kind"] == "timeseries" else {})},
            "overrides": [],
        },
        "options": options,
        "targets": targets,
    }


def dashboard(uid):
    title, description, panels = DASHBOARDS[uid]
    placed, x, y, height = [], 0, 0, 0
    for number, panel in enumerate(panels, 1):
        if x + panel["width"] > WIDTH:
            x, y, height = 0, y + height, 0
        placed.append(rendered(number, panel, x, y))
        x, height = x + panel["width"], max(height, panel["height"])
    datasource = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": "default", "value": "default"},
    }
    variables = [
        datasource,
        variable("job", "Job", "Of Prometheus' configuration."),
        variable("instance", "Instance", "Machine and port."),
        variable("device", "Device", "Name of the ftld instance."),
    ]
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["ftld"],
        "schemaVersion": 36,
        "version": 1,
        "editable": False,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "links": [{"type": "dashboards", "title": "ftld", "tags": ["ftld"], "asDropdown": True, "includeVars": True, "keepTime": True}],
        "templating": {"list": variables},
        "annotations": {"list": []},
        "panels": placed,
    }


def text(uid):
    return json.dumps(dashboard(uid), indent=2) + "\n"


def main():
    check = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not check:
        sys.exit(__doc__)
    FOLDER.mkdir(exist_ok=True)
    files = {FOLDER / f"{uid}.json": text(uid) for uid in DASHBOARDS}
    if check:
        stale = [file.name for file, wanted in files.items() if not file.exists() or file.read_text() != wanted]
        stale += [file.name for file in FOLDER.glob("*.json") if file not in files]
        sys.exit(f"not what dashboards.py makes: {', '.join(stale)}; run it" if stale else 0)
    for file, wanted in files.items():
        file.write_text(wanted)


if __name__ == "__main__":
    main()
