"""MNFTL (Qin, Wang, Liu, Shao, Guan, DAC 2011): Table 2 on a real trace, and on stand-ins with the statistics of Table 1."""

from math import ceil
from statistics import mean

from . import real
from .page import count, figure, over, table
from .rows import DEVICES, collected, copies, erases, programs
from .verdict import Case, Claim, Setting, Test, between, joint, less, order, report, such, within

TITLE = "MNFTL"

# Table 1: the stand-in of a trace, its records.
TRACES = {
    "Financial1": ("stand-in-financial1", 1_333_747),
    "Financial2": ("stand-in-financial2", 3_699_194),
    "Websearch": ("stand-in-websearch", 4_261_709),
    "Systemdisk1": ("stand-in-systemdisk1", 1_040_692),
    "Systemdisk2": ("stand-in-systemdisk2", 2_636_016),
    "Systemdisk3": ("stand-in-systemdisk3", 1_312_945),
}
# Our name, theirs, us of spare bytes read before each read and write. One line per scheme of the table.
SCHEMES = [
    ("pagemap", "page-level", 0),
    ("dftl", "DFTL", 0),
    ("gftl", "GFTL", 0),
    ("superblock", "SFTL", 40),
    ("mnftl", "MNFTL", 20),
]
# Table 2: average response in us, valid pages copied, erases.
TABLE_2 = {
    "Financial1": {
        "pagemap": (789, 220_166, 5_554),
        "dftl": (1_375, 507_002, 12_465),
        "gftl": (1_996, 1_634_667, 17_905),
        "superblock": (1_433, 1_140_088, 18_947),
        "mnftl": (1_171, 476_069, 11_443),
    },
    "Financial2": {
        "pagemap": (192, 5_856, 796),
        "dftl": (375, 79_170, 5_260),
        "gftl": (1_417, 579_596, 7_484),
        "superblock": (1_369, 4_759_207, 88_347),
        "mnftl": (223, 72_352, 3_507),
    },
    "Websearch": {
        "pagemap": (60, 0, 0),
        "dftl": (170, 0, 0),
        "gftl": (1_488, 0, 0),
        "superblock": (95, 0, 0),
        "mnftl": (80, 0, 0),
    },
    "Systemdisk1": {
        "pagemap": (610, 0, 1_668),
        "dftl": (986, 34_431, 4_983),
        "gftl": (1_009, 84_631, 4_892),
        "superblock": (3_758, 3_634_681, 73_856),
        "mnftl": (652, 20_665, 4_343),
    },
    "Systemdisk2": {
        "pagemap": (525, 6_993, 8_463),
        "dftl": (699, 897_032, 7_998),
        "gftl": (1_056, 11_857, 2_252),
        "superblock": (5_577, 148_806_666, 282_710),
        "mnftl": (562, 70_164, 9_691),
    },
    "Systemdisk3": {
        "pagemap": (492, 1_024, 1_616),
        "dftl": (960, 111_216, 6_566),
        "gftl": (1_093, 4_047, 1_028),
        "superblock": (4_677, 6_099_928, 130_315),
        "mnftl": (523, 17_144, 4_143),
    },
}
# RAM of 8 GB, the figures of 5.1: "about 1.06MB (32 x 1024 x 34B)".
RAM = {"pagemap": 12 << 20, "gftl": 446 << 10, "dftl": 176 << 10, "superblock": 62 << 10, "mnftl": 34 * 32 * 1024}
# Percent that MNFTL's figures are below DFTL's, on average, in the order of Table 2.
REDUCTIONS = {"reduction": 30.92, "copies": 69.78, "erases": 33.35}
OTHERS = {"dftl": "DFTL", "gftl": "GFTL", "superblock": "SFTL"}
WRITING = ["Financial1", "Systemdisk1", "Systemdisk2", "Systemdisk3"]
REAL = [real.FINANCIAL1, real.MSSQL]
# 256 log blocks of 4,096 blocks; and how often Financial1 writes the flash of Table 2: 1,047,792 pages on 4,352 blocks.
OP, WRITTEN = 6.25, 1.88
UNITS = {"": "per_record", ", requests": "per_request"}
STATES = {
    "new": Setting(
        f"erased flash, {OP} % more than the extents of the trace; the trace until it has written the flash {WRITTEN} times; a record is a page",
        '"we assume only a portion of flash as the active region which stores our test workloads"; Table 2: 4,352 erased blocks, written 1.2 to 2.9 times, and responses of less than a program where a request has 20 pages',
    ),
    "region": Setting("the same, but the pages of these extents that the trace does not touch are written before it"),
    **real.FORMS,
}
WHOLE = {f"{name}, requests": Setting(f"{name}, with whole requests") for name in STATES}
COUNTS = {
    "mapping counted": Setting("pages copied, and the mapping pages that GC programs", '"it incurs extra valid page copies when maintaining the address mapping table in the flash memory"'),
    "data alone": Setting("pages of data copied"),
}
BYTES = {
    "table": Setting("the mapping table alone, by the bytes of 5.1. The paper has no formula for GFTL, DFTL and SFTL; SFTL's 62 KB is within 3 % of 2 bytes for each of 32,768 blocks", '"one physical page (block) number takes about 3 bytes (2 bytes) RAM space, while one pointer in the linked-list requires 4 bytes"; "mainly depends on the size of the address mapping table"'),
    "all": Setting("as ftld counts by the papers, with 4 bytes a page number, pending changes and block tables"),
}
READS = {"reads": Setting("reads of pages written before, and nothing reclaimed", '"if no garbage collection is invoked"')}
EXAMPLE = {"figure 2": Setting("8 writes to each of 128 logical blocks of 4 pages, on a new device with less flash than is written", '"we assume each physical block has four pages"')}
SETTINGS = {**STATES, **WHOLE, **COUNTS, **BYTES, **READS, **EXAMPLE}
RUNS = (*STATES, *WHOLE)
# Figure 2: A, B, A1, B1, A2, B2, C, D as pages of one logical block of 4 pages; here of so many.
FIGURE_2, FIGURE_2_PAGES, FIGURE_2_BLOCKS = (0, 1, 0, 1, 0, 1, 2, 3), 4, 128
# "Block 0 is designed to store the first version of data".
SEPARATED = ["bast", "fast"]


def fewer(text):
    """Two pairs of copies and erases: the first has fewer of both."""
    pair = lambda both: f"{both[0]:,} / {both[1]:,}"
    return Test(text, lambda ours, _: ours[0][0] < ours[1][0] and ours[0][1] < ours[1][1], None, lambda ours: f"{pair(ours[0])} and {pair(ours[1])}")


# The smallest gain in Table 2 that the paper calls "much faster", and the largest loss that it calls "a little slower".
MUCH, LITTLE = 0.852, 1.48
# Us that GFTL takes for a read beyond its copies and erases: Table 2's responses less the closed form, over the share of reads, are 1,249
# to 1,430: the least of them is the least favourable to the claim. ftld delays writes as well, which Table 2 does not bear: 1,009 us on Systemdisk1 with 74 % writes.
GFTL_READ_US = 1_249
NO_FORMULA = "the paper has the figure, and no formula: any count of ours would be fitted to it"
FORMULA = ("pagemap", "mnftl")
SHORTER = ("shorter", lambda ratio: ratio < 1)
CLAIMS = [
    *(
        Claim(
            f"faster than {name}",
            f'"For write-dominant traces [...] MNFTL shows much faster average response time than" {title}',
            f"Table 2: {', '.join(figure(TABLE_2[t]['mnftl'][0] / TABLE_2[t][name][0]) for t in WRITING)} of {title}'s",
            such(f"{MUCH} or less, the least gain that the paper calls so", lambda ratio: ratio <= MUCH, SHORTER),
            general=True,
            right_if=right_if,
            # A share of reads needs a record a page.
            settings=tuple(STATES) if name == "gftl" else RUNS,
        )
        for (name, title), right_if in zip(
            OTHERS.items(),
            (
                "garbage collection moves pages of many mapping pages, each of which DFTL then programs.",
                "GFTL waits for its slots.",
                "a superblock fills its log blocks before its pages are overwritten.",
            ),
        )
    ),
    Claim(
        "slower than pagemap",
        '"a little slower average response time than page-level FTL", write-dominant traces',
        f"Table 2: {', '.join(figure(TABLE_2[t]['mnftl'][0] / TABLE_2[t]['pagemap'][0]) for t in WRITING)} times",
        such(f"above 1, and {LITTLE} or less, the most that the paper calls so", lambda ratio: 1 < ratio <= LITTLE, ("longer", lambda ratio: ratio > 1)),
        general=True,
        right_if="page-level copies fewer pages.",
        settings=RUNS,
    ),
    Claim("websearch pagemap", 'Websearch: "20 us slower than page-level"; "one OOB read"', "20 us", within(2.5, ("slower", lambda us: us > 0), 1, " us"), settings=tuple(READS), right_if="its directories are read otherwise."),
    Claim("websearch sftl", 'Websearch: "15 us faster than SFTL"; "one OOB read (Trdoob) difference"', "15 us; an OOB read: 20 us", between(15, 20.5, ("faster", lambda us: us > 0), 1, " us"), settings=tuple(READS), right_if="its directories are read otherwise."),
    Claim("websearch", 'Websearch: "valid page copies and the block erase counts [...] are 0", under every scheme', "0, 0", such("copies and erases are 0", lambda both: both == 0, digits=0)),
    Claim("reduction", '"average reduction of 30.92% in average response time among six traces compared with DFTL" (introduction: 30.09 %)', "30.92 %", within(10, ("shorter", lambda percent: percent > 0), 1, " %")),
    Claim("copies", '"average reduction of 69.78% in valid page copies", compared with DFTL', "69.78 %", within(10, ("fewer", lambda percent: percent > 0), 1, " %"), settings=tuple(COUNTS)),
    Claim("erases", '"a 33.35% average reduction in block erase counts", compared with DFTL', "33.35 %", within(10, ("fewer", lambda percent: percent > 0), 1, " %")),
    *(
        Claim(
            f"{key} copies",
            f'{says}, "more valid page copies and block erase counts", write-dominant traces',
            theirs,
            fewer(f"MNFTL copies and erases less than {title} on every load (copies / erases)"),
            general=True,
            right_if=right_if,
            settings=RUNS,
        )
        for key, title, says, theirs, right_if in (
            ("sftl", "SFTL", '"for [...] SFTL scheme, we find that significant valid page copy and block erase operations are invoked"', "more on all traces that collect", "a superblock fills its log blocks before its pages are overwritten."),
            ("gftl", "GFTL", 'the same of "GFTL scheme"', "more copies on 3 traces of 5; fewer on Systemdisk2 and 3", "full blocks still have many valid pages."),
        )
    ),
    *(
        Claim(f"ram {name}", f"RAM of the mapping table of 8 GB, {title}", f"{figure(RAM[name] / 1024, 0)} KB", within(10, digits=0, unit=" KB"), settings=tuple(BYTES), right_if="its table has other parts.")
        if name in FORMULA
        else Claim(f"ram {name}", f"RAM of the mapping table of 8 GB, {title}", f"{figure(RAM[name] / 1024, 0)} KB", why_not=NO_FORMULA)
        for name, title, _ in SCHEMES
    ),
    Claim("ram order", "Least RAM first: SFTL, DFTL, GFTL, MNFTL, page-level", "62, 176, 446 KB, 1.06, 12 MB", why_not=NO_FORMULA + ", of three of the five"),
    Claim("ram block", "34 B of RAM for a logical block of one physical block, 8 subtables", "34 B", within(1, unit=" B"), settings=tuple(BYTES), right_if="a block has other fields."),
    Claim(
        "postponed",
        '"concentrated mapping outperforms separated mapping in reducing the valid page copies"; "concentrated mapping and postponed reclamation are effective at reducing the number of valid page copies"',
        "Figure 2, 8 writes: 0 copies, separated mapping 2",
        less("MNFTL copies fewer pages than separated mapping, the better of BAST and FAST"),
        general=True,
        right_if="updates go to pages of few logical blocks.",
        settings=("figure 2", *RUNS),
    ),
]
INTRODUCTION = """\
Device: 8 GB of MLC, of which "only a portion" is used; 2 KB pages, 128 a block; short read 20, read 60, program 800, erase 1,500 us. `--preset mnftl-paper`. The size of that
portion follows from the paper's Table 2: in every page-level row, pages written and copied, in blocks, less the blocks erased are 4,351 or 4,352. So all tests began on an erased region of 4,352 blocks, 1 GiB and the 256 log blocks
that the paper gives SFTL. 64 KB of cache are "about 4% of the whole page mapping table", which is that of 1 GiB, too. Traces:

- **Real**: Financial1 is public, and one of its 24 units is at hand; mssql is not the paper's. So no figure of Table 2 is theirs, but what the paper says of write-dominant traces is. Blocks of the same part, {op} % more than the trace's extents for
  every scheme; a cache of 4 % of the table for DFTL and a share of log blocks for SFTL as in the paper.
- **Stand-ins** on the paper's region: records, share of writes and mean length of Table 1, addresses by Zipf's law over the whole GiB with an exponent of 0.9, as for every stand-in on this page; the paper does not say where its traces
  write. Websearch reads from 512 MiB that were written before, because reads of unwritten pages access no flash.

A record counts as a page, as the authors counted: with Table 2's own copies and erases, `w (800 + o) + (1 - w) (60 + o) + (860 copies + 1,500 erases) / records` gives Table 2's own responses, with the share of writes `w` and `o` = 20 us of spare bytes for
MNFTL, 40 for SFTL, and 160 us more a GC run for MNFTL, whatever a record's length. The differences:

{form}"""


def published(trace, name, spare_us):
    """The closed form on the paper's own copies and erases, less the paper's own response."""
    share = {"Financial1": 0.7856, "Financial2": 0.1765, "Websearch": 0.0002, "Systemdisk1": 0.7404, "Systemdisk2": 0.6196, "Systemdisk3": 0.5810}[trace]
    response_us, copied, erased = TABLE_2[trace][name]
    work = 860 * copied + (1660 if name == "mnftl" else 1500) * erased
    return share * (800 + spare_us) + (1 - share) * (60 + spare_us) + work / TRACES[trace][1] - response_us


def form():
    lines = [(title, *(figure(published(trace, name, spare), 0) for trace in TRACES)) for name, title, spare in SCHEMES]
    return table(["us, closed form less published", *TRACES], lines)


def measured(row):
    """Columns of Table 2: the mean response in us, valid pages copied, erases."""
    return row["response_ns"]["all"]["mean"] / 1000, copies(row), erases(row)


def figure_2(ftld):
    """Copies by scheme in the example of 8 writes."""
    trace, page = ftld.folder / "mnftl-figure-2.csv", 2048
    writes = [FIGURE_2_PAGES * block + offset for block in range(FIGURE_2_BLOCKS) for offset in FIGURE_2]
    trace.write_text("".join(f"0,W,{lpn * page},{page}\n" for lpn in writes))
    device = ftld.folder / "mnftl-figure-2.toml"
    device.write_text((DEVICES / "mnftl.toml").read_text().replace("pages_per_block = 128", f"pages_per_block = {FIGURE_2_PAGES}"))
    size = FIGURE_2_BLOCKS * FIGURE_2_PAGES * page
    names = ftld.have("mnftl", *SEPARATED)
    rows = ftld.compare("mnftl-figure-2", [trace], names, "--preset", "mnftl-paper", "--profile", device, "--size", size, "--op", "7", raw="equal")
    return {row["scheme"]: copies(row) for row in rows}


def section(ftld):
    names = ftld.have(*(name for name, _, _ in SCHEMES))
    runs = real_runs(ftld, [*names, *ftld.have(*SEPARATED)])
    web = websearch(ftld, names)
    runs += stand_ins(ftld, names)
    example = figure_2(ftld)
    text = INTRODUCTION.format(form=form(), op=OP)
    titles = {name: ftld.graded(name, title) for name, title, _ in SCHEMES} | {name: ftld.graded(name) for name in SEPARATED}
    lines = [(run.load, run.setting, *map(run.cell, titles), f"{100 * run.rows.one(names[0])['collected']['utilisation']:.0f} %") for run in runs if run.real]
    text += "Real traces, emulated us / copies / erases:\n\n" + table(["trace", "setting", *titles.values(), "flash with valid pages"], lines)
    what = ["us", "copies", "erases"]
    lines = [(f"stand-in {run.load}, {word}", *(f"{count(run.of[name][index])} / {count(TABLE_2[run.load][name][index])}" for name in names)) for run in runs if not run.real for index, word in enumerate(what)]
    text += "Stand-ins, ours / Table 2:\n\n" + table(["", *(titles[name] for name in names)], lines)
    found = cases(runs, web, names)
    separated = min(example[name] for name in ftld.have(*SEPARATED))
    found["postponed"].append(Case("Figure 2", (example["mnftl"], separated), None, exercised=separated > 0, own=True, setting="figure 2"))
    found.update(ram(ftld, names))
    told, unexplained = report(TITLE, CLAIMS, found, WHY, SETTINGS, CHANGED)
    return text + told, unexplained


class Run:
    """Results of one load in one setting."""

    def __init__(self, load, setting, rows, is_real):
        self.load, self.setting, self.rows, self.real = load, setting, rows, is_real
        self.of = {row["scheme"]: measured(row) for row in rows}
        self.mapping = {row["scheme"]: programs(row, "gc_translation") for row in rows}
        self.full = collected(*rows)

    def cell(self, name):
        return " / ".join(map(count, self.of[name])) if name in self.of else "worn out"

    def case(self, ours, theirs=None):
        return Case(self.load, ours, theirs, self.real, self.full, setting=self.setting)

    def less(self, index, counted=False):
        """Percent that MNFTL's figure is below DFTL's; None where DFTL's is 0."""
        figures = [self.of[name][index] + (self.mapping[name] if counted else 0) for name in ("mnftl", "dftl")]
        return 100 * (1 - figures[0] / figures[1]) if figures[1] else None


def stand_ins(ftld, names):
    runs = []
    for trace, (stand_in, records) in TRACES.items():
        start = ["--size", "512MiB", "--precondition", "fill"] if trace == "Websearch" else []
        rows = ftld.compare(f"mnftl-{trace.lower()}", [ftld.scaled(stand_in, records)], names, "--preset", "mnftl-paper", *start)
        runs.append(Run(trace, "", rows, False))
    return runs


def websearch(ftld, names):
    """Mean us of reads of pages written before, by scheme."""
    rows = ftld.compare("mnftl-reads", ["uniform:requests=20000,read=100%"], names, "--preset", "mnftl-paper", "--size", "512MiB", "--precondition", "fill")
    return {row["scheme"]: measured(row)[0] for row in rows}


def real_runs(ftld, names):
    """Real traces in each state, a page a record and in whole requests."""
    runs = []
    for stem in REAL:
        if not ftld.trace(stem):
            continue
        for unit, option in UNITS.items():
            loads = {"new": loop(ftld, stem, option, "new"), "region": loop(ftld, stem, option, "region"), **real.forms(ftld, stem)}
            for state, load in loads.items():
                name, options = f"mnftl-{state}-{option}-{stem}", [*load.options, *method(ftld, stem, names), "--response-unit", option]
                rows = ftld.compare(name, [load.workload], names, *options, lenient=True)
                runs.append(Run(load.label, state + unit, rows, True))
    return runs


def loop(ftld, stem, unit, state):
    """The trace as often as it takes to write the flash."""
    size = real.touched(ftld, stem)
    once = ftld.compare(f"mnftl-pages-{stem}-{unit}", [ftld.trace(stem)], ["pagemap"], "--preset", "mnftl-paper", "--address", "compact", "--profile", DEVICES / "mnftl.toml", "--size", size, "--op", 100, "--precondition", "new", "--response-unit", unit)
    written = once.one("pagemap")["requests"]["pages_written"]
    loops = ceil(WRITTEN * (1 + OP / 100) * size / 2048 / written)
    return real.load(ftld, stem, "--precondition", state, "--loops", str(loops))


def method(ftld, stem, names):
    """The paper's part with as many blocks as the trace needs; caches and log blocks by the paper's shares."""
    size = real.touched(ftld, stem)
    shares = {"dftl.cache": size // 2048 * 4 // 25, "sftl.total": size // (128 * 2048) * 256 // 4096}
    keys = [key for key, scheme in (("dftl.cache", "dftl"), ("sftl.total", "superblock")) if scheme in names]
    sets = [word for key in keys for word in ("--set", f"{key}={shares[key]}")]
    return ["--preset", "mnftl-paper", "--profile", DEVICES / "mnftl.toml", "--size", size, "--op-effective", OP, *sets]


def ram(ftld, names):
    """RAM of a full device of 8 GB: as ftld counts by the papers, and of the table alone by the paper's bytes."""
    rows = ftld.compare("mnftl-ram", ["uniform:requests=1000,read=100%"], names, "--preset", "mnftl-paper", "--profile", DEVICES / "mnftl.toml", "--size", "8GiB", "--op", "7", "--precondition", "fill")
    device = rows.one("mnftl")["device"]
    blocks = device["logical_pages"] // 128
    whole = {name: rows.one(name)["ram"]["paper_bytes"] for name in names}
    alone = {"pagemap": whole["pagemap"] * 3 // 4, "mnftl": whole["mnftl"]}
    found = {f"ram {name}": [Case("8 GB", by[name] / 1024, RAM[name] / 1024, own=True, setting=setting) for setting, by in (("table", alone), ("all", whole))] for name in FORMULA}
    found["ram block"] = [Case("a full device", by["mnftl"] / blocks, 34, own=True, setting=setting) for setting, by in (("table", alone), ("all", whole))]
    return found


def as_table_2(row):
    """GFTL's mean response in us as Table 2 counts it, from the copies and erases of a row in which a record is a page."""
    records = row["requests"]["completed"]
    share = row["requests"]["pages_written"] / records
    return 800 * share + (60 + GFTL_READ_US) * (1 - share) + (860 * copies(row) + 1500 * erases(row)) / records


def cases(runs, web, names):
    found = {}
    writing = [run for run in runs if run.real or run.load in WRITING]
    ratio = lambda run, name: run.case(run.of["mnftl"][0] / (as_table_2(run.rows.one(name)) if name == "gftl" else run.of[name][0]))
    for name in [name for name in OTHERS if name in names]:
        found[f"faster than {name}"] = [ratio(run, name) for run in writing if name in run.of and (name != "gftl" or run.setting in STATES)]
    found["slower than pagemap"] = [ratio(run, "pagemap") for run in writing]
    reads = lambda more, fewer, theirs: [Case("512 MiB", web[more] - web[fewer], theirs, own=True, setting="reads")]
    found["websearch pagemap"] = reads("mnftl", "pagemap", 20)
    found["websearch sftl"] = reads("superblock", "mnftl", 15)
    for run in runs:
        if run.load == "Websearch":
            found["websearch"] = [Case(f"Websearch, {name}", run.of[name][1] + run.of[name][2]) for name in names]
    # A mean over the traces, as the paper's. No own load has all six; a mean of the real ones is shown in the paper's state.
    shown = [run for run in runs if not run.real or run.setting == "new"]
    for index, (key, theirs) in enumerate(REDUCTIONS.items()):
        for counted in COUNTS if key == "copies" else [""]:
            less_than = [(run, run.less(index, counted == "mapping counted")) for run in shown]
            some = [Case(run.load, percent, theirs, run.real, setting=counted) for run, percent in less_than if percent is not None]
            found.setdefault(key, []).extend(joint("mean", mean, some))
    for key, more in (("sftl copies", "superblock"), ("gftl copies", "gftl")):
        found[key] = [run.case((run.of["mnftl"][1:], run.of[more][1:])) for run in writing if more in run.of]
    real_runs_of = [run for run in runs if run.real]
    found["postponed"] = [run.case((run.of["mnftl"][1], min(run.of[name][1] for name in SEPARATED if name in run.of))) for run in real_runs_of]
    return found


# Why our figure differs, by claim.
WHY = {
    "faster than dftl": "In the paper's state DFTL programs few mapping pages here, so it is near page-level, and MNFTL on Financial1 is not. In Table 2 DFTL takes 110 to 390 us a record more than its copies and erases explain (table of the closed form), except on "
    "Systemdisk2; we suppose that its lookups cost more there. On Financial1 the paper is right where GC moves pages of many mapping pages (*rotated*) and in whole requests; on mssql, with few exceptions, only where MNFTL copies nothing.",
    "faster than gftl": "GFTL's time is its copies and erases here, and 1,249 us a read, the least that Table 2 bears (its share of reads times 1,249 to 1,430 us is what the closed form lacks). In ftld a write waits for a slice as well, so GFTL's emulated time is longer. "
    "With 1,430, as Websearch has, mssql would be 0.850 and the claim reproduced. "
    "The paper's buffer of \"about 16%\" of the data blocks is 6 % here, so GFTL cleans more often, probably: that is in the claim's favour.",
    "faster than superblock": "On mssql, a page a record, MNFTL copies nothing and the gain is 9 %. On a full device SFTL copies less, but not in whole requests of Financial1.",
    "websearch": "Websearch is not at hand. On its stand-in 865 writes at Zipf addresses reach more of SFTL's 512 superblocks than it may have log blocks, 256, so it compacts some; GFTL cleans every block that is full and has an invalid page. We suppose that the paper's writes reach fewer blocks.",
    "reduction": "An average of six traces, three of them private. The paper's own Table 2 gives 30.9 % without Websearch and 34.6 % with it.",
    "copies": "The paper's own Table 2 gives another figure: the mean of its rows is 46.3 %. On the unit of Financial1, a page a record, MNFTL copies more than DFTL in every state but *rotated*; in whole requests it copies less (table).",
    "erases": "The paper's own Table 2 gives another figure: the mean of its rows is 14.0 %, and 33.3 % is Financial2 alone.",
}
# Why a verdict differs from that in 0.2.0.
STATE = "0.2.0 judged full devices, aged by random writes."
SIX = "0.2.0 judged other traces by the paper's average of six."
TABLE_ALONE = "0.2.0 counted 4 bytes a page; the paper gives 3 bytes, and counts the mapping table alone."
CHANGED = {
    "faster than dftl": STATE,
    "faster than gftl": f"{STATE} The sentence has no size, and its least gain in Table 2 is 15 %; Table 2's ratios are those of its own traces.",
    "faster than superblock": STATE,
    "slower than pagemap": f"{STATE} Table 2 calls 1.48 times \"a little\".",
    "websearch sftl": "The 15 us of Table 2 and the 20 us of an OOB read, by which the paper explains them, are both the paper's.",
    "websearch": "0.2.0 judged the stand-in.",
    "reduction": SIX,
    "copies": f"{SIX} We suppose that the paper counted the mapping pages that DFTL's GC programs: it has 2.30 times page-level's copies, and ours counted so, on the stand-in of Financial1, 2.31 times.",
    "erases": SIX,
    "sftl copies": STATE,
    "gftl copies": STATE,
    "ram pagemap": TABLE_ALONE,
    **dict.fromkeys(["ram dftl", "ram gftl", "ram superblock", "ram order"], "0.2.0 compared a count of its own."),
    "postponed": "0.2.0 compared with page-level, which copies fewer pages than MNFTL in Table 2, too. The paper compares with separated mapping.",
}
