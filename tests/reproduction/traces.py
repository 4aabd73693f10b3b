"""All schemes on real traces, which are data of others: the page has figures, not traces."""

from pathlib import Path

from .page import figure, table
from .rows import mean_us, waf

TITLE = "All schemes on four real traces"

# File names without their endings, and what they are.
TRACES = [
    ("1and1_linux_mysql", "a production MySQL server, one hour; from blkreplay-examples, Debian"),
    ("1and1_windows_mssql", "a production MS-SQL server; same source"),
    ("cloudphysics_libcachesim", "a disk of a virtual machine, two hours; CloudPhysics, as libCacheSim samples it"),
    ("nexus5_all_concat", "a phone, 29 applications one after another; SmartphoneIOTraces, concatenated"),
]
INTRODUCTION = """\
Device: `mlc-4k`, 7 % over-provisioning, as large as what a trace touches. Addresses are compacted: the 1 MiB extents that a trace touches lie one behind the other, in their order. Every page that a trace touches is written
once, in order, and the trace runs once before it is measured, one request after the other. Of requests that are not aligned to 4 KiB, parts of pages are read first and written back. The traces belong to others and are
not part of the project.
"""


def section(ftld, folder):
    text, missing = INTRODUCTION + "\n", []
    for trace, what in TRACES:
        files = sorted(Path(folder).glob(f"{trace}.*")) if folder else []
        if not files:
            missing.append(trace)
            continue
        method = ["--address", "compact", "--precondition", "footprint", "--warm-up", "1"]
        rows = ftld.compare(f"trace-{trace}", [files[0]], list(ftld.schemes), *method, lenient=True)
        if rows:
            text += f"**{trace}**: {what}.\n{about(rows[0])}\n\n" + figures(rows)
    return text, missing


def about(row):
    requests = row["requests"]
    written = requests["written_bytes"] / 2**20
    return (
        f"{requests['completed']:,} requests, {written:,.0f} MiB written in {requests['pages_written']:,} pages, "
        f"{requests['pages_read']:,} pages read; {row['device']['size_bytes'] / 2**30:,.1f} GiB."
    )


def figures(rows):
    lines = []
    for row in sorted(rows, key=lambda row: mean_us(row, "write") or 0):
        lines.append(
            (
                row["scheme"],
                figure(waf(row), 3),
                figure(mean_us(row, "write"), 0),
                figure(mean_us(row, "read"), 0),
                figure(row["emulated_ns"] / 1e9, 0),
                figure(row["erases"]["total"], 0),
                figure(row["map_cache"]["hit_ratio_read"], 4),
                figure(row["map_cache"]["hit_ratio_write"], 4),
                figure(row["ram"]["paper_bytes"] / 1024, 0),
            )
        )
    bound = rows[0]["optimum"]
    us = lambda ns: figure(ns and ns / 1000, 0)
    lines.append(("*optimum*", "1.000", us(bound["mean_write_ns"]), us(bound["mean_read_ns"]), figure(bound["work_ns"] / 1e9, 0), figure(bound["erases"], 0), "-", "-", "-"))
    heads = ["scheme", "write amplification", "mean write us", "mean read us", "flash time s", "erases", "hit ratio of reads", "of writes", "RAM by the paper, KiB"]
    return table(heads, lines)
