#!/usr/bin/python3
"""A ledger on a block device, for docs/CRASH_TESTING.md.

usage: ledger.py run DEVICE ORDERS [careless]    append orders; `ftld mark` reports each that is committed
       ledger.py check IMAGE                       is every order there that the head counts, and every reported one?

DEVICE is a block device, or an NBD URI (that needs libnbd for Python: Debian's python3-libnbd). Its
instance of ftld, which gets the marks, is called `ledger`, unless FTLD_NAME names another.
The head is the first block: the number of orders. Order N is block N. careless forgets an fsync.
"""

import os
import struct
import subprocess
import sys
import zlib

BLOCK = 4096


def block(kind, number):
    body = struct.pack("<4sQ", kind, number).ljust(BLOCK - 4, b"\0")
    return body + struct.pack("<I", zlib.crc32(body))


def is_good(data, kind, number):
    return data == block(kind, number)


def opened(device):
    """Returns how to write to the device, and how to make all writes durable."""
    if ":" not in device:
        try:
            disk = os.open(device, os.O_RDWR)
        except OSError as error:
            sys.exit(f"ledger.py: {error}")
        return lambda data, at: os.pwrite(disk, data, at), lambda: os.fsync(disk)
    try:
        import nbd
    except ImportError:
        sys.exit(f"ledger.py: {sys.executable} has no module nbd; /usr/bin/python3 has it with Debian's python3-libnbd")
    client = nbd.NBD()
    try:
        client.connect_uri(device)
    except nbd.Error as error:
        sys.exit(f"ledger.py: {device}: {error.string}")
    return client.pwrite, client.flush


def run(device, orders, careless):
    write, sync = opened(device)
    mark = ["ftld", "mark", os.environ.get("FTLD_NAME", "ledger")]
    for number in range(1, orders + 1):
        write(block(b"ORDR", number), number * BLOCK)
        if not careless:
            sync()  # The order is durable before the head counts it.
        write(block(b"HEAD", number), 0)
        sync()
        subprocess.run(mark + [str(number)], check=True, stdout=subprocess.DEVNULL)


def check(image):
    with open(image, "rb") as disk:
        head = disk.read(BLOCK)
        count = struct.unpack_from("<Q", head, 4)[0] if any(head) else 0
        if any(head) and not is_good(head, b"HEAD", count):
            return "the head is damaged"
        reported = int(os.environ.get("FTLD_MARK") or 0)
        if count < reported:
            return f"order {reported} was reported, but the head counts {count}"
        for number in range(1, count + 1):
            if not is_good(disk.read(BLOCK), b"ORDR", number):
                return f"the head counts {count} orders, but order {number} is missing"
    return None


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"] and len(sys.argv) > 3:
        run(sys.argv[2], int(sys.argv[3]), "careless" in sys.argv)
    elif sys.argv[1:2] == ["check"] and len(sys.argv) > 2:
        sys.exit(check(sys.argv[2]))
    else:
        sys.exit(__doc__)
