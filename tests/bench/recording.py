#!/usr/bin/env python3
"""Cost of `--record`: fio's random writes over NBD, without a recording, with one, and with one
without data.

    tests/bench/recording.py [--rounds N] [--seconds N] [--ftld PROGRAM] [--folder FOLDER]

Three devices of `pagemap`, 256 MiB each, are filled once. In each round fio writes 4 KiB of
incompressible data at random, at queue depth 32, to one after the other. Printed are medians over
the rounds: writes per second, their ratio to those without a recording in the same round, and CPU
time per write of the threads that serve requests and of `ftld-record`. The load of the machine is
printed before and after. Exits with 1 if something fails.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from measure import ROOT, TICK, load, rounds_of
from servers import Ftld

SIZE = 256 << 20
KINDS = {"none": [], "all": ["--record"], "no data": ["--record-data", "off", "--record"]}
LOAD = dict(refill_buffers=1)


class Device(Ftld):
    """A device served over NBD, filled once."""

    def __init__(self, args, folder, kind):
        options = [*KINDS[kind], folder / f"{kind}.rec"] if KINDS[kind] else []
        super().__init__(kind, args.ftld, folder, SIZE, "--scheme", "pagemap", *options)
        self.fio(rw="write", bs="128k", iodepth=8, **LOAD)

    def ticks(self):
        """CPU time by thread; those of a connection that ends are in the process's sum alone."""
        tasks = Path(f"/proc/{self.pid}/task")
        record = sum(used(task / "stat") for task in tasks.iterdir() if (task / "comm").read_text().strip() == "ftld-record")
        return used(Path(f"/proc/{self.pid}/stat")), record

    def round(self, seconds):
        """Writes per second, and CPU time per write in us: of `ftld-record`, and of all other threads."""
        before = self.ticks()
        write = self.fio(rw="randwrite", bs="4k", iodepth=32, time_based=1, runtime=seconds, **LOAD)["write"]
        all_threads, record = (after - earlier for after, earlier in zip(self.ticks(), before))
        each = 1e6 / TICK / write["total_ios"]
        return write["iops"], (all_threads - record) * each, record * each


def used(stat):
    """User and system time of a process or thread, in ticks."""
    fields = stat.read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=4, help="of one device in a round")
    parser.add_argument("--ftld", default=ROOT / "target" / "release" / "ftld", help="program to measure")
    parser.add_argument("--folder", help="where images and recordings are made")
    args = parser.parse_args()
    if not Path(args.ftld).exists():
        sys.exit(f"there is no {args.ftld}: cargo build --release -p ftld")
    print(f"load before: {load():.2f}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ftld-bench-", dir=args.folder) as folder:
        devices = [Device(args, Path(folder), kind) for kind in KINDS]
        rounds = rounds_of({device.name: lambda device=device: device.round(args.seconds) for device in devices}, args.rounds)
        for device in devices:
            device.stop()
    print(f"load after: {load():.2f}\n")
    print("| recording | writes per second | ratio | CPU time of requests, us per write | of `ftld-record` |\n|---|---|---|---|---|")
    for kind in KINDS:
        rate, requests, record = (statistics.median(column) for column in zip(*rounds[kind]))
        ratio = statistics.median(ours[0] / none[0] for ours, none in zip(rounds[kind], rounds["none"]))
        print(f"| {kind} | {rate:,.0f} | {ratio:.0%} | {requests:.1f} | {record:.1f} |")


if __name__ == "__main__":
    main()
