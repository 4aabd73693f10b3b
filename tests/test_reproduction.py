"""The verdicts of docs/REPRODUCTION.md follow from cases, and the page is what its claims say.

    /usr/bin/python3 -B -m pytest -q -p no:cacheprovider tests/test_reproduction.py
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from reproduction import demand, dopftl, lazyftl, mlam, mnftl, rose_claims  # noqa: E402
from reproduction.verdict import (  # noqa: E402
    CONTRADICTED,
    DEPENDS,
    DIRECTION,
    REPRODUCED,
    UNTESTABLE,
    Case,
    Claim,
    between,
    counts,
    falls,
    judge,
    less,
    order,
    report,
    within,
)

PAPERS = [mnftl, lazyftl, rose_claims, mlam, dopftl, demand]
TITLES = ["MNFTL", "LazyFTL", "ROSE", "MLAM", "DOPFTL", "DFTL and TPFTL"]
PAGE = Path(__file__).resolve().parents[1] / "docs" / "REPRODUCTION.md"
FEWER = ("fewer", lambda percent: percent > 0)


def cases(*ours, theirs=None, **fields):
    return [Case(f"load {number}", one, theirs, **fields) for number, one in enumerate(ours)]


@pytest.mark.parametrize(
    "test, ours, theirs, verdict",
    [
        (within(10), [105, 91], 100, REPRODUCED),
        (within(10), [111], 100, CONTRADICTED),
        (within(10), [111, 100], 100, DEPENDS),
        (within(10, FEWER), [30, 100], 100, DIRECTION),
        (within(10, FEWER), [-30, 100], 100, DEPENDS),
        (within(10, FEWER), [-30], 100, CONTRADICTED),
        # Without a number of the paper for this load, a size cannot be reproduced.
        (within(10, FEWER), [100], None, DIRECTION),
        (between(29, 64, FEWER), [29, 64], None, REPRODUCED),
        (between(29, 64, FEWER), [71], None, DIRECTION),
        (less("below"), [(1, 2), (2, 2)], None, DEPENDS),
        (less("at most 1 % above", 1), [(1.005, 1)], None, REPRODUCED),
        (falls("falls", 2), [[3, 2, 2.01]], None, REPRODUCED),
        (falls("falls", 2), [[3, 2, 2.5]], None, DIRECTION),
        (falls("falls", 2), [[2, 3]], None, CONTRADICTED),
        (order(["a", "b", "c"]), [{"a": 1, "b": 2, "c": 3}], None, REPRODUCED),
        (order(["a", "b", "c"]), [{"a": 1, "b": 3, "c": 2}], None, DIRECTION),
        (order(["a", "b", "c"], ("b", "c")), [{"a": 1, "b": 3, "c": 2}], None, REPRODUCED),
        (order(["a", "b", "c"]), [{"a": 3, "b": 2, "c": 1}], None, CONTRADICTED),
    ],
)
def test_a_verdict(test, ours, theirs, verdict):
    assert judge(test, cases(*ours, theirs=theirs))[0] == verdict


def test_a_verdict_names_what_it_depends_on():
    assert judge(within(10), cases(100, 200, theirs=100))[1] == "holds on load 0; not on load 1"


def test_a_load_without_collection_judges_nothing():
    idle = cases(100, theirs=100, collected=False)
    assert judge(within(10), idle) == (UNTESTABLE, "nothing was collected")
    assert judge(within(10), idle + cases(200, theirs=100))[0] == CONTRADICTED


def test_real_traces_judge_alone_and_stand_ins_are_named():
    claim = Claim("key", "words", "100", within(10))
    found = {"key": [*cases(100, theirs=100, real=True), *cases(200, theirs=100)]}
    text, unexplained = report([claim], found, {})
    assert "1 reproduced, 0 direction only" in text and "; 1 on real traces." in text
    assert "reproduced; stand-ins: contradicted" in text
    assert unexplained == []


def test_what_is_not_reproduced_needs_a_reason():
    claim, found = Claim("key", "words", "100", within(10)), {"key": cases(200, theirs=100)}
    assert report([claim], found, {})[1] == ["words (contradicted)"]
    assert report([claim], found, {"key": "because"})[1] == []


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.__name__.split(".")[-1])
def test_claims_are_complete(paper):
    keys = [claim.key for claim in paper.CLAIMS]
    assert len(keys) == len(set(keys))
    for claim in paper.CLAIMS:
        assert bool(claim.test) != bool(claim.why_not), claim.says


def test_the_page_counts_its_claims():
    """The table at the top is the sum of the sections; each has a row for every claim, or says that it is an earlier one."""
    sections = {title: body for title, _, body in (part.partition("\n\n") for part in PAGE.read_text().split("\n## ")[1:])}
    bodies = [sections[title] for title in TITLES]
    for paper, body in zip(PAPERS, bodies):
        if counts(body):
            assert sum(counts(body)[:-1]) == len(paper.CLAIMS)
        else:
            assert body.startswith("*This section is of an earlier run")
    total = [sum(column) for column in zip(*filter(None, map(counts, bodies)))]
    assert f"| all | {' | '.join(map(str, [*total[:-1], sum(total[:-1]), total[-1]]))} |" in PAGE.read_text()
