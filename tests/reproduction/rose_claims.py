"""What ROSE's paper says, and the cases that judge it."""

from dataclasses import replace

from .page import figure, over
from .rows import LEAST_COPIES, collected, erases
from .verdict import SIDE, Case, Claim, between, crosses, joint, less, such, those, within

RANDOM, SEQUENTIAL = ["Postmark", "Fin1", "Fin2"], ["LinuxPC", "LargeFile"]
# A unit of Fin1.
UNIT_OF_FIN1 = "Financial1 (ASU 0)"
# Real traces: of databases, most requests of 4 and 8 KiB; with a mean of 48 sectors and more, most continue another one; and the one with
# requests for whole blocks.
SHORT, LONG, WHOLE = [UNIT_OF_FIN1, "mysql"], ["mssql", "cloudphysics", "nexus5"], "nexus5"
SCHEMES = ["rose", "last", "fast"]
# Percent of the blocks that are log blocks.
LOG_SHARES = [1.5, 2, 2.5, 3, 3.5]
USUAL = 2.5
# Why flash works when it cleans.
CLEANING = ("gc", "merge")
# Table 5: cleaning cost in seconds.
TABLE_5 = {
    "LinuxPC": {"rose": (771, 623, 541, 463, 418), "last": (2442, 2404, 2327, 2256, 2163), "fast": (4217, 4167, 4164, 4077, 4057)},
    "Postmark": {"rose": (96, 89, 78, 69, 61), "last": (358, 350, 344, 340, 334), "fast": (790, 669, 643, 450, 434)},
    "LargeFile": {"rose": (401, 394, 388, 381, 375), "last": (1127, 1108, 1101, 1102, 1107), "fast": (1227, 1177, 1199, 1134, 1116)},
    "Fin1": {"rose": (830, 573, 446, 410, 381), "last": (2139, 1925, 1671, 1227, 815), "fast": (5870, 5638, 5573, 5543, 5518)},
    "Fin2": {"rose": (52, 22, 6, 2, 2), "last": (88, 56, 43, 35, 28), "fast": (332, 308, 288, 280, 280)},
    "4VMs": {"rose": (7644, 6254, 5029, 3822, 2801), "last": (20749, 16328, 13322, 10783, 9361), "fast": (7278, 6982, 6763, 6643, 6528)},
}
# The cost of another scheme over ROSE's there, with the usual log.
THEIRS = {other: {trace: costs[other][LOG_SHARES.index(USUAL)] / costs["rose"][LOG_SHARES.index(USUAL)] for trace, costs in TABLE_5.items()} for other in ("fast", "last")}

# Settings of the claims that compare schemes; of those with several sizes of the log; of those about MARO's parameters, about FAST's
# predictions, and about whole blocks.
COMPARED = ("as Fin1", "as 4VMs", "log as 4VMs", "page copies", "small", "single", "looped", "rotated")
SIZES = ("as Fin1", "as 4VMs", "log as 4VMs", "page copies", "small")
OF_MARO = ("as Fin1", "as 4VMs", "log as 4VMs", "page copies", "without FPR", "small")
OF_FAST = ("as Fin1", "as 4VMs", "log as 4VMs", "small", "single", "looped", "rotated")
PAPERS = ("as Fin1", "as 4VMs")
MORE = ("more than ROSE", lambda ratio: ratio > 1)
SOME = ("above 0", lambda gain: gain > 0)


def up_to(most, digits=2, unit=""):
    """Of a claim "up to N" the largest value is judged; it may exceed N."""
    return such(f"at least {75 * most / 100:g}{unit}, 75 % of it", lambda gain: gain >= 0.75 * most, SOME, digits, unit)


def ratios(other):
    return ", ".join(figure(one, 1) for one in THEIRS[other].values())


CLAIMS = [
    Claim("sizes", '"the cleaning cost usually decreases with the growth of the log area size" (of the steps from size to size, under the three schemes)', "Table 5", such("more than half", lambda percent: percent > 50, digits=0, unit=" %"), general=True, settings=SIZES),
    Claim("fast", '"ROSE outperforms FAST [...] by 34 percent to 47 times" (cost of FAST over that of ROSE, 2.5 %)', ratios("fast"), such("at least 1.34, the paper's least", lambda ratio: ratio >= 1.34, MORE), general=SIDE, settings=COMPARED),
    Claim("last", '"and LAST by [...] two to six times" (cost of LAST over that of ROSE)', ratios("last"), such("at least 2.65, the paper's least", lambda ratio: ratio >= 2.65, MORE), general=SIDE, settings=COMPARED),
    Claim("two", '"ROSE consistently outperforms the other two FTLs when the log area size is equal to or larger than 2 percent"', "Table 5", such("ROSE's cost over the better of the others', at the size where that is largest: below 1", lambda ratio: ratio < 1), general=True, settings=SIZES),
    Claim("4vms", "4VMs: FAST cleans for less than ROSE at 1.5 %, and ROSE for less from 2 % on (cost of FAST over ROSE's, 1.5 to 3.5 %)", "Table 5: 0.95, 1.12, 1.34, 1.74, 2.33", crosses("below 1 at 1.5 %, above from 2 % on", 1)),
    Claim("war", '"ROSE achieves the lowest WAR among the FTLs under all the traces"', "Figure 14", less("(W + C) / W of ROSE below the lower of FAST's and LAST's", digits=2), general=True, settings=COMPARED),
    Claim("war last", '"it reduces the WAR by up to 1.1 [...] when compared to LAST"', "up to 1.1", up_to(1.1), general=True, settings=COMPARED),
    Claim("war fast", 'and "1.8 when compared to [...] FAST"', "up to 1.8", up_to(1.8), general=True, settings=COMPARED),
    Claim("time last", '"up to 39 [...] percent reduction in the total write time" (LAST)', "up to 39 %", up_to(39, 0, " %"), general=True, settings=COMPARED),
    Claim("time fast", '"up to [...] 61 percent" (FAST)', "up to 61 %", up_to(61, 0, " %"), general=True, settings=COMPARED),
    Claim(
        "no fpr",
        '"Even with FPR disabled, ROSE still outperforms FAST and LAST significantly under almost all the traces" (cost of ROSE without FPR over the better of theirs)',
        "Figure 13",
        those("at most 0.9 on three of four", lambda costs: 4 * sum(one <= 0.9 for one in costs) >= 3 * len(costs), ("below 1 on more than half", lambda costs: 2 * sum(one < 1 for one in costs) > len(costs))),
        general=True,
        settings=COMPARED,
    ),
    Claim("ebw", '"when compared to NP, EBW results in lower cleaning cost in sequential write dominated workloads" (with requests for whole blocks)', "Figure 5", less("EBW below no prediction", digits=0, unit=" s"), general=True, settings=PAPERS),
    Claim("ebw random", '"but without [...] increased cleaning cost in random write dominated workloads" (Postmark, Fin1, Fin2)', "Figure 5", less("EBW at most 1 % above no prediction", 1, digits=0, unit=" s"), general=True, settings=OF_FAST),
    *(
        Claim(f"{name}", f'{name.upper()}: "mispredictions [...] leading to increased cleaning cost" in random write dominated workloads, "compared to the FTL without using any techniques to predict or detect sequentiality"', "Figure 5", less(f"no prediction below {name.upper()}", digits=0, unit=" s"), general=True, settings=OF_FAST)
        for name in ("fp", "lp", "cp")
    ),
    Claim("prediction", '"the prediction methods could result in lower cleaning cost in sequential write dominated workloads"', "Figure 5", less("the best of FP, LP, CP below no prediction", digits=0, unit=" s"), general=True, settings=OF_FAST),
    Claim("mispredicted", "Misprediction ratios and their cost (Figure 6)", "Figure 6", why_not="not measured: ftld does not count merges of the sequential log block apart from others"),
    Claim("rr", '"MARO outperforms RR [...] under the traces"', "Figure 7", less("MARO below round robin, every load", digits=0, unit=" s"), general=True),
    Claim("rr most", 'RR "by up to 3.5 times" (largest ratio less 1)', "3.5", up_to(3.5), general=True),
    Claim("cat", '"MARO outperforms [...] CAT [...] under the traces"', "Figure 7", less("MARO below CAT, every load", digits=0, unit=" s"), general=True),
    Claim("cat most", 'CAT "by up to 31 percent" (largest)', "31 %", up_to(31, 0, " %"), general=True),
    Claim("last policy", '"We also implement MARO in the LAST FTL [...] MARO outperforms the LAST policy by up to 1.1 times" (Figure 8)', "up to 1.1", why_not="not measured: ftld has LAST's rule inside ROSE (`rose.victim=last`), not MARO inside LAST"),
    Claim("weight 0", '"setting W_age as 0 results in a relatively large cleaning cost in the LinuxPC, Fin1, and LargeFile traces" (% above the least)', "Figure 9", such("at least 5 % above the least", lambda percent: percent >= 5, SOME, 1, " %"), general=True, settings=OF_MARO),
    Claim("weight inf", '"extremely large values also results in large cleaning cost in the LinuxPC and 4VMs traces" (% above the least)', "Figure 9", such("at least 5 % above the least", lambda percent: percent >= 5, SOME, 1, " %")),
    Claim("weight none", '"Postmark and Fin2 [...] W_age does not have significant effect" (largest, % above the least)', "Figure 9", such("at most 5 %", lambda percent: percent <= 5, digits=1, unit=" %")),
    Claim("dead first", '"setting W_age as infinity still results in lower cleaning cost than RR"', "Figures 7, 9", such("age alone lower by 1 % at least", lambda percent: percent >= 1, SOME, 1, " %"), general=True),
    Claim("alpha", '"under the LinuxPC trace, the cleaning cost with alpha as 1 is 15 percent larger than that with alpha as 0.25"', "15 %", within(25, SOME, 1, " %")),
    Claim("alpha 1", '"setting alpha as 1 does not always lead to the best performance" (largest, % above the least)', "Figure 10", such("at least 1 % above the least", lambda percent: percent >= 1, SOME, 1, " %"), general=True, settings=OF_MARO),
    Claim("fpr", '"it reduces the cleaning cost by 70 and 19 percent in the Postmark and Fin2 traces"', "70, 19 %", within(25, SOME, 1, " %")),
    Claim("fpr rest", '"FPR is more effective [...] under the Postmark and Fin2 traces": on the other four it saves less than on Fin2 (judged on a unit of Fin1)', "Figure 11", between(-5, 19, ("below 19 %", lambda percent: percent < 19), 1, " %"), general=True, settings=SIZES),
    Claim("utilisation", "FPR raises the space utilisation of Postmark and Fin2 (Figure 12); pages gained and copied by a swap, FPR ratio (Table 4)", "Figure 12, Table 4", why_not="not measured: ftld has no counter of swaps, nor of the free pages of erased blocks"),
    Claim("sequential logs", '"all the values are larger than 1, meaning that ROSE always results in superior performance than LAST", by LAST\'s sequential log blocks', "Figure 15", less("ROSE below the best LAST of a 64th to an eighth", digits=0, unit=" s"), general=True, settings=COMPARED),
    Claim("wear", '"the standard deviations of the erase counts are small for all the traces" (deviation over mean, 20 erases a block)', "0.12, 0.01, 0.11, 0.03, 0.07, 0.12", such("at most 0.12, the paper's largest", lambda share: share <= 0.12, ("below 0.5", lambda share: share < 0.5)), general=True, settings=("as 4VMs",)),
    Claim("levelling", 'hot-cold swapping: "less than or equal to 2.01 percent of the cleaning cost under all the traces"', "0.02 to 2.01 %", why_not="ftld moves one cold block where the authors swap two, and looks for it once per erases of a sixteenth of the blocks"),
    Claim("hardware", '"the worst case execution time of the MARO implementation is 7.6 us"; "1.2 us is used for searching"', "7.6, 1.2 us", why_not="times of an ARM926 and of hardware; ftld emulates the flash only"),
]


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


def cases(runs, standing, worn):
    """`runs` of real traces by setting and label, of stand-ins by trace; `worn`: rows with wear levelling."""
    found = {}

    def add(key, run, ours, rows, theirs=None, exercised=True):
        found.setdefault(key, []).append(Case(run.load.label, ours, theirs, run.load.real, exercised and collected(*rows), setting=run.setting))

    for run in runs.values():
        if not run.has_fpr:
            victims(add, run)
            parameters(add, run, run.load.label)
            continue
        three(add, run)
        predicted(add, run, run.load.label in SHORT, run.load.label in LONG)
        victims(add, run)
        best_last(add, run)
        if run.is_new and run.load.label != WHOLE:
            sizes(add, run)
            parameters(add, run, run.load.label)
    for trace, run in standing.items():
        three(add, run, trace)
        predicted(add, run, trace in RANDOM, trace in SEQUENTIAL)
        victims(add, run)
        parameters(add, run, trace)
    if "4VMs" in standing:
        costs = [seconds(standing["4VMs"].at(percent), *SCHEMES) for percent in LOG_SHARES]
        add("4vms", standing["4VMs"], [over(fast, rose) for rose, _, fast in costs], [standing["4VMs"].usual["rose"]])
    for run, (_, row) in worn.values():
        add("wear", run, row["erases"]["stddev"] / row["erases"]["mean"], [row])
    for key in ("war last", "war fast", "time last", "time fast", "rr most", "cat most"):
        found[key] = list(joint("largest", max, found.get(key, [])))
    # One exception is enough, in whichever of the paper's settings.
    papers = lambda case: replace(case, setting=PAPERS[0]) if case.setting in PAPERS else case
    found["alpha 1"] = list(joint("largest", max, [papers(case) for case in found.get("alpha 1", [])]))
    found["no fpr"] = list(joint("all", list, found.get("no fpr", [])))
    return found


def differ(one, other):
    """Whether two rows have enough programs and erases of difference to compare them."""
    work = lambda row: row["flash_total"]["programs"] + erases(row)
    return abs(work(one) - work(other)) >= LEAST_COPIES


def seconds(rows, *names):
    return [cleaning(rows[name]) for name in names]


def three(add, run, trace=None):
    """ROSE compared with the others."""
    rows = run.usual
    rose, last, fast = seconds(rows, *SCHEMES)
    ours = {name: ratio(rows[name]) for name in SCHEMES}
    for name, cost in (("fast", fast), ("last", last)):
        pair = [rows["rose"], rows[name]]
        add(name, run, over(cost, rose), pair, THEIRS[name].get(trace))
        add(f"war {name}", run, ours[name] - ours["rose"], pair)
        add(f"time {name}", run, 100 * (1 - ours["rose"] / ours[name]), pair)
    add("war", run, (ours["rose"], min(ours["fast"], ours["last"])), rows.values())
    without = run.of("rose.fpr")["off"]
    add("no fpr", run, round(over(cleaning(without), min(last, fast)), 2), [without, rows["last"], rows["fast"]])


def predicted(add, run, is_random, is_sequential):
    """FAST's predictions, and none."""
    if run.base:
        return
    by = run.of("fast.predict")
    scaled = lambda *names: tuple(run.factor * cost for cost in seconds(by, *names))
    if is_random:
        add("ebw random", run, scaled("ebw", "np"), [by["ebw"], by["np"]])
        for name in ("fp", "lp", "cp"):
            add(name, run, scaled("np", name), [by["np"], by[name]])
    if is_sequential:
        add("prediction", run, (min(scaled("fp", "lp", "cp")), *scaled("np")), by.values())
        if run.load.label not in LONG or run.load.label == WHOLE:
            add("ebw", run, scaled("ebw", "np"), [by["ebw"], by["np"]])


def victims(add, run):
    by, weighed = run.of("rose.victim"), run.of("maro.age_weight")
    maro, rr, cat = seconds(by, "maro", "rr", "cat")
    for name, cost in (("rr", rr), ("cat", cat)):
        add(name, run, (run.factor * maro, run.factor * cost), [by["maro"], by[name]])
    add("rr most", run, over(rr, maro) - 1, [by["maro"], by["rr"]])
    add("cat most", run, 100 * (over(cat, maro) - 1), [by["maro"], by["cat"]])
    # If no log block dies before it is the oldest, the two choose the same.
    add("dead first", run, 100 * (1 - over(cleaning(weighed["inf"]), rr)), [by["rr"]], exercised=differ(weighed["inf"], by["rr"]))


def sizes(add, run):
    costs = {name: [cleaning(run.at(percent)[name]) for percent in LOG_SHARES] for name in SCHEMES}
    rows = [row for percent in LOG_SHARES for row in run.at(percent).values()]
    steps = [later < earlier for name, of in costs.items() if collected(run.at(LOG_SHARES[0])[name]) for earlier, later in zip(of, of[1:])]
    add("sizes", run, 100 * sum(steps) / len(steps) if steps else 0, rows)
    worst = max(over(rose, min(last, fast)) for rose, last, fast in list(zip(*costs.values()))[LOG_SHARES.index(2) :])
    add("two", run, worst, rows)


def parameters(add, run, trace):
    """What the paper says of single traces: the weight of age, alpha, and free page reuse."""
    above = lambda rows, value: 100 * (over(cleaning(rows[value]), min(map(cleaning, rows.values()))) - 1)
    weighed = run.of("maro.age_weight")
    if trace in ("LinuxPC", "Fin1", "LargeFile", UNIT_OF_FIN1):
        add("weight 0", run, above(weighed, "0"), weighed.values())
    if trace in ("LinuxPC", "4VMs"):
        add("weight inf", run, above(weighed, "inf"), weighed.values())
    if trace in ("Postmark", "Fin2"):
        add("weight none", run, max(above(weighed, value) for value in weighed), weighed.values())
    if run.load.real or trace == "LinuxPC":
        alphas = run.of("maro.alpha")
        add("alpha 1", run, above(alphas, "1"), alphas.values())
        if trace == "LinuxPC":
            add("alpha", run, 100 * (over(cleaning(alphas["1"]), cleaning(alphas["0.25"])) - 1), [alphas["1"], alphas["0.25"]], 15)
    if not run.has_fpr:
        return
    reuse = run.of("rose.fpr")
    saved = 100 * (1 - over(*seconds(reuse, "on", "off")))
    if trace in ("Postmark", "Fin2"):
        add("fpr", run, saved, reuse.values(), {"Postmark": 70, "Fin2": 19}[trace])
    elif not run.load.real or trace == UNIT_OF_FIN1:
        add("fpr rest", run, saved, reuse.values())


def best_last(add, run):
    by = run.of("last.sequential")
    add("sequential logs", run, (cleaning(run.usual["rose"]), min(map(cleaning, by.values()))), [run.usual["rose"], *by.values()])
