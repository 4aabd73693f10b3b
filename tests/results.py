#!/usr/bin/env python3
"""Writes docs/RESULTS.md from the files in tests/results/, and records a long run as such a file.

    tests/results.py                          composes docs/RESULTS.md
    tests/results.py --check                  fails if docs/RESULTS.md is not what it would compose
    tests/results.py record NAME COMMAND...   runs the command; if it succeeds, its result lines become
                                              tests/results/NAME.md, and docs/RESULTS.md is composed

A file has a heading, the command that measures, the state of the code, the outcome in a line, and the
figures. The page has a row for each file, and one for each ledger of a swarm (.tsv), which long runs add
to. `record` keeps the lines that suites print for people: `ok`, notes, counts of cases and summaries; the
last summary is the outcome. A command that fails, or prints none of them, records nothing and fails.
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

Written by `tests/results.py` from the files in `tests/results/`; do not edit. Each row is the last
recorded run of a suite: the measured or recording commit, and the outcome. [TESTING](TESTING.md)
explains the methods.

| suite | state | outcome |
|---|---|---|
"""
KEPT = re.compile(r"^(test \S+ \.\.\. )?(ok   |     \S|\S+ result: |test result: |\d[\d,]* \w|\w+/\S*: |canary |no canary: )")


# Names of the ledgers, by suite.
LEDGERS = {"swarm": "The swarm", "daemon_swarm": "The daemon swarm"}


def ledger(suite):
    """A row that sums up a ledger: runs, failures, classes of events."""
    lines = [line.split("\t") for line in (PARTS / f"{suite}.tsv").read_text().splitlines()]
    chunks = [line for line in lines if line[0] == "seed"]
    runs = next(int(line[1]) for line in lines if line[0] == "runs")
    failures = sum(int(line[3].split()[0]) for line in chunks)
    clean = 0
    for line in reversed(chunks):
        if line[3] != "0 failures":
            break
        clean += int(line[2].split()[0])
    classes = sum(line[0] == "class" for line in lines)
    pairs = sum(line[0] == "pair" and line[1] != line[2] for line in lines)
    outcome = f"{runs:,} runs, {failures} failures" + (f", none in the last {clean:,}" if failures else "")
    outcome += f"; {classes} classes of events, {pairs:,} pairs of them: `tests/results/{suite}.tsv`"
    return LEDGERS[suite], f"{len(chunks)} seeds, each on the code of its day", outcome


def part(path):
    """The row of a file."""
    text = path.read_text()

    def line(begin, end=""):
        found = re.search(rf"^{begin}(.+?){end}$", text, re.M)
        if not found:
            sys.exit(f"results: {path} has no line that begins with {begin!r}")
        return found[1]

    line("Command: ")
    return f"[{line('# ')}](../tests/results/{path.name})", line("State: ", r"\\?"), line("Outcome: ")


def compose():
    rows = [part(path) for path in sorted(PARTS.glob("*.md"))]
    if not rows:
        sys.exit(f"results: there is nothing in {PARTS}")
    rows += [ledger(suite) for suite in LEDGERS if (PARTS / f"{suite}.tsv").exists()]
    return HEAD + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def state():
    def git(*words):
        return subprocess.run(["git", *words], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()

    # Results of the same long run are no change of the measured code.
    changed = " with changes" if git("status", "--porcelain", "--", ".", ":!tests/results", f":!{PAGE.relative_to(ROOT)}") else ""
    return f"{git('rev-parse', '--short', 'HEAD')}{changed}, {datetime.date.today():%Y-%m-%d}"


def outcome(kept):
    """A line: the tests of cargo added up, else the last summary of a suite, else the first line."""
    passed = [int(number) for line in kept for number in re.findall(r"^test result: ok\. (\d+) passed", line)]
    if passed:
        return f"{sum(passed):,} tests passed in {len(passed)} executables"
    summaries = [line for line in kept if " result: " in line]
    return " ".join((summaries[-1] if summaries else kept[0]).replace("|", "/").split())


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
    head = f"# {title}\n\nCommand: `{shlex.join(command)}`\\\nState: {measured}\\\nOutcome: {outcome(kept)}\n\n"
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
