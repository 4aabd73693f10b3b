#!/usr/bin/env python3
"""Volume benchmark: threads of one process read and write a volume at random, 4 KiB each, without a
transport.

    tests/bench/volume.py [--short] [--rounds N] [--only TEXT] [--json FILE] [--set KEY=VALUE]...
                          [--folder FOLDER]

`bench_volume` opens `pagemap` on mlc-4k with 28 % over-provisioning, fills it and ages it by three
times its size in random writes. Shown is the rate of two threads beside that of one, in the same
round, and the CPU time of a request. If the program has the option `--shards`, the same again with
2. `--set` adds an option of the daemon's file, as TOML. Exits with 1 if something fails, not if a
target is missed.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import ROOT, Machine, Point, Run, at_least, build, load, parser
from servers import has_option

PROGRAM = ROOT / "target" / "release" / "bench_volume"
FTLD = ROOT / "target" / "release" / "ftld"
ONE, TWO = "one thread", "two threads"
GOAL = at_least(1.6)


def config(folder, size, extra):
    """The daemon's file for a new image."""
    path = folder / "volume.toml"
    lines = ['scheme = "pagemap"', 'profile = "mlc-4k"', "op = 28", f'size = "{size}"', f'image = "{folder}/volume.ftld"', *extra]
    path.write_text("\n".join(lines) + "\n")
    return path


def rows(text):
    """(read or write, threads) -> per round: requests per second, us of CPU time per request."""
    found = {}
    for line in text.splitlines():
        kind, threads, requests, wall, cpu = line.split()
        requests = int(requests)
        found.setdefault((kind, int(threads)), []).append((requests / float(wall), float(cpu) / requests * 1e6))
    return found


def measure(run, folder, size, millis, shards, extra):
    own = [] if shards == 1 else [f"shards = {shards}"]
    before, others = load(), Machine().watch()
    command = [PROGRAM, config(folder, size, [*own, *extra]), 3, run.rounds, millis, 1, 2]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bench_volume failed: {done.stderr.strip()}")
    found, others = rows(done.stdout), others()
    for kind in ("read", "write"):
        one, two = found[kind, 1], found[kind, 2]
        # Writes of one shard are one after the other.
        goals = {ONE: GOAL} if kind == "read" or shards > 1 else {}
        values = {TWO: [rate for rate, _ in two], ONE: [rate for rate, _ in one]}
        cost = {name: statistics.median(us for _, us in each) for name, each in ((TWO, two), (ONE, one))}
        name = f"4k {kind}s, {shards} shard{'s' * (shards > 1)}"
        if run.wants(name):
            run.add(Point(name, "per second", values, goals, (before, load()), others, {"CPU time per request, us": cost}))


def main():
    options = parser(__doc__)
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="an option of the daemon's file")
    options.add_argument("--folder", default=str(ROOT / "target" / "bench"), help="where the image is; not a tmpfs")
    args = options.parse_args()
    build("--package", "ftld", "--bin", "ftld")
    build("--package", "ftld-tests", "--bin", "bench_volume")
    run = Run("volume", args)
    size, millis = ((256 << 20), 500) if args.short else ((1 << 30), 2000)
    shards = [1, 2] if has_option(FTLD, "--shards") else [1]
    if shards == [1]:
        print("this program has no --shards: those rows are missing")
    Path(args.folder).mkdir(parents=True, exist_ok=True)
    for count in shards:
        with tempfile.TemporaryDirectory(prefix="volume.", dir=args.folder) as folder:
            measure(run, Path(folder), size, millis, count, args.set)
    run.finish()


if __name__ == "__main__":
    main()
