#!/usr/bin/env python3
"""Accuracy of `--latency emulate` over NBD: emulated response times compared with those that a client sees,
by fio's nbd engine.

    tests/bench/latency.py [--short] [--seconds N] [--ftld PROGRAM] [--folder FOLDER]

Two kinds of devices, both from TOML files and read at random in pages of 4 KiB:

- *Constant*: all time is the controller's, where requests do not wait for each other. So the
  emulated time of every read is known, at each queue depth, and the client's p50, p99 and p99.9 are
  compared with it. A point holds if p50 is within 5 % of the emulated time and p99 within 10 %. The
  highest rate of a point that holds is printed for every time.
- *Dies*: 1, 4 or 16 dies on a channel each, reads of 200 us, no other time. Reads queue on the
  dies, and the mean emulated time of the reads, from /status, is compared with the mean that the
  client sees.

The client's times contain the socket and the client itself. The load of the machine is printed
before and after: figures of a machine that does something else say more about that. Exits with 1 if
something fails, not if a point does not hold.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import ROOT
from servers import Ftld

SIZE = 64 << 20
DEPTHS = (1, 2, 4, 8, 16, 32)
CONSTANT_US = (50, 100, 200, 500, 1000, 5000)
DIES = (1, 4, 16)
DIE_READ_US = 200


def device(base, name, channels, read_us, controller_us):
    """The text of a device that reads in `read_us` and writes at once."""
    for key, value in {
        "name": f'"{name}"', "channels": channels, "read": read_us, "short_read": 0, "program": 0, "erase": 0,
        "bus": 0, "controller": controller_us,
    }.items():
        base, found = re.subn(rf"(?m)^{key} = .*$", f"{key} = {value}", base)
        if found != 1:
            sys.exit(f"`ftld profiles mlc-4k --toml` has {found} keys {key}")
    return base


class Device(Ftld):
    """A device with a file of its own, served over NBD, filled once. Leaving its `with` removes the image."""

    def __init__(self, args, folder, name, text):
        self.seconds, profile = args.seconds, folder / f"{name}.toml"
        profile.write_text(text)
        super().__init__(name, args.ftld, folder, SIZE, "--scheme", "pagemap", "--profile", profile, "--latency", "emulate")
        self.fio(rw="write", bs="128k", iodepth=8)

    def __exit__(self, *_):
        self.discard()

    def reads(self):
        """Reads so far, and their emulated times in all, ns."""
        read = self.figures()["host"]["read"]
        return read["completed"], read["emulated"]["sum_ns"]

    def point(self, depth):
        """Client's view of reads at a queue depth, and the mean of their emulated times, us."""
        count, sum_ns = self.reads()
        load = dict(rw="randread", bs="4k", iodepth=depth, time_based=1, runtime=self.seconds)
        result = self.fio(**load, percentile_list="50:99:99.9")["read"]
        count_after, sum_ns_after = self.reads()
        if count_after == count:
            sys.exit("fio has read nothing")
        emulated = (sum_ns_after - sum_ns) / (count_after - count) / 1e3
        clat = result["clat_ns"]
        tail = [ns / 1e3 for _, ns in sorted(clat["percentile"].items(), key=lambda entry: float(entry[0]))]
        return result["iops"], emulated, clat["mean"] / 1e3, tail


def load():
    return f"load {os.getloadavg()[0]:.2f} on {os.cpu_count()} CPUs"


def constant(args, folder, base):
    print("| emulated us | depth | IOPS | p50 | p99 | p99.9 | holds |\n|---|---|---|---|---|---|---|")
    best = {}
    for time_us in CONSTANT_US[1::2] if args.short else CONSTANT_US:
        with Device(args, folder, f"constant-{time_us}", device(base, f"constant-{time_us}", 1, 0, time_us)) as served:
            for depth in DEPTHS[::5] if args.short else DEPTHS:
                iops, emulated, _, (p50, p99, p999) = served.point(depth)
                if abs(emulated - time_us) > time_us / 1e3:
                    sys.exit(f"the device emulates {emulated} us, not {time_us}: the model of this script is wrong")
                holds = abs(p50 - time_us) <= time_us * 0.05 and abs(p99 - time_us) <= time_us * 0.1
                if holds:
                    best[time_us] = max(best.get(time_us, 0), iops)
                shown = " | ".join(f"{value / time_us:.2f}x" for value in (p50, p99, p999))
                print(f"| {time_us} | {depth} | {iops:,.0f} | {shown} | {'yes' if holds else 'no'} |", flush=True)
    held = ", ".join(f"{rate:,.0f} IOPS at {time_us} us" for time_us, rate in best.items())
    print(f"\nHighest rates that hold: {held or 'none'}\n")


def dies(args, folder, base):
    print("| dies | depth | IOPS | emulated mean us | client's mean |\n|---|---|---|---|---|")
    for count in DIES:
        with Device(args, folder, f"dies-{count}", device(base, f"dies-{count}", count, DIE_READ_US, 0)) as served:
            for depth in DEPTHS[::5] if args.short else DEPTHS:
                iops, emulated, mean, _ = served.point(depth)
                print(f"| {count} | {depth} | {iops:,.0f} | {emulated:,.0f} | {mean / emulated:.3f}x |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="fewer points, one second each")
    parser.add_argument("--seconds", type=int, help="of each point (default 5)")
    parser.add_argument("--ftld", default=ROOT / "target/release/ftld", type=Path)
    parser.add_argument("--folder", type=Path, help="for images (default: a temporary one)")
    args = parser.parse_args()
    args.seconds = args.seconds or (1 if args.short else 5)
    base = subprocess.run([args.ftld, "profiles", "mlc-4k", "--toml"], capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="ftld-latency.") as folder:
        print(f"{load()} before\n")
        constant(args, Path(folder), base)
        dies(args, Path(folder), base)
        print(f"\n{load()} after")


if __name__ == "__main__":
    main()
