#!/usr/bin/env python3
"""Simulation benchmark: how many host writes, or flash operations, a CPU-second buys.

    tests/bench/sim.py [--short] [--rounds N] [--only TEXT] [--json FILE] [--ftlsim DIR]
                       [--sim PROGRAM]...

`pagemap` runs beside plain C loops, interleaved round by round. With `--ftlsim`, one of them is the
greedy page map of sssl-ftlsim, a public simulator that is known for its speed: DIR is a clone of
https://github.com/pjd-nu/sssl-ftlsim, compiled here with `cc -O3` and our driver. The other,
always there, is greedy.c: as little as a page map can do, four bytes a page. Every scheme then runs
a 1 GiB device, for its flash operations per CPU-second and its memory. Loads are uniform random
one-page writes after a sequential fill and three times the device in writes. A round of a scheme
ends after a number of flash operations, because a write can cost one scheme hundreds of what it
costs another. With several `--sim`, programs like `bench_sim`, the first one is ours, and the
others (B, C, ...) run beside it. Exits with 1 if a run fails, not if a target is missed: machines
differ.
"""

import statistics
import subprocess
import sys
from pathlib import Path

from measure import ROOT, Run, at_least, at_most, build, parser

TARGET = ROOT / "target"
SIM = TARGET / "release" / "bench_sim"
BENCH = ROOT / "tests" / "bench"
GREEDY = TARGET / "bench" / "greedy"
FTLSIM = TARGET / "bench" / "ftlsim"

# Blocks, pages per block, logical blocks.
GEOMETRIES = [(1152, 256, 1037), (4608, 64, 4096)]
# What the C loops do: four free blocks are kept, and no checkpoints are written.
LIKE_GREEDY = ["gc.free_threshold=4", "ckpt.interval=0"]
GOALS = {"sssl-ftlsim": at_least(1.3), "greedy.c": at_least(0.8)}
# Million flash operations per CPU-second.
SCHEME_GOALS = dict.fromkeys(("lazyftl", "dftl", "tpftl", "dopftl"), at_least(25))
MEMORY_GOAL = at_most(32)
PAGE, MIB, GIB = 4096, 1 << 20, 1 << 30


def compile_all(ftlsim, own):
    """Compiles what is measured; `ftlsim` is a clone of sssl-ftlsim, or None."""
    (TARGET / "bench").mkdir(parents=True, exist_ok=True)
    if own:
        build("--package", "ftld-tests", "--bin", "bench_sim", "--no-default-features", "--features", "bench")
    subprocess.run(["cc", "-O2", "-o", GREEDY, BENCH / "greedy.c"], check=True)
    if ftlsim:
        # From standard input, so that their file includes the headers beside our driver, not those
        # of a Python extension.
        here = BENCH / "ftlsim"
        command = ["cc", "-O3", "-w", f"-I{ftlsim}", "-o", FTLSIM, here / "driver.c", "-x", "c", "-"]
        with open(ftlsim / "runsim_greedy.c", "rb") as source:
            subprocess.run(command, cwd=here, stdin=source, check=True)


def numbers(*command):
    """Numbers of the lines that the program prints."""
    command = [str(word) for word in command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nfailed: {done.stderr.strip()}")
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def pagemap(run, sims, peers, blocks, pages, logical, writes):
    """`pagemap` and each of the peers, which are named programs."""
    shape, warmup, amplification = [blocks, pages, logical], 3 * logical * pages, {}

    def contender(name, program, *kind, params=()):
        seeds = iter(range(1, 1 << 20))

        def rate():
            [[count, seconds, third, *_]] = numbers(program, *kind, *shape, warmup, writes, next(seeds), *params)
            # Ours prints programs, the C loops write amplification.
            amplification.setdefault(name, []).append(third / count if kind else third)
            return count / seconds / 1e6

        return name, rate

    contenders = dict(contender(lettered("pagemap", i), sim, "blocks", "pagemap", params=LIKE_GREEDY) for i, sim in enumerate(sims))
    contenders |= dict(contender(name, program) for name, program in peers.items())
    name = f"pagemap {blocks} x {pages}, {blocks / logical - 1:.1%} spare"

    def extra():
        return {"write amplification": {name: statistics.median(each) for name, each in amplification.items()}}

    run.point(name, "million host writes per CPU-s", contenders, GOALS, extra)


def lettered(name, index):
    return f"{name} {chr(ord('A') + index)}" if index else name


def every_scheme(run, sims, size, operations):
    names = subprocess.run([sims[0], "schemes"], capture_output=True, text=True, check=True).stdout.split()
    table = []
    for name in (name for name in names if run.wants(f"scheme {name}")):
        rows = [[] for _ in sims]
        # One program runs all rounds on one device. Several take turns, each time on a new one.
        rounds, turns = (run.rounds, 1) if len(sims) == 1 else (1, run.rounds)
        for seed in range(1, turns + 1):
            for index, sim in enumerate(sims):
                rows[index] += numbers(sim, "size", name, size, 7, 3 * size // PAGE, operations, rounds, seed)
        for index, each in enumerate(rows):
            flash = [flash / seconds / 1e6 for _, seconds, _, flash, *_ in each]
            goal = SCHEME_GOALS.get(name) if index == 0 else None
            run.figure(f"scheme {lettered(name, index)}", "million flash operations per CPU-s", flash, goal)
            others = [(count / seconds / 1e6, programs / count, row[0] / MIB) for count, seconds, programs, _, _, *row in each]
            table.append([lettered(name, index), statistics.median(flash), *(statistics.median(column) for column in zip(*others))])
    if table:
        columns = ["scheme", "million flash operations per CPU-s", "million host writes per CPU-s", "write amplification", "peak RSS, MiB"]
        run.table(f"Every scheme, {size // MIB} MiB at 7 % (blocks of 128 pages of 4 KiB)", columns, table)
        run.figure("peak RSS of a scheme, the largest", "MiB", [max(row[-1] for row in table)], MEMORY_GOAL)


def main():
    options = parser(__doc__)
    options.add_argument("--ftlsim", type=Path, metavar="DIR", help="a clone of https://github.com/pjd-nu/sssl-ftlsim")
    options.add_argument("--sim", action="append", metavar="PROGRAM", help="a bench_sim to measure, instead of building this tree")
    args = options.parse_args()
    if args.ftlsim and not (args.ftlsim / "runsim_greedy.c").is_file():
        options.error(f"--ftlsim {args.ftlsim}: no runsim_greedy.c there; git clone https://github.com/pjd-nu/sssl-ftlsim")
    writes = 1_000_000 if args.short else 10_000_000
    compile_all(args.ftlsim and args.ftlsim.resolve(), args.sim is None)
    sims = args.sim or [SIM]
    run = Run("sim", args)
    peers = {"sssl-ftlsim": FTLSIM} if args.ftlsim else {}
    peers["greedy.c"] = GREEDY
    print("pagemap has NAND rules, timing, wear and causes; the peers are plain C greedy loops. Pages of 4 KiB")
    for shape in GEOMETRIES:
        pagemap(run, sims, peers, *shape, writes)
    if not args.ftlsim:
        print("(the public peer, sssl-ftlsim, was not given: --ftlsim DIR)")
    print()
    every_scheme(run, sims, GIB // 4 if args.short else GIB, 2 * writes)
    run.finish()


if __name__ == "__main__":
    main()
