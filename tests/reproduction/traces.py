"""All schemes on real traces, in three forms, at equal effective over-provisioning."""

from . import real
from .page import figure, table
from .rows import copies, mean_us, waf

TITLE = "All schemes on five real traces"

# Crash safety and wear levelling, which no paper's comparison has.
OFF = {"ckpt.interval": "0", "nand.pair_policy": "none", "wear.policy": "none", "scrub.hours": "0"}
FORMS = ["single", "looped", "rotated"]
# Effective over-provisioning in percent; some schemes need more than the first one.
SPARE = [7, 28]
INTRODUCTION = """\
Device: `mlc-4k`, as large as what a trace touches (`--address compact`), with the same effective over-provisioning for every scheme (`--op-effective`): good flash beyond the size, reserves, mapping and log blocks included. `-`: the scheme
needs more. The three forms are those of [REPLAY.md](../../docs/REPLAY.md#forms-of-a-trace): a single pass on a device filled by the trace, looped, and rotated. A star stands for a write amplification that had not settled within 2 %: of
a single pass its halves, of the others three passes. Requests run one after the other; of those not aligned to 4 KiB, parts of pages are read first and written back. Crash safety and wear levelling are off: {off}. In brackets the
grade of fidelity ([SCHEMES.md](../../docs/SCHEMES.md)). RAM is not equal. The traces belong to others and are not part of the project.
"""


def section(ftld):
    text = INTRODUCTION.format(off=", ".join(f"`{key}={value}`" for key, value in OFF.items())) + "\n"
    for stem, (label, what, _) in real.TRACES.items():
        file = ftld.trace(stem)
        if not file:
            continue
        runs = {(spare, form): run(ftld, stem, file, spare, form) for spare in SPARE for form in FORMS}
        text += f"**{label}**: {what}.\n{about(runs[SPARE[-1], FORMS[-1]])}"
        text += "".join(sorted({worn(ftld, rows) for rows in runs.values()})) + "\n\n" + figures(ftld, runs)
    return text, []


def run(ftld, stem, file, spare, form):
    """Rows of the schemes that can have this over-provisioning, and of those that are worn out."""
    options = [word for key, value in OFF.items() for word in ("--set", f"{key}={value}")]
    device = ["--profile", "mlc-4k", "--address", "compact", "--op-effective", spare]
    fits = [name for name in ftld.schemes if spare == SPARE[-1] or ftld.can_have([file, *device, "--scheme", name])]
    return ftld.compare(f"forms-{stem}-{spare}-{form}", [file], fits, *device, "--form", form, *options, lenient=True)


def about(rows):
    requests, device = rows[0]["requests"], rows[0]["device"]
    written = requests["written_bytes"] / 2**20
    return (
        f"A pass has {requests['completed']:,} requests, {written:,.0f} MiB written in {requests['pages_written']:,} pages, "
        f"{requests['pages_read']:,} pages read; {device['size_bytes'] / 2**30:,.2f} GiB for the host."
    )


def worn(ftld, rows):
    """Without wear levelling a scheme that always reuses the same blocks can wear them out."""
    return "".join(f" {ftld.graded(scheme)} wore its device out before the end, without wear levelling: no row." for scheme in rows.worn)


def figures(ftld, runs):
    def cell(rows, name, of):
        row = rows.one(name)
        return "-" if row is None else of(row) + ("" if row["settling"] and row["settling"]["is_settled"] else "*")

    last = runs[SPARE[-1], "looped"]
    lines = []
    for row in sorted(last, key=lambda row: waf(row) or 0):
        name = row["scheme"]
        line = [cell(rows, name, lambda row: figure(waf(row), 3)) for rows in runs.values()]
        line += [figure(copies(row), 0), figure(row["erases"]["total"], 0), figure(mean_us(row, "write"), 0)]
        lines.append([ftld.graded(name), *line, figure(row["response_ns"]["write"]["p999"] / 1000, 0), figure(row["ram"]["allocated_bytes"] / 1024, 0)])
    bound = last[0]["optimum"]
    us = bound["mean_write_ns"] and bound["mean_write_ns"] / 1000
    lines.append(["*optimum*", *["1.000"] * len(runs), "0", figure(bound["erases"], 0), figure(us, 0), "-", "-"])
    heads = [f"{form}, {spare} %" for spare, form in runs]
    return table(["write amplification", *heads, f"copies, looped, {SPARE[-1]} %", "erases", "mean write us", "p99.9", "RAM real, KiB"], lines)
