#!/usr/bin/env python3
"""Plants mistakes, one at a time, in a copy of the tree and runs the suites that must find them.

    tests/canaries/run.py [--named] [--count K] [--seed N] [--state FILE] [--table FILE] [NAME...]

A mistake is a patch in this folder; its first lines say what is wrong, which situations show it, and which suite should find
it. Each must be found within 120 s of one core after the build. All are tried unless NAMEs are given or `--count` draws some.
A run with `--state` continues where it was interrupted: what is caught stays caught while code and patch are the same.

`--named` runs one test instead of suites: that of the line `test: SUITE TEST [VARIABLE=VALUE...]` of a patch, built without
optimisation. It must pass without the mistake and fail with it. Patches without the line are left out.

What a limit of CPU time ends is `cut off`: no verdict on the mistake, and an error like a missed one.
"""

import argparse
import hashlib
import json
import random
import statistics
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import mistakes
import results

LIMIT = 120  # seconds of one core
CAUGHT = ("caught", "timeout")


def read(path):
    """Header and diff of a patch."""
    text = path.read_text()
    at = text.index("\n--- ") + 1
    head = dict(line.split(": ", 1) for line in text[:at].splitlines() if ": " in line)
    missing = {"wrong", "class", "hunter"} - head.keys()
    if missing:
        sys.exit(f"{path}: the header has no line {', '.join(sorted(missing))}")
    if head["hunter"] not in [one.name for one in mistakes.HUNTERS]:
        sys.exit(f"{path}: {head['hunter']} is no suite of tests/mistakes.py")
    return head, text[at:]


def fingerprint(bench, diff):
    """Names code and patch: a verdict holds for these."""
    digest = hashlib.sha256(diff.encode())
    for name in sorted(name for name in bench.files if name.endswith((".rs", ".toml"))):
        digest.update(bench.files[name][0])
    return digest.hexdigest()[:16]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--count", type=mistakes.positive, help="draw so many")
    parser.add_argument("--seed", type=int, help="seed of the draw (default: the time)")
    parser.add_argument("--named", action="store_true", help="run the test that the patch names, and no more")
    parser.add_argument("--state", type=Path, help="file that keeps verdicts")
    parser.add_argument("--table", type=Path, help="file for a Markdown table")
    options = parser.parse_args()

    patches = {path.stem: read(path) for path in sorted(HERE.glob("*.patch"))}
    unknown = set(options.names) - patches.keys()
    if unknown:
        sys.exit(f"no such canary: {', '.join(sorted(unknown))}; see {HERE}")
    names = options.names or list(patches)
    if options.named:
        names = [name for name in names if "test" in patches[name][0]]
        if not names:
            sys.exit("none of these patches has a line `test:`")
    seed = options.seed if options.seed is not None else int(time.time())
    if options.count:
        names = random.Random(seed).sample(names, min(options.count, len(names)))
        of = " ".join(["", *options.names])
        print(f"tests/canaries/run.py{' --named' * options.named} --seed {seed} --count {options.count}{of}: {', '.join(names)}")

    measured, bench, known = results.state(), mistakes.Bench(0 if options.named else 2), {}
    if options.state and options.state.exists():
        rows = map(json.loads, options.state.read_text().splitlines())
        known = {row["key"]: row for row in rows if row["verdict"] in CAUGHT}
    rows, tests = [], passing(bench, {name: patches[name][0] for name in names}) if options.named else {}
    # Patches of one crate follow each other, so that the crates below it stay built.
    for name in sorted(names, key=lambda name: sorted(mistakes.crates_of(patches[name][1]))):
        head, diff = patches[name]
        key = "named " * options.named + fingerprint(bench, diff)
        row = known.get(key)
        if not row:
            row = {"key": key, "name": name} | (judge_named(bench, diff, *tests[name]) if options.named else judge(bench, head, diff))
            if options.state:
                with open(options.state, "a") as state:
                    state.write(json.dumps(row) + "\n")
        rows.append((row, head))
        mistakes.say(f"{name}: {sentence(row)}")
    if options.table:
        options.table.write_text(section(rows, measured))
    bad = [row["name"] for row, _ in rows if row["verdict"] not in CAUGHT]
    mistakes.say(f"{len(rows) - len(bad)} of {len(rows)} caught")
    if bad:
        sys.exit(f"not caught: {', '.join(bad)}; repeat with tests/canaries/run.py{' --named' * options.named} NAME")


def judge(bench, head, diff):
    try:
        hunters = mistakes.hunters_of(diff, first=head["hunter"])
        verdict, suite, seconds, build, text = bench.judge(diff, LIMIT, hunters)
    except mistakes.Failed as failed:
        return {"verdict": "failed", "why": str(failed)}
    case = mistakes.case_of(text) if verdict == "caught" else "-"
    return {"verdict": verdict, "suite": suite, "s": round(seconds, 1), "build": round(build, 1), "case": case}


def passing(bench, heads):
    """The named test of each canary, with its CPU seconds on the unpatched copy or the reason why it cannot judge. They run
    before any patch, so that the copy is built once for them."""
    tests = {}
    for name, head in heads.items():
        try:
            one = mistakes.named(head["test"])
            tests[name] = one, bench.require_one_pass(one)
        except mistakes.Failed as failed:
            tests[name] = None, str(failed)
    return tests


def judge_named(bench, diff, one, passed):
    if one is None:
        return {"verdict": "failed", "why": passed}
    try:
        verdict, suite, seconds, build, text = bench.judge_named(diff, one)
    except mistakes.Failed as failed:
        return {"verdict": "failed", "why": str(failed)}
    case = mistakes.case_of(text) if verdict == "caught" else "-"
    return {"verdict": verdict, "suite": suite, "s": round(seconds, 1), "build": round(build, 1), "case": case, "passed": round(passed, 1)}


def sentence(row):
    if row["verdict"] == "failed":
        return row["why"]
    cost = f"{row['s']} s of CPU time (build {row['build']} s)"
    if "passed" in row:
        cost += f"; without the mistake it passes in {row['passed']} s"
    if row["verdict"] == "caught":
        return f"caught by {row['suite']} after {cost}: {row['case']}"
    if row["verdict"] == "timeout":
        return f"caught by {row['suite']}, which does not end, after {cost}"
    if row["verdict"] == "cut off":
        return f"CUT OFF by a limit of CPU time: {row['suite']}; no verdict after {cost}"
    return f"MISSED, no suite fails, after {cost}"


def section(rows, measured):
    """A file of tests/results/, of which `tests/results.py` makes a row."""
    seconds = sorted(row["s"] for row, _ in rows if row["verdict"] in CAUGHT)
    outcome = f"{len(seconds)} of {len(rows)} mistakes are caught within {LIMIT} s of CPU time, builds left out"
    if seconds:
        outcome += f"; median {statistics.median(seconds):.1f} s, at most {seconds[-1]:.1f} s"
    lines = [
        "# Canaries",
        "",
        "Command: `tests/canaries/run.py --state FILE --table tests/results/canaries.md`\\",
        f"State: {measured}\\",
        f"Outcome: {outcome}",
        "",
        "| canary | mistake | caught by | first case | s |",
        "|---|---|---|---|---|",
    ]
    for row, head in sorted(rows, key=lambda row: row[0]["name"]):
        caught = row["suite"] if row["verdict"] in CAUGHT else f"**{row['verdict']}**"
        case = row.get("case", "-").replace("|", "/")
        lines.append(f"| `{row['name']}` | {head['wrong']} | {caught} | {case} | {row.get('s', '-')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
