#!/usr/bin/python3
"""A recipe for `ftld crash-test`: RocksDB (PyPI's rocksdict: `build.sh rocksdb`). A batch is reported once its write returned.

usage: rocksdb-base.py run FOLDER BATCHES sync|no-sync
       rocksdb-base.py check FOLDER                      does it open, with every reported batch?
"""

import os
import sys

import rocksdict


def opened(folder, create):
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(create)
    # Small, so that files are written, too.
    options.set_write_buffer_size(64 << 10)
    return rocksdict.Rdict(os.path.join(folder, "base"), options)


def run(folder, batches, sync):
    base = opened(folder, True)
    options = rocksdict.WriteOptions()
    options.sync = sync
    for number in range(1, batches + 1):
        batch = rocksdict.WriteBatch(raw_mode=True)
        for part in range(20):
            batch.put(b"%08d.%02d" % (number, part), os.urandom(256))
        base.write(batch, options)
        print("ACK", number, flush=True)
        answer = sys.stdin.readline().strip()
        if answer != "OK":
            sys.exit(f"rocksdb-base.py: {answer}")
    # As after a power cut: nothing is closed.
    os._exit(0)


def check(folder):
    reported = int(os.environ.get("FTLD_MARK") or 0)
    if reported == 0:
        return None
    try:
        base = opened(folder, False)
        found = list(base.keys())
    # What rocksdict raises has no class of its own.
    except Exception as error:
        return str(error)
    wanted = [b"%08d.%02d" % (number, part) for number in range(1, len(found) // 20 + 1) for part in range(20)]
    if found != wanted:
        return "a batch is missing, or not whole"
    return None if len(found) >= 20 * reported else f"{len(found) // 20} of {reported} reported batches are there"


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"] and len(sys.argv) == 5 and sys.argv[4] in ("sync", "no-sync"):
        run(sys.argv[2], int(sys.argv[3]), sys.argv[4] == "sync")
    elif sys.argv[1:2] == ["check"] and len(sys.argv) == 3:
        sys.exit(check(sys.argv[2]))
    else:
        sys.exit(__doc__)
