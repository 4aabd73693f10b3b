"""All schemes on real traces, on full and aged devices of equal raw flash."""

from . import real
from .page import figure, table
from .rows import copies, mean_us, waf

TITLE = "All schemes on five real traces"

# Crash safety and wear levelling, which no paper's comparison has.
OFF = {"ckpt.interval": "0", "nand.pair_policy": "none", "mlam.ack": "buffer", "wear.policy": "none", "scrub.hours": "0"}
INTRODUCTION = """\
Device: `mlc-4k`, as large as what a trace touches; every scheme has the same raw flash, the most that any of them takes at a nominal 7 % (`--raw equal`); the tables show the over-provisioning that this is. Addresses are compacted: the
1 MiB extents that a trace touches lie one behind the other, in their order. Every page is written once, in order, then random pages: until steady state, or for the share of a drive write that a table names; then the trace runs once, one
request after the other. Of requests that are not aligned to 4 KiB, parts of pages are read first and written back. Crash safety and wear levelling are off: {off}. In brackets the grade of fidelity
([SCHEMES.md](../../docs/SCHEMES.md)). RAM is not equal: both counts are shown. A star stands for a run that did not settle within the limit. The traces belong to others and are not part of the project.
"""


def section(ftld):
    text = INTRODUCTION.format(off=", ".join(f"`{key}={value}`" for key, value in OFF.items())) + "\n"
    options = [word for key, value in OFF.items() for word in ("--set", f"{key}={value}")]
    for stem, (label, what, _) in real.TRACES.items():
        load = real.load(ftld, stem)
        if not load:
            continue
        method = ["--profile", "mlc-4k", *load.options, *options]
        rows = ftld.compare(f"trace-{stem}", [load.workload], list(ftld.schemes), *method, raw="equal", lenient=True)
        if rows:
            text += f"**{label}**: {what}.\n{about(rows)}{worn(ftld, rows)}\n\n" + figures(ftld, rows)
    return text, []


def about(rows):
    row = rows[0]
    requests, device, before = row["requests"], row["device"], row["precondition"]
    written = requests["written_bytes"] / 2**20
    said = "every page once in order, then random pages until steady state, 12 drive writes at most" if before["rule"] else f"every page once in order, then random pages for {before['drive_writes'] - 1:.3g} drive writes"
    idle = [row["scheme"] for row in rows if not copies(row)]
    return (
        f"{requests['completed']:,} requests, {written:,.0f} MiB written in {requests['pages_written']:,} pages, "
        f"{requests['pages_read']:,} pages read; {device['size_bytes'] / 2**30:,.2f} GiB on {device['raw_bytes'] / 2**30:,.2f} GiB of flash, "
        f"effective over-provisioning {device['effective_op_percent']:.1f} %, {100 * row['collected']['utilisation']:.0f} % of the flash holds valid pages; before: {said}."
        + (f" Nothing was collected by {', '.join(idle)}." if idle else "")
    )


def worn(ftld, rows):
    """Without wear levelling a scheme that always reuses the same blocks can wear them out."""
    return "".join(f" {ftld.graded(scheme)} wore its device out before the end, without wear levelling: no row." for scheme in rows.worn)


def before(row):
    """Drive writes before the trace; a star where they ended at the limit, not in steady state."""
    condition = row["precondition"]
    return f"{condition['drive_writes']:.3g}" + ("*" if condition["rule"] and not condition["steady"] else "")


def figures(ftld, rows):
    lines = []
    for row in sorted(rows, key=lambda row: mean_us(row, "write") or 0):
        lines.append(
            (
                ftld.graded(row["scheme"]),
                figure(waf(row), 3),
                figure(row["write_amplification"]["taxes"], 3),
                before(row),
                figure(copies(row), 0),
                figure(row["erases"]["total"], 0),
                figure(mean_us(row, "write"), 0),
                figure(row["response_ns"]["write"]["p999"] / 1000, 0),
                figure(mean_us(row, "read"), 0),
                figure(row["map_cache"]["hit_ratio_read"], 3),
                figure(row["map_cache"]["hit_ratio_write"], 3),
                figure(row["ram"]["paper_bytes"] / 1024, 0),
                figure(row["ram"]["allocated_bytes"] / 1024, 0),
            )
        )
    bound = rows[0]["optimum"]
    us = lambda ns: figure(ns and ns / 1000, 0)
    lines.append(("*optimum*", "1.000", "0.000", "-", "0", figure(bound["erases"], 0), us(bound["mean_write_ns"]), "-", us(bound["mean_read_ns"]), "-", "-", "-", "-"))
    heads = ["scheme", "write amplification", "of it taxes", "drive writes before", "copies", "erases", "mean write us", "p99.9", "mean read us", "hit ratio of reads", "of writes", "RAM by the paper, KiB", "RAM real, KiB"]
    return table(heads, lines)
