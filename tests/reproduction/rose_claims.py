"""What ROSE's paper says, and the cases that judge it."""

from .page import figure, over
from .rows import collected
from .verdict import Case, Claim, between, crosses, falls, joint, less, such, within

RANDOM, SEQUENTIAL = ["Postmark", "Fin1", "Fin2"], ["LinuxPC", "LargeFile"]
SCHEMES = ["rose", "fast", "last"]
# 2.5 % of the blocks for the log, in the list of Table 5's shares; and 2 %.
USUAL, TWO = 2, 1
# Table 5 at 2.5 %: another scheme's cleaning cost over ROSE's.
FAST = {"LinuxPC": 7.70, "Postmark": 8.24, "LargeFile": 3.09, "Fin1": 12.50, "Fin2": 48.0, "4VMs": 1.34}
LAST = {"LinuxPC": 4.30, "Postmark": 4.41, "LargeFile": 2.84, "Fin1": 3.75, "Fin2": 7.17, "4VMs": 2.65}
# Table 6: deviation over mean of the erases.
DEVIATION = {"LinuxPC": 0.120, "Postmark": 0.014, "LargeFile": 0.109, "Fin1": 0.028, "Fin2": 0.065, "4VMs": 0.120}

MORE = ("more than ROSE", lambda ratio: ratio > 1)
SOME = ("above 0", lambda gain: gain > 0)
CLAIMS = [
    Claim("sizes", '"the cleaning cost usually decreases with the growth of the log area size"', "Table 5", falls("falls from size to size under each scheme", 2)),
    Claim("fast", '"ROSE outperforms FAST [...] by 34 percent to 47 times" (cost of FAST over that of ROSE, 2.5 %)', ", ".join(figure(one, 1) for one in FAST.values()), within(25, MORE)),
    Claim("last", '"and LAST by [...] two to six times" (cost of LAST over that of ROSE)', ", ".join(figure(one, 1) for one in LAST.values()), within(25, MORE)),
    Claim("two", '"ROSE consistently outperforms the other two FTLs when the log area size is equal to or larger than 2 percent"', "Table 5", less("ROSE below the better of the others at the size where it is worst (ratios to that one, 1)", digits=2)),
    Claim("4vms", "4VMs: FAST cleans for less than ROSE at 1.5 %, and ROSE for less from 2 % on (cost of FAST over ROSE's, 1.5 to 3.5 %)", "0.95, 1.12, 1.34, 1.74, 2.33", crosses("below 1 at 1.5 %, above from 2 % on", 1)),
    Claim("war", '"ROSE achieves the lowest WAR among the FTLs under all the traces"', "Figure 14", less("(W + C) / W of ROSE below the lower of FAST's and LAST's", digits=2)),
    Claim("war last", '"it reduces the WAR by up to 1.1 [...] when compared to LAST"', "up to 1.1", within(25, SOME)),
    Claim("war fast", 'and "1.8 when compared to [...] FAST"', "up to 1.8", within(25, SOME)),
    Claim("time last", '"up to 39 [...] percent reduction in the total write time" (LAST)', "up to 39 %", within(25, SOME, 0, " %")),
    Claim("time fast", '"up to [...] 61 percent" (FAST)', "up to 61 %", within(25, SOME, 0, " %")),
    Claim("no fpr", '"Even with FPR disabled, ROSE still outperforms FAST and LAST significantly under almost all the traces"', "Figure 13", less("ROSE without FPR below the better of the others", digits=0, unit=" s")),
    Claim("ebw", '"when compared to NP, EBW results in lower cleaning cost in sequential write dominated workloads" (LinuxPC, LargeFile; a real trace with whole-block writes)', "Figure 5", less("EBW below no prediction", digits=0, unit=" s")),
    Claim("ebw random", '"but without [...] increased cleaning cost in random write dominated workloads" (Postmark, Fin1, Fin2)', "Figure 5", less("EBW at most 1 % above no prediction", 1, digits=0, unit=" s")),
    *(
        Claim(f"{name}", f'{name.upper()}: "mispredictions [...] leading to increased cleaning cost" in random write dominated workloads, "compared to the FTL without"', "Figure 5", less(f"no prediction below {name.upper()}", digits=0, unit=" s"))
        for name in ("fp", "lp", "cp")
    ),
    Claim("prediction", '"the prediction methods could result in lower cleaning cost in sequential write dominated workloads"', "Figure 5", less("the best of FP, LP, CP below no prediction", digits=0, unit=" s")),
    Claim("mispredicted", "Misprediction ratios and their cost (Figure 6)", "Figure 6", why_not="not measured: ftld does not count merges of the sequential log block apart from others"),
    Claim("rr", "MARO outperforms round robin", "Figure 7", less("MARO below round robin, every load", digits=0, unit=" s")),
    Claim("rr most", '"MARO outperforms RR by up to 3.5 times" (largest ratio less 1)', "3.5", within(25, SOME)),
    Claim("cat", "MARO outperforms CAT", "Figure 7", less("MARO below CAT, every load", digits=0, unit=" s")),
    Claim("cat most", '"and CAT by up to 31 percent" (largest)', "31 %", within(25, SOME, 0, " %")),
    Claim("last policy", '"We also implement MARO in the LAST FTL [...] MARO outperforms the LAST policy by up to 1.1 times" (Figure 8)', "up to 1.1", why_not="not measured: ftld has LAST's rule inside ROSE (last column of the victims' table), not MARO inside LAST"),
    Claim("weight 0", '"setting W_age as 0 results in a relatively large cleaning cost in the LinuxPC, Fin1, and LargeFile traces" (% above the least)', "Figure 9", such("at least 5 % above the least", lambda percent: percent >= 5, SOME, 1, " %")),
    Claim("weight inf", '"extremely large values also results in large cleaning cost in the LinuxPC and 4VMs traces" (% above the least)', "Figure 9", such("at least 5 % above the least", lambda percent: percent >= 5, SOME, 1, " %")),
    Claim("weight none", '"Postmark and Fin2 [...] W_age does not have significant effect" (largest, % above the least)', "Figure 9", such("at most 5 %", lambda percent: percent <= 5, digits=1, unit=" %")),
    Claim("dead first", '"setting W_age as infinity still results in lower cleaning cost than RR"', "Figures 7, 9", less("age alone below round robin by 1 % at least, every load", -1, digits=0, unit=" s")),
    Claim("alpha", '"under the LinuxPC trace, the cleaning cost with alpha as 1 is 15 percent larger than that with alpha as 0.25"', "15 %", within(25, SOME, 1, " %")),
    Claim("alpha 1", '"setting alpha as 1 does not always lead to the best performance" (% above the least)', "Figure 10", such("at least 1 % above the least", lambda percent: percent >= 1, digits=1, unit=" %")),
    Claim("fpr", '"it reduces the cleaning cost by 70 and 19 percent in the Postmark and Fin2 traces"', "70, 19 %", within(25, SOME, 1, " %")),
    Claim("fpr rest", '"FPR is more effective [...] under the Postmark and Fin2 traces": on the other four it saves little', "Figure 11", between(-5, 5, digits=1, unit=" %")),
    Claim("utilisation", "FPR raises the space utilisation of Postmark and Fin2 (Figure 12); pages gained and copied by a swap, FPR ratio (Table 4)", "Figure 12, Table 4", why_not="not measured: ftld has no counter of swaps, nor of the free pages of erased blocks"),
    Claim("sequential logs", '"all the values are larger than 1, meaning that ROSE always results in superior performance than LAST", by LAST\'s sequential log blocks', "Figure 15", less("ROSE below the best LAST of a 64th to an eighth", digits=0, unit=" s")),
    Claim("wear", '"the standard deviations of the erase counts are small for all the traces" (deviation over mean)', ", ".join(figure(one) for one in DEVIATION.values()), such("at most 0.12, the paper's largest", lambda share: share <= 0.12, ("below 0.5", lambda share: share < 0.5))),
    Claim("levelling", 'hot-cold swapping: "less than or equal to 2.01 percent of the cleaning cost under all the traces"', "0.02 to 2.01 %", such("at most 2.01 %", lambda percent: percent <= 2.01, unit=" %")),
    Claim("hardware", '"the worst case execution time of the MARO implementation is 7.6 us"; "1.2 us is used for searching"', "7.6, 1.2 us", why_not="times of an ARM926 and of hardware; ftld emulates the flash only"),
]


def cases(runs, worn, levelling):
    """`levelling`: percent of cleaning that a row spent on wear levelling."""
    found = {}

    def add(key, label, ours, theirs=None, real=False, exercised=True):
        found.setdefault(key, []).append(Case(label, ours, theirs, real, exercised))

    for label, run in runs.items():
        judge_load(add, label, run)
    for key, of in LARGEST.items():
        found[key] = list(joint("largest", max, [Case(label, *of(run), run.real, exercised(key, run)) for label, run in runs.items()]))
    for trace, (_, row) in worn.items():
        add("wear", trace, row["erases"]["stddev"] / row["erases"]["mean"], exercised=collected(row))
        add("levelling", trace, levelling(row), exercised=collected(row))
    return found


def judge_load(add, label, run):
    trace = "Fin1" if label.startswith("Financial1") else label.removeprefix("stand-in ")
    say = lambda key, ours, exercised, theirs=None: add(key, label, ours, theirs, run.real, exercised)
    scale = lambda *costs: tuple(run.factor * cost for cost in costs)
    # Sequential: mostly whole requests of some length; of the real traces mssql is, Financial1 is not.
    sequential, random = trace in (*SEQUENTIAL, "mssql"), trace in RANDOM
    rose, fast, last = (run.sizes[name] for name in SCHEMES)
    for name in SCHEMES:
        add("sizes", f"{label}, {name}", [run.factor * cost for cost in run.sizes[name]], None, run.real, run.collects("sizes", name))
    all_three = run.collects("sizes", *SCHEMES)
    say("fast", over(fast[USUAL], rose[USUAL]), run.collects("sizes", "rose", "fast"), FAST.get(trace))
    say("last", over(last[USUAL], rose[USUAL]), run.collects("sizes", "rose", "last"), LAST.get(trace))
    say("two", (max(over(mine, min(other)) for mine, *other in list(zip(rose, fast, last))[TWO:]), 1), all_three)
    if trace == "4VMs":
        say("4vms", [over(theirs, mine) for theirs, mine in zip(fast, rose)], all_three)
    say("war", (run.ratios["rose"], min(run.ratios["fast"], run.ratios["last"])), all_three)
    say("no fpr", scale(run.reuse[1], min(fast[USUAL], last[USUAL])), all_three)
    by = run.predicted
    if sequential:
        say("ebw", scale(by["ebw"], by["np"]), run.has_whole_blocks())
        say("prediction", scale(min(by["fp"], by["lp"], by["cp"]), by["np"]), run.predicts("fp", "lp", "cp", "np"))
    if random:
        say("ebw random", scale(by["ebw"], by["np"]), run.predicts("ebw", "np"))
        for name in ("fp", "lp", "cp"):
            say(name, scale(by["np"], by[name]), run.predicts("np", name))
    maro, rr, cat = run.victims[:3]
    say("rr", scale(maro, rr), run.collects("victims", 0, 1))
    say("cat", scale(maro, cat), run.collects("victims", 0, 2))
    above = lambda costs, index: 100 * (over(costs[index], min(costs)) - 1)
    weighed = run.collects("weights", *range(len(run.weights)))
    if trace in ("LinuxPC", "Fin1", "LargeFile"):
        say("weight 0", above(run.weights, 0), weighed)
    if trace in ("LinuxPC", "4VMs"):
        say("weight inf", above(run.weights, -1), weighed)
    if trace in ("Postmark", "Fin2"):
        say("weight none", 100 * (over(max(run.weights), min(run.weights)) - 1), weighed)
    say("dead first", scale(run.weights[-1], rr), run.collects("weights", -1) or run.collects("victims", 1))
    if trace == "LinuxPC":
        say("alpha", 100 * (over(run.alphas[4], run.alphas[1]) - 1), run.collects("alphas", 1, 4), 15)
    with_fpr, without = run.reuse
    saved, reused = 100 * (1 - over(with_fpr, without)), run.collects("reuse", 0, 1)
    if trace in ("Postmark", "Fin2"):
        say("fpr", saved, reused, {"Postmark": 70, "Fin2": 19}[trace])
    else:
        say("fpr rest", saved, reused and run.differs("reuse", 0, 1))
    say("sequential logs", scale(rose[USUAL], min(run.sequential)), run.collects("sizes", "rose", "last"))


# Claims about the largest of all traces: our number for one, and the paper's.
LARGEST = {
    "war last": lambda run: (run.ratios["last"] - run.ratios["rose"], 1.1),
    "war fast": lambda run: (run.ratios["fast"] - run.ratios["rose"], 1.8),
    "time last": lambda run: (100 * (1 - run.ratios["rose"] / run.ratios["last"]), 39),
    "time fast": lambda run: (100 * (1 - run.ratios["rose"] / run.ratios["fast"]), 61),
    "rr most": lambda run: (over(run.victims[1], run.victims[0]) - 1, 3.5),
    "cat most": lambda run: (100 * (over(run.victims[2], run.victims[0]) - 1), 31),
    "alpha 1": lambda run: (100 * (over(run.alphas[4], min(run.alphas)) - 1), None),
}


def exercised(key, run):
    """Whether the runs that such a claim compares copied enough pages."""
    if key.startswith(("war", "time")):
        return run.collects("sizes", "rose", key.split()[1])
    sweep, values = {"rr most": ("victims", (0, 1)), "cat most": ("victims", (0, 2)), "alpha 1": ("alphas", range(5))}[key]
    return run.collects(sweep, *values)
