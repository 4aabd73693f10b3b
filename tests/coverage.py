#!/usr/bin/env python3
"""Measures how much of recovery and store code runs in a long run of the swarm.

    tests/coverage.py [--runs N] [--seed N] [--missing]

Builds the swarm and the tests of nand-model and ftl-core with coverage counters in target/coverage,
runs N runs of the swarm (20,000) and those tests, and prints for each file the regions that ran and
the branches that were taken. A branch is one outcome of a condition. The command fails if a group
has less than 95 % of either. `--missing` lists what never ran, by line and column.

The compiler counts branches only with an unstable option, so RUSTC_BOOTSTRAP=1 enables it. Arms of
a `match` and the exit of a `?` are regions. Generic code is counted once, however many types use it.
Test modules, the simulated disk and its faults, which are tools of tests, do not count.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "target" / "coverage"
PROFILES = TARGET / "profiles"
LEAST = 95  # per cent
KINDS = ("regions", "branches")
GROUPS = {
    "recovery": [
        "ftl-core/src/recovery/*.rs",
        "ftl-core/src/scan/*.rs",
        "ftl-core/src/families/*/recovery.rs",
        "ftl-core/src/families/paged/versions.rs",
        "ftl-core/src/families/paged/window.rs",
        "ftl-core/src/schemes/*/recovery.rs",
        "ftl-core/src/checkpoint/sets.rs",
        "ftl-core/src/format/*.rs",
    ],
    "store": ["nand-model/src/store/**/*.rs", "nand-model/src/image/**/*.rs"],
}
# Files and folders of tests.
NO_PRODUCT = {"tests"}
# The kind of a region in the output of llvm-cov: code, as against expansions and gaps.
CODE = 0


def fail(why):
    sys.exit(f"coverage result: FAILED. {why}")


def tool(name):
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True).stdout.strip()
    found = sorted(Path(sysroot).glob(f"lib/rustlib/*/bin/{name}"))
    if not found:
        fail(f"there is no {name}: rustup component add llvm-tools")
    return found[0]


def build(words):
    """Builds tests and returns their programs, each with the folder of its package."""
    flags = "-C instrument-coverage -Z coverage-options=branch"
    # Build scripts and macros are instrumented, too, and would leave their profiles where they run.
    profile = str(TARGET / "build.profraw")
    env = os.environ | {"RUSTC_BOOTSTRAP": "1", "RUSTFLAGS": flags, "LLVM_PROFILE_FILE": profile}
    command = ["cargo", "test", "--no-run", "--message-format=json", "--target-dir", str(TARGET), *words]
    built = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
    if built.returncode:
        fail("the build")
    messages = map(json.loads, filter(None, built.stdout.splitlines()))
    return [(m["executable"], Path(m["manifest_path"]).parent) for m in messages if m.get("executable")]


def run(program, package, words=(), **env):
    profile = PROFILES / f"{Path(program).name}-%p.profraw"
    env = os.environ | {"LLVM_PROFILE_FILE": str(profile)} | env
    if subprocess.run([program, "--quiet", *words], cwd=package, env=env).returncode:
        fail(f"{Path(program).name}: a test failed")


def product_files(glob):
    found = [path for path in sorted(ROOT.glob(glob)) if NO_PRODUCT.isdisjoint(path.relative_to(ROOT).with_suffix("").parts)]
    return found or fail(f"no file is called {glob}")


def product_lines(path):
    """The line from which on a file is its test module."""
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines, 1):
        if line == "#[cfg(test)]" and re.match(r"mod \w+ \{", lines[number]):
            return number
    return len(lines) + 1


def counts(export, files):
    """How often each region ran and each branch was taken, by file and span: the sum over all types and programs."""
    regions = defaultdict(lambda: defaultdict(int))
    branches = defaultdict(lambda: defaultdict(int))
    for function in export["data"][0]["functions"]:
        names = function["filenames"]
        for *span, count, file, _, kind in function["regions"]:
            if kind == CODE and span[0] < files.get(names[file], 0):
                regions[names[file]][tuple(span)] += count
        for *span, taken, passed, file, _, _ in function["branches"]:
            if span[0] < files.get(names[file], 0):
                branches[names[file]][(*span, "true")] += taken
                branches[names[file]][(*span, "false")] += passed
    return regions, branches


def share(ran, all_):
    """A figure of the table; a file without conditions has no branches."""
    return f"{ran:,} of {all_:,}".rjust(16) + f"{100 * ran / all_:8.2f} %" if all_ else "-".rjust(26)


def text_of(path, span):
    """The source between the two ends of a span, in one line."""
    first, column, last, end = span[:4]
    lines = path.read_text().splitlines()[first - 1 : last]
    lines[-1] = lines[-1][: end - 1]
    lines[0] = lines[0][column - 1 :]
    text = " ".join(line.strip() for line in lines)
    return text if len(text) <= 100 else f"{text[:97]}..."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20_000, help="runs of the swarm")
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run")
    parser.add_argument("--missing", action="store_true", help="list what never ran")
    wanted = parser.parse_args()
    if wanted.runs < 1:
        parser.error(f"--runs {wanted.runs}: at least one run")
    profdata, cov = tool("llvm-profdata"), tool("llvm-cov")
    units = build(["-p", "nand-model", "-p", "ftld-core", "--tests"])
    [(swarm, suites)] = build(["-p", "ftld-tests", "--no-default-features", "--test", "suites"])
    shutil.rmtree(PROFILES, ignore_errors=True)
    for program, package in units:
        run(program, package)
    run(swarm, suites, ["swarm::", "--nocapture"], FTLD_SWARM_RUNS=str(wanted.runs), FTLD_SEED=str(wanted.seed))
    merged = TARGET / "all.profdata"
    subprocess.run([profdata, "merge", "-sparse", *PROFILES.glob("*.profraw"), "-o", merged], check=True)
    groups = {group: [path for glob in globs for path in product_files(glob)] for group, globs in GROUPS.items()}
    files = {str(path): product_lines(path) for paths in groups.values() for path in paths}
    objects = [word for program in [*(program for program, _ in units), swarm] for word in ("-object", program)][1:]
    command = [cov, "export", "-instr-profile", merged, *objects, *files]
    export = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    regions, branches = counts(export, files)
    short = []
    for group, paths in groups.items():
        totals = []
        print(f"     {group:44}{'regions':>16}{'branches':>26}")
        for path in paths:
            own = [kind[str(path)] for kind in (regions, branches)]
            figures = [(sum(map(bool, kind.values())), len(kind)) for kind in own]
            totals.append(figures)
            print(f"     {str(path.relative_to(ROOT)):40}{share(*figures[0])}{share(*figures[1])}")
            never = sorted(span for kind in own for span, count in kind.items() if not count)
            for span in never if wanted.missing else ():
                outcome = f"never {span[4]}" if len(span) > 4 else "never ran"
                print(f"         {span[0]}:{span[1]} {outcome}: {text_of(path, span)}")
        sums = [tuple(map(sum, zip(*kind))) for kind in zip(*totals)]
        bad = [kind for kind, (ran, all_) in zip(KINDS, sums) if not all_ or 100 * ran < LEAST * all_]
        short += [f"{kind} of {group} code" for kind in bad]
        verdict = "FAIL" if bad else "ok  "
        print(f"{verdict} {group:40}{share(*sums[0])}{share(*sums[1])}")
    if short:
        fail(f"less than {LEAST} % of the {', '.join(short)}")
    print(f"coverage result: ok. {len(files)} files, {wanted.runs} runs of the swarm from seed {wanted.seed}")


if __name__ == "__main__":
    main()
