#!/usr/bin/env python3
"""Judges a sample of cargo-mutants' mutants by the project's suites.

    tests/mutants.py [--count N] [--only REGEX] [--state FILE]
                                                     judges up to N mutants of the sample that have no verdict yet
    tests/mutants.py --sample 400 --seed N           draws a new sample, which has no verdicts
    tests/mutants.py --summary                       counts verdicts

The sample is systematic: mutants are ordered by module, so each module has its share. The state file has a line for each
mutant: verdict, suite, CPU seconds, name. `mutant_build.py` builds the mutants of the sample into one program for each suite;
those that it leaves out are built alone, last. A mutant has 60 s of one core: the suite that finds most in a second begins.
`survived` means that no suite failed in that time; `timeout` that a suite took more than twice as long as without the
mutant, which finds it as well; `unviable` that the mutant does not compile. `mutants/equivalent.txt` lists survivors that
change nothing, with the reason.
"""

import argparse
import json
import math
import random
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import mistakes
from mistakes import ROOT
from mutant_build import Combined

HERE = Path(__file__).resolve().parent / "mutants"
TOOL = ROOT / "target" / "tools" / "bin" / "cargo-mutants"
LIMIT = 60  # seconds of one core
CAUGHT = ("caught", "timeout")
# By first folder: suites with the CPU seconds each may take, in the order that finds mistakes soonest.
ORDER = {
    "nand-model": [("plans", 10), ("hunt", 20), ("nand-model", 20), ("swarm", LIMIT)],
    "ftl-core": [("plans", 10), ("hunt", 20), ("ftl-core", 30), ("decisions", 20), ("swarm", LIMIT)],
    "daemon": [("ftld lib", 20), ("nbd_engine", 20), ("nbd tests", 20), ("ftld tests", 20), ("daemon_swarm", LIMIT)],
}
# The daemon's tests that need no other user, network or client.
PROGRAM = ("replay::", "daemon::", "first_contact::")
NBD = ("handshake::", "commands::", "hostile::")
# Decisions of a scheme, of which all are correct and one is better; and the bounds of its
# parameters.
DECISIONS = mistakes.hunter("decisions", f"{mistakes.TESTS} suites", {"ftl-core"}, args=("differential::", "catalogue::"))
FTLD_TESTS = mistakes.hunter("ftld tests", "-p ftld --no-default-features --test program", {"daemon"}, args=PROGRAM)
NBD_TESTS = mistakes.hunter("nbd tests", mistakes.NBD, {"daemon"}, args=NBD)
# The first scheme of a family.
FIRST_SCHEME = {"hybrid": "bast", "page_ram": "pagemap", "units": "mnftl"}


def mutants():
    """All mutants by name. A name has no line numbers, so it survives changes elsewhere; equal ones are numbered."""
    # The guest judges ublk; no suite here builds it.
    command = [TOOL, "mutants", "--list", "--json", "--exclude", "daemon/device/src/transport/ublk/**"]
    command += "-p nand-model -p ftld-core -p ftld-kit -p ftld-device -p ftld-lab -p ftld-crash -p ftld".split()
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    named, seen = {}, Counter()
    for mutant in json.loads(listed):
        name = re.sub(r":\d+:\d+:", ":", mutant["name"])
        seen[name] += 1
        named[name if seen[name] == 1 else f"{name} ({seen[name]})"] = mutant
    return named


def diff_of(mutant):
    body = mutant["diff"].split("\n", 2)[2]
    return f"--- a/{mutant['file']}\n+++ b/{mutant['file']}\n{body}"


def draw(named, size, seed):
    """Every n-th mutant of the list by module, from a random start; in random order, so that the first ones are a sample."""
    rng = random.Random(seed)
    names = sorted(named, key=lambda name: (name.split(": ")[0], rng.random()))
    step = len(names) / size
    start = rng.random() * step
    sample = [names[int(start + i * step)] for i in range(size)]
    rng.shuffle(sample)
    return sample


def load(path):
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return [dict(zip(("verdict", "suite", "s", "name"), line.split("\t"))) for line in lines]


def store(path, head, rows):
    lines = ["\t".join((row["verdict"], row["suite"], row["s"], row["name"])) for row in rows]
    path.write_text("\n".join([head, *lines]) + "\n")


def suites(mutant):
    """What judges a mutant. The code of a scheme is judged under that scheme."""
    crate, _, folder, *rest = mutant["file"].split("/")
    of_scheme = rest[0] if folder == "schemes" and len(rest) > 1 else None
    scheme = FIRST_SCHEME.get(rest[0]) if folder == "families" and rest else of_scheme
    known = {one.name: one for one in [*mistakes.HUNTERS, DECISIONS, FTLD_TESTS, NBD_TESTS]}
    known["plans"] = replace(known["swarm"], name="plans", ends=True, args=("swarm::kept_plans",))
    for name, most in ORDER[crate]:
        one = replace(known[name], most=most, level=1 if crate == "daemon" else 2)
        if name in ("ftl-core", "nand-model"):
            one = replace(one, ends=True, args=mistakes.SKIPPED)
        if scheme and name in ("hunt", "swarm"):
            one = replace(one, name=f"{name} {scheme}", env=one.env + (("FTLD_SCHEME", scheme),))
        yield one


def judge(bench, patch, mutant):
    try:
        verdict, suite, seconds, _, _ = bench.judge(patch, LIMIT, list(suites(mutant)))
    except mistakes.Failed as failed:
        if not failed.errors:
            raise
        return {"verdict": "unviable", "suite": "-", "s": "-"}
    return {"verdict": {"missed": "survived", "cut off": "survived"}.get(verdict, verdict), "suite": suite, "s": f"{seconds:.1f}"}


def equivalent():
    """Names in the list of equivalent mutants; the reason follows in indented lines."""
    lines = (HERE / "equivalent.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith(("#", " "))}


def wilson(hits, of):
    """The 95 % interval of a share."""
    z, p = 1.96, hits / of
    centre, half = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return (centre - half) / (1 + z * z / of), (centre + half) / (1 + z * z / of)


def summary(rows):
    same = equivalent()
    for row in rows:
        if row["verdict"] == "survived" and row["name"] in same:
            row["verdict"] = "equivalent"
    counts = Counter(row["verdict"] for row in rows)
    listed = [f"{count} {verdict if verdict != '-' else 'to do'}" for verdict, count in sorted(counts.items())]
    print(f"     {len(rows)} mutants: {', '.join(listed)}")
    hits = sum(counts[verdict] for verdict in CAUGHT)
    of = hits + counts["survived"]
    if of:
        low, high = wilson(hits, of)
        print(f"     caught {hits} of {of} that are not equivalent: {hits / of:.1%}, 95 % interval {low:.1%} to {high:.1%}")
    for row in rows:
        if row["verdict"] == "survived":
            print(f"     survived: {row['name']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=mistakes.positive, default=10**9, help="judge at most so many")
    parser.add_argument("--only", default="", help="only those whose name matches this expression")
    parser.add_argument("--state", type=Path, default=HERE / "state.tsv")
    parser.add_argument("--sample", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--summary", action="store_true")
    options = parser.parse_args()
    if options.summary:
        return summary(load(options.state))

    if not TOOL.exists():
        sys.exit(f"mutants: there is no {TOOL}; `make mutants` installs it")
    named = mutants()
    if options.sample:
        head = f"# {options.sample} of {len(named)} mutants, seed {options.seed}: verdict, suite, CPU seconds, name"
        blank = {"verdict": "-", "suite": "-", "s": "-"}
        rows = [{"name": name} | blank for name in draw(named, options.sample, options.seed)]
        return store(options.state, head, rows)

    head, rows = options.state.read_text().splitlines()[0], load(options.state)
    numbered = {number: named[row["name"]] for number, row in enumerate(rows, 1) if row["name"] in named}
    todo = [number for number, row in enumerate(rows, 1) if row["verdict"] == "-" and re.search(options.only, row["name"])]
    todo = todo[: options.count]
    # All mutants of a crate are built, also those with a verdict, so that the next run needs no
    # build.
    crates = {rows[number - 1]["name"].split("/")[0] for number in todo}
    built = {number: mutant for number, mutant in numbered.items() if mutant["file"].split("/")[0] in crates}

    def record(number, verdict):
        row = rows[number - 1]
        row.update(verdict)
        store(options.state, head, rows)
        mistakes.say(f"{row['verdict']} ({row['suite']}, {row['s']} s): {row['name']}")

    bench = Combined(built)
    for number in todo:
        if number not in numbered:
            record(number, {"verdict": "gone"})
        elif bench.has(number, list(suites(numbered[number]))):
            record(number, judge(bench, number, numbered[number]))
    bench = mistakes.Bench()
    for number in [number for number in todo if rows[number - 1]["verdict"] == "-"]:
        record(number, judge(bench, diff_of(numbered[number]), numbered[number]))
    summary(rows)


if __name__ == "__main__":
    sys.exit(main())
