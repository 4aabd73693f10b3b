"""The verdicts of the papers' claims follow from cases, and the record and docs/REPRODUCTION.md count them.

    /usr/bin/python3 -B -m pytest -q -p no:cacheprovider tests/test_reproduction.py
"""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
from reproduction import demand, dopftl, lazyftl, mlam, mnftl, rose_claims  # noqa: E402
from reproduction.rows import Ftld, collected  # noqa: E402
from reproduction.verdict import (  # noqa: E402
    CONTRADICTED,
    DEPENDS,
    DIRECTION,
    REPRODUCED,
    UNTESTABLE,
    Case,
    Claim,
    Setting,
    between,
    counts,
    crosses,
    falls,
    joint,
    judge,
    less,
    order,
    report,
    rises,
    settle,
    those,
    within,
)

SPEC = importlib.util.spec_from_file_location("reproduction_script", Path(__file__).with_name("reproduction.py"))
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

PAPERS = [mnftl, lazyftl, rose_claims, mlam, dopftl, demand]
TITLES = ["MNFTL", "LazyFTL", "ROSE", "MLAM", "DOPFTL", "DFTL and TPFTL"]
RECORD, PAGE = script.RECORD, script.PAGE
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
        # Equal values do not fall.
        (falls("falls", 2), [[2, 2]], None, CONTRADICTED),
        (rises("rises", 2), [[2, 1.99, 3]], None, REPRODUCED),
        (rises("rises", 2), [[2, 1, 3]], None, DIRECTION),
        (rises("rises", 2), [[2, 2]], None, CONTRADICTED),
        (crosses("from 2 % on", 1), [[0.9, 1.1, 1.2]], None, REPRODUCED),
        (crosses("from 2 % on", 1), [[0.9, 0.95, 1.2]], None, DIRECTION),
        (crosses("from 2 % on", 1), [[1.1, 1.1, 1.2]], None, CONTRADICTED),
        (those("5 and 3", lambda both: both == (5, 3), ("inside", lambda both: all(0 < k < 7 for k in both))), [(5, 3)], None, REPRODUCED),
        (those("5 and 3", lambda both: both == (5, 3), ("inside", lambda both: all(0 < k < 7 for k in both))), [(1, 3)], None, DIRECTION),
        (those("5 and 3", lambda both: both == (5, 3), ("inside", lambda both: all(0 < k < 7 for k in both))), [(5, 7)], None, CONTRADICTED),
        (order(["a", "b", "c"]), [{"a": 1, "b": 2, "c": 3}], None, REPRODUCED),
        (order(["a", "b", "c", "d"]), [{"a": 1, "b": 3, "c": 2, "d": 4}], None, DIRECTION),
        (order(["a", "b", "c"]), [{"a": 1, "b": 3, "c": 2}], None, CONTRADICTED),
        (order(["a", "b", "c"], ("b", "c"), 10), [{"a": 1, "b": 2.1, "c": 2}], None, REPRODUCED),
        (order(["a", "b", "c"], ("b", "c"), 10), [{"a": 1, "b": 2, "c": 3}], None, DIRECTION),
        (order(["a", "b", "c"]), [{"a": 3, "b": 2, "c": 1}], None, CONTRADICTED),
    ],
)
def test_a_verdict(test, ours, theirs, verdict):
    assert judge(test, cases(*ours, theirs=theirs))[0] == verdict


def test_a_verdict_names_what_it_depends_on():
    assert judge(within(10), cases(100, 200, theirs=100))[1] == "holds on load 0; not on load 1"


def test_a_load_that_hardly_exercises_the_claim_judges_nothing():
    idle = cases(100, theirs=100, exercised=False)
    assert judge(within(10), idle) == (UNTESTABLE, "hardly exercised")
    assert judge(within(10), idle + cases(200, theirs=100))[0] == CONTRADICTED


def own(*ours, **fields):
    return cases(*ours, own=True, **fields)


def verdict(claim, found, settings=None):
    return settle(claim, found, settings or {})


GENERAL = Claim("key", "words", "100", within(10), general=True, right_if="it were so")
OWN_ALONE = Claim("key", "words", "100", within(10), right_if="it were so")
NEW, LOOPED = Setting("a new device", "the device is new"), Setting("the trace looped")


def test_stand_ins_judge_nothing():
    text, unexplained = report("", [GENERAL], {"key": cases(200, theirs=100)}, {})
    assert "1 not testable here" in text and "; 0 on real traces." in text and "stand-ins: contradicted" in text
    assert not unexplained


def test_other_real_traces_judge_what_a_paper_says_of_every_load():
    found = cases(100, theirs=100, real=True)
    assert verdict(GENERAL, found)[0] == REPRODUCED
    assert verdict(OWN_ALONE, found) == (UNTESTABLE, "the paper's traces are not at hand")
    assert verdict(OWN_ALONE, own(100, theirs=100))[0] == REPRODUCED


def test_the_papers_settings_judge_first():
    both = {"new": NEW, "looped": LOOPED}
    good, bad = own(100, theirs=100, setting="new"), own(200, theirs=100, setting="looped")
    assert verdict(GENERAL, good + bad, both) == (REPRODUCED, "in other settings contradicted")
    swapped = [replace(case, setting={"new": "looped", "looped": "new"}[case.setting]) for case in good + bad]
    assert verdict(GENERAL, swapped, both) == (DEPENDS, "holds on load 0, looped; not on load 0, new")


def test_contradicted_needs_every_setting():
    both = {"new": NEW, "looped": LOOPED}
    new, looped = own(200, theirs=100, setting="new"), own(200, theirs=100, setting="looped")
    assert verdict(GENERAL, new, both) == (UNTESTABLE, "held nowhere, and not tried: looped")
    idle = [replace(case, exercised=False) for case in looped]
    assert verdict(GENERAL, new + idle, both) == (UNTESTABLE, "held nowhere, and not tried: looped")
    assert verdict(GENERAL, new + looped, both) == (CONTRADICTED, "the paper is right if it were so")
    assert verdict(replace(GENERAL, settings=("new",)), new, both)[0] == CONTRADICTED


def test_other_settings_judge_where_the_papers_own_exercise_nothing():
    both = {"new": NEW, "looped": LOOPED}
    idle = own(200, theirs=100, setting="new", exercised=False)
    assert verdict(GENERAL, idle + own(100, theirs=100, setting="looped"), both)[0] == REPRODUCED
    assert verdict(GENERAL, idle + own(200, theirs=100, setting="looped"), both) == (UNTESTABLE, "held nowhere, and not tried: new")
    assert verdict(GENERAL, idle, both) == (UNTESTABLE, "hardly exercised")


def test_a_contradiction_says_when_the_paper_is_right():
    bare = replace(GENERAL, right_if="")
    assert "nothing says what would make the paper right" in report("", [bare], {"key": own(200, theirs=100)}, {"key": "because"})[1][0]


def test_a_changed_verdict_needs_a_reason():
    claim = replace(GENERAL, key="bound")
    found = {"bound": own(200, theirs=100)}
    assert report("LazyFTL", [claim], found, {"bound": "because"})[1] == ["words (reproduced before, contradicted now)"]
    text, unexplained = report("LazyFTL", [claim], found, {"bound": "because"}, changed={"bound": "another state"})
    assert unexplained == [] and "1. another state because" in text


def test_no_joint_case_is_not_a_missing_load():
    claim = Claim("key", "words", "100", within(10))
    assert "hardly exercised" in report("", [claim], {"key": []}, {})[0]
    assert "its load is missing" in report("", [claim], {}, {})[0]


def test_collected_needs_enough_copies():
    row = lambda programs: {"flash": {"gc": {"programs": programs - 50}, "merge": {"programs": 50}}}
    assert not collected(row(199))
    assert collected(row(199), row(200))


def test_rows_answer_only_the_command_they_came_from(tmp_path, monkeypatch):
    runs, program, device = tmp_path / "runs", tmp_path / "ftld", tmp_path / "device.toml"
    program.write_text(f"""#!/bin/sh
if [ "$1" = schemes ]; then echo '{{"schemes": []}}'; exit; fi
echo >> {runs}; echo '{{"scheme": "pagemap", "job": {{"set": []}}}}'
""")
    program.chmod(0o755)
    device.write_text("planes = 1")
    monkeypatch.setattr("reproduction.rows.TARGET", tmp_path)
    resumed = Ftld(program, 1, 1, True)

    def runs_of(op):
        resumed.compare("rows", ["zipf"], ["pagemap"], "--profile", device, "--op", op)
        return len(runs.read_text().split("\n")) - 1

    assert [runs_of("7"), runs_of("7"), runs_of("28"), runs_of("28")] == [1, 1, 2, 2]
    device.write_text("planes = 2")
    assert runs_of("28") == 3


def test_up_to_and_on_average_are_one_case_of_each_kind_of_load():
    real = [*cases(10, 30, theirs=24, real=True), *cases(90, theirs=24, real=True, exercised=False)]
    assert list(joint("largest", max, [*real, *cases(50, theirs=24)])) == [
        Case("largest of 2", 30, 24, True),
        Case("largest of 1", 50, 24, False),
    ]
    assert [case.ours for case in joint("mean", mean, real)] == [20]


def test_what_is_not_reproduced_needs_a_reason():
    claim, found = Claim("key", "words", "100", within(10, FEWER)), {"key": own(50, theirs=100)}
    assert report("", [claim], found, {})[1] == ["words (direction only)"]
    assert report("", [claim], found, {"key": "because"})[1] == []


@pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.__name__.split(".")[-1])
def test_claims_are_complete(paper):
    keys = [claim.key for claim in paper.CLAIMS]
    assert len(keys) == len(set(keys))
    for claim in paper.CLAIMS:
        assert bool(claim.test) != bool(claim.why_not), claim.says


def test_the_record_counts_its_claims():
    """The tables at the top and in the page are the sums of the sections; each has a row for every claim, or says that it is an earlier one."""
    sections = {title: body for title, _, body in (part.partition("\n\n") for part in RECORD.read_text().split("\n## ")[1:])}
    bodies = [sections[title] for title in TITLES]
    for paper, body in zip(PAPERS, bodies):
        if counts(body):
            assert sum(counts(body)[:-1]) == len(paper.CLAIMS)
        else:
            assert body.startswith("*This section is of an earlier run")
    total = [sum(column) for column in zip(*filter(None, map(counts, bodies)))]
    row = f"| all | {' | '.join(map(str, [*total[:-1], sum(total[:-1]), total[-1]]))} |"
    assert row in RECORD.read_text() and row in PAGE.read_text()


@pytest.mark.parametrize("stale", [PAGE, RECORD], ids=["page", "record"])
def test_another_number_in_a_table_is_found(stale, tmp_path, monkeypatch):
    script.check()
    copy = tmp_path / stale.name
    copy.write_text(stale.read_text().replace("| all | ", "| all | 1", 1))
    monkeypatch.setattr(script, "PAGE" if stale == PAGE else "RECORD", copy)
    with pytest.raises(SystemExit):
        script.check()


def test_the_state_names_the_sections():
    states = "A, B: bbb with changes, 2026-01-02; C: ccc, 2026-01-03"
    assert script.told(script.earlier(states)) == states
    assert script.told({**script.earlier(states), "B": "ccc, 2026-01-03"}) == "A: bbb with changes, 2026-01-02; B, C: ccc, 2026-01-03"
