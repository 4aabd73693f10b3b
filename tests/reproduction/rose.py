"""ROSE (Chiao, Chang, IEEE TC 2011): Table 5, its three techniques one by one, wear, and ROSE-M beside it."""

from . import real, rose_claims
from .page import count, figure, over, table
from .rows import LEAST_COPIES, Load, collected, copies, erases, state
from .verdict import report

TITLE = "ROSE"

# The stand-in of a trace, its requests; here a SHARE-th of them on a SHARE-th of the device.
TRACES = {
    "LinuxPC": ("stand-in-linuxpc", 1_492_637),
    "Postmark": ("stand-in-postmark", 1_319_793),
    "LargeFile": ("stand-in-largefile", 80_349),
    "Fin1": ("stand-in-fin1", 4_101_802),
    "Fin2": ("stand-in-fin2", 652_534),
    "4VMs": ("stand-in-4vms", 3_102_699),
}
SHARE, WEAR_SHARE = 64, 256
# Why flash works when it cleans.
CLEANING = ("gc", "merge")
# Percent of the blocks that are log blocks.
LOG_SHARES = [1.5, 2, 2.5, 3, 3.5]
USUAL = 2.5
# Table 5: cleaning cost in seconds.
TABLE_5 = {
    "LinuxPC": {"rose": (771, 623, 541, 463, 418), "last": (2442, 2404, 2327, 2256, 2163), "fast": (4217, 4167, 4164, 4077, 4057)},
    "Postmark": {"rose": (96, 89, 78, 69, 61), "last": (358, 350, 344, 340, 334), "fast": (790, 669, 643, 450, 434)},
    "LargeFile": {"rose": (401, 394, 388, 381, 375), "last": (1127, 1108, 1101, 1102, 1107), "fast": (1227, 1177, 1199, 1134, 1116)},
    "Fin1": {"rose": (830, 573, 446, 410, 381), "last": (2139, 1925, 1671, 1227, 815), "fast": (5870, 5638, 5573, 5543, 5518)},
    "Fin2": {"rose": (52, 22, 6, 2, 2), "last": (88, 56, 43, 35, 28), "fast": (332, 308, 288, 280, 280)},
    "4VMs": {"rose": (7644, 6254, 5029, 3822, 2801), "last": (20749, 16328, 13322, 10783, 9361), "fast": (7278, 6982, 6763, 6643, 6528)},
}
SCHEMES = ["rose", "last", "fast"]
# Of Zipf's law, for the addresses of the stand-ins: 0.9 everywhere on this page, the others for the sensitivity.
EXPONENT, EXPONENTS = 0.9, [0.3, 0.9, 1.1, 1.3]
REAL = [real.FINANCIAL1, real.MSSQL]
VICTIMS = ["maro", "rr", "cat", "last"]
# Age grows with the number of log blocks, so runs here have SHARE times as much.
WEIGHTS = ["0", "0.25", "1", "4", "16", "inf"]
ALPHAS = ["0", "0.25", "0.5", "0.75", "1"]
PREDICTIONS = ["np", "fp", "lp", "cp", "ebw"]
# Table 6: iterations, mean and deviation of the erases, cost of swapping in percent of cleaning.
WEAR = {
    "LinuxPC": (21, 20.18, 2.43, 2.01),
    "Postmark": (225, 20.01, 0.28, 0.02),
    "LargeFile": (56, 20.13, 2.19, 1.13),
    "Fin1": (75, 20.02, 0.56, 0.12),
    "Fin2": (591, 20.00, 1.30, 0.41),
    "4VMs": (16, 20.46, 2.18, 0.95),
}
# LAST takes at most an eighth of its log blocks for sequential writes: a 64th to an eighth.
SEQUENTIAL_LOGS = [64, 32, 16, 8]
INTRODUCTION = """\
Device: 80 GB of SLC, 655,360 blocks of 64 pages of 2 KB, 88 / 263 / 2,000 us, 2.5 % of the blocks for the log; new. `--preset rose-paper` is the whole device. Cleaning cost is the time of copies and erases; wear levelling is off unless
stated. LAST has an eighth of the log blocks for sequential writes of 8 KB or more. The paper gives no unit for age against cost; we use microseconds. The weight is multiplied by the share of the paper's device, because log blocks of a
smaller device get less old.

- **Real traces**: Financial1 is public (the paper's Fin1), and one of its 24 units is at hand; mssql is not the paper's. As many blocks of the same part as each trace needs, 5 % more than a host sees; equal raw flash for all
  schemes; filled and aged, so every data block is full.
- **Stand-ins**: a {share}th of the device (`--profile rose-part`), new, and of each trace; seconds are multiplied by {share}. A host sees 95 % of the blocks; the paper gives no figure. Statistics of Tables 2 and 3: sectors written, mean
  length, share of the pages that are written by whole blocks. Addresses by Zipf's law over the whole device, popular ones scattered, exponent {exponent}, as for every stand-in on this page; they were not published.

"""


def section(ftld):
    loads = [*(real_load(ftld, stem) for stem in real.loads(ftld, *REAL)), *stand_ins(ftld).values()]
    runs = {load.label: Runs(ftld, load) for load in loads}
    names = ftld.have(*SCHEMES)
    text = INTRODUCTION.format(share=SHARE, exponent=EXPONENT)
    text += table_5(ftld, runs, names) + at_usual(ftld, runs, names)
    text += exponents(ftld, names)
    for title, key, values, of in (
        ("Whole blocks: cleaning cost of FAST's predictions as a multiple of EBW's (Figure 5)", "fast.predict", PREDICTIONS, lambda run: normal(run.predictions, PREDICTIONS.index("ebw"))),
        ("Victims, of ROSE: as a multiple of MARO's (Figure 7)", "rose.victim", VICTIMS, lambda run: normal(run.victims, 0)),
        ("Weight of age: as a multiple of the least (Figure 9)", "maro.age_weight", WEIGHTS, lambda run: normal(run.weights)),
        ("Alpha: the same (Figure 10)", "maro.alpha", ALPHAS, lambda run: normal(run.alphas)),
        ("Free page reuse: as a multiple of that with it (Figure 11)", "rose.fpr", ["on", "off"], lambda run: normal(run.reuse, 0)),
        ("LAST, by the share of its log blocks for sequential writes: as a multiple of ROSE's (Figure 15)", "last.sequential", [f"1/{part}" for part in SEQUENTIAL_LOGS], lambda run: [over(cost, run.sizes["rose"][LOG_SHARES.index(USUAL)]) for cost in run.sequential]),
    ):
        text += f"{title}, `{key}`:\n\n" + table(["load", *values], [(label, *(figure(one) for one in of(run))) for label, run in runs.items()])
    worn = wear(ftld)
    text += wear_table(worn) + rose_m_table(ftld, rose_m(ftld))
    told, unexplained = report(TITLE, rose_claims.CLAIMS, rose_claims.cases(runs, worn, wear_cost), WHY)
    return text + told, unexplained


class Runs:
    """Cleaning seconds on one load, by parameter."""

    def __init__(self, ftld, load):
        self.load, self.real = load, load.real
        self.factor = 1 if load.real else SHARE
        # Blocks of the device, of which the log is a share.
        self.blocks = round(device_bytes(ftld, load) / 0.95 / (128 << 10)) if load.real else 655_360 // SHARE
        of = lambda percent: max(8, round(self.blocks * percent / 100))
        weight = lambda value: value if value == "inf" else f"{float(value) * 655_360 / self.blocks:g}"
        self.raw = "equal" if load.real else "own"
        names = ftld.have(*SCHEMES)

        def run(name, schemes, **values):
            pairs = {"log.blocks": of(USUAL), "wear.policy": "none", "maro.age_weight": weight("1")}
            pairs |= {key.replace("__", "."): value for key, value in values.items()}
            pairs = {key: value for key, value in pairs.items() if key != "maro.age_weight" or "rose" in schemes}
            return ftld.run(f"rose-{name}", load, schemes, *(word for pair in pairs.items() for word in ("--set", "=".join(map(str, pair)))), raw=self.raw)

        # Rows by sweep and value, of which a claim asks whether they copied enough.
        self.swept = {}

        def costs(name, scheme, key, values):
            rows = run(name, [scheme], **{key: ",".join(values)})
            self.swept[name] = [rows.one(scheme, **{key: value}) for value in values]
            return [cleaning(row) for row in self.swept[name]]

        self.rows = {percent: {row["scheme"]: row for row in run(f"sizes-{percent}", names, log__blocks=of(percent), last__sequential=of(percent) // 8)} for percent in LOG_SHARES}
        self.sizes = {name: [cleaning(self.rows[percent][name]) for percent in LOG_SHARES] for name in names}
        self.swept["sizes"] = self.rows[USUAL]
        self.victims = costs("victims", "rose", "rose__victim", VICTIMS)
        self.weights = costs("weights", "rose", "maro__age_weight", [weight(one) for one in WEIGHTS])
        self.alphas = costs("alphas", "rose", "maro__alpha", ALPHAS)
        self.reuse = costs("reuse", "rose", "rose__fpr", ["on", "off"])
        self.predictions = costs("predictions", "fast", "fast__predict", PREDICTIONS)
        parts = [max(1, of(USUAL) // part) for part in SEQUENTIAL_LOGS]
        self.sequential = [cleaning(run(f"sequential-{part}", ["last"], last__sequential=part)[0]) for part in parts]
        self.ratios = {name: ratio(row) for name, row in self.rows[USUAL].items()}
        self.predicted = dict(zip(PREDICTIONS, self.predictions))

    def collects(self, sweep, *values):
        """Whether any of these runs copied enough pages."""
        rows = self.swept[sweep]
        return collected(*(rows[value] for value in values))

    def predicts(self, *names):
        """The same of FAST's predictions."""
        return self.collects("predictions", *map(PREDICTIONS.index, names))

    def differs(self, sweep, one, other):
        """Whether two values of a parameter differ by enough programs and erases to compare them."""
        rows = self.swept[sweep]
        work = lambda row: row["flash_total"]["programs"] + erases(row)
        return abs(work(rows[one]) - work(rows[other])) >= LEAST_COPIES

    def has_whole_blocks(self):
        """Whether the load writes whole blocks: only there EBW differs from no prediction."""
        return self.differs("predictions", PREDICTIONS.index("ebw"), PREDICTIONS.index("np"))


def normal(costs, base=None):
    least = min(costs) if base is None else costs[base]
    return [over(cost, least) for cost in costs]


def real_load(ftld, stem):
    load = real.load(ftld, stem)
    return Load(load.label, load.workload, ("--preset", "rose-paper", "--profile", "rose-part", "--op", "1", *load.options), True)


def device_bytes(ftld, load):
    return next(real.touched(ftld, stem) for stem, (label, _, _) in real.TRACES.items() if label == load.label)


def stand_ins(ftld, share=SHARE, exponent=EXPONENT):
    loads = {}
    for trace, (load, requests) in TRACES.items():
        workload = ftld.scaled(load, requests, 1 / share) + f",theta={exponent}"
        label = f"stand-in {trace}" + ("" if exponent == EXPONENT else f", exponent {exponent}")
        loads[trace] = Load(label, workload, tuple(device(share)))
    return loads


def device(share, profile="rose-part"):
    """So small a part of the paper's device; a host sees 95 % of its blocks."""
    return ["--preset", "rose-paper", "--profile", profile, "--size", f"{655_360 // share * 95 // 100 * 128}KiB", "--op", "1"]


def blocks(percent, share=SHARE):
    return round(655_360 // share * percent / 100)


def scaled_weight(weight, share=SHARE):
    """A log block of a `share`-th of the device gets a `share`-th as old."""
    return weight if weight == "inf" else f"{float(weight) * share:g}"


def cleaning(row):
    """Seconds that copies and erases took."""
    us = 2000 * (erases(row) - row["flash"].get("wear", {}).get("erases", 0))
    for cause in CLEANING:
        operations = row["flash"].get(cause, {})
        us += 88 * operations.get("reads", 0) + 25 * operations.get("partial_reads", 0) + 263 * operations.get("programs", 0)
    return us / 1e6


def ratio(row):
    """The paper's write amplification ratio: time of writing and cleaning over that of writing."""
    writing = 263 * row["requests"]["pages_written"] / 1e6
    return 1 + cleaning(row) / writing


def theirs(label):
    """The trace of the paper that a load stands for, or None."""
    name = "Fin1" if label.startswith("Financial1") else label.removeprefix("stand-in ")
    return name if name in TABLE_5 else None


def table_5(ftld, runs, names):
    lines = []
    for label, run in runs.items():
        for name in names:
            paper = TABLE_5[theirs(label)][name] if theirs(label) and not run.real else None
            cells = [figure(run.factor * cost, 0) + (f" / {paper[index]:,}" if paper else "") for index, cost in enumerate(run.sizes[name])]
            lines.append((label, ftld.graded(name), *cells))
    heads = ["load", "scheme", *(f"{share} %" for share in LOG_SHARES)]
    return "Table 5, seconds of cleaning by share of log blocks, of stand-ins ours / paper:\n\n" + table(heads, lines)


def at_usual(ftld, runs, names):
    lines = []
    for label, run in runs.items():
        for name in names:
            row = run.rows[USUAL][name]
            merges = row["scheme_stats"]
            lines.append((label, ftld.graded(name), figure(ratio(row)), count(copies(row)), count(erases(row)), *(count(merges[f"{kind}_merges"]) for kind in ("switch", "partial", "full")), f"{row['device']['effective_op_percent']:.1f}", state(row)))
    heads = ["load", "scheme", "write amplification ratio", "copies", "erases", "switch merges", "partial", "full", "effective OP %", "valid pages in the flash at the end"]
    return f"The same runs with {USUAL} % (Figure 14):\n\n" + table(heads, lines)


def exponents(ftld, names):
    lines = []
    for trace in TRACES:
        by = {}
        for exponent in EXPONENTS:
            load = stand_ins(ftld, SHARE, exponent)[trace]
            options = {"log.blocks": blocks(USUAL), "wear.policy": "none", "maro.age_weight": scaled_weight("1"), "last.sequential": blocks(USUAL) // 8}
            by[exponent] = ftld.run("rose-exponents", Load(f"{load.label} {exponent}", load.workload, load.options), names, *(word for key, value in options.items() for word in ("--set", f"{key}={value}")))
        for name in names:
            lines.append((f"stand-in {trace}", ftld.graded(name), *(figure(SHARE * cleaning(by[exponent].one(name)), 0) for exponent in EXPONENTS)))
    return f"How much depends on the exponent of the stand-ins' addresses (seconds, {USUAL} %):\n\n" + table(["load", "scheme", *map(str, EXPONENTS)], lines)


def wear(ftld):
    """By trace: a row of as many iterations as make 20 erases a block, and how many those are."""
    found = {}
    for trace, load in stand_ins(ftld, WEAR_SHARE).items():
        options = ["--set", f"log.blocks={blocks(USUAL, WEAR_SHARE)}", "--set", f"maro.age_weight={scaled_weight('1', WEAR_SHARE)}"]
        iterations = WEAR[trace][0]
        for attempt in range(3):
            name = f"rose-wear-{trace.lower()}-{attempt}"
            row = ftld.compare(name, [load.workload], ["rose"], *load.options, *options, "--loops", str(iterations))[0]
            wanted = max(1, round(iterations * 20 / row["erases"]["mean"]))
            found[trace] = iterations, row
            if abs(wanted - iterations) <= 0.03 * iterations:
                break
            iterations = wanted
    return found


def wear_cost(row):
    """Wear levelling in percent of cleaning."""
    operations = row["flash"].get("wear", {})
    us = 351 * operations.get("programs", 0) + 2000 * operations.get("erases", 0)
    return 100 * us / 1e6 / cleaning(row)


def wear_table(found):
    lines = []
    for trace, (iterations, row) in found.items():
        theirs, erased = WEAR[trace], row["erases"]
        lines.append(
            (
                trace,
                f"{iterations} / {theirs[0]}",
                f"{figure(erased['mean'])} / {figure(theirs[1])}",
                f"{figure(erased['stddev'])} / {figure(theirs[2])}",
                f"{erased['min']} to {erased['max']}",
                f"{figure(wear_cost(row))} / {figure(theirs[3])}",
            )
        )
    heads = ["stand-in", "iterations", "mean erases", "deviation", "least and most", "levelling, % of cleaning"]
    return f"Wear (Table 6), a {WEAR_SHARE}th of the device, ours / paper:\n\n" + table(heads, lines)


def rose_m(ftld):
    """Rows of ROSE, of ROSE-M without pairs of pages, and with them; by trace."""
    found = {}
    loads = {trace: load.workload for trace, load in stand_ins(ftld, WEAR_SHARE).items()}
    options = ["--set", "wear.policy=none", "--set", f"log.blocks={blocks(USUAL, WEAR_SHARE)}", "--set", f"maro.age_weight={scaled_weight('1', WEAR_SHARE)}"]
    for name, profile, *more in (
        ("rose", "rose-part"),
        ("in order", "rose-m", "--set", "nand.pair_policy=none"),
        ("paired", "rose-m"),
    ):
        chosen = [*device(WEAR_SHARE, profile), *options, *more]
        rows = ftld.compare(f"rose-m-{name.replace(' ', '-')}", list(loads.values()), ["rose"], *chosen)
        for trace, load in loads.items():
            found.setdefault(trace, {})[name] = rows.one("rose", load)
    return found


def rose_m_table(ftld, found):
    cell = lambda row: f"{count(row['flash_total']['programs'])}, {count(erases(row))}"
    lines = [(trace, *(cell(of[name]) for name in ("rose", "in order", "paired"))) for trace, of in found.items()]
    heads = ["stand-in", f"{ftld.graded('rose', 'ROSE')}: programs, erases", "ROSE-M", "ROSE-M, paired pages kept safe"]
    return f"ROSE-M, the same on a part that takes pages in order only (`--profile rose-m`), a {WEAR_SHARE}th of the device:\n\n" + table(heads, lines)


# Why a figure of ours differs, by claim.
AGED = "On real traces every data block is full and aged: a log block is then merged with as many full blocks as it has logical blocks in it. The paper's device is new and far larger than its traces."
WHY = {
    "fast": AGED + " Of the stand-ins, exponents of 1.1 and more give the paper's direction on all six (table of exponents); FAST merges its one sequential log block whenever the first page of another logical block is written, which popular first pages make frequent, we suppose.",
    "last": AGED + " LAST's sequential log blocks turn mssql's runs into switch merges, which ROSE's whole-block writes need a request of 128 KiB for. Of the stand-ins Fin1, Fin2 and 4VMs depend on the exponent: at 1.1 and above ROSE is below LAST on all.",
    "two": "As the two claims before it.",
    "war": "As the claims on cleaning: the ratio adds the time of writing, which is the same for all.",
    "war last": "ROSE gains over LAST on stand-ins with much sequential writing only (Figure 14's table).",
    "war fast": "The direction agrees; we suppose that the size depends on how often FAST merges its sequential log block.",
    "time last": "Follows from the ratio.",
    "time fast": "Follows from the ratio.",
    "no fpr": "Without FPR the order of the three is the same as with it, but for the stand-in 4VMs, where ROSE is first without it and last with it (Table 5).",
    "ebw": "EBW needs requests for a whole block of 128 KiB. None of mssql's writes covers one, so it judges nothing.",
    "ebw random": "EBW differs from no prediction only by the requests for whole blocks.",
    "rr": "MARO's cheapest victims are blocks with pages of few logical blocks; on a full device with scattered writes all log blocks cost nearly the same, and we suppose that the oldest has the fewest valid pages left: age alone is best there (weights' table). LargeFile and Fin2 hardly merge under ROSE.",
    "rr most": "The stand-ins' popularity does not change, so we suppose that fewer of the oldest blocks are dead than in traces with phases; round robin loses less by not looking for them.",
    "cat": "As for round robin. CAT divides by erase counts: on a new device (stand-ins) most are 0, and it equals age alone.",
    "cat most": "As for round robin.",
    "weight 0": "Stand-ins' popularity does not change, so age predicts little, we suppose.",
    "weight none": "Postmark at exponent 0.9 cleans for 6 s of the paper's 78 and Fin2 for 1 s of 6: ROSE copies 83 and 6 pages.",
    "dead first": "The two cost the same to a few percent: we suppose that they choose the same block nearly always, because log blocks fill in the order of their age, and few are dead before they are the oldest.",
    "alpha": "Copying a page out of another log block saves work if the page would have been copied later anyway. We suppose that most of the popular pages, which lie at random, would have become invalid before.",
    "alpha 1": "On full devices alpha 1 is best by up to 6 %; of the stand-ins, Fin1 and 4VMs are not.",
    "fpr": "ROSE copies 83 pages on Postmark and 6 on Fin2 here, so a percentage means nothing. At exponents of 1.1 and more they clean as long as in the paper (table of exponents), but FPR was not measured there.",
    "fpr rest": "On a full device no data block has room left, and FPR does nothing. On stand-ins it costs; we suppose because scattered writes leave its log blocks with pages of many logical blocks. In the paper a swap on Fin1 gained 0.11 pages (Table 4), so its blocks were full.",
    "sizes": "On full and aged devices more log blocks change the cost by a few percent only, up or down (Table 5). Fin2 as a stand-in has few merges for them to save.",
    "4vms": "FAST is ahead at 1.5 % here too, and ROSE from 3.5 % on (Table 5). We suppose that the addresses of 4VMs, which were not published, decide where they cross.",
    "sequential logs": "As for LAST above.",
    "wear": "The authors swap two blocks as soon as an erase leaves two blocks more than 10 erases apart. Ours moves one cold block into a worn one, once in many erases, and reacts late over 20 erases a block, we suppose. In return it costs less (next row).",
}
