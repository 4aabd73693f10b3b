"""DOPFTL (Chen, Lin, Cao, Cheng): hit ratios against DFTL, TPFTL and the reference, and what finding a mapping costs."""

from statistics import mean

from . import real
from .page import figure, table
from .rows import MAPPING, Load, mean_us, programs, state
from .verdict import Case, Claim, joint, less, report, such, within

TITLE = "DOPFTL"

# Bytes: two mapping pages; and enough for either fixed share, which leaves four blocks of 1 KiB to uncompressed pages.
CACHE_LEAST, CACHE_OF_SHARES = 8192, 16384

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
REAL = [real.FINANCIAL1, real.MSSQL]
# Of the loads of ours.
SIZE = 4 << 30
# Us of a step in RAM, for what CTPA saves; the paper gives none.
STEP_US = "1"

# A difference of less percent is not called one.
LEAST = 5
HIGHER = f"DOPFTL's hit ratio above by more than {LEAST} %, every load (the pair is the other's, DOPFTL's)"
CLAIMS = [
    Claim("dftl", '"Compared with DFTL, DOPFTL has constantly higher cache hit rates"', "Figure 8", less(HIGHER, -LEAST, digits=3)),
    Claim("tpftl pc", '"DOPFTL has better cache hit rates than TPFTL under the PC test [...] cases"', "Figure 8", less(HIGHER, -LEAST, digits=3)),
    Claim("tpftl dorado", '"and Dorado cases"; in the next sentence: "does not have a better cache hit rate than TPFTL under some traces like Dorado"', "Figure 8", why_not="the two sentences contradict each other"),
    Claim("average", '"DOPFTL can achieve an average cache hit rate of up to 0.89"', "0.89", within(5, digits=3)),
    Claim("near tpftl", '"close to that of TPFTL" (average, DOPFTL over TPFTL)', "Figure 8", such("within 10 %", lambda ratio: abs(ratio - 1) <= 0.1, digits=3)),
    Claim("reference", 'The reference FTL "has a cache hit rate of 1" (its reads of mapping pages)', "1", such("no mapping page read", lambda reads: reads == 0, digits=0)),
    Claim("ctpa", '"DOPFTL with CTPA has obviously lower time overhead than DOPFTL without CTPA for all traces" (steps of a lookup, with and without)', "Figure 7", less(f"fewer with CTPA by more than {LEAST} %, every load", -LEAST, digits=1)),
    Claim("ctpa time", f"the same in time, with {STEP_US} us a step: mean response with and without", "Figure 7", less(f"shorter with CTPA by more than {LEAST} %, every load", -LEAST, digits=0, unit=" us")),
    Claim("ctpa most", '"There is the most time overhead reduction by CTPA under the Dorado case" (steps without over with: the most of the others, Dorado)', "Figure 7", less(f"Dorado's ratio is the highest by more than {LEAST} %", -LEAST, digits=2)),
    Claim("ctpa least", '"the least reduction under the RocksDB case" (RocksDB, the least of the others)', "Figure 7", less(f"RocksDB's ratio is the lowest by more than {LEAST} %", -LEAST, digits=2)),
    *(
        Claim(f"fixed {share}", f'"the cache hit rates of DOPFTL are higher than those with a fixed space ratio of 0.4" ({name})', "Figure 6", less(HIGHER, -LEAST, digits=4))
        for share, name in SHARES.items()
    ),
    Claim("overhead dftl", '"DOPFTL has obviously lower time overhead than DFTL" (mean response over the reference\'s, without time in RAM)', "Figure 9", less(f"DOPFTL below DFTL by more than {LEAST} %, every load", -LEAST, digits=2)),
    Claim("overhead tpftl", '"time overhead ratios of DOPFTL are the least ones": against TPFTL', "Figure 9", less(f"DOPFTL below TPFTL by more than {LEAST} %, every load", -LEAST, digits=2)),
    Claim("overhead ram", f'the same against both, with {STEP_US} us a step in RAM', "Figure 9", less(f"DOPFTL below both by more than {LEAST} %, every load", -LEAST, digits=2)),
]
INTRODUCTION = """\
Pages of 4 KB; the paper gives no charges, and its block of "168,600KB" is implausible; a cache of a 64th of the table, as in its example. `--preset dopftl-paper`: `mlc-4k`. The three have the same RAM by the papers' count, cache and pending
changes: the cache of TPFTL, whose entries are smaller, is 6/7 of the others'. Ours take up to 20 times as much for an entry and least for DOPFTL's pages, so the table has the same limit of real RAM (`--ram`, which counts every part at its largest), too: *same real RAM* is a further case.

- **Real traces**, not the paper's: Financial1 and mssql, on a device as large as each needs, equal raw flash for all schemes; filled and aged by random pages, which breaks extents: the worst state for compressed mapping
  pages. The table has them on a device that was filled in order only, too. DOPFTL needs two mapping pages of 4 KB at least, more than a 64th of Financial1's table: all caches are of 8 KB there.
- **Loads of ours** on 4 GiB, all written once before. The four traces were not published, only their share of reads and a word or two: PC Test is a desktop's (here: 70 % sequential), RocksDB's hot mappings stay at the head of the
  list (here: Zipf with 1.2), Dorado is the most random (here: uniform), Cassandra lies between (here: Zipf with 0.9). They are ours in all but the share of reads, so only directions can be compared.

"""


def section(ftld):
    names = ftld.have(*SCHEMES)
    preset = ("--preset", "dopftl-paper")
    runs = [Runs(ftld, Load(f"our {trace}", ftld.scaled(load, 400_000), preset), names, SIZE) for trace, _, load in TRACES]
    listed = {run.load.label: run.rows for run in runs}
    for stem in real.loads(ftld, *REAL):
        size = real.touched(ftld, stem)
        load, filled = (real.load(ftld, stem, *state) for state in ((), ("--precondition", "fill")))
        on = (*preset, "--size", str(size))
        runs.append(Runs(ftld, Load(load.label, load.workload, (*on, *load.options), True), names, size))
        listed[load.label] = runs[-1].rows
        label = f"{load.label}, filled only"
        listed[label] = by_scheme(ftld, "dopftl", Load(label, load.workload, (*on, *filled.options), True), names, *caches(size, names))
    listed |= {f"{run.load.label}, same real RAM": run.fitted for run in runs}
    runs = {run.load.label: run for run in runs}
    lines = []
    for label, rows in listed.items():
        for name, row in rows.items():
            written = row["requests"]["pages_written"]
            cells = figure(hits(row), 4), figure(programs(row, *MAPPING) / written, 4), figure(mean_us(row, "read"), 1), figure(mean_us(row, "write"), 1), figure(row["ram"]["paper_bytes"] / 1024, 0), figure(row["ram"]["allocated_bytes"] / 1024, 0)
            lines.append((label, ftld.graded(name), *cells, state(row)))
    heads = ["load", "scheme", "hit ratio", "mapping pages programmed per page written", "mean read us", "mean write us", "RAM by the paper, KiB", "RAM real, KiB", "valid pages in the flash at the end"]
    text = INTRODUCTION + table(heads, lines)
    text += "Steps of a lookup in RAM (Figure 7): with CTPA the directory entry, without CTPA the cached mapping pages, beginning with the last used one; then the entries or extents of the page. `dop.ctpa`:\n\n"
    text += table(["load", "with CTPA", "without", "ratio"], [(label, figure(run.steps[0]), figure(run.steps[1]), figure(run.steps[1] / run.steps[0])) for label, run in runs.items()])
    text += "Hit ratios with a fixed share of the cache for original mapping pages (Figure 6). `dop.original_share`:\n\n"
    text += table(["load", "no fixed share", *SHARES.values()], [(label, figure(hits(run.rows["dopftl"]), 4), *(figure(run.fixed.get(share), 4) for share in SHARES)) for label, run in runs.items()])
    text += f"Mean response as a multiple of the reference's (Figure 9), without time in RAM / with {STEP_US} us a step:\n\n"
    text += table(["load", *(ftld.graded(name) for name in ("dopftl", "tpftl", "dftl"))], [(label, *(f"{figure(run.over[name])} / {figure(run.over_ram[name])}" for name in ("dopftl", "tpftl", "dftl"))) for label, run in runs.items()])
    told, unexplained = report(TITLE, CLAIMS, cases(runs), WHY)
    return text + told, unexplained


def cache_bytes(size):
    return max(CACHE_LEAST, size // 4096 * 4 // 64)


def caches(size, names):
    """Caches of a 64th of the table, but of two mapping pages at least. Pending changes have as many
    bytes, 4 each; TPFTL's entries are smaller."""
    cache = cache_bytes(size)
    values = {"dopftl": {"dop.cache": cache, "dop.max_dirty": cache // 4}, "dftl": {"dftl.cache": cache}, "tpftl": {"tpftl.cache": cache * 6 // 7}}
    return [word for name in names for key, value in values.get(name, {}).items() for word in ("--set", f"{key}={value}")]


def real_ram(size):
    """Bytes that are enough for a cache of each scheme."""
    return (3 << 19) + size * 3 // 8192


def by_scheme(ftld, name, load, names, *options, raw="equal"):
    rows = ftld.run(name, load, names, *options, raw=raw if load.real else "own")
    return {name: rows.one(name) for name in names}


class Runs:
    """What one load gave."""

    def __init__(self, ftld, load, names, size):
        self.load = load
        self.rows = by_scheme(ftld, "dopftl", load, names, *caches(size, names))
        raw = str(self.rows["dopftl"]["device"]["raw_bytes"])
        # The reference has the whole table in RAM.
        self.fitted = by_scheme(ftld, "dopftl-fitted", load, [name for name in names if name != "pagemap"], "--ram", real_ram(size), raw=raw)
        timed = by_scheme(ftld, "dopftl-ram", load, names, *caches(size, names), "--set", f"timing.ram={STEP_US}")
        alone = caches(size, ["dopftl"])
        walking = by_scheme(ftld, "dopftl-ctpa", load, ["dopftl"], *alone, "--set", "dop.ctpa=off", "--set", f"timing.ram={STEP_US}", raw=raw)["dopftl"]
        self.fixed = {}
        if cache_bytes(size) >= CACHE_OF_SHARES:
            fixed = ftld.run("dopftl-share", load, ["dopftl"], *alone, "--set", "dop.original_share=" + ",".join(SHARES), raw=raw if load.real else "own")
            self.fixed = {share: hits(fixed.one("dopftl", dop__original_share=share)) for share in SHARES}
        self.steps = steps(timed["dopftl"]), steps(walking)
        response = lambda row: row["response_ns"]["all"]["mean"] / 1000
        self.times = response(timed["dopftl"]), response(walking)
        reference = response(self.rows["pagemap"])
        self.over = {name: response(self.rows[name]) / reference for name in names}
        self.over_fitted = {name: response(row) / reference for name, row in self.fitted.items()}
        self.over_ram = {name: response(timed[name]) / response(timed["pagemap"]) for name in names}


def steps(row):
    """Per lookup."""
    return row["scheme_stats"]["map_lookup_steps"] / max(1, row["map_cache"]["lookups_read"] + row["map_cache"]["lookups_write"])


def hits(row):
    return 1.0 if row["map_cache"]["hit_ratio"] is None else row["map_cache"]["hit_ratio"]


def cases(runs):
    found = {}

    def add(key, label, ours, theirs=None, real=False):
        found.setdefault(key, []).append(Case(label, ours, theirs, real))

    settings = ("", lambda run: run.rows, lambda run: run.over), (", same real RAM", lambda run: run.fitted, lambda run: run.over_fitted)
    pairs = []
    for label, run in runs.items():
        say = lambda key, ours, setting="": add(key, label + setting, ours, None, run.load.real)
        for setting, rows, over in settings:
            hit = {name: hits(row) for name, row in rows(run).items()}
            say("dftl", (hit["dftl"], hit["dopftl"]), setting)
            if label == "our PC Test":
                say("tpftl pc", (hit["tpftl"], hit["dopftl"]), setting)
            for other in ("dftl", "tpftl"):
                say(f"overhead {other}", (over(run)["dopftl"], over(run)[other]), setting)
        hit = {name: hits(row) for name, row in run.rows.items()}
        pairs.append(Case(label, (hit["dopftl"], hit["tpftl"]), 0.89, run.load.real))
        say("reference", sum(run.rows["pagemap"]["flash"].get(cause, {}).get("reads", 0) for cause in MAPPING))
        say("ctpa", run.steps)
        say("ctpa time", run.times)
        for share, ratio in run.fixed.items():
            say(f"fixed {share}", (ratio, hit["dopftl"]))
        say("overhead ram", (run.over_ram["dopftl"], min(run.over_ram["dftl"], run.over_ram["tpftl"])))
    found["average"] = list(joint("mean", lambda pairs: mean(ours for ours, _ in pairs), pairs))
    found["near tpftl"] = list(joint("mean", lambda pairs: mean(ours for ours, _ in pairs) / mean(theirs for _, theirs in pairs), pairs))
    ours = {label: run for label, run in runs.items() if not run.load.real}
    ratios = {label.removeprefix("our "): run.steps[1] / run.steps[0] for label, run in ours.items()}
    others = lambda name: [ratio for trace, ratio in ratios.items() if trace != name]
    add("ctpa most", "the four", (max(others("Dorado")), ratios["Dorado"]))
    add("ctpa least", "the four", (ratios["RocksDB"], min(others("RocksDB"))))
    return found


# Why a figure of ours differs, by claim.
CACHE = "Emulated time is that of the flash. A small cache contains 16 to 64 whole mapping pages, so scattered writes evict and program a changed one more often (table: mapping pages programmed per page written); single entries are written back together. The cache of the paper's example is 512 times as large."
WHY = {
    "dftl": "The hot pages of a Zipf load are not adjacent. 64 KiB contain 8,192 single entries or at most 64 mapping pages. We suppose that whole pages are better where requests have spatial locality, single entries where a few single pages take almost all accesses.",
    "average": "Nearly every lookup of the real traces hits: compressed, much of their small tables is in the cache. Our loads have only the share of reads in common with the paper's.",
    "tpftl pc": "The two are within a fifth of each other; PC Test is ours but for its share of reads.",
    "near tpftl": "Our loads and traces are not the paper's, and a mean hides that TPFTL is better on some of them.",
    "ctpa": "Financial1's cache has two mapping pages, so the list that CTPA avoids is short.",
    "ctpa time": "The cache has 64 blocks here and 32,768 in the paper's example: the list is short, and its steps are few beside the time of the flash.",
    "ctpa most": "A miss searches the whole list. Loads that mostly read leave mapping pages compressed, up to 64 of them; scattered writes turn them into original pages, so Dorado's list has 16. We suppose that it is long in a large cache, too.",
    "ctpa least": "As the claim before.",
    "fixed 0.4": "On real traces and PC Test the three are alike. Where original mapping pages cannot take the space of compressed ones, sequential requests probably find more of their compressed pages.",
    "fixed 0.2857": "As the claim before.",
    "overhead dftl": CACHE,
    "overhead tpftl": CACHE,
    "overhead ram": CACHE,
}
