#!/usr/bin/env python3
"""Time from the start of `ftld` to its `ready` line, on an image whose daemon was killed.

    tests/bench/mount.py [--short] [--rounds N] [--only TEXT] [--json FILE] [--size GIB]...
                         [--scheme NAME]... [--written PERCENT] [--overwrite PERCENT] [--under-load]
                         [--cold] [--keep] [--ftld PROGRAM] [--folder FOLDER]

For each scheme and size: a new image on mlc-4k is filled over NBD, or with `--written` the first
part of it; some of that is written again at random so that the scheme collects garbage, FLUSH, and
SIGKILL. Then, round after round: start, time
until `ready`, and SIGKILL again. Three figures are shown: *after load* is the first start after the
writes, *idle* the median of the later ones, with no request between, and *without FLUSH* the start
after the first part was overwritten in order and no FLUSH followed. With `--under-load` the first
kill hits the daemon during random writes, without a FLUSH. The image is in the host's page cache as
far as that has room; with `--cold` its pages leave the cache before each start (needs no rights:
posix_fadvise). The targets are seconds per 64 GiB of size: figures are scaled to that, and the
table has the seconds measured and the CPU seconds, which other work on the machine changes less.

Needs fio with the nbd engine. Exits with 1 if something fails, not if a target is missed: machines
differ.
"""

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import ROOT, Run, at_most, build, parser
from servers import need

GIB = 1 << 30
# Seconds per 64 GiB; schemes that are not named keep their map in spare bytes.
ON_FLASH = {"pagemap": 0.3, "lazyftl": 0.3, "dftl": 0.3, "tpftl": 0.3, "dopftl": 0.3}
IN_SPARE_BYTES = 1.0
# Seconds of a start after writes without a FLUSH.
UNFLUSHED = 0.5


class Image:
    """An image, and the daemon that serves it, if one runs."""

    def __init__(self, args, folder, scheme, gib):
        self.args, self.folder, self.scheme, self.size = args, folder, scheme, int(gib * GIB)
        self.written = self.size * args.written // 100 // 4096 * 4096
        self.path, self.socket = folder / f"{scheme}-{gib}.ftld", folder / f"{scheme}-{gib}.sock"
        self.log = folder / f"{scheme}-{gib}.log"
        self.uri = f"nbd+unix:///?socket={self.socket}"
        self.process = None

    def start(self):
        """Starts the daemon; returns the seconds until it is ready, and its CPU seconds until then."""
        environment = {**os.environ, "FTLD_STATE_DIR": str(self.folder), "FTLD_RUNTIME_DIR": str(self.folder / "run")}
        command = [self.args.ftld, "--image", self.path, "--name", self.path.stem, "--metrics", "off"]
        if not self.path.exists():
            command += ["--scheme", self.scheme, "--profile", "mlc-4k", "--size", self.size]
        command = [str(word) for word in [*command, self.uri]]
        with open(self.log, "a", encoding="utf-8") as log:
            begun = time.monotonic()
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        line = self.process.stdout.readline()
        took = time.monotonic() - begun
        # The clock of the process's CPU time, as clock_getcpuclockid(3) numbers it.
        cpu = time.clock_gettime((~self.process.pid << 3) | 2)
        if not line.startswith("ready "):
            sys.exit(f"{self.scheme}: no ready line but {line!r}: {self.log.read_text()[-2000:]}")
        return took, cpu

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()
        self.process = None

    def fio(self, **options):
        options = {"name": "mount", "ioengine": "nbd", "uri": self.uri, "size": self.written, "thread": 1, **options}
        command = ["fio", *(f"--{key}={value}" for key, value in options.items())]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def fill(self):
        self.finish(self.fio(rw="write", bs="256k", iodepth=4, end_fsync=1))
        amount = self.written * self.args.overwrite // 100 // 4096 * 4096
        if amount:
            self.finish(self.fio(rw="randwrite", bs="4k", iodepth=32, io_size=amount, norandommap=1, end_fsync=1))
        if self.args.under_load:
            load = self.fio(rw="randwrite", bs="4k", iodepth=32, norandommap=1, time_based=1, runtime=600)
            time.sleep(5)
            self.kill()
            load.wait()
        else:
            self.kill()

    def overwrite_without_flush(self):
        self.start()
        self.finish(self.fio(rw="write", bs="256k", iodepth=4))
        self.kill()

    def finish(self, fio):
        if fio.wait() != 0:
            sys.exit(f"{self.scheme}: fio failed")

    def drop_cache(self):
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(args, run, folder, scheme, gib):
    """Measures a scheme; returns the rows of the table."""
    image = Image(args, folder, scheme, gib)
    image.start()
    try:
        image.fill()
        times = []
        for _ in range(args.rounds + 1):
            if args.cold:
                image.drop_cache()
            times.append(image.start())
            image.kill()
        image.overwrite_without_flush()
        if args.cold:
            image.drop_cache()
        unflushed = image.start()
        image.kill()
    finally:
        if image.process:
            image.kill()
        if not args.keep:
            image.path.unlink(missing_ok=True)
    goal, rows = at_most(ON_FLASH.get(scheme, IN_SPARE_BYTES)), []
    for name, starts in [("after load", times[:1]), ("idle", times[1:]), ("without FLUSH", [unflushed])]:
        what, walls = f"{scheme}, {gib:g} GiB, {name}", [wall for wall, _ in starts]
        if name == "without FLUSH":
            # What a start verifies does not grow with the size.
            run.figure(what, "s", walls, at_most(UNFLUSHED))
        else:
            run.figure(what, "s per 64 GiB", [wall * 64 / gib for wall in walls], goal)
        rows.append([what, *(statistics.median(column) for column in zip(*starts))])
    return rows


def main():
    options = parser(__doc__)
    options.add_argument("--size", type=float, action="append", metavar="GIB", help="may be repeated (default 1, 8; short: 0.25)")
    options.add_argument("--scheme", action="append", help="may be repeated (default pagemap, lazyftl, mnftl)")
    options.add_argument("--written", type=int, default=100, metavar="PERCENT", help="part of the size that is filled (default 100)")
    options.add_argument("--overwrite", type=int, default=25, metavar="PERCENT", help="part of that which is written again (default 25)")
    options.add_argument("--under-load", action="store_true", help="kill during writes")
    options.add_argument("--cold", action="store_true", help="the image leaves the page cache before each start")
    options.add_argument("--keep", action="store_true", help="keep the images")
    options.add_argument("--ftld", type=Path, help="program to measure, instead of building this tree")
    options.add_argument("--folder", default=str(ROOT / "target" / "bench"), help="where images are; not a tmpfs")
    args = options.parse_args()
    need("fio")
    if args.ftld is None:
        build("--package", "ftld", "--bin", "ftld")
        args.ftld = ROOT / "target" / "release" / "ftld"
    run, rows = Run("mount", args), []
    Path(args.folder).mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=args.folder, prefix="mount."))
    try:
        for gib in args.size or ([0.25] if args.short else [1, 8]):
            for scheme in args.scheme or ["pagemap", "lazyftl", "mnftl"]:
                if run.wants(f"{scheme}, {gib:g} GiB"):
                    rows += measure(args, run, folder, scheme, gib)
    finally:
        if not args.keep:
            shutil.rmtree(folder)
    if args.keep:
        print(f"images are kept in {folder}")
    if rows:
        run.table("Start after a kill", ["scheme, size, kill", "s until ready", "CPU s until ready"], rows)
    run.finish()


if __name__ == "__main__":
    main()
