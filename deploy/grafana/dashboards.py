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

sys.path.insert(0, str(Path(__file__).parent))
sys.dont_write_bytecode = True

import layout  # noqa: E402
from layout import (  # noqa: E402
    ALERT_MATCHERS,
    BYTE_RATES,
    BYTES,
    COUNT,
    FACTOR,
    FAULTS,
    GREEN,
    ID,
    NEEDS,
    NONE,
    RATE,
    RATES,
    RED,
    SECONDS,
    SHARE,
    WIDTH,
    YELLOW,
    YES_IS_BAD,
    bars,
    column,
    detail,
    graph,
    heat,
    panel,
    quantile,
    query,
    rate,
    ratio,
    row,
    scheme_of,
    table,
)

FOLDER = Path(__file__).parent / "dashboards"

WRITTEN = rate("ftld_host_written_bytes_total")
WAF = ratio(rate("ftld_nand_programmed_bytes_total"), WRITTEN)
HIT = 'result="hit"'
HITS = ratio(rate("ftld_map_cache_lookups_total", HIT), rate("ftld_map_cache_lookups_total"))
BLOCK_PAGES = f"on ({ID}) max by ({ID}) (ftld_nand_block_pages{{$}})"
VICTIMS = f"{ratio(rate('ftld_gc_pages_moved_total'), rate('ftld_gc_runs_total'))} / {BLOCK_PAGES}"
DIES = f"on ({ID}) group_left () max by ({ID}) (ftld_nand_dies{{$}})"
FREE = 'ftld_blocks{$, state="free"}'

# State of a device as one number: paused, read-only and failing writes are bits of it.
STATE = (f"max by ({ID}) (ftld_device_paused{{$}}) + 2 * max by ({ID}) (ftld_device_read_only{{$}})"
         f" + 4 * max by ({ID}) (ftld_device_writes_failing{{$}})")
STATES = {0: ("Serving", GREEN), 1: ("Paused", YELLOW), 2: ("Read-only", RED), 3: ("Read-only", RED), 4: ("Writes fail", RED),
          5: ("Writes fail", RED), 6: ("Writes fail", RED), 7: ("Writes fail", RED)}
BLOCK_STATES = ("free", "open", "data", "log", "map", "checkpoint", "released", "bad")
ALERTS = f'ALERTS{{alertname=~"Ftld.+", alertstate="firing", {ALERT_MATCHERS}}}'
BUSY = ("Emulated busy time of a die per second. Up to 100 % the emulated flash keeps up with the host. 1500 %: a real flash of this"
        " kind would need 15 seconds for what the host does in one; the emulation does not wait, unless with --latency.")


def of_device(expr):
    """The one value of a device."""
    return f"max by ({ID}) ({expr})"


ENDURANCE = column("Endurance", of_device("ftld_endurance_used_ratio{$}"), "percentunit", SHARE,
                   steps=[(None, GREEN), (0.8, YELLOW), (0.9, RED)])
REMAINING = column("Writes left", of_device("ftld_remaining_writes_bytes{$}"), "bytes", BYTES, steps=[(None, RED), (1, GREEN)])
CLEAN = column("Shutdown", of_device("ftld_recovery_clean{$}"), "none", SHARE, values={0: ("Cut", YELLOW), 1: ("Clean", GREEN)})
UNREADABLE = column("Unreadable", f"sum by ({ID}) (increase(ftld_ecc_uncorrectable_total{{$}}[1h]))", "short", NONE, steps=YES_IS_BAD)

OVERVIEW = [
    row("Status"),
    table("Devices", "A row a device. Alerts: firing alerts of ftld's rules; an instance that is down has only these. Shutdown: whether the"
          " image was closed cleanly before this start. Queue: host requests in flight. WAF: bytes programmed per byte the host wrote since"
          " the start. Endurance: mean erases as a share of the rated ones. Writes left: until all of them are used. Unreadable: flash pages"
          " that ECC could not correct within an hour.",
          column("", f"max by ({ID}, scheme) (ftld_device_info{{$}})", "none", (1, 1)),
          column("State", STATE, "none", (0, 3), values=STATES),
          column("Alerts", f"(sum by ({ID}) ({ALERTS}) or 0 * {of_device('ftld_device_info{$}')})", "none", COUNT, steps=YES_IS_BAD),
          CLEAN,
          column("Uptime", f"time() - {of_device('ftld_device_start_time_seconds{$}')}", "s", (0, 1e9)),
          column("Queue", f"sum by ({ID}) (ftld_host_ios_in_flight{{$}})", "short", COUNT),
          column("WAF", of_device("ftld_write_amplification_ratio{$}"), "none", FACTOR,
                 steps=[(None, GREEN), (2, YELLOW), (4, RED)]),
          column("Free blocks", of_device(FREE), "short", (1, 1e9), steps=[(None, RED), (1, GREEN)]),
          column("Mapped", f"{of_device('ftld_logical_mapped_bytes{$}')} / {of_device('ftld_device_capacity_bytes{$}')}", "percentunit", SHARE),
          ENDURANCE, REMAINING, UNREADABLE),
    row("Host requests"),
    graph("Reads", "Bytes that the host reads, by device.", "Bps", query(rate("ftld_host_read_bytes_total"), "{{device}}", BYTE_RATES)),
    graph("Writes", "Bytes that the host writes, by device.", "Bps", query(WRITTEN, "{{device}}", BYTE_RATES)),
    graph("Requests per second", "Host requests of all kinds that succeeded, by device.", "iops",
          query(rate("ftld_host_ios_total"), "{{device}}", RATES)),
    row("Latency"),
    heat("Latency that the host sees (wall clock)", "How many requests took how long: a darker field is more requests. All chosen"
         " devices together, from the arrival to the answer.", "s", "ftld_host_io_duration_seconds", "requests"),
    heat("Latency on the emulated flash", "The same requests, as long as the emulated flash would take. Two bands are usual: requests"
         " without and with GC before them.", "s", "ftld_device_io_duration_seconds", "requests"),
    graph("Slowest 0.1 % (wall clock)", "99.9th percentile of the time that the host waited, by device.", "s",
          query(quantile(0.999, "ftld_host_io_duration_seconds"), "{{device}}", SECONDS, "requests")),
    graph("Slowest 0.1 % (emulated flash)", "99.9th percentile on the emulated flash, by device.", "s",
          query(quantile(0.999, "ftld_device_io_duration_seconds"), "{{device}}", SECONDS, "requests")),
    graph("Slowest 0.1 % of the FLUSHes", "99.9th percentile of the wait for this machine's storage, by device.", "s",
          query(quantile(0.999, "ftld_image_sync_duration_seconds"), "{{device}}", SECONDS, "syncs")),
    row("Flash"),
    graph("Write amplification", "Bytes programmed per byte the host wrote, by device; 1 is the least.", "none",
          query(WAF, "{{device}}", FACTOR, "writes")),
    graph("Flash busy (above 100 %: the host outruns this flash)", BUSY, "percentunit",
          query(f"{rate('ftld_nand_busy_seconds_total')} / {DIES}", "{{device}}", (0, 1e4))),
    graph("Failed requests", "Host requests that failed, by kind and error.", "iops",
          query(rate("ftld_host_io_errors_total", by="op, errno") + " > 0", "{{device}} {{op}} {{errno}}", RATES, "errors")),
]

INTERNALS = [
    row("Flash operations"),
    detail("Programs by cause", "Flash pages programmed; those of `host` are the least there can be.", "wps",
           query(rate("ftld_nand_pages_programmed_total", by="cause"), "{{device}} {{cause}}", RATES), stack=True),
    detail("Reads by cause", "Flash pages read in full.", "rps",
           query(rate("ftld_nand_pages_read_total", by="cause"), "{{device}} {{cause}}", RATES), stack=True),
    row("Garbage collection and space"),
    graph("GC runs", "Victims of GC, or log blocks merged.", "ops", query(rate("ftld_gc_runs_total"), "{{device}}", RATES)),
    graph("Valid pages per victim", "Mean share of a victim that GC relocated: the lower, the cheaper.", "percentunit",
          query(VICTIMS, "{{device}}", FACTOR, "gc")),
    graph("Free blocks and GC threshold", "Below the threshold writes wait for GC.", "short",
          query(FREE, "{{device}} free", COUNT), query("ftld_gc_free_threshold_blocks{$}", "{{device}} threshold", COUNT)),
    table("Blocks by state", "A row a device; the states add up to all blocks.",
          *(column(state.capitalize(), of_device(f'ftld_blocks{{$, state="{state}"}}'), "short", COUNT) for state in BLOCK_STATES)),
    row("Stalls and background work"),
    detail("Time of write stalls", "Emulated seconds that host writes waited, per second, by the cause of the work.", "none",
           query(rate("ftld_write_stall_device_seconds_total", by="cause"), "{{device}} {{cause}}", (0, 1e4)), stack=True),
    detail("Scheme events", "Background operations of the scheme.", "ops",
           query(rate("ftld_scheme_events_total", by="event"), "{{device}} {{event}}", RATES)),
    row("Mapping and RAM"),
    graph("Map cache hit ratio", "Share of mapping lookups that read no flash.", "percentunit",
          query(HITS, "{{device}}", SHARE, "lookups")),
    graph("Map cache evictions", "Entries that left the cache to make room; a dirty one writes its mapping page.", "ops",
          query(rate("ftld_map_cache_evictions_total", 'state="dirty"'), "{{device}} dirty", RATES),
          query(rate("ftld_map_cache_evictions_total", 'state="clean"'), "{{device}} clean", RATES)),
    graph("Write buffer and write cache", "Bytes that are not on the flash yet; 0 without a buffer and a cache.", "bytes",
          query("ftld_write_buffer_bytes{$}", "{{device}} buffer", BYTES),
          query("ftld_write_cache_dirty_bytes{$}", "{{device}} cache", BYTES)),
    bars("RAM of the tables (allocated)", "Allocated bytes, the largest first.", "bytes",
         query("sort_desc(ftld_ram_bytes{$} > 0)", "{{device}} {{part}}", BYTES)),
    row("Daemon"),
    table("Daemons", "Requests per second, the recording's rate, and the age of the flash snapshot, which is published ten times a second.",
          column("NBD requests", rate("ftld_nbd_requests_total"), "reqps", RATES),
          column("NBD connections", f"sum by ({ID}) (ftld_nbd_connections{{$}})", "short", COUNT),
          column("HTTP requests", rate("ftld_http_requests_total"), "reqps", RATES),
          column("Control requests", rate("ftld_control_requests_total"), "reqps", RATES),
          column("Recording", rate("ftld_recording_bytes_total"), "Bps", BYTE_RATES),
          column("Watchdog pings", rate("ftld_watchdog_pings_total"), "ops", RATES),
          column("Snapshot age", of_device("ftld_snapshot_age_seconds{$}"), "s", (0, 10), steps=[(None, GREEN), (1, YELLOW), (10, RED)])),
]

WEAR = [
    row("Endurance"),
    table("Devices", "A row a device. Endurance: mean erases as a share of the rated ones. Writes left: host bytes until the mean block reaches"
          " them. Unreadable: flash pages that ECC could not correct within an hour. To refresh: blocks near their ECC limit. Mount: the last"
          " one, on the wall clock and emulated, with the pages that it scanned and dropped.",
          ENDURANCE, REMAINING,
          column("Rated erases", of_device("ftld_block_erase_limit{$}"), "short", (1, 1e6)),
          column("Bad (factory)", of_device('ftld_bad_blocks{$, origin="factory"}'), "short", COUNT),
          column("Bad (grown)", of_device('ftld_bad_blocks{$, origin="grown"}'), "short", COUNT, steps=[(None, GREEN), (1, YELLOW)]),
          UNREADABLE,
          column("To refresh", of_device("ftld_ecc_refresh_blocks{$}"), "short", COUNT, steps=[(None, GREEN), (1, YELLOW)]),
          CLEAN,
          column("Mount", of_device("ftld_recovery_duration_seconds{$}"), "s", SECONDS, steps=[(None, GREEN), (10, YELLOW)]),
          column("Emulated", of_device("ftld_recovery_device_seconds{$}"), "s", COUNT),
          column("Scanned", of_device("ftld_recovery_pages_scanned{$}"), "short", COUNT),
          column("Dropped", of_device("ftld_recovery_discarded_pages{$}"), "short", COUNT)),
    graph("Mean erases of a block", "By device.", "short", query("ftld_block_erases_avg{$}", "{{device}}", COUNT)),
    graph("Most erases of a block", "By device. A block fails about when it reaches its rated erases.", "short",
          query("ftld_block_erases_max{$}", "{{device}}", COUNT)),
    graph("Unevenness", "Standard deviation of the erases of the blocks, by device.", "short",
          query("ftld_block_erases_stddev{$}", "{{device}}", COUNT)),
    panel("heatmap", "Blocks by erases", "How many blocks have how many erases, over time: a darker field is more blocks. All chosen"
          " devices together.", "short",
          [query('sum by (le) (label_replace(ftld_block_erase_distribution_blocks{$}, "le", "$1", "at_most", "(.*)"))', "{{le}}", COUNT)],
          width=WIDTH // 2, height=9),
    detail("Wear levelling and refreshing", "Blocks relocated to even out wear, and blocks rewritten near their ECC limit.", "ops",
           query(rate("ftld_wear_level_moves_total"), "{{device}} levelled", RATES),
           query(rate("ftld_refresh_moves_total"), "{{device}} refreshed", RATES), height=9),
    row("Errors and faults"),
    graph("Corrected bits", "Wrong bits that ECC corrected.", "ops", query(rate("ftld_ecc_corrected_bit_errors_total"), "{{device}}", RATES)),
    graph("Flash errors and faults", "Failed programs and erases, of which each costs a block, reads that ECC cannot correct, and the faults of"
          " `ftld inject` and of the fault plan.", "ops",
          *(query(f"{rate(metric)} and on ({ID}) {NEEDS['faults'][1]} > 0", f"{{{{device}}}} {name}", RATES, "faults")
            for name, metric in FAULTS.items())),
]


def by_scheme(title, description, unit, expr, bounds, needs=None):
    return graph(title, description, unit, query(scheme_of(expr), "{{scheme}} ({{device}})", bounds, needs))


def tail_by_scheme(title, description, op, needs):
    expr = quantile(0.999, "ftld_device_io_duration_seconds", labels=f'op="{op}"')
    return by_scheme(title, description, "s", expr, SECONDS, needs)


# Rows of a table of shadows, and their figures.
TWIN = f"{ID}, shadow"


def of_twin(expr):
    return f"max by ({TWIN}) ({expr})"


def twin_rate(metric):
    return f"sum by ({TWIN}) (rate({metric}{{$}}{RATE}))"


TWIN_WAF = ratio(twin_rate("ftld_shadow_programs_total"), twin_rate("ftld_shadow_host_pages_written_total"))
TWIN_ERASES = ratio(twin_rate("ftld_shadow_erases_total"), twin_rate("ftld_shadow_host_pages_written_total"))

SCHEMES = [
    row("Devices"),
    table("Devices", "A row a device: its scheme and its RAM.",
          column("", f"max by ({ID}, scheme, profile, cell, transport) (ftld_device_info{{$}})", "none", (1, 1)),
          column("RAM of the tables", f"sum by ({ID}) (ftld_ram_bytes{{$}})", "bytes", BYTES),
          column("RAM by the paper", f"sum by ({ID}) (ftld_ram_paper_bytes{{$}})", "bytes", BYTES)),
    row("Cost of host writes"),
    by_scheme("Write amplification", "Bytes programmed per byte the host wrote.", "none", WAF, FACTOR, "writes"),
    by_scheme("Erases per GiB written", "Wear per amount of host data.", "short",
              f"{ratio(rate('ftld_nand_erases_total'), WRITTEN)} * 2^30", (0, 1e6), "writes"),
    by_scheme("Valid pages per victim", "Mean share of a victim that GC relocated.", "percentunit", VICTIMS, FACTOR, "gc"),
    row("Latency on the emulated flash"),
    tail_by_scheme("Slowest 0.1 % of the writes", "99.9th percentile of a write on the emulated flash.", "write", "writes"),
    tail_by_scheme("Slowest 0.1 % of the reads", "99.9th percentile of a read on the emulated flash.", "read", "reads"),
    by_scheme("Time of write stalls", "Emulated seconds that host writes waited, per second.", "none",
              rate("ftld_write_stall_device_seconds_total"), (0, 1e4)),
    row("Shadows: the same requests under other schemes"),
    table("Shadows", "A row a shadow: a twin without data that the requests of its device drive too. Inexact: requests were dropped,"
          " because the twin could not keep up. WAF: flash programs per page the host wrote. Erases/1000: per 1000 pages written. RAM of the"
          " scheme's tables. p99 on the emulated flash.",
          column("Exact", of_twin("ftld_shadow_exact{$}"), "none", SHARE, "shadows", values={0: ("Inexact", YELLOW), 1: ("Exact", GREEN)}),
          column("Requests", twin_rate("ftld_shadow_requests_total"), "reqps", RATES, "shadows"),
          column("Dropped", twin_rate("ftld_shadow_dropped_requests_total"), "reqps", RATES, "shadows", steps=[(None, GREEN), (0.001, YELLOW)]),
          column("WAF", TWIN_WAF, "none", FACTOR, "shadows", steps=[(None, GREEN), (2, YELLOW), (4, RED)]),
          column("Erases/1000", f"{TWIN_ERASES} * 1000", "short", (0, 1e6), "shadows"),
          column("RAM", of_twin("ftld_shadow_ram_bytes{$}"), "bytes", BYTES, "shadows"),
          column("p99 of reads", of_twin("ftld_shadow_read_p99_seconds{$}"), "s", SECONDS, "shadows"),
          column("p99 of writes", of_twin("ftld_shadow_write_p99_seconds{$}"), "s", SECONDS, "shadows"), by=TWIN),
    graph("Write amplification of the shadows", "Flash programs per page the host wrote, by device and shadow, beside the device itself.", "none",
          query(TWIN_WAF, "{{device}} {{shadow}}", FACTOR, "shadows"),
          query(f"{WAF} and on ({ID}) {NEEDS['shadows'][1]} > 0", "{{device}} itself", FACTOR, "shadows")),
    graph("Erases of the shadows per 1000 pages written", "Wear per amount of host data, by device and shadow.", "short",
          query(f"{TWIN_ERASES} * 1000", "{{device}} {{shadow}}", (0, 1e6), "shadows")),
]

DASHBOARDS = {
    "ftld-overview": ("ftld: overview", "Host requests, and their cost on flash.", OVERVIEW),
    "ftld-internals": ("ftld: FTL internals", "Operations of the translation layer, by cause.", INTERNALS),
    "ftld-wear": ("ftld: wear and reliability", "Remaining endurance, errors and faults.", WEAR),
    "ftld-schemes": ("ftld: schemes compared", "Devices side by side, named by their schemes.", SCHEMES),
}


def text(uid):
    return json.dumps(layout.dashboard(uid, *DASHBOARDS[uid]), indent=2) + "\n"


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
