#!/usr/bin/env python3
"""Turns a trace in the plain format into requests of whole pages, one per line: `R|W first_page count`.

    requests.py TRACE PAGE_BYTES BLOCK_BYTES [compact]

`compact` places the 1 MiB extents that the trace touches one after the other, in the order of their addresses, as
`ftld replay --address compact` does.
"""

import subprocess
import sys

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


def extents(requests, page, block):
    """The requests as `ftld replay` passes them on: cut at multiples of 512 KiB, or where a block ends."""
    size = max(EXTENT // 2 // block, 1) * block if block <= EXTENT else EXTENT // 2 // page * page
    for kind, offset, length in requests:
        end = offset + length
        while offset < end:
            until = min(end, (offset // size + 1) * size)
            yield kind, offset, until - offset
            offset = until


def pages(requests, page, block):
    """The pages of each request. A part of a page is a request of its own; to write it, the page is read before."""
    for kind, offset, length in extents(requests, page, block):
        first, last = offset // page, (offset + length - 1) // page
        parts = {number for number, at in ((first, offset), (last, offset + length)) if at % page}
        whole = [number for number in range(first, last + 1) if number not in parts]
        runs = [(number, 1) for number in parts] + ([(whole[0], len(whole))] if whole else [])
        for run in sorted(runs):
            if kind == "W" and run[0] in parts:
                yield "R", *run
            yield kind, *run


def main():
    requests = list(read(sys.argv[1]))
    if sys.argv[4:] == ["compact"]:
        requests, _ = compact(requests)
    for kind, first, count in pages(requests, int(sys.argv[2]), int(sys.argv[3])):
        print(kind, first, count)


if __name__ == "__main__":
    main()
