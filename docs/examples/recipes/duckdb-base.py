#!/usr/bin/python3
"""A recipe for `ftld crash-test`: DuckDB (PyPI's duckdb: `build.sh duckdb`), with `--memory 512MiB`. A row is reported once its commit
returned. DuckDB has no setting that omits the sync; `early` reports the row before its commit.

usage: duckdb-base.py run FOLDER ROWS HOW    HOW: commit; early; checkpoint: also a CHECKPOINT, which 2.0.1 does not survive
       duckdb-base.py check FOLDER           does it open, with every reported row?
"""

import os
import sys

import duckdb

OPTIONS = {"threads": 1, "memory_limit": "120MB"}


def report(number):
    print("ACK", number, flush=True)
    answer = sys.stdin.readline().strip()
    if answer != "OK":
        sys.exit(f"duckdb-base.py: {answer}")


def run(folder, rows, how):
    base = duckdb.connect(os.path.join(folder, "base"), config=OPTIONS)
    base.execute("create table things (number int, item varchar)")
    for number in range(1, rows + 1):
        base.execute("begin")
        base.execute("insert into things values (?, ?)", [number, f"{number};" * 100])
        if how == "early":
            report(number)
        base.execute("commit")
        if how == "checkpoint":
            base.execute("checkpoint")
        if how != "early":
            report(number)
    # As after a power cut: nothing is closed.
    os._exit(0)


def check(folder):
    reported = int(os.environ.get("FTLD_MARK") or 0)
    if reported == 0:
        return None
    try:
        base = duckdb.connect(os.path.join(folder, "base"), config=OPTIONS)
        found = dict(base.execute("select number, item from things").fetchall())
    except duckdb.Error as error:
        return str(error).splitlines()[0]
    if found != {number: f"{number};" * 100 for number in range(1, len(found) + 1)}:
        return "a row is missing, or wrong"
    return None if len(found) >= reported else f"{len(found)} of {reported} reported rows are there"


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"] and len(sys.argv) == 5 and sys.argv[4] in ("commit", "early", "checkpoint"):
        run(sys.argv[2], int(sys.argv[3]), sys.argv[4])
    elif sys.argv[1:2] == ["check"] and len(sys.argv) == 3:
        sys.exit(check(sys.argv[2]))
    else:
        sys.exit(__doc__)
