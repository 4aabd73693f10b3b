#!/usr/bin/env python3
"""Compares two files of results that the benchmarks wrote with `--json`.

    tests/bench/against.py OLD.json NEW.json

For each point: the median of our figure in both and its change; the median of the ratio beside each
peer in both. A change counts as one if the ranges over the rounds do not overlap, else it is marked
`=`. Ratios say more than figures, because a slower hour of the machine slows the peers too. A point
that was noisy in one of the files is marked. Points of only one file are listed. Exits with 1 if a
file has no results, or the files have no point in common.
"""

import argparse
import statistics
import sys

from measure import number, read


def change(old, new):
    """Of the median, and whether the ranges are apart. `=` marks those that overlap."""
    before, after = statistics.median(old), statistics.median(new)
    part = "" if before == 0 else f"{after / before - 1:+.0%}"
    apart = min(new) > max(old) or max(new) < min(old)
    return f"{number(before)} -> {number(after)} ({part}{'' if apart else ' ='})"


def entries(results):
    """(section, name) -> entry, for points and figures alike."""
    found = {}
    for script, section in results["sections"].items():
        for kind in ("points", "figures"):
            for entry in section[kind]:
                found[script, entry["name"].strip()] = entry
    return found


def per_round(entry, peer):
    ours, theirs = entry["values"][entry["ours"]], entry["values"][peer]
    return [our / their for our, their in zip(ours, theirs)]


def lines(old, new):
    """The comparison of two entries."""
    name = f"{new['name'].strip()}, {new['unit']}"
    noisy = " NOISY" if old.get("noisy") or new.get("noisy") else ""
    if "ours" not in new or "ours" not in old:
        yield f"{name}: {change(old['values'], new['values'])}"
        return
    yield f"{name}: {change(old['values'][old['ours']], new['values'][new['ours']])}{noisy}"
    for peer in new["values"]:
        if peer != new["ours"] and peer in old["values"]:
            target = new["goals"].get(peer)
            verdict = "" if target is None else f"  target {target['target']}: {'met' if target['met'] else 'MISSED'}"
            yield f"    beside {peer:<22} {change(per_round(old, peer), per_round(new, peer))}{verdict}"
    for what, figures in new["extra"].items():
        before = old["extra"].get(what, {})
        both = [f"{key} {number(before[key])} -> {number(value)}" for key, value in figures.items() if key in before]
        if both:
            yield f"    {what}: " + ", ".join(both)


def compare(old, new):
    before, after = entries(old), entries(new)
    section = None
    for key in (key for key in after if key in before):
        if key[0] != section:
            section = key[0]
            first, second = old["sections"][section], new["sections"][section]
            yield f"== {section}: {first['revision']} ({first['time']}) -> {second['revision']} ({second['time']})"
            if first["short"] != second["short"]:
                yield "   one of the runs is short: the figures are not those of the same load"
        yield from lines(before[key], after[key])
    for title, here, there in (("old", before, after), ("new", after, before)):
        alone = [f"{script}: {name}" for script, name in here if (script, name) not in there]
        if alone:
            yield f"== only in the {title} file: " + "; ".join(alone)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("old")
    options.add_argument("new")
    args = options.parse_args()
    old, new = read(args.old), read(args.new)
    if not entries(old).keys() & entries(new).keys():
        sys.exit(f"{args.old} and {args.new} have no point in common")
    print("\n".join(compare(old, new)))


if __name__ == "__main__":
    main()
