"""The parts of tests/validation.py that need no other simulator: loads, models of caches, the judgement of differences."""

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from validation import caches, page
from validation.load import Device, Load, uniform, zipf
from validation.peers import Counts

DEVICE = Device(16, 4, 12)


def load_of(*pages, measured_from=0):
    return SimpleNamespace(requests=[("R", number) for number in pages], measured_from=measured_from)


def test_a_load_fills_the_device_first():
    load = Load("small", DEVICE, uniform, 1, 2)
    assert load.requests[:49] == [("W", number) for number in range(48)] + [("R", 0)]
    assert load.measured_from == 49 + 48 and load.host_writes == 2 * 48
    assert Load("small", DEVICE, uniform, 1, 2).requests == load.requests


def test_every_format_has_the_same_pages(tmp_path):
    load = Load("small", DEVICE, zipf(0.9), 1, 1, reads=0.5)
    load.ascii(tmp_path / "ascii", len(load.requests))
    lines = [line.split() for line in (tmp_path / "ascii").read_text().split("\n")]
    assert [("WR"[int(kind)], int(sector) // 8) for _, _, sector, _, kind in lines] == [*load.requests, ("R", 0)]
    load.uflip(tmp_path / "1", tmp_path / "2")
    fields = [line.split("; ") for name in "12" for line in (tmp_path / name).read_text().splitlines()]
    assert [(kind, int(number)) for _, kind, number, *_ in fields] == load.requests
    load.addresses(tmp_path / "addresses")
    written = [int(line.split()[0]) for line in (tmp_path / "addresses").read_text().splitlines()]
    assert written == [number for kind, number in load.requests if kind == "W"]


def test_popular_pages_are_popular():
    draws = zipf(1.0)(random.Random(1), 100)
    counts = sorted((lambda pages: [pages.count(number) for number in range(100)])([draws() for _ in range(50_000)]))
    # The most popular of 100 pages has 1 / (1 + 1/2 + ... + 1/100) of the requests, 19.3 %.
    assert counts[-1] / 50_000 == pytest.approx(0.193, abs=0.01)


def test_the_models_of_caches():
    # With two entries, 3 evicts 2 (least recently used); a second use of 1 keeps it where half is protected.
    assert caches.lru(load_of(1, 2, 1, 3, 1, 2), 2) == 2 / 6
    assert caches.lru(load_of(1, 1, 2, 3, 1), 2) == 1 / 5
    assert caches.segmented_lru(load_of(1, 1, 2, 3, 1), 2) == 2 / 5
    assert caches.lru(load_of(1, 1, 2, 3, 1, measured_from=4), 2) == 0


@pytest.mark.parametrize("writes, found", [(1000, 0), (980, 0), (900, 1)])
def test_a_difference_without_a_rule_is_told(writes, found):
    peer = SimpleNamespace(name="Other", option="other", scheme="page map")
    theirs, ours = Counts(1000, 4000, 3000, 50), Counts(writes, 4000, 4000 - writes, 50)
    _, wrong = page.page_map_section([("uniform", peer, theirs, [("shared rules", ours)])], 0.03)
    assert len(wrong) == found


def test_a_simulator_that_stops_is_on_the_page():
    counts = Counts(1000, 1100, 0, 0, 100, 2000, 1000)
    rows = [(DEVICE, 8, {"Other": "Other served 3 of 9 requests"}, 0.5, 0.5, counts)]
    text, wrong = page.hit_section(rows, ["Other"], 0.02)
    assert "Other served 3 of 9 requests" in text and "stopped" in text and not wrong
    assert page.hit_section([(DEVICE, 8, {}, 0.5, 0.6, counts)], [], 0.02)[1]


def test_the_page_has_the_figures_of_the_record():
    tests = Path(__file__).resolve().parent
    record, shown = (tests / "results/validation.md").read_text(), (tests.parent / "docs/VALIDATION.md").read_text()
    assert page.SUMMARY.search(shown)[0] == page.summary(record) and page.summary(record).count("\n") == 9
    peer = SimpleNamespace(name="Other", option="other", scheme="page map")
    counts = Counts(1000, 4000, 3000, 50)
    section, _ = page.page_map_section([("uniform", peer, counts, [("shared rules", counts)])], 0.03)
    assert page.summary(section).splitlines()[2] == "| uniform | Other | 4.000 | 4.000 | 4.000 | +0.00 % |"
    whole, _ = page.compose(DEVICE, {"Other": "1234567"}, (1, 2), [("uniform", peer, counts, [("shared rules", counts)])], [], [], 0.03, "1234567, 2026-11-21")
    assert "\nOutcome: write amplification beside Other: +0.00 to +0.00 % with their rules\n" in whole
