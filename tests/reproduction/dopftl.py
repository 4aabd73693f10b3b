"""DOPFTL (Chen, Lin, Cao, Cheng): hit ratios against DFTL, TPFTL and the reference, and what finding a mapping costs."""

from statistics import mean

from . import real
from .page import figure, table
from .rows import MAPPING, Load, programs
from .verdict import Case, Claim, Setting, joint, less, report, such, within

TITLE = "DOPFTL"

SCHEMES = ["dftl", "tpftl", "dopftl", "pagemap"]
# Table 2: the trace, its share of reads; our load with that share.
TRACES = [
    ("PC Test", 0.10, "mixed:requests=400000,read=10%,sequential=70%,size=4KiB/60+32KiB/40"),
    ("Cassandra", 0.95, "zipf:requests=400000,read=95%,theta=0.9,size=4KiB/80+16KiB/20"),
    ("RocksDB", 0.97, "zipf:requests=200000,read=97%,theta=1.2,size=4KiB/80+16KiB/20"),
    ("Dorado", 0.36, "uniform:requests=50000,read=36%,size=4KiB/50+16KiB/50"),
]
# "A space ratio between original mode and compressed mode of 0.4" can be read as two shares of the cache.
SHARES = {"0.4": "0.4 of all", "0.2857": "0.4 of the compressed"}
# Traces replayed with compacted addresses, and traces with known original addresses.
COMPACT, WIDE = [real.FINANCIAL1, real.MSSQL], [real.MSSQL, real.MYSQL]
# Device sizes: of our own loads, and of the traces with wide addresses.
SIZE, WIDE_SIZE = 4 << 30, 32 << 30
# Effective over-provisioning of every scheme on real traces, in percent.
OP = 15
# Two mapping pages, the least that a cache of DOPFTL takes; and blocks of 1 KiB, below which there is no list to avoid.
CACHE_LEAST, LIST_LEAST = 8192, 64
# Us of a step in RAM; the paper gives none. And of reading and programming a mapping page of `mlc-4k`, lower and upper pages alike.
STEP_US, READ_US, PROGRAM_US = 1, 50, 900
# Mapping pages that the lookups of "Figure 5" go through, in turns: of 500, so that 500 nodes are before each.
FIGURE_5_NODES, FIGURE_5_TURNS, FIGURE_5_CACHE = 500, 20, 600 << 10

# A difference of less percent is not called obvious.
LEAST = 5
HIGHER = "DOPFTL's hit ratio above, on every load (the pair is the other's, DOPFTL's)"
STATES = {
    "filled": Setting("a device written once in order, as large as what is touched; a cache of a 64th of its table", 'Table 2: two traces with 95 and 97 % reads, so their pages were written before; "2TB, the corresponding mapping cache is 32MB"'),
    "wide": Setting("the same, with the addresses as they were: a table of 32 MiB, most of it never used", '"Address Space 1.2TB"'),
    **real.FORMS,
}
LISTS, HASHED, RESPONSE, ALL = "", ", hashed", ", response", ", all steps"


def settings():
    """A state, and how time is counted: as the text does, or otherwise."""
    found = {}
    for name, one in STATES.items():
        lists = f"{one.says}; mapping pages that are read and programmed, and {STEP_US} us for each node or entry that a lookup examines in the schemes' lists"
        found[name] = Setting(lists, one.words and f'{one.words}; "nodes to be checked whether one of them is the requested one"')
    for name, one in STATES.items():
        found[name + HASHED] = Setting(f"{name}; DFTL and TPFTL find an entry in one step")
    for name, one in STATES.items():
        found[name + RESPONSE] = Setting(f"{name}; the mean response, without time in RAM", one.words and '"Time overhead ratio", of which the paper gives no formula')
    found["figure 5"] = Setting("lookups of 500 mapping pages in turns, all cached", '"there are 500 nodes to be checked"')
    return found


SETTINGS = settings()
HITS = tuple(STATES)
TIMES = tuple(name for name in SETTINGS if name != "figure 5")
STEPS = tuple(name for name in TIMES if not name.endswith(RESPONSE))
CLAIMS = [
    Claim("dftl", '"Compared with DFTL, DOPFTL has constantly higher cache hit rates"; "for various traces"', "Figure 8", less(HIGHER, digits=3), general=True, right_if="its requests touch neighbouring pages.", settings=HITS),
    Claim("tpftl pc", '"DOPFTL has better cache hit rates than TPFTL under the PC test [...] cases"', "Figure 8", less(HIGHER, digits=3)),
    Claim("tpftl dorado", '"and Dorado cases"; in the next sentence: "does not have a better cache hit rate than TPFTL under some traces like Dorado"', "Figure 8", why_not="the two sentences contradict each other"),
    Claim("average", '"DOPFTL can achieve an average cache hit rate of up to 0.89"', "0.89", such("0.845 or more", lambda ratio: ratio >= 0.845, digits=3)),
    Claim("near tpftl", '"close to that of TPFTL" (average, DOPFTL over TPFTL)', "Figure 8", such("within 10 %", lambda ratio: abs(ratio - 1) <= 0.1, digits=3)),
    Claim("reference", 'The reference FTL "has a cache hit rate of 1" (its reads of mapping pages)', "1", such("no mapping page read", lambda reads: reads == 0, digits=0), general=True, right_if="its table is in RAM.", settings=HITS),
    Claim("ctpa", '"O(N)" nodes are checked, "reduced to O(1)" (steps that find a mapping page: with CTPA 1 by construction, and without)', "Figure 5", less(f"fewer with CTPA by more than {LEAST} %, every load", -LEAST, digits=1), general=True, right_if="a lookup seldom finds its page at the head of the list.", settings=("figure 5", "wide")),
    Claim("ctpa nodes", '"there are 500 nodes to be checked" (steps of the example without CTPA)', "500", within(10, digits=0)),
    Claim("ctpa time", f'"DOPFTL with CTPA has obviously lower time overhead than DOPFTL without CTPA for all traces": mapping pages that are read and programmed, and {STEP_US} us a step (us a lookup)', "Figure 7", less(f"shorter with CTPA by more than {LEAST} %, every load", -LEAST, digits=1, unit=" us"), general=True, right_if="a step takes longer beside a read of the flash, or a list has more nodes.", settings=("figure 5", "wide")),
    Claim("ctpa most", '"There is the most time overhead reduction by CTPA under the Dorado case" (steps without over with: the most of the others, Dorado)', "Figure 7", less(f"Dorado's ratio is the highest by more than {LEAST} %", -LEAST, digits=2)),
    Claim("ctpa least", '"the least reduction under the RocksDB case" (RocksDB, the least of the others)', "Figure 7", less(f"RocksDB's ratio is the lowest by more than {LEAST} %", -LEAST, digits=2)),
    *(
        Claim(f"fixed {share}", f'"the cache hit rates of DOPFTL are higher than those with a fixed space ratio of 0.4" ({name})', "Figure 6", less(HIGHER, digits=4))
        for share, name in SHARES.items()
    ),
    *(
        Claim(f"overhead {other}", f'{says} (us a lookup; or mean responses)', "Figure 9", less(f"DOPFTL below {other.upper()} by more than {LEAST} %, every load", -LEAST, digits=1, unit=" us"), general=True, right_if=right_if, settings=TIMES)
        for other, says, right_if in (
            ("dftl", '"DOPFTL has obviously lower time overhead than DFTL"', "lookups walk lists, or whole mapping pages are written back for more changes than single entries."),
            ("tpftl", '"time overhead ratios of DOPFTL are the least ones"; "a further improvement on time overhead compared with TPFTL"', "lookups walk lists, and whole mapping pages are written back for more changes than a node's entries."),
        )
    ),
    Claim("overhead ram", '"DOPFTL has less time overhead to locate/update LPN-PPN mappings in mapping cache than DFTL and TPFTL" (steps a lookup in RAM, the fewest of the two others)', "none", less("DOPFTL's are fewer than both, on every load", digits=1), general=True, right_if="the others walk lists.", settings=STEPS),
]
INTRODUCTION = f"""\
Pages of 4 KB on `mlc-4k`, an effective over-provisioning of {OP} % for every scheme on real traces; the paper gives no charges, and its block of "168,600KB" is implausible. A cache of a 64th of the table, as in its example. `--preset dopftl-paper`. The three have the same RAM by the papers' count, cache and
pending changes: the cache of TPFTL, whose entries are smaller, is 6/7 of the others'. DOPFTL needs two mapping pages of 4 KB at least, more than a 64th of Financial1's table: all caches are of 8 KB there. `--set map.lookup=list` counts the nodes and
entries that a search of DFTL's and TPFTL's LRU lists examines; `dop.ctpa=off` counts those of DOPFTL's.

The four traces of the paper were not published, only their share of reads and a word or two. So what is said of them is not testable. **Stand-ins**, on 4 GiB that was written once: PC Test is a desktop's (here: 70 % sequential), RocksDB's hot
mappings stay at the head of the list (here: Zipf with 1.2), Dorado is the most random (here: uniform), Cassandra lies between (here: Zipf with 0.9). What the paper says of various traces is judged on real ones.

"""


def section(ftld):
    names = ftld.have(*SCHEMES)
    preset = ("--preset", "dopftl-paper")
    runs = [Runs(ftld, "filled", Load(trace, ftld.scaled(load, 400_000), preset), names, SIZE, True) for trace, _, load in TRACES]
    for stem in COMPACT:
        size = real.touched(ftld, stem) if ftld.trace(stem) else 0
        loads = {"filled": real.load(ftld, stem, "--precondition", "fill"), **real.forms(ftld, stem)} if size else {}
        runs += [Runs(ftld, state, Load(load.label, load.workload, (*preset, "--size", str(size), *load.options), True), names, size) for state, load in loads.items()]
    for stem in WIDE:
        file = ftld.trace(stem)
        options = (*preset, "--size", str(WIDE_SIZE), "--precondition", "fill")
        runs += [Runs(ftld, "wide", Load(real.TRACES[stem][0], str(file), options, True), names, WIDE_SIZE, True)] if file else []
    example = figure_5(ftld)
    lines = [run.line() for run in runs]
    heads = ["load", "state", *(f"hit ratio, {ftld.graded(name)}" for name in names[:3]), *(f"mapping pages programmed per page written, {name}" for name in names[:3]), *(f"steps a lookup, {name}" for name in names[:3]), "DOPFTL without CTPA", "us a lookup, dftl / tpftl / dopftl"]
    text = INTRODUCTION + table(heads, lines)
    fixed = [(run.load.label, figure(hits(run.rows["dopftl"]), 4), *(figure(run.fixed[share], 4) for share in SHARES)) for run in runs if run.fixed]
    text += "Hit ratios with a fixed share of the cache for original mapping pages (Figure 6). `dop.original_share`:\n\n" + table(["load", "no fixed share", *SHARES.values()], fixed)
    told, unexplained = report(TITLE, CLAIMS, cases(runs, example), WHY, SETTINGS, CHANGED)
    return text + told, unexplained


def cache_bytes(size):
    return max(CACHE_LEAST, size // 4096 * 4 // 64)


def caches(size, names):
    """Caches of a 64th of the table, but of two mapping pages at least. Pending changes have as many
    bytes, 4 each; TPFTL's entries are smaller."""
    cache = cache_bytes(size)
    by_list = {"map.lookup": "list"}
    values = {"dopftl": {"dop.cache": cache, "dop.max_dirty": cache // 4}, "dftl": {"dftl.cache": cache, **by_list}, "tpftl": {"tpftl.cache": cache * 6 // 7, **by_list}}
    found = {key: value for name in names for key, value in values.get(name, {}).items()}
    return [word for key, value in found.items() for word in ("--set", f"{key}={value}")]


def by_scheme(ftld, name, load, names, *options):
    rows = ftld.run(name, load, names, *options, *(["--op-effective", OP] if load.real else []))
    return {name: rows.one(name) for name in names}


class Runs:
    """Results of one load in one state. `walks`: DOPFTL without CTPA is run, too."""

    def __init__(self, ftld, state, load, names, size, walks=False):
        self.state, self.load, self.names = state, load, names
        self.blocks = cache_bytes(size) // 1024
        self.rows = by_scheme(ftld, f"dopftl-{state}", load, names, *caches(size, names))
        alone = caches(size, ["dopftl"])
        self.walking = by_scheme(ftld, f"dopftl-ctpa-{state}", load, ["dopftl"], *alone, "--set", "dop.ctpa=off")["dopftl"] if walks else None
        self.fixed = {}
        if not load.real:
            fixed = ftld.run("dopftl-share", load, ["dopftl"], *alone, "--set", "dop.original_share=" + ",".join(SHARES))
            self.fixed = {share: hits(fixed.one("dopftl", dop__original_share=share)) for share in SHARES}

    def lists(self, name):
        """Us of a lookup: mapping pages, and the steps of lists."""
        return mapping_us(self.rows[name]) + STEP_US * steps(self.rows[name])

    def hashed(self, name):
        """Us of a lookup if DFTL and TPFTL find an entry in one step."""
        return mapping_us(self.rows[name]) + STEP_US * self.hashed_steps(name)

    def hashed_steps(self, name):
        return steps(self.rows[name]) if name == "dopftl" else 1

    def response(self, name):
        return self.rows[name]["response_ns"]["all"]["mean"] / 1000

    def found(self):
        """Steps that find a mapping page, with CTPA and without: those in the page are in both."""
        return 1, steps(self.walking) - steps(self.rows["dopftl"]) + 1

    def line(self):
        label = self.load.label if self.load.real else f"stand-in {self.load.label}"
        others = self.names[:3]
        written = lambda name: programs(self.rows[name], *MAPPING) / self.rows[name]["requests"]["pages_written"]
        return (
            label, self.state, *(figure(hits(self.rows[name]), 3) for name in others), *(figure(written(name), 3) for name in others),
            *(figure(steps(self.rows[name]), 1) for name in others), figure(steps(self.walking), 1) if self.walking else "-",
            " / ".join(figure(self.lists(name), 0) for name in others),
        )


def figure_5(ftld):
    """DOPFTL with CTPA and without: reads of one page of each of so many mapping pages, in turns. The first turn loads them."""
    trace, page = ftld.folder / "dopftl-figure-5.csv", 4096
    reads = [vtpn * (page // 4) for _ in range(FIGURE_5_TURNS) for vtpn in range(FIGURE_5_NODES)]
    trace.write_text("".join(f"0,R,{lpn * page},{page}\n" for lpn in reads))
    load = Load("Figure 5", str(trace), ("--preset", "dopftl-paper"))
    return [by_scheme(ftld, f"dopftl-{ctpa}", load, ["dopftl"], "--set", f"dop.cache={FIGURE_5_CACHE}", "--set", f"dop.ctpa={ctpa}")["dopftl"] for ctpa in ("on", "off")]


def lookups(row):
    return max(1, row["map_cache"]["lookups_read"] + row["map_cache"]["lookups_write"])


def steps(row):
    """Per lookup."""
    return row["scheme_stats"]["map_lookup_steps"] / lookups(row)


def mapping_us(row):
    """Time of the mapping pages that were read and programmed, per lookup."""
    operations = [row["flash"].get(cause, {}) for cause in MAPPING]
    return sum(READ_US * one.get("reads", 0) + PROGRAM_US * one.get("programs", 0) for one in operations) / lookups(row)


def hits(row):
    return 1.0 if row["map_cache"]["hit_ratio"] is None else row["map_cache"]["hit_ratio"]


def cases(runs, example):
    found = {}

    def add(key, run, ours, counted="", exercised=True):
        setting = run.state + counted
        found.setdefault(key, []).append(Case(run.load.label, ours, None, run.load.real, exercised, setting=setting if run.load.real else counted.strip(", ")))

    pairs = []
    for run in runs:
        hit = {name: hits(row) for name, row in run.rows.items()}
        add("dftl", run, (hit["dopftl"] and hit["dftl"], hit["dopftl"]))
        if run.load.label == "PC Test":
            add("tpftl pc", run, (hit["tpftl"], hit["dopftl"]))
        pairs.append(Case(run.load.label, (hit["dopftl"], hit["tpftl"]), None, run.load.real, setting=run.state if run.load.real else ""))
        add("reference", run, sum(run.rows["pagemap"]["flash"].get(cause, {}).get("reads", 0) for cause in MAPPING))
        if run.walking:
            has_list = run.blocks >= LIST_LEAST
            found_in = run.found()
            add("ctpa", run, found_in, exercised=has_list)
            add("ctpa time", run, tuple(mapping_us(run.rows["dopftl"]) + STEP_US * steps(row) for row in (run.rows["dopftl"], run.walking)), exercised=has_list)
        for share, ratio in run.fixed.items():
            add(f"fixed {share}", run, (ratio, hit["dopftl"]))
        for other in ("dftl", "tpftl"):
            for counted, time in ((LISTS, run.lists), (HASHED, run.hashed), (RESPONSE, run.response)):
                add(f"overhead {other}", run, (time("dopftl"), time(other)), counted)
        fewest = lambda count: min(count("dftl"), count("tpftl"))
        add("overhead ram", run, (steps(run.rows["dopftl"]), fewest(lambda name: steps(run.rows[name]))))
        add("overhead ram", run, (steps(run.rows["dopftl"]), fewest(run.hashed_steps)), HASHED)
    with_it, without = example
    of_example = lambda ours: Case("Figure 5", ours, own=True, setting="figure 5")
    found["ctpa"].append(of_example((1, steps(without) - steps(with_it) + 1)))
    found["ctpa nodes"] = [Case("Figure 5", steps(without) - steps(with_it) + 1, 500, own=True, setting="figure 5")]
    found["ctpa time"].append(of_example(tuple(mapping_us(with_it) + STEP_US * steps(row) for row in example)))
    found["average"] = list(joint("mean", lambda pairs: mean(ours for ours, _ in pairs), pairs))
    found["near tpftl"] = list(joint("mean", lambda pairs: mean(ours for ours, _ in pairs) / mean(theirs for _, theirs in pairs), pairs))
    ratios = {run.load.label: run.found()[1] for run in runs if run.walking and not run.load.real}
    others = lambda name: [ratio for trace, ratio in ratios.items() if trace != name]
    stand_in = lambda key, ours: found.setdefault(key, []).append(Case("the four", ours))
    stand_in("ctpa most", (max(others("Dorado")), ratios["Dorado"]))
    stand_in("ctpa least", (ratios["RocksDB"], min(others("RocksDB"))))
    return found


# Why our figure differs, by claim.
WHY = {
    "ctpa time": "mssql writes in runs, so its page is at the head of the list, as the paper says of RocksDB: 0.8 us of 20.5 us a lookup.",
    "overhead dftl": "The paper has no formula of its overhead. By its words on lookups, lists walked, and with an index of DFTL's entries, too, DOPFTL is right on every trace. The mean response is lower on every trace, but by 1 to 5 %: most of it is the flash's.",
    "overhead tpftl": "Where TPFTL walks its lists of nodes and entries, DOPFTL is right on every trace. With an index of both, TPFTL takes less on all but Financial1 in its first pass, because DOPFTL examines 9 to 36 extents and entries a lookup. Mean responses differ by less than 1.3 %.",
}
# Why a verdict differs from that in 0.2.0.
PRIVATE = "0.2.0 judged a figure of the four private traces on other ones."
CHANGED = {
    "tpftl pc": PRIVATE,
    "average": PRIVATE,
    "near tpftl": PRIVATE,
    "ctpa": "0.2.0 judged caches of 8 and 13 blocks, which have no list to avoid, and counted the extents of a page with the nodes of the list.",
    "ctpa time": "0.2.0 judged such caches, and the mean response.",
    "ctpa most": PRIVATE,
    "ctpa least": PRIVATE,
    "fixed 0.4": PRIVATE,
    "fixed 0.2857": PRIVATE,
    "overhead ram": "0.2.0 charged DFTL and TPFTL the 1 or 2 steps of our index; the paper's walk their lists. Against an index DOPFTL takes more steps.",
}
