#!/usr/bin/env python3
"""Simulation benchmark: how many host writes, or flash operations, a CPU-second buys.

    tests/bench/sim.py [--rounds N] [--short]

`pagemap` runs beside a plain C loop (greedy.c, compiled here with `cc -O2`), interleaved round by round; the ratio is the
median of the ratios per round. Every scheme then runs a 1 GiB device, for its flash operations per CPU-second and its memory.
Loads are uniform random one-page writes after a sequential fill and three times the device in writes. A round of a scheme ends
after so many flash operations, because a write can cost one scheme hundreds of what it costs another. Prints two tables; exits
with 1 if a run fails, not if a target is missed: machines differ.
"""

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "target"
SIM = TARGET / "release" / "bench_sim"
GREEDY = TARGET / "bench" / "greedy"

# Blocks, pages per block, logical blocks.
GEOMETRIES = [(1152, 256, 1037), (4608, 64, 4096)]
# What the C loop does: four free blocks are kept, and no checkpoints are written.
LIKE_GREEDY = ["gc.free_threshold=4", "ckpt.interval=0"]
GIB = 1 << 30


PAGE = 4096


def build():
    (TARGET / "bench").mkdir(parents=True, exist_ok=True)
    cargo = ["cargo", "build", "--quiet", "--release", "--package", "ftld-tests", "--bin", "bench_sim"]
    subprocess.run([*cargo, "--no-default-features", "--features", "bench"], cwd=ROOT, check=True)
    source = ROOT / "tests" / "bench" / "greedy.c"
    subprocess.run(["cc", "-O2", "-o", GREEDY, source], check=True)


def run(*command):
    """Numbers that the program printed, line by line."""
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed: {done.stderr.strip()}")
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def medians(rows):
    return [statistics.median(column) for column in zip(*rows)]


def beside_greedy(blocks, pages, logical, writes, rounds):
    shape = [blocks, pages, logical]
    warmup = 3 * logical * pages
    ours, theirs = [], []
    for seed in range(1, rounds + 1):
        [[count, seconds, programs, _, erases, *_]] = run(
            SIM, "blocks", "pagemap", *shape, warmup, writes, seed, *LIKE_GREEDY
        )
        ours.append((count / seconds, programs / count, erases))
        [[count, seconds, waf]] = run(GREEDY, *shape, warmup, writes, seed)
        theirs.append((count / seconds, waf))
    ratios = [ours / theirs for (ours, *_), (theirs, *_) in zip(ours, theirs)]
    (rate, waf, erases), (c_rate, c_waf) = medians(ours), medians(theirs)
    print(
        f"{blocks:>5} x {pages:<4} {logical:>8} {blocks / logical - 1:>6.1%} {rate / 1e6:>8.2f} {waf:>6.2f} {erases:>9,.0f}"
        f" {c_rate / 1e6:>7.2f} {c_waf:>6.2f} {statistics.median(ratios):>6.2f}x ({' '.join(f'{r:.2f}' for r in ratios)})",
        flush=True,
    )


def every_scheme(operations, rounds):
    names = subprocess.run([SIM, "schemes"], capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        rows = run(SIM, "size", name, GIB, 7, 3 * GIB // PAGE, operations, rounds, 1)
        rates = [
            (flash / seconds, count / seconds, programs / count, erases, rss, blocks)
            for count, seconds, programs, flash, erases, rss, blocks, _ in rows
        ]
        flash, host, waf, erases, rss, blocks = medians(rates)
        print(
            f"{name:<12} {blocks:>7.0f} {flash / 1e6:>8.2f} {host / 1e6:>8.3f} {waf:>7.2f} {erases:>9,.0f} {rss / 2**20:>7.1f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description="Simulation benchmark, beside a plain C loop.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="a tenth of the writes, for a look")
    args = parser.parse_args()
    writes = 1_000_000 if args.short else 10_000_000
    build()
    print("pagemap, law + timing + wear + causes on, beside a plain C greedy loop; million host writes per CPU-second")
    print("(blocks x pages of 4 KiB, logical blocks, spare blocks per logical one; ratio: target >= 1.00x; per round)")
    print(f"{'geometry':<12} {'logical':>8} {'spare':>6} {'pagemap':>8} {'WAF':>6} {'erases':>9} {'C loop':>7} {'WAF':>6} {'ratio':>7}")
    for shape in GEOMETRIES:
        beside_greedy(*shape, writes, args.rounds)
    print()
    print("every scheme, 1 GiB at 7 % (blocks of 128 pages of 4 KiB); million operations per CPU-second")
    print("(flash operations: target >= 1; peak RSS in MiB: target <= 32)")
    print(f"{'scheme':<12} {'blocks':>7} {'flash':>8} {'host':>8} {'WAF':>7} {'erases':>9} {'RSS':>7}")
    every_scheme(2 * writes, args.rounds)


if __name__ == "__main__":
    main()
