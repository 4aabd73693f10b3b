"""DuckDB: an insert, then CHECKPOINT."""

import sys
from pathlib import Path

import duckdb

sys.path.append(str(Path(__file__).resolve().parents[1]))
import shared

OPTIONS = {"threads": 1, "memory_limit": "120MB"}


def run(folder, records):
    base = duckdb.connect(f"{folder}/base", config=OPTIONS)
    base.execute("create table records (number int, value varchar)")
    for number in range(1, records + 1):
        base.execute("insert into records values (?, ?)", [number, shared.value(number)])
        base.execute("checkpoint")
        shared.report(number)


def read(folder):
    base = duckdb.connect(f"{folder}/base", config=OPTIONS)
    return dict(base.execute("select number, value from records").fetchall())


shared.main(run, read)
