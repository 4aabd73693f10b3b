"""DFTL (Gupta, Kim, Urgaonkar, ASPLOS 2009) and TPFTL (Zhou et al., EuroSys 2015): what their abstracts say of each."""

from statistics import mean

from . import real
from .page import figure, table
from .rows import MAPPING, Load, collected, copies, mean_us, programs, state, waf
from .verdict import Case, Claim, joint, report, within

TITLE = "DFTL and TPFTL"

SCHEMES = ["pagemap", "tpftl", "dftl", "last", "fast"]
FILLED = [real.FINANCIAL1, real.MSSQL]
REAL = [real.FINANCIAL1, real.MSSQL, real.MYSQL]
SHORTER = ("shorter", lambda percent: percent > 0)
CLAIMS = [
    Claim("dftl", "DFTL: mean response on Financial1 78 % better than a hybrid FTL's (FAST)", "78 %", within(10, SHORTER, 1, " %")),
    Claim("tpftl writes", "TPFTL: 62 % fewer address translation writes (than DFTL), average: the mean of the loads", "62 %", within(10, ("fewer", lambda percent: percent > 0), 1, " %")),
    Claim("tpftl time", "TPFTL: response time up to 24 % shorter (than DFTL): the largest of the loads", "up to 24 %", within(10, SHORTER, 1, " %")),
]
INTRODUCTION = """\
The originals were not available (fidelity B): the claims are those of their abstracts, the device is ours: `slc-2k`, caches of a 16th of the table, our default; filled and aged, equal raw flash, no checkpoints, no wear levelling.
Address translation writes are mapping pages programmed for lookups, for conversions and for GC.

"""


def section(ftld):
    names, lines, found = ftld.have(*SCHEMES), [], {}
    off = ["--set", "ckpt.interval=0", "--set", "wear.policy=none", "--set", "scrub.hours=0"]
    loads = [*real.loads(ftld, *REAL).values()]
    # A state between new and aged: one of the settings that these claims may depend on.
    for stem in FILLED:
        load = real.load(ftld, stem, "--precondition", "fill")
        loads += [Load(f"{load.label} filled only", load.workload, load.options, True)] if load else []
    for load in loads:
        rows = ftld.run("demand", Load(load.label, load.workload, ("--profile", "slc-2k", *load.options, *off), True), names, raw="equal")
        by = {name: rows.one(name) for name in names}
        for name, row in by.items():
            cells = figure(waf(row), 3), figure(copies(row), 0), figure(programs(row, *MAPPING), 0), figure(mean_us(row, "write"), 0), figure(mean_us(row, "read"), 0)
            lines.append((load.label, ftld.graded(name), *cells, figure(row["ram"]["paper_bytes"] / 1024, 0), figure(row["ram"]["allocated_bytes"] / 1024, 0), state(row)))
        response = lambda name: by[name]["response_ns"]["all"]["mean"]
        add = lambda key, ours, theirs: found.setdefault(key, []).append(Case(load.label, ours, theirs, True, collected(*rows)))
        if load.label.startswith("Financial1"):
            add("dftl", 100 * (1 - response("dftl") / response("fast")), 78)
        add("tpftl writes", 100 * (1 - programs(by["tpftl"], *MAPPING) / programs(by["dftl"], *MAPPING)), 62)
        add("tpftl time", 100 * (1 - response("tpftl") / response("dftl")), 24)
    heads = ["trace", "scheme", "write amplification", "copies", "mapping pages programmed", "mean write us", "mean read us", "RAM by the paper, KiB", "RAM real, KiB", "valid pages in the flash at the end"]
    states = {"aged": [], "filled only": []}
    for case in found.get("tpftl writes", []):
        states["filled only" if case.load.endswith("filled only") else "aged"].append(case)
    found["tpftl writes"] = [one for state, cases in states.items() for one in joint(f"{state}, mean", mean, cases)]
    found["tpftl time"] = list(joint("largest", max, found.get("tpftl time", [])))
    told, unexplained = report(TITLE, CLAIMS, found, WHY)
    return INTRODUCTION + table(heads, lines) + told, unexplained


# Why a figure of ours differs, by claim.
WHY = {
    "dftl": "DFTL of fidelity B on an aged device: for nearly every page that GC moves it programs a mapping page (table), and FAST has no such pages. The paper's device and state are not known to us.",
    "tpftl writes": "On an aged device most mapping pages are rewritten by GC, under DFTL and TPFTL alike, we suppose because the pages of a victim belong to many mapping pages; TPFTL saves those of evictions, which are few here.",
    "tpftl time": "Follows from the mapping pages: where TPFTL programs as many as DFTL, it takes as long. Its reads of mysql are faster, we suppose by its prefetching.",
}
