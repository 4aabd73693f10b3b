#!/usr/bin/python3 -B
"""Makes the pictures of the documents again, from running devices under load.

    tests/captures.py [live-page] [top]

live-page  docs/live-page.png: the page in a headless Chromium, after two minutes of load
top        the screen of `ftld top` in docs/OPERATING.md, on a terminal that tmux emulates

The program is that of target/release, or of the folder in BUILT. tests/grafana_render/render.py makes the
pictures of the dashboards."""

import os
import re
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/native"))

from browsers import Chromium
from harness import Daemon, Load, wait_for
from terminal import Terminal

LOAD = ["--size=60m", "--iodepth=8", "--fsync=256", "--random_distribution=zipf:1.1", "--rate_iops=3000"]
WIDTH, HEIGHT = 100, 17
OPERATING = ROOT / "docs/OPERATING.md"
# The block of the document that shows the screen.
SCREEN = re.compile(r"```text\n ftld: .*?\n```\n", re.DOTALL)


def live_page(folder, devices):
    daemon = Daemon(folder, "demo", "--scheme", "lazyftl", "--size", "64MiB")
    devices.append(daemon)
    devices.append(Load(daemon, folder / "fio.log", *LOAD))
    # Two minutes with the opening, as long as the plots are then.
    time.sleep(105)
    browser = Chromium(folder.resolve())
    devices.append(browser)
    browser.window(1280, 800)
    browser.open(daemon.url + "/")
    browser.rest(10)
    browser.screenshot(ROOT / "docs/live-page.png", "light", True)


def top(folder, devices):
    build = Daemon(folder, "build", "--scheme", "lazyftl", "--size", "64MiB")
    database = Daemon(folder, "database", "--scheme", "mnftl", "--size", "64MiB")
    devices.extend([build, database])
    devices.append(Load(build, folder / "fio.log", "--size=60m", "--iodepth=4"))
    wait_for(lambda: build.status("scheme_stats.gc_runs") > 50, 90, "the device is written until it collects")
    terminal = Terminal(folder, build.environment, WIDTH, HEIGHT, "ftld top")
    devices.append(terminal)
    time.sleep(40)
    lines = "\n".join(line.rstrip() for line in terminal.text().rstrip().splitlines())
    text, count = SCREEN.subn(lambda _: f"```text\n{lines}\n```\n", OPERATING.read_text())
    if count != 1 or "build" not in lines:
        raise SystemExit(f"captures: {count} blocks for `ftld top` in {OPERATING}; the screen is\n{lines}")
    OPERATING.write_text(text)


def main():
    makers = {"live-page": live_page, "top": top}
    built = ROOT / os.environ.get("BUILT", "target/release")
    if not (built / "ftld").exists():
        raise SystemExit(f"captures: there is no {built}/ftld: cargo build --release -p ftld, or BUILT=FOLDER")
    os.environ["PATH"] = f"{built}:{os.environ['PATH']}"
    for name in sys.argv[1:] or makers:
        devices = []
        with tempfile.TemporaryDirectory(prefix="ftld-", ignore_cleanup_errors=True) as folder:
            # Relative paths: pictures show the name of a socket, and not where it was.
            os.chdir(folder)
            try:
                makers[name](Path(), devices)
            finally:
                for device in reversed(devices):
                    (device.kill if hasattr(device, "kill") else device.end)()
                os.chdir(ROOT)


main()
