"""DOPFTL (Chen, Lin, Cao, Cheng): hit ratios against DFTL, TPFTL and the reference, and what finding a mapping costs."""

from dataclasses import replace

from . import real
from .page import figure, table
from .rows import MAPPING, Load, collected, mean_us, programs, state
from .verdict import Case, Claim, less, report, such, within

TITLE = "DOPFTL"

# Bytes: two mapping pages.
CACHE_LEAST = 8192

SCHEMES = ["dftl", "tpftl", "dopftl", "pagemap"]
# Table 2: the trace, its share of reads; our load with that share.
TRACES = [
    ("PC Test", 0.10, "mixed:requests=400000,read=10%,sequential=70%,size=4KiB/60+32KiB/40"),
    ("Cassandra", 0.95, "zipf:requests=1000000,read=95%,theta=0.9,size=4KiB/80+16KiB/20"),
    ("RocksDB", 0.97, "zipf:requests=200000,read=97%,theta=1.2,size=4KiB/80+16KiB/20"),
    ("Dorado", 0.36, "uniform:requests=50000,read=36%,size=4KiB/50+16KiB/50"),
]
# "A space ratio between original mode and compressed mode of 0.4" can be read as two shares of the cache.
SHARES = {"0.4": "0.4 of all", "0.2857": "0.4 of the compressed"}
REAL = [real.FINANCIAL1]
# Us of a step in RAM, for what CTPA saves; the paper gives none.
STEP_US = "1"

HIGHER = "DOPFTL's hit ratio above, every load (the pair is the other's, DOPFTL's)"
CLAIMS = [
    Claim("dftl", '"Compared with DFTL, DOPFTL has constantly higher cache hit rates"', "Figure 8", less(HIGHER, digits=3)),
    Claim("tpftl pc", '"DOPFTL has better cache hit rates than TPFTL under the PC test [...] cases"', "Figure 8", less(HIGHER, digits=3)),
    Claim("tpftl dorado", '"and Dorado cases"; in the next sentence: "does not have a better cache hit rate than TPFTL under some traces like Dorado"', "Figure 8", why_not="the two sentences contradict each other"),
    Claim("average", '"DOPFTL can achieve an average cache hit rate of up to 0.89"', "0.89", within(5, digits=3)),
    Claim("near tpftl", '"close to that of TPFTL" (average, DOPFTL over TPFTL)', "Figure 8", such("within 10 %", lambda ratio: abs(ratio - 1) <= 0.1, digits=3)),
    Claim("reference", 'The reference FTL "has a cache hit rate of 1" (its reads of mapping pages)', "1", such("no mapping page read", lambda reads: reads == 0, digits=0)),
    Claim("ctpa", '"DOPFTL with CTPA has obviously lower time overhead than DOPFTL without CTPA for all traces" (steps of a lookup, with and without)', "Figure 7", less("fewer with CTPA, every load", digits=1)),
    Claim("ctpa time", f"the same in time, with {STEP_US} us a step: mean response with and without", "Figure 7", less("shorter with CTPA by more than 1 %, every load", slack=-1, digits=0, unit=" us")),
    Claim("ctpa most", '"There is the most time overhead reduction by CTPA under the Dorado case" (steps without over with: the most of the others, Dorado)', "Figure 7", less("Dorado's ratio is the highest", digits=2)),
    Claim("ctpa least", '"the least reduction under the RocksDB case" (RocksDB, the least of the others)', "Figure 7", less("RocksDB's ratio is the lowest", digits=2)),
    *(
        Claim(f"fixed {share}", f'"the cache hit rates of DOPFTL are higher than those with a fixed space ratio of 0.4" ({name})', "Figure 6", less(HIGHER, digits=4))
        for share, name in SHARES.items()
    ),
    Claim("overhead dftl", '"DOPFTL has obviously lower time overhead than DFTL" (mean response over the reference\'s, without time in RAM)', "Figure 9", less("DOPFTL below DFTL, every load", digits=2)),
    Claim("overhead tpftl", '"time overhead ratios of DOPFTL are the least ones": against TPFTL', "Figure 9", less("DOPFTL below TPFTL, every load", digits=2)),
    Claim("overhead ram", f'the same against both, with {STEP_US} us a step in RAM', "Figure 9", less("DOPFTL below both, every load", digits=2)),
]
INTRODUCTION = """\
Pages of 4 KB; the paper gives no charges, and its block of "168,600KB" is implausible; a cache of a 64th of the table, as in its example. `--preset dopftl-paper`: `mlc-4k`.

- **A real trace**, not the paper's: Financial1, on a device as large as it needs, equal raw flash for all schemes; filled and aged by random pages, which breaks extents: the worst state for compressed mapping
  pages. The table has it on a device that was filled in order only, too. DOPFTL needs two mapping pages of 4 KB at least, more than a 64th of Financial1's table: all three caches have 8 KB there.
- **Loads of ours** on 4 GiB, all written once before. The four traces were not published, only their share of reads and a word or two: PC Test is a desktop's (here: 70 % sequential), RocksDB's hot mappings stay at the head of the
  list (here: Zipf with 1.2), Dorado is the most random (here: uniform), Cassandra lies between (here: Zipf with 0.9). They are ours in all but the share of reads, so only directions can be compared.

"""


def section(ftld):
    names = ftld.have(*SCHEMES)
    loads = [Load(f"our {trace}", ftld.scaled(load, 400_000), ("--preset", "dopftl-paper")) for trace, _, load in TRACES]
    fresh = []
    for stem, load in real.loads(ftld, *REAL).items():
        loads.append(Load(load.label, load.workload, (*device(ftld, stem), *load.options), True))
        filled = real.load(ftld, stem, "--precondition", "fill")
        fresh.append(Load(f"{load.label}, filled only", load.workload, (*device(ftld, stem), *filled.options), True))
    runs = {load.label: Runs(ftld, load, names) for load in loads}
    lines = []
    for load in [*loads, *fresh]:
        rows = runs[load.label].rows if load.label in runs else by_scheme(ftld, "dopftl", load, names)
        for name, row in rows.items():
            written = row["requests"]["pages_written"]
            cells = figure(hits(row), 4), figure(programs(row, *MAPPING) / written, 4), figure(mean_us(row, "read"), 1), figure(mean_us(row, "write"), 1), figure(row["ram"]["paper_bytes"] / 1024, 0), figure(row["ram"]["allocated_bytes"] / 1024, 0)
            lines.append((load.label, ftld.graded(name), *cells, state(row)))
    heads = ["load", "scheme", "hit ratio", "mapping pages programmed per page written", "mean read us", "mean write us", "RAM by the paper, KiB", "RAM real, KiB", "valid pages in the flash at the end"]
    text = INTRODUCTION + table(heads, lines)
    text += "Steps of a lookup in RAM (Figure 7): with CTPA the directory entry, without CTPA the cached mapping pages, beginning with the last used one; then the entries or extents of the page. `dop.ctpa`:\n\n"
    text += table(["load", "with CTPA", "without", "ratio"], [(label, figure(run.steps[0]), figure(run.steps[1]), figure(run.steps[1] / run.steps[0])) for label, run in runs.items()])
    text += "Hit ratios with a fixed share of the cache for original mapping pages (Figure 6). `dop.original_share`:\n\n"
    text += table(["load", "no fixed share", *SHARES.values()], [(label, figure(hits(run.rows["dopftl"]), 4), *(figure(run.fixed.get(share), 4) for share in SHARES)) for label, run in runs.items()])
    text += f"Mean response as a multiple of the reference's (Figure 9), without time in RAM / with {STEP_US} us a step:\n\n"
    text += table(["load", *(ftld.graded(name) for name in ("dopftl", "tpftl", "dftl"))], [(label, *(f"{figure(run.over[name])} / {figure(run.over_ram[name])}" for name in ("dopftl", "tpftl", "dftl"))) for label, run in runs.items()])
    told, unexplained = report(CLAIMS, cases(runs), WHY)
    return text + told, unexplained


def device(ftld, stem):
    """As large as the trace needs; caches of a 64th of the table, but two mapping pages at least."""
    size = real.touched(ftld, stem)
    cache = max(CACHE_LEAST, size // 4096 * 4 // 64)
    return ("--preset", "dopftl-paper", "--size", str(size), *(word for key in ("dop", "dftl", "tpftl") for word in ("--set", f"{key}.cache={cache}")))


def without_caches_of_others(options):
    """The options of a run of DOPFTL alone, which has no parameter of another scheme."""
    pairs = zip(options, (*options[1:], None))
    others = {at for at, (word, value) in enumerate(pairs) if word == "--set" and value.startswith(("dftl.", "tpftl."))}
    return tuple(word for at, word in enumerate(options) if at not in others and at - 1 not in others)


def by_scheme(ftld, name, load, names, *options):
    rows = ftld.run(name, load, names, *options, raw="equal" if load.real else "own")
    return {name: rows.one(name) for name in names}


class Runs:
    """What one load gave."""

    def __init__(self, ftld, load, names):
        self.load = load
        self.rows = by_scheme(ftld, "dopftl", load, names)
        raw = str(self.rows["dopftl"]["device"]["raw_bytes"]) if load.real else "own"
        timed = by_scheme(ftld, "dopftl-ram", load, names, "--set", f"timing.ram={STEP_US}")
        alone = replace(load, options=without_caches_of_others(load.options))
        walking = ftld.run("dopftl-ctpa", alone, ["dopftl"], "--set", "dop.ctpa=off", "--set", f"timing.ram={STEP_US}", raw=raw)[0]
        # The least cache has no room for a fixed share.
        self.fixed = {}
        if f"dop.cache={CACHE_LEAST}" not in load.options:
            fixed = ftld.run("dopftl-share", alone, ["dopftl"], "--set", "dop.original_share=" + ",".join(SHARES), raw=raw)
            self.fixed = {share: hits(fixed.one("dopftl", dop__original_share=share)) for share in SHARES}
        self.steps = steps(timed["dopftl"]), steps(walking)
        mean = lambda row: row["response_ns"]["all"]["mean"] / 1000
        self.times = mean(timed["dopftl"]), mean(walking)
        self.over = {name: mean(self.rows[name]) / mean(self.rows["pagemap"]) for name in names}
        self.over_ram = {name: mean(timed[name]) / mean(timed["pagemap"]) for name in names}
        self.collected = collected(*self.rows.values())


def steps(row):
    """Per lookup."""
    return row["scheme_stats"]["map_lookup_steps"] / max(1, row["map_cache"]["lookups_read"] + row["map_cache"]["lookups_write"])


def hits(row):
    return 1.0 if row["map_cache"]["hit_ratio"] is None else row["map_cache"]["hit_ratio"]


def cases(runs):
    found = {}

    def add(key, label, ours, theirs=None, real=False):
        found.setdefault(key, []).append(Case(label, ours, theirs, real))

    for label, run in runs.items():
        hit = {name: hits(row) for name, row in run.rows.items()}
        say = lambda key, ours: add(key, label, ours, None, run.load.real)
        say("dftl", (hit["dftl"], hit["dopftl"]))
        if label == "our PC Test":
            say("tpftl pc", (hit["tpftl"], hit["dopftl"]))
        say("reference", sum(run.rows["pagemap"]["flash"].get(cause, {}).get("reads", 0) for cause in MAPPING))
        say("ctpa", run.steps)
        with_ctpa, without = run.times
        say("ctpa time", (with_ctpa, without))
        for share, ratio in run.fixed.items():
            say(f"fixed {share}", (ratio, hit["dopftl"]))
        for other in ("dftl", "tpftl"):
            say(f"overhead {other}", (run.over["dopftl"], run.over[other]))
        say("overhead ram", (run.over_ram["dopftl"], min(run.over_ram["dftl"], run.over_ram["tpftl"])))
    ours = {label: run for label, run in runs.items() if not run.load.real}
    for is_real in (True, False):
        some = [run.rows for run in runs.values() if run.load.real is is_real]
        if some:
            average = lambda name: sum(hits(rows[name]) for rows in some) / len(some)
            add("average", f"mean of {len(some)}", average("dopftl"), 0.89, is_real)
            add("near tpftl", f"mean of {len(some)}", average("dopftl") / average("tpftl"), None, is_real)
    ratios = {label.removeprefix("our "): run.steps[1] / run.steps[0] for label, run in ours.items()}
    others = lambda name: [ratio for trace, ratio in ratios.items() if trace != name]
    add("ctpa most", "the four", (max(others("Dorado")), ratios["Dorado"]))
    add("ctpa least", "the four", (ratios["RocksDB"], min(others("RocksDB"))))
    return found


# Why a figure of ours differs, by claim.
CACHE = "Emulated time is that of the flash. A small cache contains 16 to 64 whole mapping pages, so every second scattered write evicts and programs a changed one; single entries are written back together. The cache of the paper's example is 512 times as large."
WHY = {
    "dftl": "The hot pages of a Zipf load are not adjacent. 64 KiB contain 8,192 single entries or at most 64 mapping pages. Whole pages are better where requests have spatial locality; single entries are better where a few single pages take almost all accesses.",
    "average": "Nearly every lookup of Financial1 hits: compressed, most of its table is in 8 KB. Our loads have only the share of reads in common with the paper's.",
    "ctpa time": "The cache has 64 blocks here and 32,768 in the paper's example: the list is short, and its steps are few beside the time of the flash.",
    "ctpa most": "A miss searches the whole list. Loads that mostly read leave mapping pages compressed, up to 64 of them; scattered writes turn them into original pages, so Dorado's list has 16. In a large cache it is long, too.",
    "ctpa least": "As the claim before.",
    "fixed 0.4": "Where original mapping pages cannot take the space of compressed ones, sequential requests find more of their compressed pages: a fixed ratio can be better by a small part of a point.",
    "fixed 0.2857": "As the claim before.",
    "overhead dftl": CACHE,
    "overhead tpftl": CACHE,
    "overhead ram": CACHE,
}
