#!/usr/bin/env python3
"""Runs ftld and other simulators on one device under one load, side by side.

    tests/validation.py [--ftlsim DIR] [--mqsim DIR] [--ssdsim DIR] [--flashsim DIR] [--scale S] [--threads N]
        [--rows]

DIR is a clone in which the reader built the simulator as its own documentation says:
https://github.com/pjd-nu/sssl-ftlsim, https://github.com/CMU-SAFARI/MQSim, https://github.com/huaicheng/ssdsim,
https://github.com/MatiasBjorling/flashsim. Nothing is built or changed there. Without all four, or with a --scale below 1 (a smaller
device), it is a trial, which goes to target/validation/. The whole run writes tests/results/validation.md and the table of
docs/VALIDATION.md. Exits with 1 if a simulator fails where the record has figures of it, or if a difference above 2 % is left once ftld follows the rules of the other.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from results import state
from validation import caches, ours, page
from validation.load import Device, Load, uniform, zipf
from validation.peers import PEERS, Counts, Failure, Flashsim

LIMIT = 0.02
WARM_UP, MEASURED = 6, 4
TARGET = ours.ROOT / "target" / "validation"
PAGE = ours.ROOT / "docs" / "VALIDATION.md"
ROWS = "--rows" in sys.argv  # arguments() documents it


@dataclass(frozen=True)
class Step:
    """A rule of another simulator, as ftld follows it."""

    text: str
    params: dict = field(default_factory=dict)
    blocks_less: int = 0


def tell(line):
    print(f"validation: {line}", file=sys.stderr, flush=True)


def runs(*names):
    """The folder of a run, made if it is not there."""
    folder = TARGET / "runs" / "-".join(re.sub(r"[^a-z0-9.]+", "-", name.lower()) for name in names)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def kept(folder, peer, device, load, chosen):
    """Counts of a run, from an earlier one of the same device, load and settings if ROWS says so."""
    row, job = folder / "counts.json", [device.blocks, device.logical_blocks, load.name, chosen]
    if ROWS and row.is_file():
        earlier, counts = json.loads(row.read_text())
        if earlier == job:
            return Counts(**counts)
    counts = peer.run(device, load, folder, **chosen)
    row.write_text(json.dumps([job, asdict(counts)]))
    return counts


def rules(option, device):
    """What a simulator does in its source, whatever its settings are, in steps from the shared rules."""
    return {
        "mqsim": [
            Step("GC keeps 10 blocks free", {"gc.free_threshold": 10}),
            Step("and copies fill a block of their own", {"gc.placement": "copies_apart"}),
            Step("and one block stays open for mapping pages, although the whole map is in RAM", blocks_less=1),
        ],
        "flashsim": [Step("GC keeps a tenth of all blocks free", {"gc.free_threshold": device.blocks // 10})],
    }.get(option, [])


def settings(option, device):
    """The shared rules, in the words of a simulator that can be told."""
    return {
        "ftlsim": {"free": ours.SHARED["gc.free_threshold"]},
        "ssdsim": {"free_pages": ours.SHARED["gc.free_threshold"] * device.pages_per_block},
        "flashsim": {"cache_pages": -(-device.pages // Flashsim.entries_per_page(device))},
    }.get(option, {})


def jobs(device, option):
    """What ftld follows for this simulator: the shared rules, then each further rule added to them."""
    params, less = dict(ours.SHARED), 0
    found = [("shared rules", dict(params), less)]
    for step in rules(option, device):
        params.update(step.params)
        less += step.blocks_less
        found.append((step.text, dict(params), less))
    return found


def page_maps(chosen, ftld, device, threads):
    """Rows (load, simulator, its counts, ftld's by rule)."""
    loads = [Load("uniform", device, uniform, WARM_UP, MEASURED), Load("Zipf 0.9", device, zipf(0.9), WARM_UP, MEASURED)]

    def one(load, peer):
        counts = kept(runs(peer.option, load.name), peer, device, load, settings(peer.option, device))
        tell(f"{load.name}, {peer.name}: {counts.amplification:.3f}")
        return counts

    pairs = [(load, peer) for load in loads for peer in chosen]
    theirs = dict(zip(pairs, threads.map(one, *zip(*pairs))))
    def two(load):
        """All of ftld's runs of a load; those that occur again are not repeated."""
        return {peer: [(text, ftld.run(device, load, params, blocks_less=less)) for text, params, less in jobs(device, peer.option)] for peer in chosen}

    followed = dict(zip(loads, threads.map(two, loads)))
    rows = [(load.name, peer, counts, followed[load][peer]) for (load, peer), counts in theirs.items()]
    for name, peer, _, results in rows:
        tell(f"{name}, ftld with the rules of {peer.name}: {results[-1][1].amplification:.3f}")
    return rows, loads


def when_gc_stops(peer, ftld, device, loads):
    """Rows (load, free blocks, sssl-ftlsim that stops there, one that stops a block later, ftld)."""
    rows = []
    for load in loads:
        for free in (ours.SHARED["gc.free_threshold"], device.blocks // 10):
            theirs = [peer.run(device, load, runs(peer.option, "stop"), free=free, more=more) for more in (0, 1)]
            rows.append((load.name, free, *theirs, ftld.run(device, load, {**ours.SHARED, "gc.free_threshold": free})))
    return rows


def hit_ratios(chosen, ftld, blocks, threads):
    """Rows (device, entries, {simulator: counts or reason}, LRU, segmented LRU, ftld)."""
    rows = []
    for logical, pages, warm_up, measured in ((blocks // 8, 1, 2, 3), (blocks // 4, 2, 1, 1), (blocks * 7 // 8, 6, WARM_UP, MEASURED)):
        device = Device(blocks, 64, logical)
        entries = pages * Flashsim.entries_per_page(device)
        load = Load(f"half reads, {logical} blocks", device, zipf(0.9), warm_up, measured, reads=0.5)
        cached = {"mqsim": {"cache_entries": entries}, "flashsim": {"cache_pages": pages}}

        def one(peer):
            try:
                return kept(runs(peer.option, load.name), peer, device, load, cached[peer.option])
            except Failure as failure:
                return str(failure)

        having = [peer for peer in chosen if peer.option in cached]
        theirs = dict(zip([peer.name for peer in having], threads.map(one, having)))
        counts = ftld.run(device, load, {"dftl.cache": 8 * entries}, scheme="dftl")
        rows.append((device, entries, theirs, caches.lru(load, entries), caches.segmented_lru(load, entries), counts))
        tell(f"{entries} entries: ftld {counts.hit_ratio:.4f}")
    return rows


def revision(clone):
    """The commit of a clone, or nothing if it is none."""
    done = subprocess.run(["git", "-C", clone, "log", "-1", "--format=%h of %cs"], capture_output=True, text=True)
    return done.stdout.strip() or "a folder without history"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for peer in PEERS:
        parser.add_argument(f"--{peer.option}", type=Path, metavar="DIR", help=f"a clone of {peer.name}, built")
    parser.add_argument("--scale", type=float, default=1, metavar="S", help="a trial on a device of this share of the blocks")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), metavar="N", help="simulators at a time")
    parser.add_argument("--rows", action="store_true", help="run no simulator again whose counts were kept")
    parser.add_argument("--program", type=Path, metavar="FILE", help="trace_counts to run; without it a release is built")
    return parser, parser.parse_args()


def main():
    parser, args = arguments()
    chosen, revisions = [], {}
    for peer in PEERS:
        if clone := getattr(args, peer.option):
            try:
                chosen.append(peer(clone.resolve()))
            except Failure as failure:
                parser.error(str(failure))
            revisions[peer.name] = revision(clone)
    if not chosen:
        parser.error(f"no simulator to compare with: {', '.join('--' + peer.option for peer in PEERS)} name their clones")
    tell(f"runs {', '.join(revisions)}")
    blocks = round(16 * args.scale) * 64
    if blocks < 256:
        parser.error(f"--scale {args.scale}: the device has {blocks} blocks, needs 256")
    if args.program and not args.program.is_file():
        parser.error(f"--program {args.program}: no such file; without the option it is built")
    if not args.program:
        ours.build()
    ftld = ours.Ours(runs(f"ftld-{blocks}"), (args.program or ours.PROGRAM).resolve())
    device = Device(blocks, 64, blocks * 7 // 8)
    try:
        with ThreadPoolExecutor(args.threads) as threads:
            maps, loads = page_maps(chosen, ftld, device, threads)
            stops = [when_gc_stops(peer, ftld, device, loads) for peer in chosen if peer.option == "ftlsim"]
            hits = hit_ratios(chosen, ftld, blocks, threads)
    except Failure as failure:
        sys.exit(f"validation: {failure}")
    text, wrong = page.compose(device, revisions, (WARM_UP, MEASURED), maps, stops[0] if stops else [], hits, LIMIT, state())
    whole = len(chosen) == len(PEERS) and args.scale == 1
    place = ours.ROOT / "tests" / "results" / "validation.md" if whole else TARGET / "trial.md"
    place.write_text(text)
    if whole:
        PAGE.write_text(page.SUMMARY.sub(lambda _: page.summary(text), PAGE.read_text()))
    tell(f"{place} is written")
    for line in wrong:
        tell(line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
