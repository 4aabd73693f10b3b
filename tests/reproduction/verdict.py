"""Claims of a paper as data, and the verdicts that their predicates give.

A claim is written down before its run: the paper's words, its figure, and a predicate with a tolerance. A module measures *cases*: what
one load (or one setting) gave. The verdict follows from the cases alone; no verdict is written by hand.
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import Callable

from .page import figure, table

REPRODUCED, DIRECTION, DEPENDS = "reproduced", "direction only", "depends on"
CONTRADICTED, UNTESTABLE = "contradicted", "not testable here"
# Of a case that judges nothing.
IDLE = "hardly exercised"
VERDICTS = [REPRODUCED, DIRECTION, DEPENDS, CONTRADICTED, UNTESTABLE]


@dataclass(frozen=True)
class Test:
    """A predicate: `full` is what the paper says, within a tolerance; `direction` is the same without its size."""

    text: str
    full: Callable
    direction: Callable | None = None
    show: Callable = str


@dataclass(frozen=True)
class Claim:
    """What a paper says. Without a test, `why_not` says why nothing here can judge it."""

    key: str
    says: str
    theirs: str
    test: Test | None = None
    why_not: str = ""


@dataclass(frozen=True)
class Case:
    """What one load gave; `theirs` is the paper's number for this very load, if it has one."""

    load: str
    ours: object
    theirs: object = None
    real: bool = False
    # False: the run hardly has what the claim is about, as pages copied; so it judges nothing.
    exercised: bool = True


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
    """The same the other way."""
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
    """Joins the cases that judge, of real traces and of stand-ins: to the largest, to a mean."""
    for real in (True, False):
        some = [case for case in cases if case.real is real and case.exercised]
        if some:
            theirs = {case.theirs for case in some}
            yield Case(f"{name} of {len(some)}", combine([case.ours for case in some]), theirs.pop() if len(theirs) == 1 else None, real)


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
        said = lambda wanted: ", ".join(case.load for case, one in zip(judged, holds) if one is wanted)
        return DEPENDS, f"holds on {said(True)}; not on {said(False)}"
    return CONTRADICTED, ""


def shown(test, cases):
    if not cases:
        return "-"
    return "; ".join(
        f"{case.load} {test.show(case.ours)}" + ("" if case.exercised else f" ({IDLE})") for case in cases
    )


def bold(verdict):
    return f"**{verdict}**" if verdict in (CONTRADICTED, DEPENDS) else verdict


def report(claims, found, why):
    """The table of all claims, judged on real traces where there are any, and its count; and claims that need a reason and have none."""
    lines, reasons, unexplained, counted, real_ones = [], "", [], Counter(), 0
    for number, claim in enumerate(claims, 1):
        cases = found.get(claim.key, [])
        real, stand_in = ([case for case in cases if case.real is kind] for kind in (True, False))
        if claim.test is None:
            verdict, said = UNTESTABLE, f"{UNTESTABLE}: {claim.why_not}"
        elif not cases:
            verdict, said = UNTESTABLE, f"{UNTESTABLE}: " + (IDLE if claim.key in found else "its load is missing")
        else:
            judging = any(case.exercised for case in real)
            (verdict, on), other = judge(claim.test, real if judging else stand_in or real), judge(claim.test, stand_in)
            said = bold(verdict) + (f" load: {on}" if verdict == DEPENDS else f" ({on})" if on else "")
            if judging:
                real_ones += 1
                if stand_in and other != (verdict, on):
                    said += f"; stand-ins: {other[0]}" + (f" load: {other[1]}" if other[1] else "")
        counted[verdict] += 1
        test = claim.test
        lines.append(
            (
                number,
                claim.says,
                claim.theirs,
                test.text if test else "-",
                shown(test, real) if test else "-",
                shown(test, stand_in) if test else "-",
                said,
            )
        )
        if said != REPRODUCED and why.get(claim.key):
            reasons += f"{number}. {why[claim.key]}\n"
        elif claim.test and verdict != REPRODUCED:
            unexplained.append(f"{claim.says} ({verdict})")
    heads = ["", "the paper says", "its figure", "reproduced if", "real traces", "stand-ins and settings", "verdict"]
    text = "Verdicts: " + ", ".join(f"{counted[verdict]} {verdict}" for verdict in VERDICTS) + f"; {real_ones} on real traces.\n\n"
    text += table(heads, lines) + (f"Why the figures differ:\n\n{reasons}\n" if reasons else "")
    return text, unexplained


def counts(body):
    """The numbers of the line that `report` wrote into a section, by verdict, and how many on real traces."""
    line = re.search(r"^Verdicts: (.*); (\d+) on real traces\.$", body, re.MULTILINE)
    if not line:
        return None
    numbers = dict(reversed(part.split(" ", 1)) for part in line[1].split(", "))
    return [int(numbers[verdict]) for verdict in VERDICTS] + [int(line[2])]
