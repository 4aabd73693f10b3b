"""The logic of the benchmarks: rounds, ratios, noise, kept results, the parsers of what programs print. Nothing is timed."""

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).with_name("bench")
sys.path.insert(0, str(BENCH))
import measure  # noqa: E402
import servers  # noqa: E402


def script(name):
    """A script of tests/bench, under a name that no other module has."""
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def arguments(**more):
    return argparse.Namespace(**{"rounds": 3, "json": None, "only": None, "short": True, **more})


def point(ours, theirs, others=0.0, goal=measure.at_least(1.0), name="point"):
    return measure.Point(name, "per second", {"ours": ours, "theirs": theirs}, {"theirs": goal}, (1.0, 1.0), others)


def test_a_ratio_is_that_of_the_same_round():
    """Both get slower together; the ratio of the medians would be 1.5."""
    ratio = measure.Ratio.of([30.0, 20.0, 10.0], [20.0, 10.0, 4.0])
    assert (ratio.median, ratio.least, ratio.most, ratio.spread) == (2.0, 1.5, 2.5, 0.5)


def test_rounds_without_a_partner_have_no_ratio():
    with pytest.raises(ValueError):
        measure.Ratio.of([1.0, 2.0], [1.0])


@pytest.mark.parametrize("goal, met, missed", [(measure.at_least(1.5), 1.5, 1.49), (measure.at_most(1.0), 1.0, 1.01)])
def test_a_goal(goal, met, missed):
    assert goal.met(met) and not goal.met(missed)


def test_everybody_is_first_once():
    order = []
    contenders = {name: (lambda name=name: order.append(name) or len(order)) for name in "abc"}
    values = measure.rounds_of(contenders, 3)
    assert "".join(order) == "abcbcacab"
    assert values == {"a": [1, 6, 8], "b": [2, 4, 9], "c": [3, 5, 7]}


QUIET = point([2.0, 2.1, 1.9], [1.0, 1.0, 1.0])
NOISY = {
    "others": point([2.0, 2.1, 1.9], [1.0, 1.0, 1.0], others=measure.OTHERS_MAX + 0.01),
    "ratios": point([2.0, 3.0, 1.0], [1.0, 1.0, 1.0]),
}


@pytest.mark.parametrize("kind", NOISY)
def test_noise(kind):
    assert QUIET.noise() == []
    [reason] = NOISY[kind].noise()
    assert kind in reason
    assert any(line.strip() == f"NOISY: {reason}" for line in NOISY[kind].lines())


def test_the_spread_beside_a_peer_without_a_goal_is_no_noise():
    assert measure.Point("point", "x", {"ours": [1.0, 3.0], "theirs": [1.0, 1.0]}).noise() == []


def test_a_point_shows_the_spread_and_the_verdict():
    [_, line] = point([2.0, 2.2, 1.8], [1.0, 1.0, 1.0], goal=measure.at_least(2.1)).lines()
    assert "2.00x (1.80..2.20)" in line and line.endswith("target >= 2.1: MISSED")


def test_others_are_what_the_benchmark_did_not_use(monkeypatch):
    machine, clock = measure.Machine(), iter([100.0, 110.0])
    monkeypatch.setattr(measure.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(machine, "busy", iter([1000.0, 1015.0]).__next__)
    monkeypatch.setattr(machine, "mine", iter([50.0, 60.0]).__next__)
    assert machine.watch()() == 0.5


def test_a_child_is_the_benchmarks_own():
    """Its CPU time counts as ours after its end, and while it runs if it is named."""
    machine = measure.Machine()
    before = machine.mine()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert machine.mine() - before >= 0.29
    child = subprocess.Popen([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass\nprint(1, flush=True)\ninput()"],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    without, named = measure.Machine().mine(), measure.Machine(lambda: [child.pid]).mine()
    child.communicate(b"\n")
    assert named - without >= 0.29


def test_a_process_that_is_gone_used_nothing():
    child = subprocess.Popen(["true"])
    child.wait()
    assert measure.cpu_seconds(child.pid) == 0.0


def results(tmp_path, name, ours, capsys, script="nbd", **more):
    """A file with a run of one point, whose peer always has 10, and one figure."""
    path = tmp_path / name
    run = measure.Run(script, arguments(json=path, **more))
    figures = iter(ours)
    run.point("4k: read QD1", "per second", {"ftld": lambda: next(figures), "peer": lambda: 10.0}, {"peer": measure.at_least(2.0)})
    run.figure("memory", "MiB", [ours[0]], measure.at_most(32))
    run.finish()
    return path, capsys.readouterr().out


def test_a_run_is_kept_beside_those_of_other_scripts(tmp_path, capsys):
    path, printed = results(tmp_path, "r.json", [20.0, 21.0, 22.0], capsys)
    assert "nbd: 2 of 2 targets met" in printed
    results(tmp_path, "r.json", [30.0, 31.0, 32.0], capsys, script="sim")
    results(tmp_path, "r.json", [40.0, 41.0, 42.0], capsys)
    sections = measure.read(path)["sections"]
    assert list(sections) == ["nbd", "sim"]
    [kept] = sections["nbd"]["points"]
    assert kept["values"]["ftld"] == [40.0, 41.0, 42.0] and kept["goals"]["peer"] == {"target": ">= 2", "met": True}
    assert sections["nbd"]["rounds"] == 3 and len(sections["nbd"]["load"]) == 2 and sections["nbd"]["revision"]


def test_a_missed_target_is_counted(tmp_path, capsys):
    _, printed = results(tmp_path, "r.json", [19.0, 19.0, 19.0], capsys)
    assert "target >= 2: MISSED" in printed and "nbd: 1 of 2 targets met" in printed


def test_a_run_that_measured_nothing_fails():
    run = measure.Run("nbd", arguments(only="no such point"))
    run.point("4k: read QD1", "per second", {"ftld": lambda: 1.0})
    with pytest.raises(SystemExit):
        run.finish()


@pytest.mark.parametrize("text", ["", "{", "{}", '{"schema": "ftld.bench/0", "sections": {}}'])
def test_a_file_without_results(tmp_path, text):
    path = tmp_path / "r.json"
    path.write_text(text)
    with pytest.raises(SystemExit):
        measure.read(path)


def test_two_states_are_compared(tmp_path, capsys):
    old, _ = results(tmp_path, "old.json", [20.0, 21.0, 22.0], capsys)
    new, _ = results(tmp_path, "new.json", [40.0, 42.0, 44.0], capsys)
    text = "\n".join(script("against").compare(measure.read(old), measure.read(new)))
    assert "4k: read QD1, per second: 21 -> 42 (+100%)" in text
    assert "beside peer" in text and "2.1 -> 4.2 (+100%)  target >= 2: met" in text
    assert "memory, MiB: 20 -> 40 (+100%)" in text


def test_ranges_that_overlap_are_no_difference():
    change = script("against").change
    assert change([10.0, 11.0, 12.0], [11.0, 12.0, 13.0]) == "11 -> 12 (+9% =)"
    assert change([10.0, 11.0, 12.0], [8.0, 9.0, 9.5]) == "11 -> 9 (-18%)"


def test_what_only_one_file_has_is_listed(tmp_path, capsys):
    old, _ = results(tmp_path, "old.json", [20.0] * 3, capsys)
    new, _ = results(tmp_path, "new.json", [20.0] * 3, capsys)
    measure.store(new, "sim", {**measure.read(new)["sections"]["nbd"], "figures": []})
    text = "\n".join(script("against").compare(measure.read(old), measure.read(new)))
    assert "only in the new file: sim: 4k: read QD1" in text


def test_files_without_a_common_point(tmp_path, capsys):
    old, _ = results(tmp_path, "old.json", [20.0] * 3, capsys)
    new, _ = results(tmp_path, "new.json", [20.0] * 3, capsys, script="sim")
    done = subprocess.run([sys.executable, "-B", BENCH / "against.py", old, new], capture_output=True, text=True)
    assert done.returncode == 1 and "no point in common" in done.stderr


SMAPS = """\
55d0c0a00000-55d0c0b00000 r-xp 00000000 fe:00 1 /usr/bin/ftld
Rss:                1024 kB
Anonymous:             0 kB
Locked:              512 kB
VmFlags: rd ex lo
7f1200000000-7f1200100000 rw-p 00000000 00:00 0
Rss:                2048 kB
Anonymous:          2048 kB
Locked:             1024 kB
VmFlags: rd wr lo
"""


def test_memory_is_not_counted_twice():
    assert servers.memory_bytes(SMAPS) == (512 + 2048) * 1024
    with pytest.raises(KeyError):
        servers.memory_bytes(SMAPS.replace("Locked", "Unlocked"))


def test_memory_of_this_process():
    import os

    assert servers.memory_in_use(os.getpid()) > 1 << 20


def test_response_times():
    rows = {"ftld": [[10.0, 20.0, 30.0, 400.0], [12.0, 22.0, 33.0, 300.0], [11.0, 21.0, 31.0, 900.0]]}
    found = script("nbd").response_times(rows)
    assert found == {"response times of ftld, us": {"p50": 11.0, "p99": 21.0, "p99.9": 31.0, "max": 900.0}}
    assert script("nbd").response_times(None) == {}


def test_the_lines_of_bench_volume():
    text = "read 1 1000 0.5 0.5\nread 2 1800 0.5 0.9\nwrite 1 100 0.5 0.4\nread 1 500 0.5 0.5\n"
    found = script("volume").rows(text)
    assert found == {("read", 1): [(2000.0, 500.0), (1000.0, 1000.0)], ("read", 2): [(3600.0, 500.0)], ("write", 1): [(200.0, 4000.0)]}


GUEST = """\
ok   ublk_bench: rublk null
     ublk_bench: figures ftld-pagemap 4k-read 1000 2500 90000000 pread64=2000 io_uring_enter=495 futex=5
     ublk_bench: figures rublk-loop 4k-read 500 500 20000000 io_uring_enter=500
     ublk_bench: figures ftld-pagemap 4k-read 1000 1500 80000000 pread64=1000 io_uring_enter=500
"""


def test_the_lines_of_the_guest():
    ublk = script("ublk")
    row = ublk.rows(GUEST)["4k-read"]
    assert row.calls == {"ftld-pagemap": [2.5, 1.5], "rublk-loop": [1.0]}
    assert row.cpu_us == {"ftld-pagemap": [90.0, 80.0], "rublk-loop": [40.0]}
    assert ublk.frequent(row.names["ftld-pagemap"]) == {"pread64": 1.5, "io_uring_enter": 0.4975}
    assert ublk.rows("ok   ublk_bench: rublk null\n") == {}


def test_a_model_predicts_what_it_was_not_fitted_to():
    model = script("model")
    rows = [("a", 1.0, 12.0), ("b", 2.0, 14.0), ("c", 3.0, 20.0), ("d", 5.0, 20.0)]
    cost, predicted = model.predictions(rows)
    assert (cost.request, cost.page) == (10.0, 2.0)
    assert [(name, guess, round(error)) for name, _, _, guess, error in predicted] == [("b", 14.0, 0), ("c", 16.0, 20)]


def test_the_page_shows_the_kept_results(tmp_path, capsys):
    page = script("page")
    results = measure.read(results_with_all_tables(tmp_path, capsys))
    text = "Above.\n" + "".join(f"<!-- begin {name} -->old<!-- end {name} -->\n" for name in page.TABLES) + "Below.\n"
    composed = page.compose(text, results)
    assert composed.startswith("Above.\n<!-- begin") and composed.endswith("-->\nBelow.\n") and "old" not in composed
    assert "| nbd: 4k: read QD1 | peer | >= 2 | 2.100 (2.00 to 2.20) | met |" in composed
    assert "| nbd: memory | - | <= 32 | 20 MiB | met |" in composed
    assert "| 4k: read QD1 | peer | 10 per second | 2.10 (2.00 to 2.20) |" in composed
    assert "What:\n\n| name | us |\n| --- | --- |\n| row | 1.5 |" in composed
    assert page.compose(composed, results) == composed


def test_the_servers_beside_each_other():
    """Loads that all servers ran; a server that is missing has a dash."""
    page = script("page")
    load = lambda name, **values: {"name": name, "unit": "per second", "values": {server.replace("_", " "): each for server, each in values.items()}}
    points = [
        load("4k: read QD1", **{"ftld_pagemap": [3.0, 1.0, 2.0], "nbdkit_memory": [1.0], "qemu-nbd": [4.0], "nbd-server": [5.0]}),
        load("4k: read QD32", **{"ftld_pagemap": [1e5], "nbdkit_file": [5e4], "qemu-nbd": [1.0]}),
        {**load("128k", **{"ftld_pagemap": [512.0], "nbdkit_file": [2048.0], "qemu-nbd": [1.0]}), "unit": "MiB/s"},
        load("4k: read QD1, verify once", **{"ftld_pagemap": [1.0], "qemu-nbd": [1.0]}),
        load("fill", **{"ftld_pagemap": [1.0]}),
    ]
    rows = page.servers({"sections": {"nbd": {"points": points}}}).splitlines()
    assert rows[2:] == [
        "| 4k: read QD1, per second | 2 | 1 | - | 4 | 5 | 500000 us (-) |",
        "| 4k: read QD32, per second | 100,000 | - | 50,000 | 1 | - | 1.00 s/100,000 (2.00) |",
        "| 128k, MiB/s | 512 | - | 2,048 | 1 | - | 2.00 s/GiB (0.50) |",
    ]


def test_the_head_of_the_record(tmp_path, capsys):
    """The state and the number of targets that are met; a page without the lines stays."""
    path, _ = results(tmp_path, "r.json", [19.0] * 3, capsys)
    kept = measure.read(path)
    composed = script("page").compose("State: -\\\nOutcome: -\n", kept)
    assert composed == f"State: {kept['sections']['nbd']['revision']} of {kept['sections']['nbd']['time'][:10]}\\\nOutcome: 1 of 2 targets are met\n"
    assert script("page").compose("Nothing.\n", kept) == "Nothing.\n"


def results_with_all_tables(tmp_path, capsys):
    for name in ("nbd", "volume", "sim", "mount", "model", "ublk"):
        path, _ = results(tmp_path, "all.json", [20.0, 21.0, 22.0], capsys, script=name)
        kept = measure.read(path)["sections"][name]
        measure.store(path, name, {**kept, "tables": [{"name": "What", "columns": ["name", "us"], "rows": [["row", 1.5]]}]})
    return path


def test_a_table_that_cannot_be_made(tmp_path, capsys):
    """No such table, or results without its section."""
    path, _ = results(tmp_path, "r.json", [20.0, 21.0, 22.0], capsys)
    page, kept = script("page"), measure.read(path)
    with pytest.raises(SystemExit):
        page.compose("<!-- begin none -->x<!-- end none -->", kept)
    composed = page.compose("<!-- begin ublk -->x<!-- end ublk -->", kept)
    assert "Not measured in this state: `tests/bench/ublk.py`." in composed and "x" not in composed.split("-->")[1]


def test_every_script_is_in_the_command(tmp_path):
    """`make bench` runs all scripts with peers, and keeps their results in one file."""
    make = Path(__file__).resolve().parents[1] / "Makefile"
    recipe = make.read_text().split("\nbench:")[1].split("\n\n")[0]
    for name in ("sim", "volume", "nbd", "mount", "model", "ublk"):
        assert f"tests/bench/{name}.py $(BENCH_ARGS) --json $(BENCH_RESULT)" in recipe


def test_json_has_plain_values(tmp_path, capsys):
    path, _ = results(tmp_path, "r.json", [20.0, 21.0, 22.0], capsys)
    assert json.loads(path.read_text())["schema"] == measure.SCHEMA
