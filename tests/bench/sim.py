#!/usr/bin/env python3
"""Simulation benchmark: how many host writes, or flash operations, a CPU-second buys.

    tests/bench/sim.py [--rounds N] [--short]

`pagemap` runs beside a plain C loop (greedy.c, compiled here with `cc -O2`), interleaved round by round; the ratio is the
median of the ratios per round. Every scheme then runs a 1 GiB device, for its flash operations per CPU-second and its memory.
Loads are uniform random one-page writes after a sequential fill and three times the device in writes. Prints a table; exits
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


def build():
    (TARGET / "bench").mkdir(parents=True, exist_ok=True)
    cargo = ["cargo", "build", "--quiet", "--release", "--package", "ftld-tests", "--bin", "bench_sim"]
    subprocess.run(cargo, cwd=ROOT, check=True)
    source = ROOT / "tests" / "bench" / "greedy.c"
    subprocess.run(["cc", "-O2", "-o", GREEDY, source], check=True)


def run(*command):
    """Numbers that the program printed on its only line."""
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed: {done.stderr.strip()}")
    return [float(word) for word in done.stdout.split()]


def beside_greedy(blocks, pages, logical, writes, rounds):
    shape = [blocks, pages, logical]
    warmup = 3 * logical * pages
    ratios, ours, theirs = [], [], []
    for seed in range(1, rounds + 1):
        count, seconds, waf, *_ = run(SIM, "blocks", "pagemap", *shape, warmup, writes, seed, *LIKE_GREEDY)
        ours.append((count / seconds, waf))
        count, seconds, waf = run(GREEDY, *shape, warmup, writes, seed)
        theirs.append((count / seconds, waf))
        ratios.append(ours[-1][0] / theirs[-1][0])
    middle = lambda rows: (statistics.median(r[0] for r in rows), statistics.median(r[1] for r in rows))
    (rate, waf), (c_rate, c_waf) = middle(ours), middle(theirs)
    print(
        f"{blocks:>5} x {pages:<4} {rate / 1e6:>8.2f} {waf:>6.2f} {c_rate / 1e6:>9.2f} {c_waf:>6.2f}"
        f" {statistics.median(ratios):>7.2f}x   ({' '.join(f'{r:.2f}' for r in ratios)})",
        flush=True,
    )


def every_scheme(writes, rounds):
    names = subprocess.run([SIM, "schemes"], capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        rows = []
        for seed in range(1, rounds + 1):
            count, seconds, waf, flash, rss = run(SIM, "size", name, GIB, 7, 3 * GIB // 4096, writes, seed)
            rows.append((flash / seconds, count / seconds, waf, rss))
        flash, host, waf, rss = (statistics.median(column) for column in zip(*rows))
        print(f"{name:<12} {flash / 1e6:>8.2f} {host / 1e6:>8.2f} {waf:>6.2f} {rss / 2**20:>9.1f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description="Simulation benchmark, beside a plain C loop.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--short", action="store_true", help="a tenth of the writes, for a look")
    args = parser.parse_args()
    writes = 1_000_000 if args.short else 10_000_000
    build()
    print("pagemap, law + timing + wear + causes on, beside a plain C greedy loop; million host writes per CPU-second")
    print(f"{'geometry':<12} {'pagemap':>8} {'WAF':>6} {'C loop':>9} {'WAF':>6} {'ratio':>8}   target >= 1.00x; per round")
    for shape in GEOMETRIES:
        beside_greedy(*shape, writes, args.rounds)
    print()
    print("every scheme, 1 GiB at 7 %; million operations per CPU-second (target >= 1), peak RSS in MiB (target <= 32)")
    print(f"{'scheme':<12} {'flash':>8} {'host':>8} {'WAF':>6} {'RSS':>9}")
    every_scheme(writes // 5, min(args.rounds, 3))


if __name__ == "__main__":
    main()
