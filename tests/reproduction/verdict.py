"""Claims of a paper as data, and the verdicts that their predicates give.

A claim is written down before its run: the paper's words, its figure, and a predicate with a tolerance. A module measures *cases*: what
one load gave under one *setting*, that is a state of the device, a form of the trace, or a way to count. The verdict follows from the
cases alone; no verdict is written by hand.

Two rules keep a verdict from saying more than was tried. A claim about the paper's own traces is judged on these alone; a claim that the
paper makes of every load is judged on other real traces, too; stand-ins are shown and judge nothing. A comparison that names no trace is
of every load; a size over the paper's benchmarks, as a range or an average, has only its direction there. And *contradicted* needs every
setting that the paper's words allow and every form of the trace, none of which bears the claim, and a line that says what would have to
be true for the paper to be right.
"""

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Callable

from .page import figure, table

REPRODUCED, DIRECTION, DEPENDS = "reproduced", "direction only", "depends on"
CONTRADICTED, UNTESTABLE = "contradicted", "not testable here"
# Value of `Claim.general`: the paper gives the direction for every load, the size for its own loads.
SIDE = "direction"
# Mark of a case that judges nothing.
IDLE = "hardly exercised"
VERDICTS = [REPRODUCED, DIRECTION, DEPENDS, CONTRADICTED, UNTESTABLE]
# The verdicts of release 0.2.0, by section and claim.
BEFORE = {tuple(line.split("\t")[:2]): line.split("\t")[2] for line in Path(__file__).with_name("before.tsv").read_text().splitlines()}


@dataclass(frozen=True)
class Test:
    """A predicate: `full` is what the paper says, within a tolerance; `direction` is the same without its size."""

    text: str
    full: Callable
    direction: Callable | None = None
    show: Callable = str


@dataclass(frozen=True)
class Setting:
    """A state of the device, a form of the trace, or a way to count. `words` are the paper's that fix it or leave it open; a setting
    without is ours, such as the forms of a real trace."""

    says: str
    words: str = ""


@dataclass(frozen=True)
class Claim:
    """What a paper says. Without a test, `why_not` says why nothing here can judge it. `general`: the paper says it of every load;
    SIDE: it does so without the size, which is of its own loads.
    `right_if`: what would have to be true for the paper to be right where nothing here bears it. `settings`: names of those that matter
    to the claim; without, all of the section."""

    key: str
    says: str
    theirs: str
    test: Test | None = None
    why_not: str = ""
    general: bool | str = False
    right_if: str = ""
    settings: tuple = ()


@dataclass(frozen=True)
class Case:
    """Result of one load under a setting; `theirs` is the paper's number for this very load, if it has one. `own`: the load is the paper's,
    as its public trace, a worked example, or a closed form."""

    load: str
    ours: object
    theirs: object = None
    real: bool = False
    # False: the run hardly has what the claim is about, as pages copied; so it judges nothing.
    exercised: bool = True
    own: bool = False
    setting: str = ""

    @property
    def name(self):
        return self.load + (f", {self.setting}" if self.setting else "")


def within(percent, direction=None, digits=2, unit=""):
    """A number within so many percent of the paper's. `direction`: its words and its test."""
    return Test(
        f"within {percent} % of theirs" + (f"; direction: {direction[0]}" if direction else ""),
        lambda ours, theirs: theirs is not None and abs(ours - theirs) <= percent / 100 * abs(theirs),
        direction and (lambda ours, _: direction[1](ours)),
        lambda ours: figure(ours, digits) + unit,
    )


def between(low, high, direction=None, digits=0, unit=""):
    """A number in a range that the paper gives."""
    return Test(
        f"{low} to {high}{unit}" + (f"; direction: {direction[0]}" if direction else ""),
        lambda ours, _: low <= ours <= high,
        direction and (lambda ours, _: direction[1](ours)),
        lambda ours: figure(ours, digits) + unit,
    )


def such(text, holds, direction=None, digits=2, unit=""):
    """A number of which something is said."""
    return Test(
        text + (f"; direction: {direction[0]}" if direction else ""),
        lambda ours, _: holds(ours),
        direction and (lambda ours, _: direction[1](ours)),
        lambda ours: figure(ours, digits) + unit,
    )


def less(text, slack=0.0, digits=0, unit=""):
    """A pair: the first is the smaller one, or larger by no more than `slack` percent; smaller by as much if that is negative."""
    return Test(
        text,
        lambda ours, _: ours[0] < ours[1] if slack == 0 else ours[0] <= (1 + slack / 100) * ours[1],
        None,
        lambda ours: f"{figure(ours[0], digits)} and {figure(ours[1], digits)}{unit}",
    )


def falls(text, slack, digits=0):
    """A list that falls from first to last, and rises between by `slack` percent at most."""
    return Test(
        f"{text}, no step back above {slack} %; direction: the last below the first",
        lambda ours, _: all(b <= (1 + slack / 100) * a for a, b in zip(ours, ours[1:])) and ours[-1] < ours[0],
        lambda ours, _: ours[-1] < ours[0],
        lambda ours: " ".join(figure(one, digits) for one in ours),
    )


def rises(text, slack, digits=0):
    """Like `falls`, but for values that rise."""
    test = falls(text, slack, digits)
    back = lambda holds: lambda ours, theirs: holds(ours[::-1], theirs)
    return Test(f"{text}, no step back above {slack} %; direction: the last above the first", back(test.full), back(test.direction), test.show)


def crosses(text, at, digits=2):
    """A list of ratios: below 1 before the value with this index, above 1 from it on."""
    return Test(
        f"{text}; direction: the first below 1, the last above",
        lambda ours, _: all((one < 1) == (index < at) and one != 1 for index, one in enumerate(ours)),
        lambda ours, _: ours[0] < 1 < ours[-1],
        lambda ours: " ".join(figure(one, digits) for one in ours),
    )


def those(text, holds, direction=None):
    """Some values that only together say what the claim says."""
    return Test(
        text + (f"; direction: {direction[0]}" if direction else ""),
        lambda ours, _: holds(ours),
        direction and (lambda ours, _: direction[1](ours)),
        lambda ours: ", ".join(map(str, ours)) or "none",
    )


def order(names, alike=(), slack=None, digits=0):
    """Numbers by name, smallest first, in exactly this order; those in `alike` differ by at most
    `slack` percent."""

    def exact(ours, _):
        return all(near(ours[a], ours[b]) if {a, b} == set(alike) else ours[a] < ours[b] for a, b in zip(names, names[1:]))

    def near(one, other):
        return abs(one - other) <= slack / 100 * max(one, other)

    return Test(
        "order exact" + (f" ({' and '.join(alike)} within {slack} %)" if alike else "") + f"; direction: {names[0]} first, {names[-1]} last",
        exact,
        lambda ours, _: min(ours, key=ours.get) == names[0] and max(ours, key=ours.get) == names[-1],
        lambda ours: " < ".join(f"{name} {figure(ours[name], digits)}" for name in sorted(ours, key=ours.get)),
    )


def joint(name, combine, cases):
    """Joins the cases that judge, of a kind and a setting: to the largest, to a mean."""
    kinds = dict.fromkeys((case.setting, case.own, case.real) for case in cases if case.exercised)
    for setting, own, real in kinds:
        some = [case for case in cases if case.exercised and (case.setting, case.own, case.real) == (setting, own, real)]
        theirs = {case.theirs for case in some}
        yield Case(f"{name} of {len(some)}", combine([case.ours for case in some]), theirs.pop() if len(theirs) == 1 else None, real, True, own, setting)


def judge(test, cases):
    """A verdict, and what it depends on."""
    judged = [case for case in cases if case.exercised]
    if not judged:
        return UNTESTABLE, IDLE
    full = [test.full(case.ours, case.theirs) for case in judged]
    if all(full):
        return REPRODUCED, ""
    holds = [whole or bool(test.direction and test.direction(case.ours, case.theirs)) for whole, case in zip(full, judged)]
    if all(holds):
        return DIRECTION, ""
    if any(holds):
        said = lambda wanted: ", ".join(case.name for case, one in zip(judged, holds) if one is wanted)
        return DEPENDS, f"holds on {said(True)}; not on {said(False)}"
    return CONTRADICTED, ""


def tested(claim):
    """The test of a claim on the loads that judge it."""
    return replace(claim.test, full=lambda ours, theirs: False) if claim.general == SIDE else claim.test


def settle(claim, cases, settings):
    """The verdict of a claim, and the words behind it. `settings`: those of the section by name, the paper's first."""
    if claim.test is None:
        return UNTESTABLE, claim.why_not
    if not cases:
        return UNTESTABLE, "its load is missing" if cases is None else IDLE
    judging = [case for case in cases if case.own or claim.general and case.real]
    if not judging:
        return UNTESTABLE, "the paper's traces are not at hand"
    test = tested(claim)
    wanted = [name for name in settings if not claim.settings or name in claim.settings] or [""]
    papers = [case for case in judging if case.setting in wanted and (not case.setting or settings[case.setting].words)]
    verdict, depends = judge(test, papers)
    where = ""
    if verdict == UNTESTABLE:
        papers, (verdict, depends) = judging, judge(test, judging)
        where = "in settings of ours" if any(case.setting for case in papers) else ""
    if verdict == UNTESTABLE:
        return verdict, depends
    rest = [case for case in judging if case not in papers]
    kept, other = judge(test, rest)
    if verdict in (REPRODUCED, DIRECTION):
        weaker = VERDICTS.index(kept) > VERDICTS.index(verdict) and kept != UNTESTABLE
        return verdict, f"in other settings {kept}" + (f", {other}" if other else "") if weaker else where
    everywhere, depends = judge(test, judging)
    if everywhere != CONTRADICTED:
        return DEPENDS, depends
    tried = {case.setting for case in judging if case.exercised}
    untried = [name for name in wanted if name not in tried]
    if untried:
        return UNTESTABLE, f"held nowhere, and not tried: {', '.join(untried)}"
    return CONTRADICTED, f"the paper is right if {claim.right_if}"


def shown(test, cases):
    if not cases:
        return "-"
    return "; ".join(
        f"{case.name} {test.show(case.ours)}" + ("" if case.exercised else f" ({IDLE})") for case in cases
    )


def bold(verdict):
    return f"**{verdict}**" if verdict in (CONTRADICTED, DEPENDS) else verdict


def described(settings):
    """The settings of a section, and the paper's words that allow them."""
    lines = [(f"*{name}*", one.says, one.words or "ours") for name, one in settings.items()]
    return table(["setting", "what it is", "the paper's words"], lines) if lines else ""


def report(title, claims, found, why, settings=None, changed=None):
    """The table of all claims and its count; and claims that need a reason and have none: those that are not reproduced, those whose
    verdict is another one than before, and contradicted ones without a `right_if`."""
    settings, changed = settings or {}, changed or {}
    lines, reasons, unexplained, counted, real_ones = [], "", [], Counter(), 0
    for number, claim in enumerate(claims, 1):
        verdict, words = settle(claim, found.get(claim.key), settings)
        cases = found.get(claim.key, [])
        judging = [case for case in cases if case.own or case.real]
        stand_in = [case for case in cases if case not in judging]
        real_ones += any(case.real and case.exercised for case in judging) and verdict != UNTESTABLE
        said = bold(verdict) + (f": {words}" if words else "")
        if claim.test and stand_in:
            other, on = judge(claim.test, stand_in)
            said += f"; stand-ins: {other}" + (f", {on}" if on else "")
        before = BEFORE.get((title, claim.key), "-")
        counted[verdict] += 1
        test = claim.test
        lines.append(
            (
                number,
                claim.says,
                claim.theirs,
                test.text if test else "-",
                shown(test, judging) if test else "-",
                shown(test, stand_in) if test else "-",
                said,
                before,
            )
        )
        reason = " ".join(part for part in (changed.get(claim.key) if before != verdict else None, why.get(claim.key) if verdict != REPRODUCED else None) if part)
        if reason:
            reasons += f"{number}. {reason}\n"
        missing = [
            (before not in (verdict, "-") and claim.key not in changed, f"{before} before, {verdict} now"),
            (claim.test and verdict not in (REPRODUCED, UNTESTABLE) and claim.key not in why, verdict),
            (verdict == CONTRADICTED and not claim.right_if, "contradicted, and nothing says what would make the paper right"),
        ]
        unexplained += [f"{claim.says} ({words})" for lacks, words in missing if lacks]
    heads = ["", "the paper says", "its figure", "reproduced if", "its own loads, and other real traces", "stand-ins", "verdict", "in 0.2.0"]
    text = described(settings) + "Verdicts: " + ", ".join(f"{counted[verdict]} {verdict}" for verdict in VERDICTS) + f"; {real_ones} on real traces.\n\n"
    text += table(heads, lines) + (f"Why the figures differ, and why a verdict is another one than in 0.2.0:\n\n{reasons}\n" if reasons else "")
    return text, unexplained


def counts(body):
    """The numbers of the line that `report` wrote into a section, by verdict, and how many on real traces."""
    line = re.search(r"^Verdicts: (.*); (\d+) on real traces\.$", body, re.MULTILINE)
    if not line:
        return None
    numbers = dict(reversed(part.split(" ", 1)) for part in line[1].split(", "))
    return [int(numbers[verdict]) for verdict in VERDICTS] + [int(line[2])]
