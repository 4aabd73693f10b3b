#!/usr/bin/env python3
"""Renders the four dashboards with Grafana's own panel components in a headless Chromium.

    tests/grafana_render/render.py [--seconds 120] [OUT]       writes OUT/grafana-*.png (target/grafana)

Three devices of three schemes, one with a write cache, one that is recorded, and two with shadows,
serve a load for these seconds, and a real Prometheus scrapes them.
Needs the `ftld` of $BUILT or the PATH, fio, prometheus, chromium, node with npm, and python3-pil. Not
part of a suite: it installs `@grafana/ui` from npm. The components draw panels, legends, units,
thresholds and mappings; heat maps are drawn as Grafana's plugin would. Grafana itself is not run:
annotations, variables and queries are not.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/native")]
sys.dont_write_bytecode = True

import grafana  # noqa: E402
from harness import Daemon, Load, Prometheus, run  # noqa: E402

SIZE = "64"
# Name -> options of the device, and of its load. FOLDER is that of the device.
DEVICES = {
    "database": (["--scheme", "lazyftl", "--write-cache", "4MiB", "--shadow", "pagemap", "--shadow", "dftl"], ["--fsync=64", "--rate_iops=900"]),
    "build": (["--scheme", "pagemap", "--record", "FOLDER/run.rec", "--record-data", "off"], ["--bs=16k", "--rate_iops=1000"]),
    "logs": (["--scheme", "mlam", "--shadow", "lazyftl"], ["--fsync=256", "--rate_iops=600"]),
}
# As in panels.jsx.
COLUMN, LINE, GAP, TOP = 62, 34, 8, 54
# Numbers of colours; a picture has the first with which it has at most `MOST_BYTES`.
COLOURS = (128, 96, 64, 48, 32)
MOST_BYTES = 200 << 10


def answered(boards, prometheus, names, begin, end):
    """The dashboards with the results of their queries; instances have stable names."""
    for board in boards:
        values = grafana.resolved(board, prometheus, "ftld")
        for target in (target for panel in board["panels"] for target in panel.get("targets", [])):
            expr = grafana.substituted(target["expr"], values)
            if target["instant"]:
                found = prometheus.get("query", query=expr, time=end)["result"]
                target["result"] = [{"metric": sample["metric"], "values": [sample["value"]]} for sample in found]
            else:
                target["result"] = prometheus.get("query_range", query=expr, start=begin, end=end, step=2)["result"]
            for series in target["result"]:
                series["metric"] = {label: names.get(value, value) for label, value in series["metric"].items()}
        board["range"] = [begin, end]
    return boards


def measured(folder, seconds):
    """Serves the devices under load for these seconds; returns the answered dashboards."""
    started = []
    try:
        daemons = {}
        for name, (device, _) in DEVICES.items():
            (folder / name).mkdir()
            options = [option.replace("FOLDER", str(folder / name)) for option in device]
            daemons[name] = Daemon(folder / name, name, *options, "--size", f"{SIZE}MiB")
            started.append(daemons[name])
        prometheus = Prometheus(folder, ROOT / "deploy/prometheus/ftld.rules.yml", daemons.values())
        started.append(prometheus)
        for name, (_, options) in DEVICES.items():
            uri = f"--uri={daemons[name].uri}"
            run("fio", "--name=fill", "--ioengine=nbd", uri, "--rw=write", "--bs=1m", f"--size={SIZE}m", "--thread")
            started.append(Load(daemons[name], folder / name / "load", f"--size={SIZE}m", "--iodepth=4", *options))
        begin = time.time() + 10
        time.sleep(10 + seconds)
        names = {daemon.address: f"host:{9917 + index}" for index, daemon in enumerate(daemons.values())}
        return answered(grafana.dashboards(), prometheus, names, begin, time.time())
    finally:
        for process in reversed(started):
            process.kill()


def bundle(folder):
    for name in ("package.json", "panels.jsx"):
        shutil.copy(HERE / name, folder)
    if not (folder / "node_modules/.bin/esbuild").exists():
        run("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", cwd=folder, timeout=900)
    # The .mjs build imports CommonJS modules as Node does, which breaks their default exports here.
    run("node_modules/.bin/esbuild", "panels.jsx", "--bundle", "--minify", "--format=iife", "--jsx=automatic", "--outfile=panels.js",
        '--define:process.env.NODE_ENV="production"', "--define:global=window", "--loader:.svg=dataurl", "--loader:.ttf=empty",
        *(f"--alias:@grafana/{name}=./node_modules/@grafana/{name}/dist/cjs/index.cjs" for name in ("data", "schema", "ui")), cwd=folder)
    (folder / "page.html").write_text(
        '<!doctype html><meta charset=utf-8><link rel=stylesheet href=panels.css><style>body{margin:0}*{box-sizing:border-box}</style>'
        '<div id=root></div><script>process={env:{NODE_ENV:"production"}}</script><script src=panels.js></script>'
    )


def photograph(folder, board, to):
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in board["panels"]) * LINE + TOP
    log = run(
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--allow-file-access-from-files", "--hide-scrollbars", "--enable-logging=stderr",
        f"--user-data-dir={folder}/profile", f"--window-size={24 * COLUMN + GAP},{height}", "--virtual-time-budget=8000",
        f"--screenshot={folder}/shot.png", f"file://{folder}/page.html#{board['uid']}",
    )
    assert "panel: " not in log and "Uncaught" not in log, log[-4000:]
    shot = Image.open(folder / "shot.png").convert("RGB")
    for colours in COLOURS:
        shot.quantize(colours, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(to, optimize=True)
        if to.stat().st_size <= MOST_BYTES:
            break
    assert to.stat().st_size <= MOST_BYTES, f"{to}: {to.stat().st_size} bytes"
    print(to, to.stat().st_size)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "target/grafana")
    given = parser.parse_args()
    if "BUILT" in os.environ:
        os.environ["PATH"] = f"{os.environ['BUILT']}:{os.environ['PATH']}"
    folder = ROOT / "target/grafana/work"
    shutil.rmtree(folder / "run", ignore_errors=True)
    (folder / "run").mkdir(parents=True)
    boards = measured(folder / "run", given.seconds)
    (folder / "boards.json").write_text(json.dumps(boards))
    bundle(folder)
    given.out.mkdir(parents=True, exist_ok=True)
    for board in boards:
        photograph(folder, board, given.out / f"{board['uid'].replace('ftld', 'grafana')}.png")


if __name__ == "__main__":
    main()
