#!/usr/bin/env python3
"""Turns a trace in the plain format into requests of whole pages, one per line: `W|R|T first_page count`.

    requests.py TRACE PAGE_BYTES [compact]

`compact` places the 1 MiB extents that the trace touches one after the other, in the order of their addresses, as
`ftld replay --address compact` does. A comment in front has the pages of these extents: `# pages N`.
"""

import subprocess
import sys

import os
SPLIT = int(os.environ.get('SPLIT', 0))
EXTENT = 1 << 20


def read(trace):
    """The requests of a trace: kind, offset and length in bytes."""
    packed = str(trace).endswith(".zst")
    text = subprocess.run(["zstd", "-dcq", trace], check=True, capture_output=True, text=True).stdout if packed else open(trace).read()
    for line in text.splitlines():
        fields = line.split(",")
        if len(fields) == 4 and fields[1] in ("R", "W", "T"):
            yield fields[1], int(fields[2]), int(fields[3])


def compact(requests):
    """The requests with their extents side by side, and the bytes of these."""
    touched = set()
    for _, offset, length in requests:
        touched.update(range(offset // EXTENT, (offset + length - 1) // EXTENT + 1))
    place = {extent: i * EXTENT for i, extent in enumerate(sorted(touched))}
    # A request that crosses extents stays in one piece: neighbours that are touched remain neighbours.
    moved = [(kind, place[offset // EXTENT] + offset % EXTENT, length) for kind, offset, length in requests]
    return moved, len(touched) * EXTENT


def pages(requests, page):
    """Every page that a request covers, also in part; a page that is written in part is read before."""
    for kind, offset, length in requests:
        first, last = offset // page, (offset + length - 1) // page
        if kind == "W":
            if offset % page:
                yield "R", first, 1
                if SPLIT and last > first:
                    yield "W", first, 1
                    first += 1
            if (offset + length) % page and not (offset % page and last == offset // page):
                if last > first:
                    yield "W", first, last - first
                yield "R", last, 1
                first = last
        yield kind, first, last - first + 1


def main():
    requests, size = list(read(sys.argv[1])), None
    if sys.argv[3:] == ["compact"]:
        requests, size = compact(requests)
    page = int(sys.argv[2])
    if size:
        print(f"# pages {size // page}")
    for kind, first, count in pages(requests, page):
        print(kind, first, count)


if __name__ == "__main__":
    main()
