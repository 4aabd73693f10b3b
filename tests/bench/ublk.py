#!/usr/bin/env python3
"""ublk benchmark: system calls and CPU time per request at queue depth 32, beside rublk null and loop
in the same guest.

    tests/bench/ublk.py [--short] [--rounds N] [--only TEXT] [--json FILE] [--schemes "NAME..."]
                        [--log FILE]

Boots the QEMU guest of tests/guest with tests/guest/ublk_bench.sh. It counts in the kernel, by
thread, the system calls of each server while fio reads and writes: random requests of 4 KiB and
sequential ones of 128 KiB. ftld's devices have 28 % over-provisioning and are aged by three times
their size in random writes; images and the file behind loop are on a tmpfs. A ratio compares ours
to theirs, so less is better. The guest's times are those of an emulated machine: CPU times have no
target, and only large factors say something. `--log` reads the log of an earlier run of the guest
instead. Exits with 1 if something fails, not if a target is missed.
"""

import os
import re
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from measure import ROOT, Machine, Point, Run, at_most, load, parser

LOG = ROOT / "target" / "guest" / "ublk_bench.log"
GOAL = {"rublk-loop": at_most(1.0)}


@dataclass
class Rows:
    """Of a load: server -> per round."""

    calls: dict = field(default_factory=dict)
    cpu_us: dict = field(default_factory=dict)
    # server -> name of a system call -> per request, in each round.
    names: dict = field(default_factory=dict)


def rows(text):
    """Load -> its rows, from the guest's output."""
    loads = {}
    for line in re.findall(r"^ +ublk_bench: figures (.*)$", text, re.M):
        server, what, requests, calls, cpu, *names = line.split()
        row, requests = loads.setdefault(what, Rows()), int(requests)
        row.calls.setdefault(server, []).append(int(calls) / requests)
        row.cpu_us.setdefault(server, []).append(int(cpu) / requests / 1e3)
        counted = {name: int(count) / requests for name, count in (word.split("=") for word in names)}
        row.names.setdefault(server, []).append(counted)
    return loads


def frequent(counted, least=0.01):
    """Medians of the system calls per request that are made at least once in a hundred requests."""
    names = {name for each in counted for name in each}
    medians = {name: statistics.median(each.get(name, 0) for each in counted) for name in names}
    return dict(sorted(((name, value) for name, value in medians.items() if value >= least), key=lambda item: -item[1]))


def boot(args):
    environment = {**os.environ, "BENCH_ROUNDS": str(args.rounds), "SCHEMES": args.schemes}
    if args.short:
        environment |= {"BENCH_MIB": "32", "BENCH_REQUESTS": "1600"}
    subprocess.run(["make", "--no-print-directory", "target/tools/bin/rublk"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([ROOT / "tests" / "guest" / "run.sh", "ublk_bench"], env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"the guest failed:\n{done.stdout[-4000:]}{done.stderr}")


def main():
    options = parser(__doc__)
    options.add_argument("--schemes", default="pagemap lazyftl", help="separated by blanks (default: pagemap lazyftl)")
    options.add_argument("--log", type=Path, help="the log of an earlier run of the guest")
    args = options.parse_args()
    run = Run("ublk", args)
    before, others = load(), Machine().watch()
    if args.log is None:
        boot(args)
    around = dict(load=(before, load()), others=others() if args.log is None else 0.0)
    loads = rows((args.log or LOG).read_text())
    if not loads:
        sys.exit(f"{args.log or LOG} has no figures")
    for what, row in loads.items():
        for scheme in (name for name in row.calls if name.startswith("ftld-")):
            names = [scheme, *(name for name in row.calls if not name.startswith("ftld-"))]
            calls = {name: row.calls[name] for name in names}
            extra = {f"calls of {name}": frequent(row.names[name]) for name in names}
            if run.wants(f"{what}, {scheme}"):
                run.add(Point(f"{what}, {scheme}: system calls per request", "calls", calls, GOAL, extra=extra, **around))
                cpu = {name: row.cpu_us[name] for name in names}
                run.add(Point(f"{what}, {scheme}: CPU time per request", "us", cpu, **around))
    run.finish()


if __name__ == "__main__":
    main()
