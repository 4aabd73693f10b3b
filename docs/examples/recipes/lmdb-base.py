#!/usr/bin/python3
"""A recipe for `ftld crash-test`: LMDB (Debian's python3-lmdb). A transaction is reported once its commit returned.

usage: lmdb-base.py run FOLDER TRANSACTIONS [OPTION...]    options of lmdb.open that are False, such as sync, metasync
       lmdb-base.py check FOLDER                           does it open, with every reported transaction?
"""

import os
import sys

import lmdb


def run(folder, transactions, options):
    base = lmdb.open(os.path.join(folder, "base"), map_size=8 << 20, **dict.fromkeys(options, False))
    for number in range(1, transactions + 1):
        with base.begin(write=True) as transaction:
            for part in range(20):
                transaction.put(b"%08d.%02d" % (number, part), b"%d" % number * 50)
        print("ACK", number, flush=True)
        answer = sys.stdin.readline().strip()
        if answer != "OK":
            sys.exit(f"lmdb-base.py: {answer}")


def check(folder):
    reported = int(os.environ.get("FTLD_MARK") or 0)
    if reported == 0:
        return None
    try:
        base = lmdb.open(os.path.join(folder, "base"), map_size=8 << 20, create=False)
        with base.begin() as transaction:
            found = dict(transaction.cursor())
    except lmdb.Error as error:
        return str(error)
    for number in range(1, len(found) // 20 + 1):
        for part in range(20):
            if found.get(b"%08d.%02d" % (number, part)) != b"%d" % number * 50:
                return f"transaction {number} is not whole"
    return None if len(found) >= 20 * reported else f"{len(found) // 20} of {reported} reported transactions are there"


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"] and len(sys.argv) >= 4:
        run(sys.argv[2], int(sys.argv[3]), sys.argv[4:])
    elif sys.argv[1:2] == ["check"] and len(sys.argv) == 3:
        sys.exit(check(sys.argv[2]))
    else:
        sys.exit(__doc__)
