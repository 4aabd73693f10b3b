#!/usr/bin/python3
"""A recipe for `ftld crash-test`: LevelDB (Debian's python3-plyvel). A batch is reported once its write returned.

usage: leveldb-base.py run FOLDER BATCHES sync|no-sync
       leveldb-base.py check FOLDER                      does it open, with every reported batch?
"""

import os
import sys

import plyvel


def run(folder, batches, sync):
    base = plyvel.DB(os.path.join(folder, "base"), create_if_missing=True, write_buffer_size=64 << 10)
    for number in range(1, batches + 1):
        with base.write_batch(sync=sync) as batch:
            for part in range(20):
                batch.put(b"%08d.%02d" % (number, part), os.urandom(256))
        print("ACK", number, flush=True)
        answer = sys.stdin.readline().strip()
        if answer != "OK":
            sys.exit(f"leveldb-base.py: {answer}")


def check(folder):
    reported = int(os.environ.get("FTLD_MARK") or 0)
    if reported == 0:
        return None
    try:
        base = plyvel.DB(os.path.join(folder, "base"), paranoid_checks=True)
        found = [key for key, _ in base.iterator(verify_checksums=True)]
    except plyvel.Error as error:
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
