"""Loads: one list of page requests, written in the format of every simulator."""

import bisect
import itertools
import random
from dataclasses import dataclass

SECTORS_PER_PAGE = 8
# One request at a time: GC of a block ends long before the next request arrives.
INTERVAL_NS = 10_000_000


@dataclass(frozen=True)
class Device:
    """One plane of one die, so that no simulator can stripe pages."""

    blocks: int
    pages_per_block: int
    logical_blocks: int

    @property
    def logical_pages(self):
        return self.logical_blocks * self.pages_per_block

    @property
    def pages(self):
        return self.blocks * self.pages_per_block


class Load:
    """Every page written once in order, one read, then `warm_up` and `measured` drive writes.

    The read is there because SSDsim divides by the number of reads.
    """

    def __init__(self, name, device, draw, warm_up, measured, reads=0.0, seed=1):
        self.name = name
        rng = random.Random(seed)
        pages = device.logical_pages
        self.requests = [("W", page) for page in range(pages)] + [("R", 0)]
        pick = draw(rng, pages)
        for _ in range(warm_up * pages):
            self.requests.append(("R" if rng.random() < reads else "W", pick()))
        self.measured_from = len(self.requests)
        for _ in range(measured * pages):
            self.requests.append(("R" if rng.random() < reads else "W", pick()))
        self.host_writes = sum(op == "W" for op, _ in self.requests[self.measured_from :])
        self.host_reads = len(self.requests) - self.measured_from - self.host_writes

    def ascii(self, path, count):
        """The first `count` requests as MQSim, SSDsim and ftld read them: time in ns, disk, sector, sectors, 1 for a read.

        A read follows them, because SSDsim never serves the last request of a file. Its line has no end: SSDsim
        would read it again for ever.
        """
        lines = (
            f"{(i + 1) * INTERVAL_NS} 0 {page * SECTORS_PER_PAGE} {SECTORS_PER_PAGE} {int(op == 'R')}"
            for i, (op, page) in enumerate([*self.requests[:count], ("R", 0)])
        )
        path.write_text("\n".join(lines))

    def addresses(self, path):
        """The pages written, with a length of one, as sssl-ftlsim reads them."""
        path.write_text("".join(f"{page} 1\n" for op, page in self.requests if op == "W"))

    def uflip(self, first, second):
        """Two files as FlashSim reads them: what comes before the measurement, and what is measured."""
        for path, requests in ((first, self.requests[: self.measured_from]), (second, self.requests[self.measured_from :])):
            path.write_text("".join(f"R; {op}; {page}; 0; 1; {i + 1}\n" for i, (op, page) in enumerate(requests)))


def uniform(rng, pages):
    return lambda: rng.randrange(pages)


def zipf(exponent):
    """The k-th most popular page has a probability proportional to 1 / k^exponent; popular pages lie anywhere."""

    def draw(rng, pages):
        sums = list(itertools.accumulate(k**-exponent for k in range(1, pages + 1)))
        order = rng.sample(range(pages), pages)
        return lambda: order[bisect.bisect_left(sums, rng.random() * sums[-1])]

    return draw
