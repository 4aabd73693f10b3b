#!/usr/bin/env python3
"""Writes the tables of docs/PERFORMANCE.md from kept results.

    tests/bench/page.py RESULT.json   keeps the results as tests/results/performance.json, and
                                      writes the tables
    tests/bench/page.py --check       fails if the tables differ from those of the kept results

A table stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; a name that this script does
not know is an error. In place of a table whose script has not run stands its command. Lines outside
are written by hand.
"""

import argparse
import json
import re
import statistics
import sys
from pathlib import Path

from measure import ROOT, number, read, text

PAGE = ROOT / "docs" / "PERFORMANCE.md"
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
    """What ran, and when, section by section."""
    rows = []
    for name, section in results["sections"].items():
        noisy = sum(bool(point["noisy"]) for point in section["points"])
        load = " to ".join(f"{value:.2f}" for value in section["load"])
        points = f"{noisy} of {len(section['points'])}" if section["points"] else "-"
        length = "short" if section["short"] else "full"
        rows.append([f"`tests/bench/{name}.py`", f"{section['revision']}, {section['time'][:10]}", length, str(section["rounds"]), load, points])
    return markdown(["command", "state", "run", "rounds", "load average", "noisy points"], rows)


def verdict(met, noisy):
    return ("met" if met else "**missed**") + (", noisy" if noisy else "")


def targets(results):
    """Every point with a goal beside its first peer, and every figure with one."""
    rows = []
    for name, section in results["sections"].items():
        for point in section["points"]:
            for peer, goal in list(point["goals"].items())[:1]:
                ratio = point["ratios"][peer]
                shown = f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})"
                rows.append([f"{name}: {point['name']}", peer, goal["target"], shown, verdict(goal["met"], point["noisy"])])
        for figure in section["figures"]:
            if "target" in figure:
                values = figure["values"]
                spread = f" ({number(min(values))} to {number(max(values))})" if len(values) > 1 else ""
                shown = f"{number(statistics.median(values))}{spread} {figure['unit']}"
                rows.append([f"{name}: {figure['name'].strip()}", "-", figure["target"], shown, verdict(figure["met"], False)])
    return markdown(["work", "beside", "target", "median of the ratios (least to most)", "verdict"], rows)


def contenders(results, script):
    """Medians of all contenders of the points of a script."""
    rows = []
    for point in section_of(results, script)["points"]:
        for name, values in point["values"].items():
            ratio = point["ratios"].get(name)
            shown = "-" if ratio is None else f"{ratio['median']:.2f} ({ratio['least']:.2f} to {ratio['most']:.2f})"
            rows.append([point["name"], name, f"{number(statistics.median(values))} {point['unit']}", shown])
    return markdown(["point", "contender", "median", "ours : theirs"], rows)


def response_times(results):
    rows = []
    for point in section_of(results, "nbd")["points"]:
        for name, figures in point["extra"].items():
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
    """What a script shows as tables."""
    parts = []
    for table in section_of(results, script)["tables"]:
        rows = [[text(cell) for cell in row] for row in table["rows"]]
        parts.append(f"{table['name']}:\n\n{markdown(table['columns'], rows)}")
    return "\n\n".join(parts)


TABLES = {
    "state": state,
    "targets": targets,
    "nbd": lambda results: contenders(results, "nbd"),
    "response-times": response_times,
    "volume": lambda results: contenders(results, "volume"),
    "ublk": calls,
    "simulation": lambda results: contenders(results, "sim"),
    "schemes": lambda results: tables(results, "sim"),
    "mount": lambda results: tables(results, "mount"),
    "model": lambda results: tables(results, "model"),
}


def compose(page, results):
    """The page with its tables written anew."""

    def table(found):
        name = found[1]
        if name not in TABLES:
            sys.exit(f"{PAGE.name}: there is no table {name}")
        try:
            made = TABLES[name](results)
        except NotMeasured as script:
            made = f"Not measured in this state: `tests/bench/{script}.py`."
        return f"<!-- begin {name} -->\n\n{made}\n\n<!-- end {name} -->"

    return re.sub(r"<!-- begin (\S+) -->.*?<!-- end \1 -->", table, page, flags=re.S)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("results", nargs="?", metavar="RESULT.json")
    options.add_argument("--check", action="store_true")
    args = options.parse_args()
    if args.check == bool(args.results):
        options.error("either RESULT.json or --check")
    results = read(args.results or KEPT)
    page = PAGE.read_text()
    composed = compose(page, results)
    if args.check:
        if composed != page:
            sys.exit(f"{PAGE.name} is not what tests/bench/page.py makes of {KEPT.name}")
        return
    KEPT.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(composed)


if __name__ == "__main__":
    main()
