#!/usr/bin/env python3
"""NBD benchmark: ftld beside other NBD servers, over unix sockets, by fio's nbd engine.

    tests/bench/nbd.py [--short] [--rounds N] [--ftld PROGRAM] [--folder FOLDER]

All servers run at once, but only one is spoken to at a time: point after point, round after round, one after the other, so
that what else the machine does hits all alike, and each point is shown when its rounds are done. Shown are medians, and the
median of the ratios per round. ftld serves `pagemap` on mlc-4k with 28 % over-provisioning; before the first round it gets a
sequential fill and three times its size in random writes, so that it collects garbage all along: the count is printed. Its
image lies in the page cache, like the file of the other file servers. Without a goal, `lazyftl` at 7 %, and a FLUSH every 32
writes, are shown too.

Needs fio with the nbd engine, nbdkit, qemu-nbd and nbd-server. Exits with 1 if something fails, not if a target is missed:
machines differ.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = {"fio": "fio", "nbdkit": "nbdkit", "qemu-nbd": "qemu-utils", "nbd-server": "nbd-server"}

# Name, fio options, and the ratio that is the target beside each peer. Sequential points come last, because they leave the
# flash in an order that random writes have to undo.
READ, WRITE = "read", "write"
EVERYONE = {"qemu-nbd": 1.0, "nbd-server": 1.0}
RANDOM = [
    ("4k read QD1", READ, dict(rw="randread", bs="4k", iodepth=1), {"nbdkit memory": 1.0, **EVERYONE}),
    ("4k write QD1", WRITE, dict(rw="randwrite", bs="4k", iodepth=1), {"nbdkit memory": 0.8, **EVERYONE}),
    ("4k read QD32", READ, dict(rw="randread", bs="4k", iodepth=32), {"nbdkit memory": 1.0, **EVERYONE}),
    ("4k write QD32", WRITE, dict(rw="randwrite", bs="4k", iodepth=32), {"nbdkit memory": 0.8, **EVERYONE}),
    ("4k read QD32 x 2", READ, dict(rw="randread", bs="4k", iodepth=32, numjobs=2), {"nbdkit memory": 1.0, **EVERYONE}),
    ("4k write QD32 x 2", WRITE, dict(rw="randwrite", bs="4k", iodepth=32, numjobs=2), {"nbdkit memory": 0.8, **EVERYONE}),
    ("4k write QD32, FLUSH per 32", WRITE, dict(rw="randwrite", bs="4k", iodepth=32, fsync=32), {}),
]
SEQUENTIAL = [
    ("128k read QD8", READ, dict(rw="read", bs="128k", iodepth=8), {"nbdkit memory": 0.6, "nbdkit file": 1.0, **EVERYONE}),
    ("128k write QD8", WRITE, dict(rw="write", bs="128k", iodepth=8), {"nbdkit memory": 0.6, "nbdkit file": 1.0, **EVERYONE}),
]
OURS = "ftld pagemap"


class Server:
    """A running server: its URI, and where its figures are if it is ours."""

    def __init__(self, name, uri, process, status=None):
        self.name, self.uri, self.process, self.status = name, uri, process, status

    def figures(self):
        with urllib.request.urlopen(self.status, timeout=10) as answer:
            return json.load(answer)

    def stop(self):
        if isinstance(self.process, int):
            os.kill(self.process, signal.SIGTERM)
        elif self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.servers = args, folder, []
        self.size = (256 if args.short else 1024) << 20
        self.seconds = 1 if args.short else 2

    # Servers

    def peers(self):
        shared = self.folder / "peers.raw"
        with open(shared, "wb") as file:
            file.truncate(self.size)
        self.simple("nbdkit memory", lambda s: ["nbdkit", "-f", "-U", s, "memory", str(self.size)])
        self.simple("nbdkit file", lambda s: ["nbdkit", "-f", "-U", s, "file", shared])
        qemu = ["qemu-nbd", "-t", "-f", "raw", "-e", "8", "--cache=writeback", "--aio=threads"]
        self.simple("qemu-nbd", lambda s: [*qemu, "-k", s, shared])
        self.nbd_server(shared)

    def simple(self, name, command):
        socket = self.socket(name)
        process = subprocess.Popen([str(word) for word in command(socket)], stdout=subprocess.DEVNULL)
        self.wait_for(socket, name)
        self.servers.append(Server(name, f"nbd+unix:///?socket={socket}", process))

    def nbd_server(self, file):
        # In the foreground (-d, -n) it would end after its first client, so it goes into the background by itself.
        socket, config, pid = self.socket("nbd-server"), self.folder / "nbd-server.conf", self.folder / "nbd-server.pid"
        config.write_text(
            f"[generic]\nallowlist = true\nunixsock = {socket}\n[bench]\nexportname = {file}\nflush = true\nfua = true\ntrim = true\n"
        )
        subprocess.run(["nbd-server", "-C", config, "-p", pid], check=True, stdout=subprocess.DEVNULL)
        self.wait_for(pid, "nbd-server")
        self.wait_for(socket, "nbd-server")
        self.servers.append(Server("nbd-server", f"nbd+unix:///bench?socket={socket}", int(pid.read_text())))

    def ftld(self, scheme, op):
        name = f"ftld {scheme}"
        socket, image = self.socket(scheme), self.folder / f"{scheme}.ftld"
        environment = {**os.environ, "FTLD_STATE_DIR": str(self.folder), "FTLD_RUNTIME_DIR": str(self.folder / "run")}
        command = [self.args.ftld, "--scheme", scheme, "--profile", "mlc-4k", "--op", op, "--size", self.size]
        command += ["--image", image, "--name", scheme, "--metrics", "127.0.0.1:0", f"nbd+unix:///?socket={socket}"]
        process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, text=True, env=environment)
        line = process.stdout.readline()
        if not line.startswith("ready "):
            sys.exit(f"{name}: no ready line but {line!r}")
        metrics = line.split("metrics=")[1].strip()
        server = Server(name, f"nbd+unix:///?socket={socket}", process, metrics.replace("/metrics", "/status"))
        self.servers.append(server)
        return server

    def socket(self, name):
        return self.folder / f"{name.replace(' ', '-')}.sock"

    def wait_for(self, path, name):
        end = time.monotonic() + 15
        while not path.exists() or path.stat().st_size == 0 and not path.is_socket():
            if time.monotonic() > end:
                sys.exit(f"{name} does not start: no {path}")
            time.sleep(0.05)

    # Loads

    def fio(self, server, **options):
        options = {"name": "bench", "ioengine": "nbd", "uri": server.uri, "size": self.size, "thread": 1, **options}
        options |= {"group_reporting": 1, "randrepeat": 0, "norandommap": 1, "output-format": "json"}
        done = subprocess.run(["fio", *(f"--{k}={v}" for k, v in options.items())], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"fio on {server.name} failed: {done.stderr.strip() or done.stdout[-500:]}")
        return json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]

    def prepare(self):
        for server in self.servers:
            self.fio(server, rw="write", bs="128k", iodepth=8)
            if server.status:
                self.fio(server, rw="randwrite", bs="4k", iodepth=32, io_size=3 * self.size)

    def rate(self, server, direction, options):
        """Operations, or MiB for large ones, per second."""
        timing = dict(time_based=1, runtime=self.seconds, ramp_time="300ms")
        result = self.fio(server, **options, **timing)[direction]
        return result["bw_bytes"] / (1 << 20) if options["bs"] == "128k" else result["iops"]

    def points(self, points):
        for name, direction, options, goals in points:
            rates = {}
            for number in range(self.args.rounds):
                # Who comes first changes from round to round.
                turn = number % len(self.servers)
                for server in self.servers[turn:] + self.servers[:turn]:
                    rates.setdefault(server.name, []).append(self.rate(server, direction, options))
            self.show(name, goals, rates)

    def show(self, name, goals, rates):
        ours = rates[OURS]
        print(f"\n{name}: {OURS} {statistics.median(ours):,.0f} {'MiB/s' if name.startswith('128k') else 'per second'}")
        for server in self.servers:
            if server.name == OURS:
                continue
            theirs = rates[server.name]
            ratio = statistics.median(a / b for a, b in zip(ours, theirs))
            goal = goals.get(server.name)
            verdict = "" if goal is None else f"target >= {goal:.1f}x: {'met' if ratio >= goal else 'MISSED'}"
            print(f"    beside {server.name:<14} {statistics.median(theirs):>10,.0f}  {ratio:>6.2f}x  {verdict}".rstrip(), flush=True)

    def run(self):
        schemes = json.loads(subprocess.run([self.args.ftld, "schemes", "--json"], capture_output=True, check=True).stdout)
        names = [entry["name"] for entry in schemes["schemes"]]
        ours = [self.ftld("pagemap", 28)]
        if "lazyftl" in names:
            ours.append(self.ftld("lazyftl", 7))
        else:
            print("this build has no lazyftl: its rows are missing")
        self.peers()
        self.prepare()
        before = [server.figures()["scheme_stats"]["gc_runs"] for server in ours]
        self.points(RANDOM)
        self.points(SEQUENTIAL)
        print()
        for server, gc_runs in zip(ours, before):
            figures = server.figures()
            runs = figures["scheme_stats"]["gc_runs"]
            print(
                f"{server.name}: {gc_runs} collections before the first round, {runs - gc_runs} since;"
                f" write amplification {figures['write_amplification']:.2f}"
            )
            if gc_runs == 0 or runs == gc_runs:
                sys.exit(f"{server.name} did not collect: not in steady state")

    def stop(self):
        for server in reversed(self.servers):
            server.stop()


def main():
    parser = argparse.ArgumentParser(description="NBD benchmark, beside other servers.")
    parser.add_argument("--short", action="store_true", help="256 MiB and one second per point, for a look")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ftld", help="program to measure, instead of building this tree")
    parser.add_argument("--folder", default=str(ROOT / "target" / "bench"), help="where images lie; not a tmpfs")
    args = parser.parse_args()
    for tool, package in TOOLS.items():
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing: apt-get install {package}")
    if args.ftld is None:
        subprocess.run(["cargo", "build", "--quiet", "--release", "--package", "ftld", "--bin", "ftld"], cwd=ROOT, check=True)
        args.ftld = str(ROOT / "target" / "release" / "ftld")
    Path(args.folder).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nbd.", dir=args.folder) as folder:
        bench = Bench(args, Path(folder))
        try:
            bench.run()
        finally:
            bench.stop()


if __name__ == "__main__":
    main()
