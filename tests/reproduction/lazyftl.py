"""LazyFTL (Ma, Feng, Li, SIGMOD 2011): the optimum, Figure 5 on real traces and on a stand-in, the RAM sweeps of Figure 6."""

from dataclasses import dataclass, replace
from functools import cache

from . import real
from .page import figure, table
from .rows import DEVICES, Load, collected, copies, erases, mean_us, state, waf
from .verdict import Case, Claim, between, less, order, report, such, those, within

TITLE = "LazyFTL"

# Figure 5, best first. One line per scheme.
FIGURE_5 = ["lazyftl", "asast", "last", "fast", "nftl1", "nftln", "bast"]
# "Very close" to each other.
ALIKE = ("fast", "nftl1")
# Not in the figure, for comparison.
BESIDE = ["pagemap", "dftl"]
CACHE_PAGES = [1, 2, 3, 5, 8, 14]
BUFFER_BLOCKS = [4, 8, 16, 32, 64, 128]
# Blocks of the update area and cached pages that take as much RAM as 128 and 14: 8 blocks' entries are one page.
SPLITS = [(128, 14), (160, 10), (192, 6), (224, 2)]
LENGTHS = [2, 4, 7, 11, 16]
ORDERS = ["runs", "scattered"]
REAL = [real.FINANCIAL1, real.MSSQL, real.MYSQL]
# The size of the swept stand-in: what fits with the largest area, so that one thing changes.
FIXED = ("--size", "912MiB")
# Percent of the device that the trace touches; the rest is never written. The paper's, and all.
PAPERS, TOUCHED = 75.9, [60, 75.9, 90, 100]
# The real trace of the sweeps. Its device is larger than the paper's: no two points round to one.
SWEPT = real.TRACES[real.MYSQL][0]

CLAIMS = [
    Claim("bound", "The optimum: one program a write, one erase every 64 writes", "223.4375 us", within(0.01, unit=" us")),
    Claim("optimum", '"the performance of LazyFTL is [...] very close to the optimal result"', "Figure 5", such("within 10 % of the optimum", lambda ratio: ratio <= 1.1, digits=3)),
    Claim("best", '"the performance of LazyFTL is much better than those of other schemes": write response', "Figure 5 (c)", less("LazyFTL lower than the best other, every load", digits=0, unit=" us")),
    Claim("total", "the same: total time", "Figure 5 (b)", less("LazyFTL lower than the best other, every load", digits=0, unit=" s")),
    Claim("fewest", '"LazyFTL needs to perform fewer erase operations than other FTL schemes"', "Figure 5 (d)", less("LazyFTL lower than the best other, every load")),
    Claim("order", '"A-SAST is better than LAST, which is in turn better than FAST. [...] FAST is very close to that of NFTL-1"; NFTL-N worse; BAST "worse than any other" (write response, us)', " < ".join(FIGURE_5[1:]), order(FIGURE_5[1:], ALIKE, 10)),
    Claim("bast", '"BAST [...] performance is worse than any other scheme including NFTL-N"', "Figure 5", such("BAST's write response above every other's (the ratio to the highest)", lambda ratio: ratio > 1, digits=3)),
    Claim("used", '"block utilization of LazyFTL always equals the number of pages in a block"', "64", within(2, digits=1)),
    Claim("used others", '"block utilization" of NFTL-N and of BAST "is very low" against other schemes', "Figure 5 (a)", less("both lower than every other scheme of the figure", digits=1)),
    Claim("scans", '"17.565 spare areas need to be scanned on average to serve a one-page read request", NFTL-1', "17.565", within(10, ("more than 1", lambda reads: reads > 1), 2)),
    Claim("reads", '"LazyFTL has to read about 1.000727 pages on average to serve a one-page read request", 14 of 1,024 mapping pages cached', "0.000727 more than 1", within(10, ("below 1/512: less than one mapping page read for the 512 pages that it maps", lambda more: more < 1 / 512), 6)),
    Claim("few", '"LazyFTL needs to rewrite only a small number of mapping pages" at a conversion', "Figure 6 (a)", such("at most 4 on average, a 16th of the pages of a block", lambda pages: pages <= 4)),
    Claim("hits", '"hit ratio decreases very slowly at first until there are less than 5 pages cached"', "Figure 6 (b)", such("falls at least 1.5 times as fast per page below 5 as above (the ratio of the two)", lambda ratio: ratio >= 1.5, ("faster below 5", lambda ratio: ratio > 1))),
    Claim("converts", '"when this threshold is halved, the maximum convert cost increases slowly unless the threshold is under a certain level (around 32)"', "Figure 6 (c)", such("maximum rises at least twice as much per halving below 32 blocks as above (the ratio of the two)", lambda ratio: ratio >= 2, ("more below 32 than above", lambda ratio: ratio > 1))),
    Claim("smallest", '"average latency of 237.613 us for a write request" with 1 cached mapping page and 4 blocks', "237.613 us", within(5, unit=" us")),
    Claim("smallest best", 'with these, "LazyFTL still outperforms other FTL schemes"', "Figure 6 (d)", less("lower than the best other with its usual RAM, on the same raw flash, every load", digits=0, unit=" us")),
    Claim("cache", '"the size of the LRU cache also has a slight influence on the write response time"', "Figure 6 (d)", between(0, 5, digits=2, unit=" %")),
    Claim("cache more", '"especially when convert operations are more frequent"', "Figure 6 (d)", less("1 instead of 14 cached pages costs less with 128 blocks than with 4", digits=2, unit=" us")),
    Claim("tradeoff", '"a tradeoff can be made between the UMT and the LRU cache of the GMT to further reduce the average write latency"', "-", less("some other split of the same RAM is below 128 blocks and 14 pages", digits=2, unit=" us")),
    Claim("chain", 'NFTL-N: "response time for write requests decreases quickly when the length limit [...] is enlarged. However, after a certain point around 7 [...] stable"', "around 7", those("5 % at least lower at 7 than at 2, within 5 % from 7 to 16 (% for both)", lambda both: both[0] >= 5 and both[1] <= 5, ("lower at 7 than at 2", lambda both: both[0] > 0))),
    Claim("dftl", '"the performance of LazyFTL and DFTL should be similar" (write response, DFTL\'s as a multiple)', "not measured", such("within 10 %", lambda ratio: abs(ratio - 1) <= 0.1)),
    Claim("full", '"the performance gap between LazyFTL and other existing schemes will expand" if the device is filled up', "not measured", less("best other over LazyFTL: where 75.9 % are touched below where 100 % are, both never aged", digits=2, unit=" times")),
    Claim("all traces", '"tested all the 36 traces in the package and obtained similar results"', "-", why_not="MSR Cambridge is not at hand; the format is read"),
    Claim("recovery", "Mounting after a failure reads spare areas of first pages and of mapping blocks (6.4)", "no figure", why_not="the paper measures nothing; a live device does (`ftld status`)"),
]
INTRODUCTION = """\
Device: 1 GB of SLC, 2 KB pages, 64 a block, 80 / 200 / 1,500 us; `--preset lazyftl-paper`: 7 % over-provisioning, which is ours; comparators with a page map have 128 log blocks, victims with the fewest valid pages. The paper's trace,
MSR `usr_2` scaled to the device, is not at hand.

- **Real traces**: Financial1, mssql and mysql, none of them the paper's, on as many blocks of the same part as each needs, equal raw flash for all schemes; 1.56 % of the blocks for the log and the update area, 14 of 1,024 mapping pages cached, as
  in the paper; filled and aged. mysql needs a device 3.5 times the paper's and is swept; blocks and pages of its sweeps are 3.5 times those of the tables' heads, and all its runs have the raw flash of the largest area. Financial1 is also run on a
  device of which it touches 75.9 %, as the paper's trace does, the rest never written.
- **Stand-in** with the published statistics of `usr_2` (75.9 % of the pages touched, relative standard deviation of accesses 193.6 %, requests of at most 256 pages). The order of the requests is unpublished and decides much: *runs*
  keeps those of one pass over 256 pages together, *scattered* has them in random order. In runs nothing is copied, so they judge no claim about reclaiming. Touched pages are written once, in order, and the trace runs once before it is
  measured. All sweeps have one size, and so have the schemes that the smallest RAM is compared with. [SCHEMES.md](../../docs/SCHEMES.md#lazyftl-on-its-own-device) has more on this.

"""


def section(ftld):
    names = ftld.have(*FIGURE_5, *BESIDE)
    parts, rows, lines = touched_parts(ftld), {}, []
    rigs = [*stand_ins(), *real_rigs(ftld), *(part for share, part in parts.items() if share == PAPERS)]
    raws = {rig.label: largest_raw(ftld, rig) for rig in rigs if rig.label == SWEPT}
    for rig in [*rigs, *(part for share, part in parts.items() if share != PAPERS)]:
        of = rows[rig.label] = compared(ftld, "lazyftl-order", rig, ftld.have(*FIGURE_5) if rig in parts.values() else names, raws.get(rig.label, "equal"))
        if rig not in rigs:
            continue
        bound = of[names[0]]["optimum"]
        lines.append((rig.label, "*optimum*", figure(bound["mean_write_ns"] / 1000), "1.000", "0", figure(bound["erases"], 0), "-", "-", "-"))
        for name, row in sorted(of.items(), key=lambda pair: per_page_us(pair[1], "write")):
            pages = row["requests"]["pages_written"]
            cells = figure(per_page_us(row, "write")), figure(waf(row), 3), figure(copies(row) / pages, 3), figure(erases(row), 0)
            lines.append((rig.label, ftld.graded(name), *cells, figure(used(row), 1), figure(reads_per_read(row), 4), state(row)))
    heads = ["load", "scheme", "mean write us", "programs per write", "copies per write", "erases", "pages programmed per erase", "page reads per read", "valid pages in the flash at the end"]
    text = INTRODUCTION + table(heads, lines)
    swept = [rig for rig in rigs if rig.label.endswith(ORDERS[1]) or rig.label == SWEPT]
    sweeps = {rig.label: Sweeps(ftld, rig, raws.get(rig.label), rows[rig.label] if rig.real else {}) for rig in swept}
    for title, values, cells in (
        ("Figure 6 (b): hit ratio of reads by cached mapping pages, with 128 blocks (of mysql 3.5 times as many)", CACHE_PAGES, lambda sweep: [figure(hit, 5) for hit in sweep.hits]),
        ("Figure 6 (c): mapping pages of a conversion, mean and maximum, by blocks of the update and the cold area", BUFFER_BLOCKS, lambda sweep: [f"{figure(mean)}, {most}" for mean, most in sweep.converts]),
        ("Figure 6 (d): mean write us, 14 cached pages / 1", BUFFER_BLOCKS, lambda sweep: [f"{figure(many)} / {figure(one)}" for many, one in sweep.writes]),
        ("The same RAM for blocks, cached pages: mean write us", [f"{blocks}, {pages}" for blocks, pages in SPLITS], lambda sweep: [figure(us) for us in sweep.splits]),
    ):
        text += f"{title}:\n\n" + table(["load", *values], [(label, *cells(sweep)) for label, sweep in sweeps.items()])
    # The shorter real trace: NFTL-N copies ten times as much as the others.
    lists = {rig.label: (rig, chains(ftld, rig)) for rig in rigs if rig.label.endswith(ORDERS[1]) or rig.label == real.TRACES[real.FINANCIAL1][0]}
    text += "NFTL-N by the longest list: mean write us:\n\n" + table(["load", *LENGTHS], [(label, *(figure(us, 0) for us in took)) for label, (_, took) in lists.items()])
    text += "Figure 6 (a): of all conversions, by the number of mapping pages that they wrote, %:\n\n" + distribution({rig.label: rows[rig.label] for rig in rigs})
    gaps = {share: gap(rows[part.label]) for share, part in parts.items()}
    if gaps:
        text += "The best other's write response over LazyFTL's, by the share of the device that Financial1 touches, never aged; and on the full device that random writes aged:\n\n"
        aged = next(of for label, of in rows.items() if label == real.TRACES[real.FINANCIAL1][0])
        text += table([*(f"{share} %" for share in gaps), "full, aged"], [[*(figure(one) for one in gaps.values()), figure(gap(aged))]])
    found = cases(ftld, rigs, rows, sweeps)
    for rig, took in lists.values():
        stable = took[LENGTHS.index(7) :]
        both = round(100 * (1 - stable[0] / took[0]), 1), round(100 * (max(stable) / min(stable) - 1), 1)
        found.setdefault("chain", []).append(Case(rig.label, both, None, rig.real, collected(rows[rig.label]["nftln"])))
    if gaps:
        lazy = [rows[parts[share].label]["lazyftl"] for share in (PAPERS, 100)]
        found["full"] = [Case("Financial1 (ASU 0)", (gaps[PAPERS], gaps[100]), None, True, all(map(collected, lazy)))]
    told, unexplained = report(TITLE, CLAIMS, found, WHY)
    return text + told, unexplained


@dataclass(frozen=True)
class Rig(Load):
    """A load on a device of this share of the paper's; blocks and cached pages are scaled with it."""

    scale: float = 1.0

    def blocks(self, number):
        return max(4, round(number * self.scale))

    def pages(self, number):
        return max(1, round(number * self.scale))


def stand_ins():
    method = ("--preset", "lazyftl-paper", "--warm-up", "1")
    return [Rig(f"stand-in usr_2, {order}", f"stand-in-usr_2:order={order}", method) for order in ORDERS]


def real_rigs(ftld):
    rigs = []
    for stem, load in real.loads(ftld, *REAL).items():
        options = ("--preset", "lazyftl-paper", "--profile", str(DEVICES / "lazyftl.toml"), *load.options)
        # The paper's GiB is all flash, 1.07 times what a host sees.
        rigs.append(Rig(load.label, load.workload, options, True, 1.07 * real.touched(ftld, stem) / 2**30))
    return rigs


def touched_parts(ftld):
    """Financial1 on devices of which it touches a share and leaves the rest, by that share."""
    rig = next((rig for rig in real_rigs(ftld) if rig.label == real.TRACES[real.FINANCIAL1][0]), None)
    bytes_touched = rig and real.touched(ftld, real.FINANCIAL1)
    return {share: part_of(rig, bytes_touched, share) for share in TOUCHED} if rig else {}


def part_of(rig, bytes_touched, percent):
    options = [word for word in rig.options if word not in ("--precondition", "steady")]
    options += ["--size", f"{round(100 * bytes_touched / percent / 2**20)}MiB", "--precondition", "trace", "--warm-up", "1"]
    return Rig(f"{rig.label} at {percent} %", rig.workload, tuple(options), True, 100 * rig.scale / percent)


def largest_raw(ftld, rig):
    """Bytes of flash that LazyFTL takes with the largest area of the sweeps."""
    return str(lazy_row(ftld, rig, SPLITS[-1][0], 1, raw="own")["device"]["raw_bytes"])


def lazy_row(ftld, rig, blocks, pages, *options, raw):
    values = ["--set", f"lazy.buffer_blocks={rig.blocks(blocks)}", "--set", f"lazy.cache_pages={rig.pages(pages)}"]
    return ftld.run(f"lazyftl-{blocks}-{pages}", rig, ["lazyftl"], *options, *values, raw=raw)[0]


def compared(ftld, name, rig, names, raw="equal"):
    """Rows by scheme, on real traces on one raw flash."""
    values = {"log.blocks": rig.blocks(128), "lazy.buffer_blocks": rig.blocks(128), "lazy.cache_pages": rig.pages(14), "last.sequential": max(1, rig.blocks(8))}
    shares = lambda *keys: [] if rig.scale == 1 else [word for key in keys for word in ("--set", f"{key}={values[key]}")]
    page_maps = shares("log.blocks", "lazy.buffer_blocks", "lazy.cache_pages")
    rows = ftld.run(name, rig, [one for one in names if one not in ("last", "nftl1", "nftln")], *page_maps, raw=raw if rig.real else "own")
    raw = str(rows[0]["device"]["raw_bytes"]) if rig.real else "own"
    found = {row["scheme"]: row for row in rows}
    for one in [one for one in ("last", "nftl1", "nftln") if one in names]:
        # LAST goes by the size of a request, so it has to see one; the two others have no log blocks to limit.
        load, more = (rig, [*shares("log.blocks", "last.sequential"), "--response-unit", "per_request"]) if one == "last" else (plain(rig, f"{one}-paper"), [])
        found[one] = ftld.run(f"{name}-{one}", load, [one], *more, raw=raw)[0]
    return found


def plain(rig, preset):
    """The same load under the preset of a scheme without log blocks."""
    options = tuple(preset if word == "lazyftl-paper" else word for word in rig.options)
    return Load(rig.label, rig.workload, options, rig.real)


def one_size(rig):
    """A stand-in with one size for the host; its raw flash is the profile's."""
    return rig if rig.real else replace(rig, options=(*rig.options, *FIXED))


class Sweeps:
    """Figure 6 on one load. `raw` is the flash of every run, or None for that of the profile;
    `beside` has rows of the other schemes, if they have this size."""

    def __init__(self, ftld, rig, raw, beside):
        rig = one_size(rig)
        lazy = cache(lambda blocks, pages: lazy_row(ftld, rig, blocks, pages, raw=raw or "own"))
        write = lambda row: per_page_us(row, "write")
        self.hits = [lazy(128, pages)["map_cache"]["hit_ratio_read"] for pages in CACHE_PAGES]
        both = [(lazy(blocks, 14), lazy(blocks, 1)) for blocks in BUFFER_BLOCKS]
        self.converts = [(many["convert_cost"]["mean"], many["convert_cost"]["max"]) for many, _ in both]
        self.writes = [(write(many), write(one)) for many, one in both]
        self.splits = [write(lazy(blocks, pages)) for blocks, pages in SPLITS]
        self.collects = collected(both[0][0])
        others = ftld.have(*FIGURE_5[1:])
        beside = beside or compared(ftld, "lazyftl-others", rig, others)
        self.best_other = min(per_page_us(beside[name], "write") for name in others)


def chains(ftld, rig):
    """Mean write us of NFTL-N, by the length of its lists."""
    lists = plain(one_size(rig), "nftln-paper")
    chain = lambda length: ftld.run(f"lazyftl-chain-{length}", lists, ["nftln"], "--set", f"nftln.max_length={length}")[0]
    return [per_page_us(chain(length), "write") for length in LENGTHS]


def per_page_us(row, side):
    """Mean of what a page of a request takes, whatever one response is."""
    requests = row["requests"]
    # Pages that are read to write a part of them are part of a write.
    pages = requests["pages_written"] if side == "write" else requests["pages_read"] - requests["pages_rmw"]
    return mean_us(row, side) * row["response_ns"][side]["count"] / pages


def reads_per_read(row):
    """Emulated time of a page read over that of reading one page."""
    return per_page_us(row, "read") / (row["optimum"]["page_read_ns"] / 1000)


def used(row):
    """Pages programmed per block erased."""
    return row["flash_total"]["programs"] / max(1, erases(row))


def scans(row):
    return row["flash"]["host"]["partial_reads"] / row["requests"]["pages_read"]


def distribution(rows):
    lines = []
    for label, of in rows.items():
        cost = of["lazyftl"]["convert_cost"]
        share = lambda low, high: 100 * sum(number for pages, number in cost["distribution"] if low <= pages <= high) / max(1, cost["count"])
        lines.append((label, *(figure(share(low, high), 1) for low, high in ((0, 0), (1, 1), (2, 2), (3, 4), (5, 8), (9, 64))), figure(cost["mean"]), cost["max"]))
    return table(["load", "0", "1", "2", "3 to 4", "5 to 8", "9 or more", "mean", "maximum"], lines)


def cases(ftld, rigs, rows, sweeps):
    found = {}

    def add(key, rig, ours, theirs=None, collects=True):
        found.setdefault(key, []).append(Case(rig.label, ours, theirs, rig.real, collects))

    for rig in rigs:
        of, collects = rows[rig.label], collected(rows[rig.label]["lazyftl"])
        figure_5 = ftld.have(*FIGURE_5)
        others = [name for name in figure_5 if name != "lazyftl"]
        took = {name: per_page_us(of[name], "write") for name in of}
        bound = of["lazyftl"]["optimum"]["mean_write_ns"] / 1000 / (of["lazyftl"]["requests"]["pages_written"] / of["lazyftl"]["response_ns"]["write"]["count"])
        if not rig.real:
            add("bound", rig, bound, 223.4375)
        add("optimum", rig, took["lazyftl"] / bound, None, collects)
        add("best", rig, (took["lazyftl"], min(took[name] for name in others)), None, collects)
        spent = {name: of[name]["emulated_ns"] / 1e9 for name in figure_5}
        add("total", rig, (spent["lazyftl"], min(spent[name] for name in others)), None, collects)
        add("fewest", rig, (erases(of["lazyftl"]), min(erases(of[name]) for name in others)), None, collects)
        add("order", rig, {name: took[name] for name in others}, None, collects)
        add("bast", rig, took["bast"] / max(took[name] for name in figure_5 if name != "bast"), None, collects)
        add("used", rig, used(of["lazyftl"]), 64, collects)
        low, high = (max(used(of[name]) for name in ("nftln", "bast")), min(used(of[name]) for name in figure_5 if name not in ("nftln", "bast")))
        add("used others", rig, (low, high), None, collects)
        add("scans", rig, scans(of["nftl1"]), 17.565)
        add("reads", rig, reads_per_read(of["lazyftl"]) - 1, 0.000727)
        add("few", rig, of["lazyftl"]["convert_cost"]["mean"], None, collects)
        if "dftl" in took:
            add("dftl", rig, took["dftl"] / took["lazyftl"], None, collects)
        if rig.label in sweeps:
            swept(add, rig, sweeps[rig.label])
    return found


def gap(of):
    """The best other's write response over LazyFTL's."""
    return min(per_page_us(of[name], "write") for name in FIGURE_5[1:] if name in of) / per_page_us(of["lazyftl"], "write")


def swept(add, rig, sweep):
    collects = sweep.collects
    # Points of the hit ratio per cached page: from 14 down to 5, and from 5 down to 1.
    slow, fast = (sweep.hits[5] - sweep.hits[3]) / 9, (sweep.hits[3] - sweep.hits[0]) / 4
    add("hits", rig, fast / max(slow, 1e-9), None)
    most = [high for _, high in sweep.converts]
    # Per halving: from 128 to 32 blocks, and from 32 to 4.
    above, below = (most[3] - most[5]) / 2, (most[0] - most[3]) / 3
    add("converts", rig, below / max(above, 0.5), None, collects)
    add("smallest", rig, sweep.writes[0][1], 237.613, collects)
    add("smallest best", rig, (sweep.writes[0][1], sweep.best_other), None, collects)
    few, many = (one - fourteen for fourteen, one in (sweep.writes[0], sweep.writes[-1]))
    add("cache", rig, 100 * max(few, many) / sweep.writes[-1][0], None, collects)
    add("cache more", rig, (many, few), None, collects)
    add("tradeoff", rig, (min(sweep.splits[1:]), sweep.splits[0]), None, collects)


# Why a figure of ours differs, by claim.
FULL = "Utilisation and age decide (table of the share touched). We suppose that on a full device that random writes aged every victim of LazyFTL has many valid pages, while merges of log blocks gather what the trace writes together. Never aged, LazyFTL is ahead at every share of that table."
WHY = {
    "optimum": "Overwriting leaves valid pages in every block at 7 % over-provisioning, and these are copied. The order of requests in the paper's trace was not published; in runs nothing is copied.",
    "best": FULL,
    "total": FULL,
    "fewest": FULL,
    "order": FULL + " Between the others: A-SAST's rules for groups were not available (fidelity C), and the number of replacement blocks of NFTL-1 and NFTL-N was not published; here over-provisioning determines it.",
    "bast": "mssql writes in runs; we suppose that BAST's log blocks of one logical block are as good as others for these. Scattered, A-SAST (fidelity C) and BAST are alike.",
    "used others": "BAST's log blocks are merged nearly empty, as in the paper. NFTL-N uses its blocks fully on mssql and on runs, we suppose because they write in order.",
    "scans": "As many as a replacement block is full, and as reads meet a replaced page: both depend on the trace.",
    "reads": "1.000727 is less than one mapping page read for the 512 pages that it maps (1.00195). So the paper's trace reads the same regions again while their mapping pages are cached. Financial1's unit has 1,008 reads in all.",
    "few": "4.09 on mysql are just above a 16th of the pages of a block; its maximum is 7.",
    "chain": "How many lists get so long depends on the trace, and on how many blocks over-provisioning leaves for them.",
    "hits": "The stand-in's requests, in random order, seldom return to a mapping page while it is cached, so 1 or 14 of 932 cached pages make little difference.",
    "converts": "The maximum of a run is that of one conversion, and irregular. The mean rises at every halving of the stand-in's area, without a bend at 32. mysql's maximum rises above 32, too, up to the 64 pages of a block (Figure 6 (c)).",
    "smallest": "14.2 us above the optimum are at most 0.047 copies of 303 us a write. On a full device there are several copies a write; the scattered stand-in has 0.3. The order and state of the paper's trace were not published.",
    "smallest best": FULL,
    "dftl": "DFTL rewrites a mapping page for most pages that GC moves on an aged device; LazyFTL collects them in its update area first.",
    "full": FULL,
}
