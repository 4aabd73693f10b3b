"""All schemes on real traces, in three forms, at equal effective over-provisioning."""

from . import real
from .page import figure, table
from .rows import copies, mean_us, waf

TITLE = "All schemes on four real traces"

# Crash safety and wear levelling, which no paper's comparison has.
OFF = {"ckpt.interval": "0", "nand.pair_policy": "none", "wear.policy": "none", "scrub.hours": "0"}
FORMS = ["single", "looped", "rotated"]
# Effective over-provisioning in percent: with less, some schemes do not fit on the smallest trace's device.
SPARE = 28
INTRODUCTION = """\
Device: `mlc-4k`, as large as what a trace touches (`--address compact`), with the same effective over-provisioning for every scheme (`--op-effective`): good flash beyond the size, reserves, mapping and log blocks included, {spare} % of the
size. The three forms are those of [REPLAY.md](../../docs/REPLAY.md#forms-of-a-trace): a single pass on a device filled by the trace, looped, and rotated. A star stands for a write amplification that had not settled within 2 %, or whose flash was not
used once: of a single pass its halves count, of the others three passes. Requests run one after the other; of those not aligned to 4 KiB, parts of pages are read first and written back. Crash safety and wear levelling are off: {off}. In brackets the
grade of fidelity ([SCHEMES.md](../../docs/SCHEMES.md)). RAM is not equal. The traces belong to others and are not part of the project.
"""


def section(ftld):
    text = INTRODUCTION.format(off=", ".join(f"`{key}={value}`" for key, value in OFF.items()), spare=SPARE) + "\n"
    for stem, (label, what, _) in real.TRACES.items():
        file = ftld.trace(stem)
        if not file:
            continue
        runs = {form: run(ftld, stem, file, form) for form in FORMS}
        text += f"**{label}**: {what}.\n{about(next(filter(None, runs.values())))}{used(runs)}"
        text += worn(ftld, runs) + "\n\n" + figures(ftld, runs)
    return text, []


def run(ftld, stem, file, form):
    options = [word for key, value in OFF.items() for word in ("--set", f"{key}={value}")]
    device = ["--profile", "mlc-4k", "--address", "compact", "--op-effective", SPARE]
    return ftld.compare(f"forms-{stem}-{form}", [file], list(ftld.schemes), *device, "--form", form, *options, lenient=True)


def about(rows):
    requests, device = rows[0]["requests"], rows[0]["device"]
    written = requests["written_bytes"] / 2**20
    return (
        f"A pass has {requests['completed']:,} requests, {written:,.0f} MiB written in {requests['pages_written']:,} pages, "
        f"{requests['pages_read']:,} pages read; {device['size_bytes'] / 2**30:,.2f} GiB for the host."
    )


def used(runs):
    """The share of the flash that holds valid pages at the end, under the first scheme of each form."""
    shares = (f"{form} {100 * rows[0]['collected']['utilisation']:.0f} %" for form, rows in runs.items() if rows)
    return f" Flash that holds valid pages: {', '.join(shares)}."


def worn(ftld, runs):
    """Without wear levelling a scheme that always reuses the same blocks can wear them out."""
    forms = {scheme: [form for form, rows in runs.items() if scheme in rows.worn] for scheme in ftld.schemes}
    return "".join(f" {ftld.graded(scheme)} wore its device out ({', '.join(of)})." for scheme, of in forms.items() if of)


def figures(ftld, runs):
    def cell(rows, name):
        row = rows.one(name)
        return "-" if row is None else figure(waf(row), 3) + ("" if row["settling"] and row["settling"]["is_settled"] else "*")

    lines = []
    for name in ftld.schemes:
        line = [cell(rows, name) for rows in runs.values()]
        row = runs["looped"].one(name)
        if row:
            line += [figure(copies(row), 0), figure(row["erases"]["total"], 0), figure(mean_us(row, "write"), 0)]
            line += [figure(row["response_ns"]["write"]["p999"] / 1000, 0), figure(row["ram"]["allocated_bytes"] / 1024, 0)]
        else:
            line += ["-"] * 5
        lines.append((waf(row) if row else float("inf"), [ftld.graded(name), *line]))
    lines = [line for _, line in sorted(lines)]
    bound = next(filter(None, runs.values()))[0]["optimum"]
    us = bound["mean_write_ns"] and bound["mean_write_ns"] / 1000
    lines.append(["*optimum*", *["1.000"] * len(runs), "0", figure(bound["erases"], 0), figure(us, 0), "-", "-"])
    heads = ["scheme", *(f"write amplification, {form}" for form in runs)]
    return table([*heads, "looped: copies", "erases", "mean write us", "p99.9", "RAM real, KiB"], lines)
