"""ftld on the devices and loads of the other simulators: the program `trace_counts` of the tests."""

import json
import re
import subprocess
from pathlib import Path

from validation.peers import Counts, Failure, run

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "target" / "release" / "trace_counts"
# Settings that every simulator has: one stream for host writes and copies, four free blocks,
# emptiest block first.
SHARED = {"gc.placement": "single", "gc.free_threshold": 4}


def build():
    cargo = ["cargo", "build", "--quiet", "--release", "--package", "ftld-tests", "--bin", "trace_counts"]
    subprocess.run([*cargo, "--no-default-features", "--features", "traces"], cwd=ROOT, check=True)


class Ours:
    """Runs ftld, each job once; the load is written once."""

    def __init__(self, folder, program=PROGRAM):
        self.folder, self.program, self.written, self.done = folder, program, set(), {}

    def run(self, device, load, params, scheme="pagemap", blocks_less=0):
        job = (device, load, tuple(sorted(params.items())), scheme, blocks_less)
        if job not in self.done:
            self.done[job] = self.once(device, load, params, scheme, blocks_less)
        return self.done[job]

    def once(self, device, load, params, scheme, blocks_less):
        trace = self.folder / f"{re.sub(r'[^a-z0-9.]+', '-', load.name.lower())}.trace"
        if load not in self.written:
            load.ascii(trace, len(load.requests))
            self.written.add(load)
        shape = (device.blocks - blocks_less, device.pages_per_block, device.logical_blocks)
        words = [f"{key}={value}" for key, value in params.items()]
        done = run([self.program, scheme, *shape, trace, load.measured_from, *words], self.folder)
        if done.returncode != 0:
            raise Failure(f"ftld failed: {done.stderr.strip()}")
        row = json.loads(done.stdout)
        by_cause = row["programs"]
        programs, host = sum(by_cause.values()), row["host_writes"]
        # Mapping pages that GC writes count as copies, as tests/results/validation.md says.
        copies = by_cause["gc"] + by_cause["gc_translation"]
        if host != load.host_writes:
            raise Failure(f"ftld did {host} of {load.host_writes} writes")
        map_programs = programs - by_cause["host"] - copies
        return Counts(host, programs, copies, row["erases"], map_programs, row["lookups"], row["hits"], row["free_blocks"])
