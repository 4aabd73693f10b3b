#!/usr/bin/python3
"""Orders in an SQLite database, for docs/CRASH_TESTING.md.

usage: orders.py run DATABASE ORDERS SYNCHRONOUS    commit orders; `ACK N` reports order N, and waits for a line
       orders.py check DATABASE                     is the database whole, with every reported order?

SYNCHRONOUS is that of SQLite: off, normal, full or extra.
"""

import os
import sqlite3
import sys


def run(path, orders, synchronous):
    base = sqlite3.connect(path, isolation_level=None)
    base.execute(f"pragma synchronous = {synchronous}")
    base.execute("create table orders (number integer primary key, item text)")
    for number in range(1, orders + 1):
        base.execute("insert into orders values (?, ?)", (number, "a thing " * 100))
        print("ACK", number, flush=True)
        answer = sys.stdin.readline().strip()
        if answer != "OK":
            sys.exit(f"orders.py: {answer}")


def check(path):
    reported = int(os.environ.get("FTLD_MARK") or 0)
    if reported == 0:
        return None
    try:
        # An open repairs the database, as after a power cut.
        base = sqlite3.connect(f"file:{path}?mode=rw", uri=True)
        whole = base.execute("pragma integrity_check").fetchone()[0]
        count = base.execute("select count(*) from orders where number <= ?", (reported,)).fetchone()[0]
    except sqlite3.Error as error:
        return str(error)
    if whole != "ok":
        return whole
    return None if count == reported else f"{count} of {reported} reported orders are there"


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"] and len(sys.argv) == 5:
        run(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    elif sys.argv[1:2] == ["check"] and len(sys.argv) == 3:
        sys.exit(check(sys.argv[2]))
    else:
        sys.exit(__doc__)
