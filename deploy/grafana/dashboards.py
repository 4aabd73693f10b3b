#!/usr/bin/env python3
"""The four Grafana dashboards, from one source.

    deploy/grafana/dashboards.py            writes dashboards/*.json
    deploy/grafana/dashboards.py --check    fails if the files are stale

A query names its metrics with `{$}` or `{$, op="read"}` behind them: the dollar stands for the
matchers of the dashboard's variables. Each query has the bounds of its values on a healthy device,
and the activity that it needs: without that activity it has no samples, and the panel shows the
reason. `tests/grafana.py` compares a live device with both.
"""

import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "dashboards"
MATCHERS = 'job=~"$job", instance=~"$instance", device=~"$device"'
# An alert about a whole instance has no device.
ALERT_MATCHERS = 'job=~"$job", instance=~"$instance", device=~"$device|"'
RATE = "[$__rate_interval]"
ID = "job, instance, device"
WIDTH = 24

# Bounds of values.
SHARE = (0, 1)
COUNT = (0, 1e9)
RATES = (0, 1e7)
BYTES = (0, 1e18)
BYTE_RATES = (0, 1e11)
SECONDS = (0, 60)
FACTOR = (0, 200)
NONE = (0, 0)

# What a query needs for samples: the reason for an empty panel, and the expression that is positive
# on an instance with that activity.
NEEDS = {
    "requests": ("No host requests", f"sum by ({ID}) (rate(ftld_host_io_duration_seconds_count{{$}}{RATE}))"),
    "data": ("No reads, writes or trims", f"sum by ({ID}) (rate(ftld_host_io_size_bytes_count{{$}}{RATE}))"),
    "reads": ("No host reads", f'sum by ({ID}) (rate(ftld_host_ios_total{{$, op="read"}}{RATE}))'),
    "writes": ("No host writes", f"sum by ({ID}) (rate(ftld_host_written_bytes_total{{$}}{RATE}))"),
    "syncs": ("No FLUSH", f"sum by ({ID}) (rate(ftld_image_sync_duration_seconds_count{{$}}{RATE}))"),
    "errors": ("No errors", f"sum by ({ID}) (rate(ftld_host_io_errors_total{{$}}{RATE}))"),
    "gc": ("No GC runs", f"sum by ({ID}) (rate(ftld_gc_runs_total{{$}}{RATE}))"),
    "lookups": ("No mapping lookups; a map in RAM has none", f"sum by ({ID}) (rate(ftld_map_cache_lookups_total{{$}}{RATE}))"),
}

GREEN, YELLOW, RED = "green", "yellow", "red"
OK = [(None, GREEN)]
YES_IS_BAD = [(None, GREEN), (1, RED)]
NO_YES = {0: ("No", GREEN), 1: ("Yes", RED)}


def query(expr, legend, bounds, needs=None):
    return {"expr": expr, "legend": legend, "bounds": bounds, "needs": needs}


def rate(metric, labels="", by=""):
    """The rate of a counter, summed by device and perhaps more."""
    matchers = "$, " + labels if labels else "$"
    return f"sum by ({ID}{', ' + by if by else ''}) (rate({metric}{{{matchers}}}{RATE}))"


def quantile(share, metric, by="", labels=""):
    """A percentile; no sample where nothing happened, instead of NaN."""
    matchers, more = ("$, " + labels if labels else "$"), (f", {by}" if by else "")
    return (
        f"histogram_quantile({share}, sum by ({ID}{more}, le) (rate({metric}_bucket{{{matchers}}}{RATE})))"
        f" and sum by ({ID}{more}) (rate({metric}_count{{{matchers}}}{RATE})) > 0"
    )


def quantiles(metric, shares, bounds, needs, by="", legend=""):
    """Lines of percentiles, such as p99 and p99.9."""
    return [
        query(quantile(share, metric, by), f"{{{{device}}}}{legend} p{share * 100:g}", bounds, needs) for share in shares
    ]


def ratio(above, below):
    """A ratio of rates; no sample while the lower one is 0, instead of NaN."""
    return f"{above} / ({below} > 0)"


def scheme_of(expr):
    """An expression with the name of the device's scheme as a label."""
    return f"({expr}) * on ({ID}) group_left (scheme) max by ({ID}, scheme) (ftld_device_info{{$}})"


def panel(kind, title, description, unit, queries, width=None, height=8, stack=False, steps=OK, values=None, name="auto"):
    return {
        "kind": kind,
        "title": title,
        "description": description,
        "unit": unit,
        "queries": queries,
        "width": width,
        "height": height,
        "stack": stack,
        "steps": steps,
        "values": values or {},
        "name": name,
    }


def graph(title, description, unit, *queries, stack=False):
    return panel("timeseries", title, description, unit, queries, stack=stack)


def stat(title, description, unit, *queries, steps=OK, values=None, name="value_and_name"):
    return panel("stat", title, description, unit, queries, width=4, height=4, steps=steps, values=values, name=name)


def bars(title, description, unit, *queries):
    return panel("bargauge", title, description, unit, queries)


def row(title):
    return panel("row", title, "", "", [], width=WIDTH, height=1)


WRITTEN = rate("ftld_host_written_bytes_total")
WAF = ratio(rate("ftld_nand_programmed_bytes_total"), WRITTEN)
WAF_BY_CAUSE = f"{rate('ftld_nand_programmed_bytes_total', by='cause')} / on ({ID}) group_left () ({WRITTEN} > 0)"
HIT = 'result="hit"'
HITS = ratio(rate("ftld_map_cache_lookups_total", HIT), rate("ftld_map_cache_lookups_total"))
HITS_BY_OP = ratio(rate("ftld_map_cache_lookups_total", HIT, by="op"), rate("ftld_map_cache_lookups_total", by="op"))
BLOCK_PAGES = f"on ({ID}) max by ({ID}) (ftld_nand_block_pages{{$}})"
VICTIMS = f"{ratio(rate('ftld_gc_pages_moved_total'), rate('ftld_gc_runs_total'))} / {BLOCK_PAGES}"
DIES = f"on ({ID}) group_left () max by ({ID}) (ftld_nand_dies{{$}})"
UTILISATION = f"{rate('ftld_nand_busy_seconds_total', by='kind')} / {DIES}"
# Ratios are not stacked: the sum over several devices has no meaning.
SIZES = ratio(rate("ftld_host_io_size_bytes_sum", by="op"), rate("ftld_host_io_size_bytes_count", by="op"))
FREE = 'ftld_blocks{$, state="free"}'
LATENCIES = (0.5, 0.99, 0.999)

UPTIME = stat("Uptime", "Time since the instance started.", "s",
              query("time() - ftld_device_start_time_seconds{$}", "{{device}}", (0, 1e9)))
CLEAN = stat("Clean shutdown", "Whether the image was closed cleanly before this start.", "none",
             query("ftld_recovery_clean{$}", "{{device}}", SHARE),
             steps=[(None, YELLOW), (1, GREEN)], values={0: ("No", YELLOW), 1: ("Yes", GREEN)})
ENDURANCE = stat("Endurance used", "Mean erases as a share of the rated ones.", "percentunit",
                 query("ftld_endurance_used_ratio{$}", "{{device}}", SHARE), steps=[(None, GREEN), (0.8, YELLOW), (0.9, RED)])
REMAINING = stat("Remaining writes", "Estimated host bytes until the mean block reaches its rated erases.", "bytes",
                 query("ftld_remaining_writes_bytes{$}", "{{device}}", BYTES), steps=[(None, RED), (1, GREEN)])

OVERVIEW = [
    row("Status"),
    UPTIME,
    stat("Alerts firing", "Alerts of ftld's rules; 0 without these rules.", "none",
         query(f'sum(ALERTS{{alertname=~"Ftld.+", alertstate="firing", {ALERT_MATCHERS}}}) or vector(0)', "alerts", COUNT),
         steps=YES_IS_BAD, name="value"),
    stat("Read-only", "Whether the device refuses writes.", "none",
         query(f"max by ({ID}) (ftld_device_read_only{{$}})", "{{device}}", SHARE), steps=YES_IS_BAD, values=NO_YES),
    stat("Writes failing", "Whether the host's storage refuses writes of the image.", "none",
         query(f"max by ({ID}) (ftld_device_writes_failing{{$}})", "{{device}}", NONE), steps=YES_IS_BAD, values=NO_YES),
    stat("Paused", "Whether the device is paused: requests wait.", "none",
         query("ftld_device_paused{$}", "{{device}}", SHARE), steps=[(None, GREEN), (1, YELLOW)],
         values={0: ("No", GREEN), 1: ("Yes", YELLOW)}),
    CLEAN,
    stat("Queue depth", "Host requests in flight now.", "short",
         query(f"sum by ({ID}) (ftld_host_ios_in_flight{{$}})", "{{device}}", COUNT)),
    stat("Write amplification", "Bytes programmed per byte the host wrote, since the daemon started.", "none",
         query("ftld_write_amplification_ratio{$}", "{{device}}", FACTOR), steps=[(None, GREEN), (2, YELLOW), (4, RED)]),
    stat("Free blocks", "Erased blocks that can be taken now.", "short", query(FREE, "{{device}}", (1, 1e9)), steps=[(None, RED), (1, GREEN)]),
    ENDURANCE,
    REMAINING,
    stat("Unreadable pages", "Flash page reads with an uncorrectable ECC error, within an hour.", "short",
         query(f"sum by ({ID}) (increase(ftld_ecc_uncorrectable_total{{$}}[1h]))", "{{device}}", NONE), steps=YES_IS_BAD),
    row("Host requests"),
    graph("Throughput", "Host reads, writes and trims.", "Bps",
          query(rate("ftld_host_read_bytes_total"), "{{device}} read", BYTE_RATES),
          query(WRITTEN, "{{device}} written", BYTE_RATES),
          query(rate("ftld_host_discarded_bytes_total"), "{{device}} trimmed", BYTE_RATES)),
    graph("IOPS", "Host requests that succeeded, by kind.", "iops",
          query(rate("ftld_host_ios_total", by="op"), "{{device}} {{op}}", RATES)),
    graph("Queue depth", "Host requests in flight.", "short",
          query(f"sum by ({ID}, op) (ftld_host_ios_in_flight{{$}})", "{{device}} {{op}}", COUNT)),
    graph("Request size", "Mean, and 99th percentile; a class ends at each power of 2 or 4.", "bytes",
          query(SIZES, "{{device}} {{op}} mean", BYTES, "data"),
          *quantiles("ftld_host_io_size_bytes", (0.99,), BYTES, "data", "op", " {{op}}")),
    graph("FLUSH, FUA and partial pages", "FLUSH includes one for each request with FUA. A partial page costs a read.", "iops",
          query(rate("ftld_host_ios_total", 'op="flush"'), "{{device}} FLUSH", RATES),
          query(rate("ftld_host_fua_ios_total"), "{{device}} FUA", RATES),
          query(rate("ftld_host_unaligned_ios_total"), "{{device}} partial pages", RATES)),
    graph("Errors", "Host requests that failed, by kind and error.", "iops",
          query(rate("ftld_host_io_errors_total", by="op, errno") + " > 0", "{{device}} {{op}} {{errno}}", RATES, "errors")),
    row("Latency"),
    graph("Latency (wall clock)", "Time that the host waited: median, 99th and 99.9th percentile.", "s",
          *quantiles("ftld_host_io_duration_seconds", LATENCIES, SECONDS, "requests", "op", " {{op}}")),
    graph("Latency (emulated flash)", "Duration of the same requests on the emulated flash: median, 99th and 99.9th percentile.", "s",
          *quantiles("ftld_device_io_duration_seconds", LATENCIES, SECONDS, "requests", "op", " {{op}}")),
    graph("Syncs of the image", "Time that a FLUSH waits for this machine's storage: 99th and 99.9th percentile.", "s",
          *quantiles("ftld_image_sync_duration_seconds", (0.99, 0.999), SECONDS, "syncs")),
    row("Flash"),
    graph("Write amplification by cause", "Bytes programmed per byte the host wrote, by cause.", "none",
          query(WAF, "{{device}} total", FACTOR, "writes"), query(WAF_BY_CAUSE, "{{device}} {{cause}}", FACTOR, "writes")),
    graph("Flash utilisation", "Emulated busy time of a die; above 100 % the host is faster than the emulated flash.", "percentunit",
          query(UTILISATION, "{{device}} {{kind}}", (0, 1e4))),
    graph("Mapped data", "Logical pages with data, and the size of the device.", "bytes",
          query("ftld_logical_mapped_bytes{$}", "{{device}} mapped", BYTES), query("ftld_device_capacity_bytes{$}", "{{device}} size", BYTES)),
]

INTERNALS = [
    row("Flash operations"),
    graph("Programs by cause", "Flash pages programmed.", "wps",
          query(rate("ftld_nand_pages_programmed_total", by="cause"), "{{device}} {{cause}}", RATES), stack=True),
    graph("Reads by cause", "Flash pages read in full, and short reads such as of an OOB area.", "rps",
          query(rate("ftld_nand_pages_read_total", by="cause"), "{{device}} {{cause}}", RATES),
          query(rate("ftld_nand_partial_reads_total", by="cause"), "{{device}} {{cause}} short", RATES), stack=True),
    graph("Erases by cause", "Flash blocks erased.", "ops",
          query(rate("ftld_nand_erases_total", by="cause"), "{{device}} {{cause}}", RATES), stack=True),
    graph("Flash utilisation", "Emulated busy time of a die; above 100 % the host is faster than the emulated flash.", "percentunit",
          query(UTILISATION, "{{device}} {{kind}}", (0, 1e4))),
    graph("Copybacks", "Pages copied inside a plane; only `mlam` uses them.", "ops",
          query(rate("ftld_nand_copybacks_total"), "{{device}}", RATES)),
    row("Garbage collection and space"),
    graph("GC runs", "Victims of GC, or log blocks merged.", "ops", query(rate("ftld_gc_runs_total"), "{{device}}", RATES)),
    graph("Valid pages per victim", "Mean share of a victim that GC relocated: the lower, the cheaper.", "percentunit",
          query(VICTIMS, "{{device}}", FACTOR, "gc")),
    graph("Valid pages of victims", "Median and 99th percentile, in pages.", "short",
          *quantiles("ftld_gc_victim_valid_pages", (0.5, 0.99), (0, 1024), "gc")),
    graph("Free blocks and GC threshold", "Below the threshold writes wait for GC.", "short",
          query(FREE, "{{device}} free", COUNT), query("ftld_gc_free_threshold_blocks{$}", "{{device}} threshold", COUNT)),
    graph("Blocks by state", "They add up to all blocks.", "short", query("ftld_blocks{$}", "{{device}} {{state}}", COUNT), stack=True),
    graph("Pages by state", "They add up to all pages.", "short", query("ftld_pages{$}", "{{device}} {{state}}", COUNT), stack=True),
    row("Stalls and background work"),
    graph("Stalled writes", "Host writes that waited for other work, by its cause.", "wps",
          query(rate("ftld_write_stalls_total", by="cause"), "{{device}} {{cause}}", RATES)),
    graph("Time of write stalls", "Emulated seconds per second, by cause.", "none",
          query(rate("ftld_write_stall_device_seconds_total", by="cause"), "{{device}} {{cause}}", (0, 1e4)), stack=True),
    graph("Scheme events", "Background operations of the scheme.", "ops",
          query(rate("ftld_scheme_events_total", by="event"), "{{device}} {{event}}", RATES)),
    graph("Pages of scheme events", "Pages copied; for conversions and checkpoints, pages written.", "short",
          query(rate("ftld_scheme_event_pages_total", by="event"), "{{device}} {{event}}", RATES)),
    graph("Time of scheme events", "Emulated seconds per second.", "none",
          query(rate("ftld_scheme_event_device_seconds_total", by="event"), "{{device}} {{event}}", (0, 1e4)), stack=True),
    graph("Checkpoints", "Completed.", "ops", query(rate("ftld_checkpoints_total"), "{{device}}", RATES)),
    graph("Checkpoint age", "Pages programmed since the last checkpoint, or since the mount.", "short",
          query("ftld_checkpoint_age_pages{$}", "{{device}}", COUNT)),
    row("Mapping and RAM"),
    graph("Map cache hit ratio", "Share of mapping lookups that read no flash.", "percentunit",
          query(HITS_BY_OP, "{{device}} {{op}}", SHARE, "lookups")),
    graph("Mapping lookups", "Of pages that the host reads and writes; a miss reads flash.", "ops",
          query(rate("ftld_map_cache_lookups_total", by="op, result"), "{{device}} {{op}} {{result}}", RATES)),
    graph("Map cache evictions", "A dirty entry writes its mapping page.", "ops",
          query(rate("ftld_map_cache_evictions_total", by="state"), "{{device}} {{state}}", RATES)),
    graph("Mapping entries in RAM", "Cached entries or mapping pages, and entries newer than the map on flash.", "short",
          query("ftld_map_cache_entries{$}", "{{device}} cached", COUNT), query("ftld_map_pending_entries{$}", "{{device}} pending", COUNT)),
    graph("Write buffer", "Pages in the write buffer, and its capacity; 0 without a buffer.", "bytes",
          query("ftld_write_buffer_bytes{$}", "{{device}} used", BYTES),
          query("ftld_write_buffer_capacity_bytes{$}", "{{device}} capacity", BYTES)),
    bars("RAM of the tables (allocated)", "Allocated bytes.", "bytes", query("sort_desc(ftld_ram_bytes{$} > 0)", "{{device}} {{part}}", BYTES)),
    bars("RAM of the tables (paper)", "Bytes by the formula of the scheme's paper.", "bytes",
         query("sort_desc(ftld_ram_paper_bytes{$} > 0)", "{{device}} {{part}}", BYTES)),
    row("Write cache and recording"),
    graph("Write cache", "Bytes that are not on the flash yet, and the capacity; 0 without a cache.", "bytes",
          query("ftld_write_cache_dirty_bytes{$}", "{{device}} dirty", BYTES),
          query("ftld_write_cache_capacity_bytes{$}", "{{device}} capacity", BYTES)),
    graph("Write-backs", "From the write cache to the flash, by reason.", "Bps",
          query(rate("ftld_write_cache_written_back_bytes_total", by="reason"), "{{device}} {{reason}}", BYTE_RATES)),
    graph("Recording", "Bytes written to the recording; 0 without one.", "Bps",
          query(rate("ftld_recording_bytes_total"), "{{device}}", BYTE_RATES)),
    row("Daemon"),
    graph("NBD requests", "By command; 0 where NBD is not served.", "reqps",
          query(rate("ftld_nbd_requests_total", by="command"), "{{device}} {{command}}", RATES)),
    graph("NBD connections", "Negotiating and connected.", "short",
          query("ftld_nbd_connections{$}", "{{device}} {{state}}", COUNT)),
    graph("HTTP requests", "By status code, scrapes included.", "reqps",
          query(rate("ftld_http_requests_total", by="code"), "{{device}} {{code}}", RATES)),
    graph("Control requests", "Over the control socket, by command.", "reqps",
          query(rate("ftld_control_requests_total", by="command"), "{{device}} {{command}}", RATES)),
    graph("Watchdog pings", "Keep-alives to the service manager; 0 without one.", "ops",
          query(rate("ftld_watchdog_pings_total"), "{{device}}", RATES)),
    graph("Snapshot age", "The flash snapshot is published ten times a second.", "s",
          query("ftld_snapshot_age_seconds{$}", "{{device}}", (0, 10))),
]

WEAR = [
    row("Endurance"),
    stat("Rated erases", "Of one block.", "short", query("ftld_block_erase_limit{$}", "{{device}}", (1, 1e6))),
    ENDURANCE,
    REMAINING,
    stat("Bad blocks", "Of the factory, and grown.", "short", query("ftld_bad_blocks{$}", "{{device}} {{origin}}", COUNT)),
    CLEAN,
    stat("Mount", "From opening the image to serving.", "s", query("ftld_recovery_duration_seconds{$}", "{{device}}", SECONDS),
         steps=[(None, GREEN), (10, YELLOW)]),
    graph("Erases of the blocks", "Fewest, mean and most.", "short",
          query("ftld_block_erases_min{$}", "{{device}} min", COUNT), query("ftld_block_erases_avg{$}", "{{device}} mean", COUNT),
          query("ftld_block_erases_max{$}", "{{device}} max", COUNT)),
    graph("Unevenness", "Standard deviation of the erases.", "short", query("ftld_block_erases_stddev{$}", "{{device}}", COUNT)),
    bars("Blocks by erases", "Blocks with at most this many erases.", "short",
         query("sort(ftld_block_erase_distribution_blocks{$} > 0)", "{{device}} <= {{at_most}}", COUNT)),
    graph("Remaining writes", "Estimated host bytes until the mean block reaches its rated erases.", "bytes",
          query("ftld_remaining_writes_bytes{$}", "{{device}}", BYTES)),
    graph("Wear levelling and refreshing", "Blocks relocated to even out wear, and blocks rewritten near their ECC limit.", "ops",
          query(rate("ftld_wear_level_moves_total"), "{{device}} levelled", RATES),
          query(rate("ftld_refresh_moves_total"), "{{device}} refreshed", RATES)),
    row("Errors and faults"),
    graph("Corrected bits", "Wrong bits that ECC corrected, and read retries.", "ops",
          query(rate("ftld_ecc_corrected_bit_errors_total"), "{{device}} bits", RATES),
          query(rate("ftld_ecc_read_retries_total"), "{{device}} retries", RATES)),
    graph("Unreadable pages", "Flash page reads with an uncorrectable ECC error.", "ops",
          query(rate("ftld_ecc_uncorrectable_total"), "{{device}}", NONE)),
    graph("Failed programs and erases", "Each costs a block.", "ops",
          query(rate("ftld_nand_program_fails_total"), "{{device}} programs", RATES),
          query(rate("ftld_nand_erase_fails_total"), "{{device}} erases", RATES)),
    graph("Blocks to be refreshed", "Blocks near their ECC limit.", "short",
          query("ftld_ecc_refresh_blocks{$}", "{{device}}", COUNT)),
    graph("Faults injected", "By `ftld inject`, and by the fault plan.", "ops",
          query(rate("ftld_faults_injected_total", by="kind"), "{{device}} {{kind}}", RATES),
          query(rate("ftld_nand_faults_injected_total", by="fault"), "{{device}} {{fault}}", RATES)),
    row("Recovery"),
    graph("Time of the last mount", "Wall clock, and emulated flash.", "s",
          query("ftld_recovery_duration_seconds{$}", "{{device}} wall clock", SECONDS),
          query("ftld_recovery_device_seconds{$}", "{{device}} emulated", COUNT)),
    graph("Pages of the last mount", "Pages scanned, and pages dropped.", "short",
          query("ftld_recovery_pages_scanned{$}", "{{device}} scanned", COUNT),
          query("ftld_recovery_discarded_pages{$}", "{{device}} dropped", COUNT)),
]


def by_scheme(title, description, unit, expr, bounds, needs=None):
    return graph(title, description, unit, query(scheme_of(expr), "{{scheme}} ({{device}})", bounds, needs))


def tail_by_scheme(title, description, op, needs):
    lines = [
        query(scheme_of(quantile(share, "ftld_device_io_duration_seconds", labels=f'op="{op}"')),
              f"{{{{scheme}}}} ({{{{device}}}}) p{share * 100:g}", SECONDS, needs)
        for share in (0.99, 0.999)
    ]
    return graph(title, description, "s", *lines)


SCHEMES = [
    row("Devices"),
    panel("table", "Devices", "Properties of each device.", "none",
          [query(f"max by ({ID}, scheme, transport, cell, profile) (ftld_device_info{{$}})", "", (1, 1))], width=24, height=6),
    row("Cost of host writes"),
    by_scheme("Write amplification", "Bytes programmed per byte the host wrote.", "none", WAF, FACTOR, "writes"),
    by_scheme("Erases per GiB written", "Wear per amount of host data.", "short",
              f"{ratio(rate('ftld_nand_erases_total'), WRITTEN)} * 2^30", (0, 1e6), "writes"),
    by_scheme("Flash time per MiB written", "Die busy time per MiB that the host writes.", "s",
              f"{ratio(rate('ftld_nand_busy_seconds_total'), WRITTEN)} * 2^20", SECONDS, "writes"),
    by_scheme("Valid pages per victim", "Mean share of a victim that GC relocated.", "percentunit", VICTIMS, FACTOR, "gc"),
    row("Latency"),
    tail_by_scheme("Writes on the emulated flash, p99 and p99.9", "Duration of a write on the emulated flash.", "write", "writes"),
    tail_by_scheme("Reads on the emulated flash, p99 and p99.9", "Duration of a read on the emulated flash.", "read", "reads"),
    by_scheme("Time of write stalls", "Emulated seconds per second.", "none", rate("ftld_write_stall_device_seconds_total"), (0, 1e4)),
    row("Mapping and RAM"),
    by_scheme("Map cache hit ratio", "Share of mapping lookups answered from RAM.", "percentunit", HITS, SHARE, "lookups"),
    by_scheme("RAM of the tables (allocated)", "Allocated bytes.", "bytes", f"sum by ({ID}) (ftld_ram_bytes{{$}})", BYTES),
    by_scheme("RAM of the tables (paper)", "Bytes by the formula of the scheme's paper.", "bytes",
              f"sum by ({ID}) (ftld_ram_paper_bytes{{$}})", BYTES),
]

DASHBOARDS = {
    "ftld-overview": ("ftld: overview", "Host requests, and their cost on flash.", OVERVIEW),
    "ftld-internals": ("ftld: FTL internals", "Operations of the translation layer, by cause.", INTERNALS),
    "ftld-wear": ("ftld: wear and reliability", "Remaining endurance, errors and faults.", WEAR),
    "ftld-schemes": ("ftld: schemes compared", "Devices side by side, named by their schemes.", SCHEMES),
}

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def variable(name, label, what):
    matchers = {"job": "", "instance": 'job=~"$job"', "device": 'job=~"$job", instance=~"$instance"'}[name]
    found = f"label_values(ftld_build_info{{{matchers}}}, {name})" if name != "device" else f"label_values(ftld_device_info{{{matchers}}}, {name})"
    return {
        "name": name,
        "label": label,
        "description": what,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": found, "refId": name},
        "definition": found,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": "All", "value": "$__all"},
    }


def annotation(name, expr, title, text, colour, **more):
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": expr,
        "step": "30s",
        "titleFormat": title,
        "textFormat": text,
        **more,
    }


ANNOTATIONS = [
    annotation("Restarts", "ftld_device_start_time_seconds{$} * 1000".replace("{$", "{" + MATCHERS), "Start",
               "{{device}} on {{instance}} started", "blue", useValueForTime=True),
    annotation("Alerts", f'ALERTS{{alertname=~"Ftld.+", alertstate="firing", {ALERT_MATCHERS}}}', "{{alertname}}",
               "{{severity}}: {{device}} on {{instance}}", "red", tagKeys="severity"),
]


# A line that is 0 all the time stays in the graph, but not in the legend: there are many causes.
ZEROES_WITHOUT_LEGEND = [
    {
        "matcher": {"id": "byValue", "options": {"op": "gte", "reducer": "allIsZero", "value": 0}},
        "properties": [{"id": "custom.hideFrom", "value": {"legend": True, "tooltip": True, "viz": False}}],
    }
]


def mappings(values):
    options = {str(value): {"text": text, "color": colour, "index": index} for index, (value, (text, colour)) in enumerate(values.items())}
    return [{"type": "value", "options": options}] if options else []


def defaults(panel):
    found = {"unit": panel["unit"]}
    needs = {query["needs"] for query in panel["queries"]} - {None}
    if needs:
        found["noValue"] = "; ".join(sorted(NEEDS[need][0] for need in needs))
    if panel["kind"] in ("stat", "bargauge"):
        found["thresholds"] = {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in panel["steps"]]}
        found["mappings"] = mappings(panel["values"])
    if panel["kind"] == "timeseries":
        found["min"] = 0
        found["custom"] = {"fillOpacity": 60 if panel["stack"] else 0, "lineWidth": 1, "showPoints": "never"}
        if panel["stack"]:
            found["custom"]["stacking"] = {"mode": "normal", "group": "A"}
    return found


def rendered(number, panel, x, y):
    place = {"x": x, "y": y, "w": panel["width"], "h": panel["height"]}
    if panel["kind"] == "row":
        return {"id": number, "type": "row", "title": panel["title"], "collapsed": False, "gridPos": place, "panels": []}
    instant = panel["kind"] in ("stat", "bargauge", "table")
    targets = [
        {
            "refId": chr(ord("A") + i),
            "datasource": DATASOURCE,
            "expr": query["expr"].replace("{$", "{" + MATCHERS),
            "legendFormat": query["legend"].replace("{{device}}", "{{instance}} {{device}}"),
            "editorMode": "code",
            "instant": instant,
            "range": not instant,
            **({"format": "table"} if panel["kind"] == "table" else {}),
        }
        for i, query in enumerate(panel["queries"])
    ]
    options = {
        "timeseries": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
        "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "none", "textMode": panel["name"]},
        "bargauge": {"reduceOptions": {"calcs": ["lastNotNull"]}, "orientation": "horizontal", "displayMode": "basic"},
        "table": {},
    }[panel["kind"]]
    return {
        "id": number,
        "type": panel["kind"],
        "title": panel["title"],
        "description": panel["description"],
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults(panel), "overrides": ZEROES_WITHOUT_LEGEND if panel["kind"] == "timeseries" else []},
        "options": options,
        "targets": targets,
    }


def widths(count):
    """Panels per line, so that each line is full: threes, and a line of two or four."""
    lines = [3] * (count // 3)
    match count % 3:
        case 1 if lines:
            lines[-1] = 4
        case 0:
            pass
        case rest:
            lines.append(rest)
    return [WIDTH // line for line in lines for _ in range(line)]


def with_widths(panels):
    """Panels without a width share the lines between two rows."""
    starts = [index for index, panel in enumerate(panels) if panel["kind"] == "row"] + [len(panels)]
    for start, end in zip(starts, starts[1:]):
        free = [panel for panel in panels[start:end] if panel["width"] is None]
        shared = dict(zip(map(id, free), widths(len(free))))
        yield from ({**panel, "width": shared.get(id(panel), panel["width"])} for panel in panels[start:end])


def dashboard(uid):
    title, description, panels = DASHBOARDS[uid]
    placed, x, y, height = [], 0, 0, 0
    for number, panel in enumerate(with_widths(panels), 1):
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
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "links": [{"type": "dashboards", "title": "ftld", "tags": ["ftld"], "asDropdown": True, "includeVars": True, "keepTime": True}],
        "templating": {"list": variables},
        "annotations": {"list": ANNOTATIONS},
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
