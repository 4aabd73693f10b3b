#!/usr/bin/env python3
"""Simulation benchmark: how many host writes, or flash operations, a CPU-second buys.

    tests/bench/sim.py [--rounds N] [--short] [--ftlsim DIR]

`pagemap` runs beside plain C loops, interleaved round by round; a ratio is the median of the ratios per round. With `--ftlsim`, one
of them is the greedy page map of sssl-ftlsim, a public simulator that is known for its speed: DIR is a clone of
https://github.com/pjd-nu/sssl-ftlsim, compiled here with `cc -O3` and a driver of ours. The other, always there, is greedy.c: as
little as a page map can do, four bytes a page. Every scheme then runs a 1 GiB device, for its flash operations per CPU-second and its memory.
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
BENCH = ROOT / "tests" / "bench"
GREEDY = TARGET / "bench" / "greedy"
FTLSIM = TARGET / "bench" / "ftlsim"

# Blocks, pages per block, logical blocks.
GEOMETRIES = [(1152, 256, 1037), (4608, 64, 4096)]
# What the C loops do: four free blocks are kept, and no checkpoints are written.
LIKE_GREEDY = ["gc.free_threshold=4", "ckpt.interval=0"]
GIB = 1 << 30


PAGE = 4096


def build(ftlsim):
    """Compiles what is measured; `ftlsim` is a clone of sssl-ftlsim, or None."""
    (TARGET / "bench").mkdir(parents=True, exist_ok=True)
    cargo = ["cargo", "build", "--quiet", "--release", "--package", "ftld-tests", "--bin", "bench_sim"]
    subprocess.run([*cargo, "--no-default-features", "--features", "bench"], cwd=ROOT, check=True)
    subprocess.run(["cc", "-O2", "-o", GREEDY, BENCH / "greedy.c"], check=True)
    if ftlsim:
        # Read from standard input, their file includes the surroundings that lie beside our driver, not those of a Python extension.
        here = BENCH / "ftlsim"
        command = ["cc", "-O3", "-w", f"-I{ftlsim}", "-o", FTLSIM, here / "driver.c", "-x", "c", "-"]
        with open(ftlsim / "runsim_greedy.c", "rb") as source:
            subprocess.run(command, cwd=here, stdin=source, check=True)


def run(*command):
    """Numbers that the program printed, line by line."""
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed: {done.stderr.strip()}")
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def medians(rows):
    return [statistics.median(column) for column in zip(*rows)]


def beside(peers, blocks, pages, logical, writes, rounds):
    """`pagemap` and each of the peers, which are named programs."""
    shape = [blocks, pages, logical]
    warmup = 3 * logical * pages
    ours, theirs = [], {name: [] for name in peers}
    for seed in range(1, rounds + 1):
        [[count, seconds, programs, _, erases, *_]] = run(
            SIM, "blocks", "pagemap", *shape, warmup, writes, seed, *LIKE_GREEDY
        )
        ours.append((count / seconds, programs / count, erases))
        for name, program in peers.items():
            [[count, seconds, waf]] = run(program, *shape, warmup, writes, seed)
            theirs[name].append((count / seconds, waf))
    rate, waf, erases = medians(ours)
    print(f"{blocks} x {pages}, {logical} logical, {blocks / logical - 1:.1%} spare, {erases:,.0f} erases")
    print(f"  {'pagemap':<12} {rate / 1e6:>6.2f} {waf:>6.2f}")
    for name, rows in theirs.items():
        ratios = [ours / theirs for (ours, *_), (theirs, _) in zip(ours, rows)]
        best = max(rate for rate, *_ in ours) / max(rate for rate, _ in rows)
        rate, waf = medians(rows)
        each = " ".join(f"{ratio:.2f}" for ratio in ratios)
        print(
            f"  {name:<12} {rate / 1e6:>6.2f} {waf:>6.2f} {statistics.median(ratios):>6.2f}x   best {best:.2f}x   ({each})",
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
    parser.add_argument("--ftlsim", type=Path, metavar="DIR", help="a clone of https://github.com/pjd-nu/sssl-ftlsim")
    args = parser.parse_args()
    if args.ftlsim and not (args.ftlsim / "runsim_greedy.c").is_file():
        parser.error(f"--ftlsim {args.ftlsim}: no runsim_greedy.c there; git clone https://github.com/pjd-nu/sssl-ftlsim")
    writes = 1_000_000 if args.short else 10_000_000
    build(args.ftlsim and args.ftlsim.resolve())
    peers = {"sssl-ftlsim": FTLSIM} if args.ftlsim else {}
    peers["greedy.c"] = GREEDY
    print("pagemap, with NAND rules, timing, wear and causes, beside plain C greedy loops; pages of 4 KiB")
    print("(million host writes per CPU-second, WAF; ours : theirs, target >= 1.00x; of the best rounds; per round)")
    for shape in GEOMETRIES:
        beside(peers, *shape, writes, args.rounds)
    if not args.ftlsim:
        print("(the public peer, sssl-ftlsim, was not given: --ftlsim DIR)")
    print()
    print("every scheme, 1 GiB at 7 % (blocks of 128 pages of 4 KiB); million operations per CPU-second")
    print("(flash operations: target >= 1; peak RSS in MiB: target <= 32)")
    print(f"{'scheme':<12} {'blocks':>7} {'flash':>8} {'host':>8} {'WAF':>7} {'erases':>9} {'RSS':>7}")
    every_scheme(2 * writes, args.rounds)


if __name__ == "__main__":
    main()
