#!/usr/bin/env python3
"""Writes docs/REPRODUCTION.md from measured rows: what the papers found, beside what is found here.

    tests/reproduction.py [--traces DIR] [--threads N] [--rows] [--scale S] [--only PAPER,...]

Runs every plan in tests/reproduction/ (a module per paper: its runs, its claims, and why figures differ) by `ftld compare`; rows are
kept in target/reproduction/. --traces names the folder with the real traces; without it, or where one is missing, their section is
left out and the command says so. --rows runs nothing that it has rows of. --only writes the sections of these papers anew and leaves
the others as the page has them. --scale below 1 is a trial: fewer requests, and the page goes
to target/reproduction/ instead. Exits with 1 if a run fails, a trace is missing, or a claim is contradicted without a reason.
"""

import argparse
import os
import subprocess
import sys

from reproduction import dopftl, lazyftl, mlam, mnftl, rose, traces
from reproduction.rows import ROOT, TARGET, Ftld

# One line per paper.
PAPERS = [mnftl, lazyftl, rose, mlam, dopftl]
NAMES = {paper.__name__.split(".")[-1]: paper for paper in PAPERS}
PAGE = ROOT / "docs" / "REPRODUCTION.md"
HEAD = """\
# Reproduction

Written by `tests/reproduction.py` from measured rows; do not edit. `ftld` {version}, {schemes} schemes. For each paper its device, what it says, its number and ours, and why they differ. A claim counts as confirmed if its
direction is found here; numbers are equal only where a paper's trace or a closed form decides them. Private traces are replaced by **stand-ins**, generators with the statistics that were published
([REPLAY.md](REPLAY.md#synthetic-workloads)); what was not published is our choice. All times are emulated; every figure follows from the options and the seed.
"""


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--traces", metavar="DIR", help="folder with the real traces")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), metavar="N", help="runs at a time")
    parser.add_argument("--rows", action="store_true", help="run nothing that there are rows of")
    parser.add_argument("--scale", type=float, default=1, metavar="S", help="a trial with this share of the requests")
    parser.add_argument("--only", type=papers, metavar="PAPER,...", help="sections to write: " + ", ".join(NAMES))
    parser.add_argument("--program", metavar="FILE", help="ftld to run; without it a release is built")
    return parser.parse_args()


def papers(text):
    unknown = [name for name in text.split(",") if name not in NAMES]
    if unknown:
        raise argparse.ArgumentTypeError(f"no paper {', '.join(unknown)}; there are {', '.join(NAMES)}")
    return [NAMES[name] for name in text.split(",")]


def kept(title):
    """Returns the body that the page has below this title."""
    _, found, rest = PAGE.read_text().partition(f"\n## {title}\n\n")
    if not found:
        sys.exit(f"reproduction: {PAGE} has no section {title!r}; run it without --only")
    return rest.partition("\n## ")[0]


def build():
    subprocess.run(["cargo", "build", "--quiet", "--release", "--package", "ftld", "--bin", "ftld"], cwd=ROOT, check=True)
    return TARGET / "release" / "ftld"


def main():
    chosen = arguments()
    ftld = Ftld(chosen.program or build(), chosen.threads, chosen.scale, chosen.rows)
    version = subprocess.run([ftld.program, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    text = HEAD.format(version=version, schemes=len(ftld.schemes))
    wrong = []
    # Read before anything runs.
    others = {title: kept(title) for title in [paper.TITLE for paper in PAPERS] + [traces.TITLE]} if chosen.only else {}
    for paper in PAPERS:
        body, unexplained = (others[paper.TITLE], []) if chosen.only and paper not in chosen.only else paper.section(ftld)
        text += f"\n## {paper.TITLE}\n\n{body}"
        wrong += [f"{paper.TITLE}: contradicted, and no reason in tests/reproduction/: {claim}" for claim in unexplained]
    body, missing = (others[traces.TITLE], []) if chosen.only else traces.section(ftld, chosen.traces)
    if len(missing) < len(traces.TRACES):
        text += f"\n## {traces.TITLE}\n\n{body}"
    wrong += [f"trace {trace} is missing: --traces DIR, a folder with {trace}.csv or .csv.zst" for trace in missing]
    wrong += ftld.failed
    wrong += [f"{scheme} is not on the page" for scheme in ftld.schemes if scheme not in text]
    page = PAGE if chosen.scale == 1 else ftld.folder / "trial.md"
    page.write_text(text.rstrip() + "\n")
    print(f"reproduction: {page} is written", file=sys.stderr)
    for line in wrong:
        print(f"reproduction: {line}", file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
