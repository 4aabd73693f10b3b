#!/usr/bin/env python3
"""NBD benchmark: ftld and other NBD servers, over unix sockets, by fio's nbd engine.

    tests/bench/nbd.py [--short] [--rounds N] [--only TEXT] [--json FILE] [--seconds N]
                       [--ftld PROGRAM]... [--folder FOLDER]

The servers of a group run at once, but only one has a load at a time: point after point, round
after round, one after the other. Groups, each with servers of its own:

- *4k*: `pagemap` and `lazyftl` on mlc-4k with 28 % over-provisioning, after a sequential fill and
  three times the size in random writes, so that GC runs all along: the number of runs is printed.
  Writes have the response times that the client sees.
- *OP 7 %*: both at 7 %, random writes.
- *128k aged*: `pagemap` as above. Writes overwrite the device once, sequentially; before each round
  ftld's device is aged again by random writes of twice its size. Reads also with `--verify once`,
  if the program has that option.
- *128k sequential*: `pagemap`, only ever written sequentially.
- *fill*: new images of `lazyftl` and `pagemap` at 7 %, written once.
- *memory*: every scheme: the largest sum of anonymous and locked memory while fio reads and writes
  at random over two connections, less the RAM that the scheme reports.

Each point has the CPU time of the server per operation, and that of the client: a client at 100 %
of a core is the limit of the rate, whatever the server needs. The processes of `nbd-server` count
when they end.

`--only` takes a part of `GROUP: POINT`, for example `4k: write`. With several `--ftld`, the first
one is ours, and the others (B, C, ...) run beside it. Images are in the page cache, like the file
of the file servers.

Needs fio with the nbd engine, nbdkit, qemu-nbd and nbd-server. Exits with 1 if something fails, not
if a target is missed: machines differ.
"""

import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from measure import ROOT, Run, at_least, at_most, build, cpu_seconds, parser
from servers import Ftld, has_option, memory_in_use, need, peers, schemes

READ, WRITE = "read", "write"
RAMP_MS = 300
MIB = 1 << 20
EVERYONE = {"qemu-nbd": at_least(1.0), "nbd-server": at_least(1.0)}


def random(direction, depth, **more):
    return dict(rw=f"rand{direction}", bs="4k", iodepth=depth, **more)


def beside(peer, bound):
    return {f"nbdkit {peer}": at_least(bound), **EVERYONE}


# Name, direction, fio options, goals by peer.
SMALL = [
    ("read QD1", READ, random(READ, 1), beside("memory", 1.6)),
    ("write QD1", WRITE, random(WRITE, 1), beside("memory", 1.1)),
    ("read QD32", READ, random(READ, 32), beside("memory", 2.0)),
    ("write QD32", WRITE, random(WRITE, 32), beside("memory", 1.1)),
    ("read QD32, 2 connections", READ, random(READ, 32, numjobs=2), beside("memory", 1.0)),
    ("write QD32, 2 connections", WRITE, random(WRITE, 32, numjobs=2), beside("memory", 1.1)),
    ("write QD32, FLUSH per 32", WRITE, random(WRITE, 32, fsync=32), {}),
]
LARGE = {
    "128k aged": {READ: beside("memory", 1.0), WRITE: beside("file", 0.75)},
    "128k sequential": {READ: beside("memory", 1.0), WRITE: beside("file", 1.0)},
}
# Of points that are taken from another one's rounds.
LAZYFTL_GOAL = {"ftld pagemap": at_least(0.95)}
TAIL_GOAL = {"nbdkit file": at_most(1.0)}
FILL_GOAL, MEMORY_GOAL = at_least(0.8), at_most(32)


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.servers, self.cpu = args, folder, [], {}
        self.size = (256 if args.short else 1024) * MIB
        self.seconds = args.seconds or (1 if args.short else 2)
        # The first program has no letter.
        self.programs = {"" if index == 0 else chr(ord("A") + index): program for index, program in enumerate(args.ftld)}
        self.run = Run("nbd", args, lambda: [server.pid for server in self.servers])

    # Servers

    def ftld(self, scheme, op, *options, letters=None):
        """The same device for each of the programs, or for those with these letters."""
        started = []
        for letter, program in self.programs.items():
            if letters is None or letter in letters:
                name = " ".join(filter(None, ["ftld", scheme, letter, *(option.lstrip("-") for option in options)]))
                device = ["--scheme", scheme, "--profile", "mlc-4k", "--op", op, *options]
                started.append(Ftld(name, program, self.folder, self.size, *device))
        self.servers += started
        return started

    def peers(self, names=None):
        self.servers += peers(self.folder, self.size, names)

    def fill(self, server):
        server.fio(rw="write", bs="128k", iodepth=8)

    def age(self, server, times):
        server.fio(rw="randwrite", bs="4k", iodepth=32, io_size=times * self.size)

    def stop(self):
        for server in reversed(self.servers):
            server.discard() if isinstance(server, Ftld) else server.stop()
        self.servers = []

    # Figures of a round

    def measure(self, server, direction, options, tails=None):
        """Operations, or MiB for large ones, per second."""
        timing = {} if "io_size" in options else dict(time_based=1, runtime=self.seconds, ramp_time=f"{RAMP_MS}ms")
        before = cpu_seconds(server.pid, True)
        job = server.fio(**options, **timing, percentile_list="50:99:99.9")
        used, result = cpu_seconds(server.pid, True) - before, job[direction]
        operations = result["iops"] * (self.seconds + RAMP_MS / 1e3) if timing else result["total_ios"]
        jobs = options.get("numjobs", 1)
        client = (job["usr_cpu"] + job["sys_cpu"]) * jobs
        self.cpu.setdefault(server.name + (f", {jobs} connections" if jobs > 1 else ""), []).append((used / operations * 1e6, client))
        if tails is not None:
            latency = result["clat_ns"]
            percentiles = sorted((float(key), value) for key, value in latency["percentile"].items())
            tails.setdefault(server.name, []).append([*(value / 1e3 for _, value in percentiles), latency["max"] / 1e3])
        return result["bw_bytes"] / MIB if options["bs"] == "128k" else result["iops"]

    def cpu_of_point(self):
        """CPU time of the last point by contender; resets the sums."""
        columns = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in self.cpu.items()}
        self.cpu = {}
        return {
            "CPU of the server, us an operation": {name: server for name, (server, _) in columns.items()},
            "CPU of the client, percent of a core": {name: client for name, (_, client) in columns.items()},
        }

    def point(self, name, unit, contenders, goals=None, tails=None):
        self.cpu = {}
        self.run.point(name, unit, contenders, goals, lambda: response_times(tails) | self.cpu_of_point())

    def contender(self, server, *what):
        return lambda: self.measure(server, *what)

    # Groups

    def small(self):
        ours = self.ftld("pagemap", 28) + self.ftld("lazyftl", 28)
        self.peers()
        for server in self.servers:
            self.fill(server)
            if server in ours:
                self.age(server, 3)
        before = {server: server.gc_runs() for server in ours}
        for name, direction, options, goals in SMALL:
            tails = {} if direction == WRITE else None
            contenders = {server.name: self.contender(server, direction, options, tails) for server in self.servers}
            self.point(f"4k: {name}", "per second", contenders, goals, tails)
            if name == "write QD32":
                self.compare_schemes(f"4k: {name}")
                self.compare_tails(f"4k: {name}", tails)
        for direction in (READ, WRITE):
            two = {
                f"{ours[0].name}, {jobs} connection{'s' * (jobs > 1)}":
                    self.contender(ours[0], direction, random(direction, 32, numjobs=jobs)) for jobs in (2, 1)
            }
            self.point(f"4k: {direction} QD32, two connections beside one", "per second", two)
        print()
        for server in ours:
            runs, amplification = server.gc_runs() - before[server], server.figures()["write_amplification"]
            print(f"{server.name}: {before[server]} GC runs before the first round, {runs} since; write amplification {amplification:.2f}")
            wrote = any(" write" in point.name for point in self.run.points)
            if before[server] == 0 or wrote and runs == 0:
                sys.exit(f"{server.name} did not collect: not in steady state")

    def compare_schemes(self, name):
        """The rates of the point just measured, scheme beside scheme, of equal over-provisioning."""
        if self.run.wants(name):
            point = self.run.points[-1]
            values = {server: point.values[server] for server in ("ftld lazyftl", "ftld pagemap")}
            self.run.add(replace(point, name=f"{name}, lazyftl beside pagemap", values=values, goals=LAZYFTL_GOAL, extra={}))

    def compare_tails(self, name, tails):
        """The response times of the point measured before, in the same rounds."""
        if self.run.wants(name):
            values = {server: [row[2] for row in tails[server]] for server in ("ftld pagemap", "nbdkit file")}
            self.run.add(replace(self.run.points[-2], name=f"{name}, p99.9", unit="us", values=values, goals=TAIL_GOAL, extra={}))

    def little_spare(self):
        """Compares the schemes where GC costs most."""
        for server in self.ftld("pagemap", 7) + self.ftld("lazyftl", 7):
            self.fill(server)
            self.age(server, 3)
        options = random(WRITE, 32)
        contenders = {server.name: self.contender(server, WRITE, options) for server in self.servers}
        self.point("OP 7 %: 4k write QD32", "per second", contenders)

    def large(self, group):
        aged = group == "128k aged"
        ours = self.ftld("pagemap", 28)
        once = self.ftld("pagemap", 28, "--verify", "once") if self.has_verify else []
        self.peers()
        for server in self.servers:
            self.fill(server)
        for server in ours + once if aged else ():
            self.age(server, 3)
        goals = LARGE[group]
        name, options = f"{group}: read QD4", dict(rw="read", bs="128k", iodepth=4)
        contenders = {server.name: self.contender(server, READ, options) for server in self.servers if server not in once}
        self.point(name, "MiB/s", contenders, goals[READ])
        if once:
            first = {once[0].name: self.contender(once[0], READ, options)}
            self.point(f"{name}, verify once", "MiB/s", first | contenders, goals[READ])
        name, options = f"{group}: write QD4", dict(rw="write", bs="128k", iodepth=4)
        contenders = {
            server.name: self.aged_writes(server) if aged and server in ours else self.contender(server, WRITE, options)
            for server in self.servers if server not in once
        }
        self.point(name, "MiB/s", contenders, goals[WRITE])

    def aged_writes(self, server):
        """One sequential overwrite of an aged device."""

        def figure():
            self.age(server, 2)
            return self.measure(server, WRITE, dict(rw="write", bs="128k", iodepth=4, io_size=self.size))

        return figure

    def fills(self):
        def contender(scheme, letter):
            def fill():
                [server] = self.ftld(scheme, 7, letters=[letter])
                rate = self.measure(server, WRITE, dict(rw="write", bs="128k", iodepth=8, io_size=self.size))
                self.stop()
                return rate

            return fill

        contenders = {
            " ".join(filter(None, ["ftld", scheme, letter])): contender(scheme, letter)
            for scheme in ("lazyftl", "pagemap") for letter in self.programs
        }
        self.point("fill: 128k QD8, a new image", "MiB/s", contenders, {"ftld pagemap": FILL_GOAL})

    def memory(self):
        for scheme in schemes(self.args.ftld[0]):
            name = f"memory: {scheme}, beyond the scheme's report"
            if not self.run.wants(name):
                continue
            [server] = self.ftld(scheme, 7, letters=[""])
            self.fill(server)
            uri, size, seconds = f"--uri={server.uri}", f"--size={server.size}", f"--runtime={self.seconds}"
            load = ["fio", "--name=memory", "--ioengine=nbd", uri, size, seconds, "--time_based", "--rw=randrw", "--bs=128k"]
            client = subprocess.Popen([*load, "--iodepth=32", "--numjobs=2", "--thread"], stdout=subprocess.DEVNULL)
            most = 0
            while client.poll() is None:
                most = max(most, memory_in_use(server.pid))
                try:
                    client.wait(0.1)
                except subprocess.TimeoutExpired:
                    pass
            if client.returncode != 0:
                sys.exit(f"fio on {server.name} failed")
            reported = server.settled(lambda figures: sum(entry["allocated_bytes"] for entry in figures["ram"]))
            self.run.figure(name, "MiB", [(most - reported) / MIB], MEMORY_GOAL)
            self.stop()

    def measure_all(self):
        self.has_verify = has_option(self.args.ftld[0], "--verify")
        if not self.has_verify:
            print("this program has no --verify: those rows are missing")
        groups = {"4k": self.small, "OP 7 %": self.little_spare, "128k aged": self.large, "128k sequential": self.large, "fill": self.fills, "memory": self.memory}
        for name, group in groups.items():
            # A group whose points are all left out makes no servers.
            if self.args.only is None or self.args.only.startswith(name) or name.startswith(self.args.only):
                group(name) if name in LARGE else group()
                self.stop()
        self.run.finish()


def response_times(tails):
    """Medians of the percentiles over the rounds, and the maximum of all, us."""
    if not tails:
        return {}
    names = ("p50", "p99", "p99.9")
    each = {
        name: dict(zip(names, (statistics.median(column) for column in list(zip(*rows))[:3]))) | {"max": max(row[3] for row in rows)}
        for name, rows in tails.items()
    }
    return {f"response times of {name}, us": figures for name, figures in each.items()}


def main():
    options = parser(__doc__)
    options.add_argument("--seconds", type=int, help="of a contender in a round (default 2)")
    options.add_argument("--ftld", action="append", help="program to measure, instead of building this tree; several run beside each other")
    options.add_argument("--folder", default=str(ROOT / "target" / "bench"), help="where images are; not a tmpfs")
    args = options.parse_args()
    need()
    if args.ftld is None:
        build("--package", "ftld", "--bin", "ftld")
        args.ftld = [str(ROOT / "target" / "release" / "ftld")]
    Path(args.folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nbd.", dir=args.folder) as folder:
        bench = Bench(args, Path(folder))
        try:
            bench.measure_all()
        finally:
            bench.stop()


if __name__ == "__main__":
    main()
