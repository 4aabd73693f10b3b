"""diskcache: values of 40 KB, which it keeps in files; SQLite with synchronous=FULL."""

import sys
from pathlib import Path

import diskcache

sys.path.append(str(Path(__file__).resolve().parents[1]))
import shared

VALUE = shared.value
shared.value = lambda number: VALUE(number) * 200


def run(folder, records):
    cache = diskcache.Cache(f"{folder}/cache", sqlite_synchronous=2)
    for number in range(1, records + 1):
        cache[number] = shared.value(number)
        shared.report(number)


def read(folder):
    cache = diskcache.Cache(f"{folder}/cache")
    # A value that is not there is None.
    return {number: cache.get(number) for number in cache}


shared.main(run, read)
