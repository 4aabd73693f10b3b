#!/usr/bin/env python3
"""Writes docs/RESULTS.md from the files in tests/results/, and records a long run as such a file.

    tests/results.py                          composes docs/RESULTS.md
    tests/results.py --check                  fails if docs/RESULTS.md is not what it would compose
    tests/results.py record NAME COMMAND...   runs the command; if it succeeds, its result lines become
                                              tests/results/NAME.md, and docs/RESULTS.md is composed

A file is one section: a heading, the command that measures, the state that was measured, and what was
seen. The ledgers of the swarms (.tsv), which long runs add to, become sections, too. `record` keeps the lines that suites print for people: `ok`, notes, counts of cases and summaries. A command
that fails, or prints none of them, records nothing and fails.
"""

import datetime
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ROOT / "tests" / "results"
PAGE = ROOT / "docs" / "RESULTS.md"
HEAD = """\
# Results

Written by `tests/results.py` from the files in `tests/results/`; do not edit. Each section names the
command that measures it and the state of the code: the commit that was measured, or the one that
recorded the figures. [TESTING.md](TESTING.md)
explains the methods; [REPRODUCTION.md](REPRODUCTION.md) has the figures of the papers.
"""
KEPT = re.compile(r"^(test \S+ \.\.\. )?(ok   |     \S|\S+ result: |test result: |\d[\d,]* \w|\w+/\S*: |canary |no canary: )")


# Headings of the ledgers, by suite.
LEDGERS = {"swarm": "The swarm", "daemon_swarm": "The daemon swarm"}


def ledger(suite):
    """A section that sums up a ledger: runs, failures, how often each class happened."""
    rows = [line.split("\t") for line in (PARTS / f"{suite}.tsv").read_text().splitlines()]
    chunks = [row for row in rows if row[0] == "seed"]
    runs = next(int(row[1]) for row in rows if row[0] == "runs")
    failures = sum(int(row[3].split()[0]) for row in chunks)
    clean = 0
    for row in reversed(chunks):
        if row[3] != "0 failures":
            break
        clean += int(row[2].split()[0])
    pairs = [int(row[3]) for row in rows if row[0] == "pair" and row[1] != row[2]]
    lines = [
        f"## {LEDGERS[suite]}",
        "",
        f"Command: `FTLD_SWARM_SECONDS=N FTLD_SWARM_LEDGER=$PWD/tests/results/{suite}.tsv cargo test -p ftld-tests --test {suite}`\\",
        f"State: the ledger grows with the code; each of its {len(chunks)} seeds ran on the code of its day",
        "",
        f"{runs:,} runs, {failures} failures; the last {clean:,} runs had none. {len(pairs):,} pairs of classes met. \"times\" counts events.",
        f"A class that never happened fails from `FULL` runs on (`tests/tests/{suite}.rs`).",
        "",
        "| class | times |",
        "|---|---|",
    ]
    lines += [f"| {row[1]} | {int(row[2]):,} |" for row in rows if row[0] == "class"]
    return "\n".join(lines)


def compose():
    paths = sorted(PARTS.glob("*.md"))
    parts = [path.read_text().strip() for path in paths]
    for path, text in zip(paths, parts):
        for line in ("## ", "Command: ", "State: "):
            if not re.search(f"^{line}", text, re.M):
                sys.exit(f"results: {path} has no line that begins with {line!r}")
    if not parts:
        sys.exit(f"results: there is nothing in {PARTS}")
    parts += [ledger(suite) for suite in LEDGERS if (PARTS / f"{suite}.tsv").exists()]
    return "\n\n".join([HEAD.strip(), *parts]) + "\n"


def state():
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    # Results of the same long run are no change of what is measured.
    changed = " with changes" if git("status", "--porcelain", "--", ".", ":!tests/results", f":!{PAGE.relative_to(ROOT)}") else ""
    return f"{git('rev-parse', '--short', 'HEAD')}{changed}, {datetime.date.today():%Y-%m-%d}"


def record(name, command):
    if not re.fullmatch(r"[a-z0-9-]+", name):
        sys.exit(f"results: {name!r} is not a name: small letters, digits and -")
    measured, kept = state(), []
    run = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, errors="replace")
    for line in run.stdout:
        print(line, end="", flush=True)
        if KEPT.match(line):
            kept.append(line.rstrip())
    code = run.wait()
    if code:
        sys.exit(code if code > 0 else 1)
    if not kept:
        sys.exit(f"results: {shlex.join(command)} printed no result")
    title = name.replace("-", " ").capitalize()
    head = f"## {title}\n\nCommand: `{shlex.join(command)}`\\\nState: {measured}\n\n"
    PARTS.mkdir(exist_ok=True)
    (PARTS / f"{name}.md").write_text(head + "".join(f"    {line}\n" for line in kept))


def main():
    match sys.argv[1:]:
        case []:
            PAGE.write_text(compose())
        case ["--check"]:
            if not PAGE.exists() or PAGE.read_text() != compose():
                sys.exit("docs/RESULTS.md is not what tests/results.py composes: run it")
        case ["record", name, command, *words]:
            record(name, [command, *words])
            PAGE.write_text(compose())
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
