#!/usr/bin/env python3
"""Compares what the papers found with what is found here, from measured rows.

    tests/reproduction.py [--traces DIR] [--threads N] [--rows] [--scale S] [--only PAPER,...]
    tests/reproduction.py --check

Writes tests/results/reproduction.md, every claim with its tables and reasons, and the table of verdicts in docs/REPRODUCTION.md; --check
fails if that table is another one than the claims give.

Runs every plan in tests/reproduction/ (a module per paper: its runs, its claims, and why figures differ) by `ftld compare`; rows are
kept in target/reproduction/. --traces names the folder with the real traces; claims whose trace is missing are judged on stand-ins, and
the command says so. --rows runs nothing that it has rows of, from the same command; a section without a run keeps its state. --only writes the sections of these papers anew and leaves the others as
they are. --scale below 1 is a trial: fewer requests of the stand-ins, and the record goes to target/reproduction/ instead. Exits
with 1 if a run fails, a trace is missing, or a claim is not reproduced and no reason is given.
"""

import argparse
import os
import re
import subprocess
import sys

from reproduction import demand, dopftl, lazyftl, mlam, mnftl, real, rose, traces
from reproduction.page import table
from reproduction.rows import LEAST_COPIES, ROOT, TARGET, Ftld
from reproduction.verdict import VERDICTS, counts
from results import state

# One line per section; the last one has no claims of its own.
SECTIONS = [mnftl, lazyftl, rose, mlam, dopftl, demand, traces]
NAMES = {section.__name__.split(".")[-1]: section for section in SECTIONS}
# Remark on a section that --only kept and that has no verdicts of this page.
EARLIER = "*This section is of an earlier run: its claims are judged by direction alone, on stand-ins, and are not in the count above.*"
RECORD = ROOT / "tests" / "results" / "reproduction.md"
PAGE = ROOT / "docs" / "REPRODUCTION.md"
# The table of verdicts in the page.
VERDICT_TABLE = re.compile(r"(?<=<!-- begin verdicts -->\n\n).*?(?=\n\n<!-- end verdicts -->)", re.DOTALL)
HEAD = """\
# Reproduction of the papers

Command: `make reproduction TRACES=DIR`\\
State: {state}\\
Outcome: {outcome}

Written by `tests/reproduction.py` from measured rows; do not edit. `ftld` {version}, {schemes} schemes. For each paper its device, its words, its number and ours, and why they differ.

A claim is data: the paper's words, its figure, and a predicate with a tolerance (`tests/reproduction/`), committed before the runs that judge it. Each is judged under the *settings* that the paper's words allow, states of the device, forms of
the trace and ways to count, which every section lists; settings of ours, as the forms of a real trace, are judged behind them. The verdict is what the predicate gives:

- *reproduced*: it holds, within the stated tolerance, on every load in the paper's settings;
- *direction only*: there at least the direction is the paper's, the size is not (or the paper has no number for this load);
- *depends on* the load or setting: it holds on some, which are named;
- *contradicted*: on none, in no setting that the paper's words allow and in no form of a trace; then a line says what would have to be true for the paper to be right;
- *not testable here*: with the reason; *not measured* where only a counter is missing, *hardly exercised* where no load does what the claim is about, *not at hand* where the claim is about private traces.

What a paper says of its own traces is judged on these, or not at all; what it says of every load, on other real traces. A comparison that names no trace is taken as said of every load; a range or an average over the paper's benchmarks is not, and keeps its direction at most. **Stand-ins** are generators with the statistics that were published
([REPLAY.md](../../docs/REPLAY.md#synthetic-workloads)) for traces that are private; what was not published is our choice, the same for every stand-in. They are shown and judge nothing. Of an "up to" the largest of the loads is judged, of an average the mean. Runs of which none copied {least} pages
judge no claim about reclaiming. The last column of each table of claims has the verdict of release 0.2.0, and the list below it the reason of every verdict that is another one now. In brackets
behind a scheme is its grade of fidelity: A follows the authors' text, B is well known but the original was not available, C is a reconstruction ([SCHEMES.md](../../docs/SCHEMES.md)).

Changed after a first run, under unchanged predicates: LazyFTL's block utilisation is judged in *looped* and *rotated* only, its reads on a new device are left out, its smallest RAM is on four traces instead of two (which turned claim 20 from reproduced to depends on), its RAM is split both ways;
copies and erases of MNFTL became one case, and runs in which GFTL wore its device out judge nothing; age alone and round robin of ROSE are compared only where they differ by {least} operations. Figures of 0.2.0, of a review, and of trial runs of Financial1 and mssql were known when the predicates were written. After an independent reading of 20 rows beside the papers: GFTL is charged as in Table 2, three figures of RAM without a formula judge nothing, MLAM's sentence on Desktop and pcNTFS and MARO in page copies are not taken for the papers' any more, and three quotations are complete. After a second one of 20 others: sizes over a paper's benchmarks judge nothing, a device that is larger than the paper's words allow is a setting of ours, NFTL-N's blocks are judged on full devices, too, and eight reasons are complete.

Figures of other simulators on the same requests are in [VALIDATION.md](../../docs/VALIDATION.md). A *hit ratio* has one definition for all schemes, those with tables in spare bytes too ([METRICS.md](../../docs/METRICS.md#hit-ratio)). The verdict follows from
the figures; the reasons behind it are ours, and what no table of this page shows is marked *we suppose* or *probably*.

What crash safety costs is off: checkpoints, padding of paired pages, and MLAM's journal. Wear levelling is off except in ROSE's table of wear.
All times are emulated; every figure follows from the options and the seed.

{counted}
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--traces", metavar="DIR", help="folder with the real traces")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), metavar="N", help="runs at a time")
    parser.add_argument("--rows", action="store_true", help="run nothing that there are rows of")
    parser.add_argument("--scale", type=float, default=1, metavar="S", help="a trial with this share of the requests")
    parser.add_argument("--only", type=sections, metavar="SECTION,...", help="sections to write: " + ", ".join(NAMES))
    parser.add_argument("--check", action="store_true", help="compare the table of verdicts with the claims, and run nothing")
    parser.add_argument("--program", metavar="FILE", help="ftld to run; without it a release is built")
    return parser.parse_args()


def sections(text):
    unknown = [name for name in text.split(",") if name not in NAMES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no section {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return [NAMES[name] for name in text.split(",")]


def kept(title):
    """Returns the body that the record has below this title."""
    _, found, rest = RECORD.read_text().partition(f"\n## {title}\n\n")
    if not found:
        sys.exit(f"reproduction: {RECORD} has no section {title!r}; write it with --only, too, or all without it")
    return rest.partition("\n## ")[0]


def earlier(states):
    """The state of each section's rows by title, from the record: `TITLE, TITLE: REVISION, DATE; ...`."""
    return {title: measured for part in states.split("; ") for titles, _, measured in [part.rpartition(": ")] for title in titles.split(", ") if title}


def told(states):
    """Such states as text, in the order of the sections."""
    titles = {measured: ", ".join(title for title, other in states.items() if other == measured) for measured in states.values()}
    return "; ".join(f"{titles[measured]}: {measured}" for measured in titles)


def noted(section, body):
    """The section, with a remark if its verdicts are of an earlier run."""
    old = section is not traces and not counts(body) and EARLIER not in body
    return f"{EARLIER}\n\n{body}" if old else body


def build():
    subprocess.run(["cargo", "build", "--quiet", "--release", "--package", "ftld", "--bin", "ftld"], cwd=ROOT, check=True)
    return TARGET / "release" / "ftld"


def verdicts(bodies):
    """The verdicts of all sections that have claims, and their sums, by title."""
    found = {title: counts(body) for title, body in bodies.items()}
    found = {title: numbers for title, numbers in found.items() if numbers}
    return {**found, "all": [sum(column) for column in zip(*found.values())]}


def verdict_table(found):
    lines = [(title, *numbers[:-1], sum(numbers[:-1]), numbers[-1]) for title, numbers in found.items()]
    return table(["section", *VERDICTS, "claims", "on real traces"], lines).rstrip()


def outcome(found):
    """The sums in a line."""
    *numbers, _ = found["all"]
    return f"{sum(numbers)} claims: " + ", ".join(f"{number} {verdict}" for number, verdict in zip(numbers, VERDICTS))


def page(found):
    """The page with its table written anew."""
    return VERDICT_TABLE.sub(lambda _: verdict_table(found), PAGE.read_text())


def check():
    found = verdicts({section.TITLE: kept(section.TITLE) for section in SECTIONS})
    if PAGE.read_text() != page(found) or verdict_table(found) not in RECORD.read_text() or f"Outcome: {outcome(found)}\n" not in RECORD.read_text():
        sys.exit(f"reproduction: a table of verdicts is not what the sections of {RECORD.name} give: write both anew")


def main():
    chosen = arguments()
    if chosen.check:
        return check()
    ftld = Ftld(chosen.program or build(), chosen.threads, chosen.scale, chosen.rows, chosen.traces)
    version = subprocess.run([ftld.program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    # Read before anything runs.
    bodies = {section.TITLE: kept(section.TITLE) for section in SECTIONS if chosen.only and section not in chosen.only}
    measured, states, wrong = state(), earlier(re.search(r"^State: (.*)\\$", RECORD.read_text(), re.MULTILINE)[1]), []
    for section in SECTIONS:
        if section.TITLE in bodies:
            continue
        runs = ftld.runs
        bodies[section.TITLE], unexplained = section.section(ftld)
        if ftld.runs > runs:
            states[section.TITLE] = measured
        wrong += [f"{section.TITLE}: no reason in tests/reproduction/ why it is not reproduced: {claim}" for claim in unexplained]
    bodies = {section.TITLE: noted(section, bodies[section.TITLE]) for section in SECTIONS}
    found = verdicts(bodies)
    text = HEAD.format(
        state=told({section.TITLE: states.get(section.TITLE, measured) for section in SECTIONS}), outcome=outcome(found), version=version, schemes=len(ftld.schemes), least=LEAST_COPIES,
        counted=verdict_table(found),
    )
    text += "".join(f"\n## {title}\n\n{body.rstrip()}\n" for title, body in bodies.items())
    wrong += [f"trace {trace} is missing: --traces DIR, a folder with {trace}.csv or .csv.zst" for trace in real.TRACES if trace in ftld.missing]
    wrong += ftld.failed
    wrong += [f"{scheme} is in no section" for scheme in ftld.schemes if scheme not in text]
    record = RECORD if chosen.scale == 1 else ftld.folder / "trial.md"
    record.write_text(text.rstrip() + "\n")
    if chosen.scale == 1:
        PAGE.write_text(page(found))
    print(f"reproduction: {record} is written", file=sys.stderr)
    for line in wrong:
        print(f"reproduction: {line}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
