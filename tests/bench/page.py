#!/usr/bin/env python3
"""Writes the tables of docs/PERFORMANCE.md and tests/results/performance.md from kept results.

    tests/bench/page.py RESULT.json   keeps the results as tests/results/performance.json, and
                                      writes the tables
    tests/bench/page.py --check       fails if the tables differ from those of the kept results

A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; a name that this script does
not know is an error. In place of a table whose script has not run stands its command. In the record
the lines `State:` and `Outcome:` are written, too. All others are written by hand.
"""

import argparse
import json
import re
import statistics
import sys
from pathlib import Path

from measure import ROOT, number, read, text

PAGES = [ROOT / "docs" / "PERFORMANCE.md", ROOT / "tests" / "results" / "performance.md"]
KEPT = ROOT / "tests" / "results" / "performance.json"


def markdown(columns, rows):
    return "\n".join(["| " + " | ".join(row) + " |" for row in (columns, ["---"] * len(columns), *rows)])


class NotMeasured(Exception):
    """The results have no section of this script."""


def section_of(results, script):
    if script not in results["sections"]:
        raise NotMeasured(script)
    return results["sections"][script]


def state(results):
    """Programs and date of each section."""
    rows = []
    for name, section in results["sections"].items():
        noisy = sum(bool(point["noisy"]) for point in section["points"])
        load = " to ".join(f"{value:.2f}" for value in section["load"])
        points = f"{noisy} of {len(section['points'])}" if section["points"] else "-"
        length = "short" if section["short"] else "full"
        met = goals(section)
        rows.append([f"`tests/bench/{name}.py`", f"{section['revision']}, {section['time'][:10]}", length, str(section["rounds"]), load, points, f"{sum(met)} of {len(met)}"])
    return markdown(["command", "state", "run", "rounds", "load average", "noisy points", "targets met"], rows)


def goals(section):
    """Whether each target is met, as `targets` lists them."""
    points = [list(point["goals"].values())[0]["met"] for point in section["points"] if point["goals"]]
    return points + [figure["met"] for figure in section["figures"] if "target" in figure]


def head(text, results):
    """The text with the lines of the record about its state and outcome."""
    sections = results["sections"].values()
    states = ", ".join(dict.fromkeys(f"{section['revision']} of {section['time'][:10]}" for section in sections))
    met = [one for section in sections for one in goals(section)]
    text = re.sub(r"^State: .*\\$", lambda _: f"State: {states}\\", text, flags=re.M)
    return re.sub(r"^Outcome: .*$", f"Outcome: {sum(met)} of {len(met)} targets are met", text, flags=re.M)


def verdict(met, noisy):
    return ("met" if met else "**missed**") + (", noisy" if noisy else "")


def targets(results):
    """Every point with a goal for the ratio to its first peer, and every figure with one."""
    rows = []
    for name, section in results["sections"].items():
        for point in section["points"]:
            for peer, goal in list(point["goals"].items())[:1]:
                ratio = point["ratios"][peer]
                shown = f"{ratio['median']:.3f} ({ratio['least']:.2f} to {ratio['most']:.2f})"
                rows.append([f"{name}: {point['name']}", peer, goal["target"], shown, verdict(goal["met"], point["noisy"])])
        for figure in section["figures"]:
            if "target" in figure:
                values = figure["values"]
                spread = f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else ""
                shown = f"{number(statistics.median(values))}{spread} {figure['unit']}"
                rows.append([f"{name}: {figure['name'].strip()}", "-", figure["target"], shown, verdict(figure["met"], False)])
    return markdown(["work", "beside", "target", "median of the ratios (least to most)", "verdict"], rows)


def felt(point, name):
    """What a user of this server waits for."""
    if name not in point["values"]:
        return "-"
    rate = statistics.median(point["values"][name])
    if point["unit"] == "MiB/s":
        return f"{1024 / rate:.2f} s/GiB"
    return f"{1e6 / rate:.0f} us" if "QD1" in point["name"] else f"{1e5 / rate:.2f} s/100,000"


def servers(results):
    """Medians of every server under the loads that all of them ran, and what a user feels of them."""
    points = [point for point in section_of(results, "nbd")["points"] if "qemu-nbd" in point["values"]]
    names = ["ftld pagemap", "nbdkit memory", "nbdkit file", "qemu-nbd", "nbd-server"]
    median = lambda point, name: number(statistics.median(point["values"][name])) if name in point["values"] else "-"
    wait = lambda point: f"{felt(point, names[0])} ({felt(point, 'nbdkit file').split(' ')[0]})"
    ours = [point for point in points if names[0] in point["values"] and "verify" not in point["name"]]
    rows = [[f"{point['name']}, {point['unit']}", *(median(point, name) for name in names), wait(point)] for point in ours]
    return markdown(["load", *names, "a user waits (nbdkit file)"], rows)


def contenders(results, script):
    """Medians of all contenders of the points of a script."""
    rows = []
    for point in section_of(results, script)["points"]:
        for name, values in point["values"].items():
            ratio = point["ratios"].get(name)
            shown = "-" if ratio is None else f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})"
            rows.append([point["name"], name, f"{number(statistics.median(values))} {point['unit']}", shown])
    return markdown(["point", "contender", "median", "ours : theirs"], rows)


def processor_times(results):
    """CPU time per operation at the server, and how busy the client was."""
    rows = []
    for point in section_of(results, "nbd")["points"]:
        clients = point["extra"].get("CPU of the client, percent of a core", {})
        for server, value in point["extra"].get("CPU of the server, us an operation", {}).items():
            rows.append([point["name"], server, number(value), f"{clients[server]:.0f} %"])
    return markdown(["point", "server", "CPU of the server, us per operation", "CPU of the client"], rows)


def response_times(results):
    rows = []
    for point in section_of(results, "nbd")["points"]:
        for name, figures in point["extra"].items():
            if not name.startswith("response times of "):
                continue
            server = name.removeprefix("response times of ").removesuffix(", us")
            rows.append([point["name"], server, *(number(value) for value in figures.values())])
    return markdown(["point", "server", "p50 us", "p99 us", "p99.9 us", "maximum us"], rows)


def calls(results):
    """The system calls per request, with the most frequent ones."""
    rows = []
    for point in section_of(results, "ublk")["points"]:
        for name, values in point["values"].items():
            named = point["extra"].get(f"calls of {name}", {})
            most = ", ".join(f"`{call}` {value:.2f}" for call, value in list(named.items())[:4])
            rows.append([point["name"], name, number(statistics.median(values)), most])
    return markdown(["point", "server", "median", "most frequent calls per request"], rows)


def tables(results, script):
    """Tables of a script."""
    parts = []
    for table in section_of(results, script)["tables"]:
        rows = [[text(cell) for cell in row] for row in table["rows"]]
        parts.append(f"{table['name']}:\n\n{markdown(table['columns'], rows)}")
    return "\n\n".join(parts)


TABLES = {
    "state": state,
    "targets": targets,
    "servers": servers,
    "nbd": lambda results: contenders(results, "nbd"),
    "processor-times": processor_times,
    "response-times": response_times,
    "volume": lambda results: contenders(results, "volume"),
    "ublk": calls,
    "simulation": lambda results: contenders(results, "sim"),
    "schemes": lambda results: tables(results, "sim"),
    "mount": lambda results: tables(results, "mount"),
    "model": lambda results: tables(results, "model"),
}


def compose(page, results):
    """The page with new tables."""

    def table(found):
        name = found[1]
        if name not in TABLES:
            sys.exit(f"page: there is no table {name}")
        try:
            made = TABLES[name](results)
        except NotMeasured as script:
            made = f"Not measured in this state: `tests/bench/{script}.py`."
        return f"<!-- begin {name} -->\n\n{made}\n\n<!-- end {name} -->"

    return re.sub(r"<!-- begin (\S+) -->.*?<!-- end \1 -->", table, head(page, results), flags=re.S)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("results", nargs="?", metavar="RESULT.json")
    options.add_argument("--check", action="store_true")
    args = options.parse_args()
    if args.check == bool(args.results):
        options.error("either RESULT.json or --check")
    results = read(args.results or KEPT)
    composed = {page: compose(page.read_text(), results) for page in PAGES}
    if args.check:
        for page, text in composed.items():
            if text != page.read_text():
                sys.exit(f"{page.name} is not what tests/bench/page.py makes of {KEPT.name}")
        return
    KEPT.write_text(json.dumps(results, indent=1) + "\n")
    for page, text in composed.items():
        page.write_text(text)


if __name__ == "__main__":
    main()
