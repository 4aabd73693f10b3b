#!/usr/bin/env python3
"""Model of the daemon's CPU time: a constant cost per request, and one per flash page.

    tests/bench/model.py [--short] [--rounds N] [--only TEXT] [--json FILE] [--ftld PROGRAM]
                         [--folder FOLDER]

Two loads over NBD on `pagemap` of mlc-4k, aged by three times its size in random writes:

- *writes* of 4 KiB at queue depth 32 at several over-provisionings. The pages are the programs per
  write, which garbage collection makes: cost = request + programs x page.
- *reads* of several sizes at queue depth 4 on the device with 28 %. The pages are those of the
  request.

The model of each load is fitted to its first and its last row, and predicts the others; predicted
and measured CPU times per request are printed. Then the cost of a 4 KiB request by size of the
device is printed, which the model assumes to be constant. CPU time is that of all the daemon's
threads, median of the rounds. Exits with 1 if something fails, not if a prediction is more than 20 % off.
"""

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

from measure import ROOT, Run, at_most, build, cpu_seconds, parser
from servers import Ftld, need

MIB = 1 << 20
OVER_PROVISIONING = (50, 28, 12.5, 7)
READ_BYTES = (4096, 16384, 65536, 131072)
WITHIN = at_most(20)


@dataclass(frozen=True)
class Cost:
    """us per request, and per page."""

    request: float
    page: float

    @staticmethod
    def fit(one, other):
        """The line through two rows of (pages, us)."""
        page = (other[1] - one[1]) / (other[0] - one[0])
        return Cost(one[1] - page * one[0], page)

    def of(self, pages):
        return self.request + pages * self.page

    def __str__(self):
        return f"{self.request:.2f} us per request + {self.page:.2f} us per page"


def predictions(rows):
    """The model that the first and the last row make, and (name, pages, measured, predicted, error in %) of the others. A row
    is (name, pages, us)."""
    cost = Cost.fit(rows[0][1:], rows[-1][1:])
    others = [(name, pages, us, cost.of(pages)) for name, pages, us in rows[1:-1]]
    return cost, [(*other, abs(other[3] / other[2] - 1) * 100) for other in others]


def programs(figures):
    return sum(cause["programs"] for cause in figures["nand"].values())


def completed(figures):
    return sum(figures["host"][op]["completed"] for op in ("read", "write"))


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.servers = args, folder, []
        self.size = (256 if args.short else 1024) * MIB
        self.run = Run("model", args, lambda: [server.pid for server in self.servers])

    def served(self, op, size=None):
        """A device that is filled and aged."""
        server = Ftld("model", self.args.ftld, self.folder, size or self.size, "--scheme", "pagemap", "--profile", "mlc-4k", "--op", op)
        self.servers = [server]
        server.fio(rw="write", bs="128k", iodepth=8)
        server.fio(rw="randwrite", bs="4k", iodepth=32, io_size=3 * server.size)
        return server

    def cost(self, server, **options):
        """Programs and CPU time, us, per request."""
        before, cpu = server.settled(dict), cpu_seconds(server.pid)
        server.fio(**options)
        cpu = cpu_seconds(server.pid) - cpu
        after = server.settled(dict)
        requests = completed(after) - completed(before)
        return (programs(after) - programs(before)) / requests, cpu / requests * 1e6

    def medians(self, server, **options):
        each = [self.cost(server, **options) for _ in range(self.run.rounds)]
        return tuple(statistics.median(column) for column in zip(*each))

    def discard(self, server):
        server.discard()
        self.servers = []

    def writes(self):
        # Longer where a program costs less, so that the ticks of CPU time are a hundredth of it.
        load = dict(rw="randwrite", bs="4k", iodepth=32, io_size=self.size)
        rows = []
        for op in OVER_PROVISIONING:
            server = self.served(op)
            rows.append((f"OP {op:g} %", *self.medians(server, **load)))
            self.discard(server)
        self.show("4k writes", "programs", rows)

    def reads(self):
        server, rows = self.served(28), []
        for size in READ_BYTES:
            load = dict(rw="randread", bs=size, iodepth=4, io_size=min(4 * self.size, self.size * size // 4096))
            rows.append((f"{size >> 10}k", size // 4096, self.medians(server, **load)[1]))
        self.discard(server)
        self.show("reads", "pages", rows)

    def show(self, title, what, rows):
        cost, predicted = predictions(rows)
        guesses = {name: (guess, f"{error:.0f} %") for name, _, _, guess, error in predicted}
        table = [[name, pages, us, *guesses.get(name, ("fitted", ""))] for name, pages, us in rows]
        self.run.table(f"Model of {title}: {cost}", [title, f"{what} per request", "measured us", "predicted us", "off by"], table)
        self.run.figure(f"{title}: CPU time per request", "us", [cost.request])
        self.run.figure(f"{title}: CPU time per page", "us", [cost.page])
        self.run.figure(f"{title}: largest error of a prediction", "%", [max(error for *_, error in predicted)], WITHIN)

    def sizes(self):
        """CPU time of a request by size of the device, at the same over-provisioning."""
        table = []
        for size in (self.size // 4, self.size, self.size * 4):
            server = self.served(28, size)
            cost = [self.medians(server, rw=f"rand{what}", bs="4k", iodepth=32, io_size=self.size)[1] for what in ("read", "write")]
            table.append([f"{size // MIB} MiB", *cost])
            self.discard(server)
        self.run.table("CPU time of a 4k request by size of the device", ["size", "read us", "write us"], table)
        for index, what in enumerate(("read", "write"), 1):
            self.run.figure(f"4k {what}: cost at {table[-1][0]} beside {table[0][0]}", "times", [table[-1][index] / table[0][index]])

    def measure_all(self):
        parts = {"4k writes": self.writes, "reads": self.reads, "size": self.sizes}
        for name, part in parts.items():
            if self.run.wants(name):
                part()
        self.run.finish()

    def stop(self):
        for server in self.servers:
            server.stop()


def main():
    options = parser(__doc__, rounds=3)
    options.add_argument("--ftld", help="program to measure, instead of building this tree")
    options.add_argument("--folder", default=str(ROOT / "target" / "bench"), help="where images are; not a tmpfs")
    args = options.parse_args()
    need("fio")
    if args.ftld is None:
        build("--package", "ftld", "--bin", "ftld")
        args.ftld = str(ROOT / "target" / "release" / "ftld")
    Path(args.folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="model.", dir=args.folder) as folder:
        bench = Bench(args, Path(folder))
        try:
            bench.measure_all()
        finally:
            bench.stop()


if __name__ == "__main__":
    main()
