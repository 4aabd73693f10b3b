#!/usr/bin/env python3
"""Tables of page maps in tests/results: at equal raw flash and RAM, and by victim and placement on real traces.

    tests/bench/page_maps.py --traces DIR [--ftld PROGRAM] [--threads N]

DIR has the real traces that tests/reproduction/real.py names, as STEM.csv or STEM.csv.zst. Prints the tables as
Markdown. Rows are kept in target/page-maps/, so the same command continues a run that was interrupted; rows of another
program there are refused. Exits with 1 if a trace is missing or a run fails.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROWS = ROOT / "target" / "page-maps"
# The label of each trace, its file, drive writes before it, and the bounds of RAM.
TRACES = [
    ("Financial1 (ASU 0)", "spc_financial1_asu0", "2", "1200KiB,2MiB,4MiB"),
    ("mssql", "1and1_windows_mssql", "2", "2MiB,3MiB,6MiB"),
    ("mysql", "1and1_linux_mysql", "1", "5MiB,7MiB,12MiB"),
    ("cloudphysics", "cloudphysics_libcachesim", "1", "4MiB,6MiB,12MiB"),
    ("nexus5", "nexus5_all_concat", "0.3", "14MiB,18MiB,30MiB"),
]
LOADS = ["uniform", "zipf", "hotcold", "mixed"]
LOAD_RAM = "2MiB,3MiB,6MiB"
SCHEMES = ["pagemap", "lazyftl", "dftl", "tpftl", "dopftl"]
POLICIES = ["greedy", "cost_benefit", "fifo", "d_choices", "cat"]
PLACEMENTS = ["single", "copies_apart", "age", "sepbit", "mida"]
BUFFER_BLOCKS = ["4", "16", "64", "256"]
OFF = ["ckpt.interval=0", "nand.pair_policy=none", "wear.policy=none", "scrub.hours=0"]


class Ftld:
    """The program, and the rows of its runs."""

    def __init__(self, program, threads, traces):
        self.program, self.threads, self.traces = program, threads, traces
        ROWS.mkdir(parents=True, exist_ok=True)

    def trace(self, stem):
        files = sorted(self.traces.glob(f"{stem}.csv*"))
        if not files:
            sys.exit(f"page_maps: trace {stem} is missing: --traces DIR, a folder with {stem}.csv or .csv.zst")
        return files[0]

    def compare(self, name, workload, schemes, *options):
        """Rows of a sweep over one workload; those that are there are not run again."""
        off = [word for pair in OFF for word in ("--set", pair)]
        sweep = [workload, "--profile", "mlc-4k", "--scheme", ",".join(schemes), *options, *off]
        jobs, rows = ROWS / f"{name}.jobs", ROWS / f"{name}.ndjson"
        jobs.write_text(self.run("--plan", *sweep))
        print(f"page_maps: {name}", file=sys.stderr, flush=True)
        self.run("--job", jobs, "--append", rows, "--threads", self.threads)
        found = [json.loads(line) for line in rows.read_text().splitlines()]
        wanted = [json.loads(line) for line in jobs.read_text().splitlines()]
        by_job = {identity(row["job"]): row for row in found}
        return [by_job[identity(job)] for job in wanted]

    def run(self, *words):
        command = [str(word) for word in (self.program, "compare", *words)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            sys.exit(f"page_maps: {' '.join(command)} failed, exit code {done.returncode}")
        return done.stdout


def identity(job):
    """What the jobs of this script differ in; a row has the defaults of other keys, a plan does not."""
    return tuple(str(job.get(key)) for key in ("workload", "scheme", "size", "op", "raw", "ram", "age", "set"))


def waf(row):
    return row["write_amplification"]["total"]


def parameter(row, key):
    return dict(pair.split("=", 1) for pair in row["job"]["set"])[key]


def loads(ftld):
    """Label, name, workload, options and bounds of RAM of each load."""
    for label, stem, age, ram in TRACES:
        yield label, stem, ftld.trace(stem), ["--address", "compact", "--age", age], ram
    for name in LOADS:
        yield name, name, f"{name}:requests=500K", ["--size", "1GiB", "--age", "2"], LOAD_RAM


def equal(ftld):
    """Page maps at equal raw flash and RAM. Returns the raw flash of each load in bytes."""
    raw = {}
    print(f"| load | raw flash, MiB | RAM | {' | '.join(SCHEMES)} |\n|---|---|---|{'---|' * len(SCHEMES)}")
    for label, name, workload, options, ram in loads(ftld):
        rows = ftld.compare(f"equal-{name}", workload, SCHEMES, *options, "--ram", ram)
        [raw[label]] = {row["device"]["raw_bytes"] for row in rows}
        for bound in ram.split(","):
            line = {row["scheme"]: row for row in rows if row["job"]["ram"] == bound}
            cells = []
            for scheme in SCHEMES:
                value = f"{waf(line[scheme]):.2f}"
                better = waf(line[scheme]) < waf(line["pagemap"])
                allocated = line[scheme]["ram"]["allocated_bytes"] / 1024
                cells.append(f"{f'**{value}**' if better else value} ({allocated:,.0f})")
            print(f"| {label} | {raw[label] / 2**20:,.0f} | {bound} | {' | '.join(cells)} |", flush=True)
    return raw


def area(ftld, raw):
    """Copies per page written on cloudphysics by the size of LazyFTL's area, and of `pagemap` by its victims."""
    label, stem, age, _ = next(trace for trace in TRACES if trace[0] == "cloudphysics")
    options = ["--address", "compact", "--age", age, "--raw", str(raw[label])]
    sweeps = [("lazyftl", "lazy.buffer_blocks", BUFFER_BLOCKS), ("pagemap", "gc.policy", POLICIES)]
    print(f"\n| scheme on {label}, {raw[label]} bytes of raw flash | copies per page written | write amplification |\n|---|---|---|")
    for scheme, key, values in sweeps:
        rows = ftld.compare(f"area-{scheme}", ftld.trace(stem), [scheme], *options, "--set", f"{key}={','.join(values)}")
        for row in rows:
            copies = row["write_amplification"]["by_cause"]["gc"]
            print(f"| `{scheme}`, `{key}={parameter(row, key)}` | {copies:.2f} | {waf(row):.2f} |", flush=True)


def victims(ftld):
    """`pagemap` on real traces by `gc.policy` and `gc.placement`, in its own layout."""
    table, spare = {}, []
    for _, stem, age, _ in TRACES:
        options = ["--address", "compact", "--age", age, "--op", "7", "--raw", "own"]
        rules = ["--set", f"gc.policy={','.join(POLICIES)}", "--set", f"gc.placement={','.join(PLACEMENTS)}"]
        rows = ftld.compare(f"victims-{stem}", ftld.trace(stem), ["pagemap"], *options, *rules)
        best = min(map(waf, rows))
        for row in rows:
            rule = parameter(row, "gc.policy"), parameter(row, "gc.placement")
            value = f"{waf(row):.2f}"
            table.setdefault(rule, []).append(f"**{value}**" if waf(row) == best else value)
        shares = sorted({f"{row['device']['effective_op_percent']:.1f}" for row in rows}, key=float)
        spare.append(f"{' to '.join(dict.fromkeys([shares[0], shares[-1]]))} %")
    labels = [label for label, *_ in TRACES]
    print(f"\n| policy | placement | {' | '.join(labels)} |\n|---|---|{'---|' * len(labels)}")
    for policy in POLICIES:
        for placement in PLACEMENTS:
            print(f"| {policy} | {placement} | {' | '.join(table[policy, placement])} |")
    print(f"| *effective over-provisioning* | | {' | '.join(spare)} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--traces", type=Path, metavar="DIR", required=True, help="folder with the real traces")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), metavar="N", help="runs at a time")
    parser.add_argument("--ftld", type=Path, metavar="PROGRAM", help="ftld to run; without it a release is built")
    args = parser.parse_args()
    if not args.ftld:
        subprocess.run(["cargo", "build", "--quiet", "--release", "--package", "ftld", "--bin", "ftld"], cwd=ROOT, check=True)
    ftld = Ftld(args.ftld or ROOT / "target" / "release" / "ftld", args.threads, args.traces)
    area(ftld, equal(ftld))
    victims(ftld)


if __name__ == "__main__":
    main()
