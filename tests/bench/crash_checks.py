#!/usr/bin/env python3
"""Cost of a check of `ftld crashes`: the recipes of docs/examples/recipes, each state's files by e2fsck, debugfs and a new process
(before), by --files and a new process (files), and by --files with a check that stays up (server).

    tests/bench/crash_checks.py [--rounds N] [--states N] [--programs FOLDER] [--ftld PROGRAM] [--parts] [RECIPE...]

Not as root, which PostgreSQL refuses; in FOLDER are the programs of docs/examples/recipes/build.sh. A recipe is recorded once, in
User-Mode Linux. In each round every way checks the same states, about N, with one job. Printed are, as Markdown: states per minute
of CPU time, of ftld, the checks and all that they start; the ratio to `before`, and the same ratio by the clock; the most memory that
these processes had together, by a look each 20 ms. Medians over the rounds. With --parts: CPU time and time by the clock of a state
with checks that do a part of the work. Exits with 1 if two ways differ in their verdicts.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from measure import ROOT, load

EXAMPLES = ROOT / "docs/examples"
RECIPES = EXAMPLES / "recipes"
PYTHON = "/usr/bin/python3"
PAGE = os.sysconf("SC_PAGE_SIZE")
BEFORE = (
    'e2fsck -fy "$FTLD_IMAGE" > "$FTLD_WORK/out" 2>&1; mkdir "$FTLD_WORK/files" && '
    'debugfs -R "rdump / $FTLD_WORK/files" "$FTLD_IMAGE" > "$FTLD_WORK/out" 2>&1; export FTLD_FILES="$FTLD_WORK/files"; '
)
FILES = BEFORE.rpartition(";")[0]
SERVER = "while read -r line; do echo ok; done"
PARTS = {
    "a shell that does nothing": ["--check", ":"],
    "the same, with `--files`": ["--files", "--check", ":"],
    "e2fsck and debugfs": ["--check", FILES],
    "Python that does nothing": ["--check", f"{PYTHON} -c pass"],
    "a shell that stays up": ["--server", "--check", SERVER],
    "the same, with `--files`, ": ["--files", "--server", "--check", SERVER],
}


def recipes(programs):
    """By name: the program that runs, its words, the check, the check that stays up."""

    def python(path, words, file="", library=""):
        with_library = f"PYTHONDONTWRITEBYTECODE=1 PYTHONPATH={library} {PYTHON}"
        check = f"{with_library} {path} check $FTLD_FILES{'/' if file else ''}{file}"
        return f"{with_library} {path} run {{}}{'/' if file else ''}{file} {words}", check, f"{with_library} {RECIPES}/server.py {path} {file}"

    def program(path, words):
        return f"{path} run {{}} {words}", f"{path} check $FTLD_FILES", f"{RECIPES}/server.sh {path} check"

    return {
        "SQLite": python(EXAMPLES / "orders.py", "8 extra", "db"),
        "LMDB": python(RECIPES / "lmdb-base.py", "8"),
        "LevelDB": python(RECIPES / "leveldb-base.py", "12 sync"),
        "a replaced file": python(RECIPES / "replace.py", "8 whole"),
        "git": program(RECIPES / "git.sh", "4 core.fsync=all"),
        "dpkg": program(RECIPES / "dpkg.sh", "4"),
        "PostgreSQL": program(RECIPES / "postgres-base.sh", "5"),
        "RocksDB": python(RECIPES / "rocksdb-base.py", "12 sync", library=programs / "rocksdb.parts"),
        "DuckDB": python(RECIPES / "duckdb-base.py", "5 commit", library=programs / "duckdb.parts"),
        "redb": program(programs / "redb", "8 sync"),
        "bbolt": program(programs / "bbolt", "8 sync"),
        "MapDB": (
            f"{programs}/mapdb run {{}} 5 hash",
            f"printf '%s\\t%s\\n' \"$FTLD_FILES\" \"$FTLD_MARK\" | {programs}/mapdb serve | grep -qx ok",
            f"{programs}/mapdb serve",
        ),
    }


def together(process):
    """Bytes in RAM of a process and all below it; shared pages count for each."""
    total, todo = 0, [process]
    while todo:
        folder = Path("/proc", todo.pop())
        try:
            total += int((folder / "statm").read_text().split()[1]) * PAGE
            for task in (folder / "task").iterdir():
                todo += (task / "children").read_text().split()
        # It has ended meanwhile.
        except OSError:
            pass
    return total


def explore(args, recording, *options):
    """Runs `ftld crashes`: the report, CPU time and time by the clock in s, the peak of memory."""
    command = [args.ftld, "crashes", recording, "--at", "flush", "--after-mark", "--states", "16", "--jobs", "1", "--failures", "0"]
    peak, over = [0], threading.Event()

    def watch(process):
        while not over.wait(0.02):
            peak[0] = max(peak[0], together(process))

    with tempfile.TemporaryFile() as out:
        began = time.monotonic()
        process = subprocess.Popen([*command, "--json", *options], stdout=out, stderr=subprocess.PIPE, text=True)
        watching = threading.Thread(target=watch, args=(str(process.pid),), daemon=True)
        watching.start()
        errors = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        clock = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        over.set()
        watching.join()
        out.seek(0)
        text = out.read()
    if not text:
        sys.exit(f"crash_checks: {errors}")
    return json.loads(text), used.ru_utime + used.ru_stime, clock, peak[0]


def recorded(args, name, run, folder):
    """The recording of a recipe, and the option that selects about as many states as wanted."""
    recording = folder / f"{name.replace(' ', '-')}.rec"
    command = [args.ftld, "crash-test", "--record", recording, "--memory", "512MiB", "--at", "mark", "--states", "1", "--check", "true"]
    done = subprocess.run([*command, "--", "sh", "-c", run], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"crash_checks: {name}: {done.stdout}{done.stderr}")
    count = explore(args, recording, "--server", "--check", SERVER)[0]["states_checked"]
    return recording, ["--every", str(max(1, round(count / args.states)))]


def parts(args, name, recipe, folder):
    """A row for each part."""
    recording, every = recorded(args, name, recipe[0], folder)
    for part, options in PARTS.items():
        rows = []
        for _ in range(args.rounds):
            report, used, clock, _ = explore(args, recording, *every, *options)
            rows.append((used * 1e3 / report["states_checked"], clock * 1e3 / report["states_checked"]))
        print(f"| {name} | {part.strip(', ')} |", " | ".join(f"{statistics.median(row):.1f}" for row in zip(*rows)), "|", flush=True)
    return True


def measured(args, name, recipe, folder):
    """The row of a recipe."""
    run, check, server = recipe
    recording, every = recorded(args, name, run, folder)
    ways = {
        "before": ["--check", BEFORE + check],
        "files": ["--files", "--check", check],
        "server": ["--files", "--server", "--check", server],
    }
    rounds, verdicts = {way: [] for way in ways}, set()
    for _ in range(args.rounds):
        for way, options in ways.items():
            report, used, clock, peak = explore(args, recording, *every, *options)
            verdicts.add((report["states_checked"], report["states_failed"]))
            rounds[way].append((report["states_checked"] * 60 / used, report["states_checked"] * 60 / clock, peak / (1 << 20)))
    if len(verdicts) > 1:
        print(f"crash_checks: {name}: the verdicts differ: {verdicts}", file=sys.stderr)
    checked, failed = verdicts.pop()

    def median(way, figure):
        return statistics.median(row[figure] for row in rounds[way])

    def ratio(way, figure):
        return statistics.median(after[figure] / before[figure] for after, before in zip(rounds[way], rounds["before"]))

    cells = [name, checked, failed, f"{median('before', 0):,.0f}"]
    for way in ("files", "server"):
        cells += [f"{median(way, 0):,.0f}", f"{ratio(way, 0):.1f} ({ratio(way, 1):.1f})"]
    cells += [f"{median(way, 2):.0f}" for way in ways]
    print("|", " | ".join(map(str, cells)), "|", flush=True)
    return len(verdicts) == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--states", type=int, default=100)
    parser.add_argument("--programs", type=Path, default=Path("."))
    parser.add_argument("--ftld", default="ftld")
    parser.add_argument("--parts", action="store_true")
    parser.add_argument("recipes", nargs="*", metavar="RECIPE")
    args = parser.parse_args()
    known = recipes(args.programs.resolve())
    version = subprocess.run([args.ftld, "--version"], capture_output=True, text=True, check=True).stdout
    print(f"ftld {version.split()[3]}, {os.cpu_count()} CPUs, load before {load()}\n")
    if args.parts:
        print("| recording | check | CPU ms | ms by the clock |\n|---|---|---|---|")
    else:
        print("| recipe | states | failed | before | files | times | server | times | MiB before | MiB files | MiB server |")
        print("|---|" + "---|" * 10)
    row = parts if args.parts else measured
    with tempfile.TemporaryDirectory() as folder:
        alike = [row(args, name, known[name], Path(folder)) for name in args.recipes or known]
    print(f"\nload after {load()}")
    sys.exit(not all(alike))


if __name__ == "__main__":
    main()
