"""Kuzu: a node, then CHECKPOINT."""

import sys
from pathlib import Path

import kuzu

sys.path.append(str(Path(__file__).resolve().parents[1]))
import shared


def connect(folder):
    # Small sizes: User-Mode Linux has no address space for the default.
    return kuzu.Connection(kuzu.Database(f"{folder}/base", buffer_pool_size=64 << 20, max_db_size=1 << 30))


def run(folder, records):
    base = connect(folder)
    base.execute("create node table record(number int64, value string, primary key(number))")
    for number in range(1, records + 1):
        base.execute("create (:record {number: $number, value: $value})", {"number": number, "value": shared.value(number)})
        base.execute("checkpoint")
        shared.report(number)


def read(folder):
    rows = connect(folder).execute("match (r:record) return r.number, r.value")
    found = {}
    while rows.has_next():
        number, value = rows.get_next()
        found[number] = value
    return found


shared.main(run, read)
