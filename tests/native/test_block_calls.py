"""Discards, holes and zeros of any sectors on a loop device over nbdfuse, during direct writes.

The threads own stripes that begin and end inside pages, so that neighbours always share a page.
Linux passes zeros without BLKDEV_ZERO_NOUNMAP on to a loop device's file as a hole, as ext4's zeros
are; nbdfuse passes a hole on as a trim. A trim that kept a byte of its range would lose zeros.
  BLOCK_CALLS (400)  calls of each thread   SEED (1)   SCHEMES (lazyftl pagemap)"""

import collections
import concurrent.futures
import ctypes
import fcntl
import mmap
import os
import random
import struct

import pytest
from harness import schemes
from stacks.device import Device, Fault

SECTOR, SECTORS = 512, (16 << 20) // 512
# Neither divides the other: 8 sectors are a page.
STRIPE, THREADS = 101, 4
CALLS = int(os.environ.get("BLOCK_CALLS") or 400)
SEED = os.environ.get("SEED") or "1"
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
BLKDISCARD, BLKZEROOUT = 0x1277, 0x127F


def fallocate(mode):
    def call(fd, at, length):
        if LIBC.fallocate(fd, mode | KEEP_SIZE, at, length):
            raise OSError(ctypes.get_errno(), f"fallocate, mode {mode}, of {length} bytes at {at}")
    return call


def ioctl(number):
    return lambda fd, at, length: fcntl.ioctl(fd, number, struct.pack("QQ", at, length))


# Calls that leave zeros.
ERASERS = {
    "discards": ioctl(BLKDISCARD), "zeros": ioctl(BLKZEROOUT),
    "holes": fallocate(PUNCH_HOLE), "zeroed ranges": fallocate(ZERO_RANGE),
}


def read(fd, at, length):
    with mmap.mmap(-1, length) as room:
        assert os.preadv(fd, [room], at) == length
        return room[:]


def write(fd, at, data):
    with mmap.mmap(-1, len(data)) as room:  # direct I/O wants aligned memory
        room[:] = data
        assert os.pwritev(fd, [room], at) == len(data)


def compare(got, wanted, at, when):
    for i in range(0, len(wanted), SECTOR):
        if got[i : i + SECTOR] != wanted[i : i + SECTOR]:
            heads = f"{got[i : i + 16].hex()} instead of {wanted[i : i + 16].hex()}"
            pytest.fail(f"SEED={SEED}: sector {(at + i) // SECTOR} {when} begins with {heads}")


def work(fd, thread, expected):
    """The calls of one thread; `expected` keeps what the sectors of its stripes hold."""
    rng, done = random.Random(f"{SEED}/{thread}"), collections.Counter()
    for number in range(CALLS):
        begin = rng.randrange(thread, SECTORS // STRIPE, THREADS) * STRIPE
        first, last = sorted(rng.choices(range(STRIPE), k=2))
        at, length = (begin + first) * SECTOR, (last + 1 - first) * SECTOR
        kind = rng.choice(["writes", "writes", "writes", "reads", *ERASERS])
        done[kind] += 1
        if kind == "reads":
            when = f"in call {number} of thread {thread}"
            compare(read(fd, at, length), expected[at : at + length], at, when)
            continue
        data = bytes(length)
        if kind == "writes":
            stamp = number << 8 | thread
            data = b"".join(struct.pack("<QQ", stamp, at + i) * 32 for i in range(0, length, SECTOR))
            write(fd, at, data)
        else:
            done["inside pages"] += at % 4096 != 0 or length % 4096 != 0
            done["of data"] += any(expected[at : at + length])
            ERASERS[kind](fd, at, length)
        expected[at : at + length] = data
    return done


@pytest.fixture(scope="module", params=schemes())
def device(request, folder, to_kill):
    place = folder / request.param
    place.mkdir()
    device = Device(place, request.param, f"{SECTORS * SECTOR >> 20}MiB")
    try:
        device.start()
        yield device
    finally:
        device.close()


@pytest.fixture(scope="module")
def expected(device):
    """Random data all over the device, so that no zero is there by chance."""
    data = bytearray(os.urandom(SECTORS * SECTOR))
    with direct(device) as fd:
        write(fd, 0, data)
    return data


class direct:
    """The block device, opened past the page cache."""

    def __init__(self, device):
        self.fd = os.open(device.loop, os.O_RDWR | os.O_DIRECT)

    def __enter__(self):
        return self.fd

    def __exit__(self, *_):
        os.close(self.fd)


def test_calls(device, expected, note):
    """Writes, discards, holes and zeros, side by side."""
    done = collections.Counter()
    with direct(device) as fd, concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        for counts in pool.map(lambda thread: work(fd, thread, expected), range(THREADS)):
            done += counts
        compare(read(fd, 0, SECTORS * SECTOR), expected, 0, "after all calls")
    note(", ".join(f"{count} {kind}" for kind, count in done.items()))
    wanted = THREADS * CALLS // 40
    kinds = ["writes", "reads", "inside pages", "of data", *ERASERS]
    assert all(done[kind] >= wanted for kind in kinds), done


def test_kill(device, expected):
    """All of it after kill -9 without a FLUSH."""
    device.inject(Fault.KILL, None)
    device.detach()
    device.start()
    with direct(device) as fd:
        compare(read(fd, 0, SECTORS * SECTOR), expected, 0, "after kill -9")


def test_end(device):
    """SIGTERM and ftld check."""
    device.detach()
    device.stop()
