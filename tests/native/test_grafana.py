"""The dashboards: generated from their source, without a fault by the linter's rules. A real
Prometheus scrapes devices in six situations, all at once, and every query of every panel answers in
each of them: with FLUSH, without, idle, read-only, paused, and two instances of one name."""

import sys
import time

import pytest
from harness import ROOT, Daemon, Load, Prometheus, run, wait_for

sys.path.insert(0, str(ROOT / "tests"))
import grafana  # noqa: E402

BOARDS = {board["uid"]: board for board in grafana.dashboards()}
SIZE = 16
# Situation: folder and scheme of each instance.
SITUATIONS = {
    "flush": [("a", "lazyftl"), ("b", "pagemap"), ("c", "mlam")],
    "no_flush": [("d", "mnftl")],
    "idle": [("e", "dftl")],
    "read_only": [("f", "lazyftl")],
    "paused": [("g", "tpftl")],
    "twins": [("h", "lazyftl"), ("i", "lazyftl")],
}
OPTIONS = {"no_flush": ["--shadow", "pagemap", "--shadow", "mnftl"]}
# Instances with each activity of `dashboards.NEEDS`; two of the three schemes with FLUSH have the
# whole map in RAM.
ACTIVE = {
    "flush": {"requests": 3, "data": 3, "reads": 3, "writes": 3, "syncs": 3, "errors": 0, "faults": 0, "shadows": 0, "gc": 3, "lookups": 1},
    "no_flush": {"requests": 1, "data": 1, "reads": 1, "writes": 1, "syncs": 0, "errors": 0, "faults": 0, "shadows": 1, "gc": 1, "lookups": 1},
    "idle": {"requests": 0, "data": 0, "reads": 0, "writes": 0, "syncs": 0, "errors": 0, "faults": 0, "shadows": 0, "gc": 0, "lookups": 0},
    "read_only": {"requests": 1, "data": 1, "reads": 1, "writes": 0, "syncs": 0, "errors": 0, "faults": 0, "shadows": 0, "gc": 0, "lookups": 1},
    "paused": {"requests": 0, "data": 0, "reads": 0, "writes": 0, "syncs": 0, "errors": 0, "faults": 0, "shadows": 0, "gc": 0, "lookups": 0},
    "twins": {"requests": 2, "data": 2, "reads": 2, "writes": 2, "syncs": 2, "errors": 0, "faults": 0, "shadows": 0, "gc": 2, "lookups": 2},
}
LOADS = {
    "flush": ["--fsync=64"],
    "no_flush": [],
    "read_only": ["--rw=randread"],
    "paused": ["--fsync=64"],
    "twins": ["--fsync=64"],
}


def fill(daemon):
    run("fio", "--name=fill", "--ioengine=nbd", f"--uri={daemon.uri}", "--rw=write", "--bs=1m", f"--size={SIZE}m", "--thread")


@pytest.fixture(scope="module")
def daemons(folder, to_kill):
    """Per situation its daemons, each written once; every instance has the name `disk`."""
    daemons = {}
    for situation, instances in SITUATIONS.items():
        daemons[situation] = []
        for below, scheme in instances:
            (folder / below).mkdir()
            daemon = Daemon(folder / below, "disk", "--scheme", scheme, "--size", f"{SIZE}MiB", *OPTIONS.get(situation, []))
            to_kill.append(daemon)
            daemons[situation].append(daemon)
            if situation != "idle":
                fill(daemon)
    (served,) = daemons["read_only"]
    served.stop()
    served.start("--read-only")
    return daemons


@pytest.fixture(scope="module")
def prometheus(folder, daemons, to_kill):
    jobs = {f"ftld-{situation}": of_situation for situation, of_situation in daemons.items()}
    prometheus = Prometheus(folder, ROOT / "deploy/prometheus/ftld.rules.yml", jobs)
    to_kill.append(prometheus)
    return prometheus


@pytest.fixture(scope="module")
def loads(folder, daemons, prometheus, to_kill):
    """Reads and writes until GC runs, for as long as the queries take."""
    loads = {
        daemon: Load(daemon, daemon.folder / "load.fio", f"--size={SIZE}m", "--iodepth=4", "--rate_iops=700", *options)
        for situation, options in LOADS.items()
        for daemon in daemons[situation]
    }
    to_kill.extend(loads.values())
    collecting = sum(active["gc"] for active in ACTIVE.values()) + 1
    wait_for(lambda: len(prometheus.query("ftld_gc_runs_total > 0")) >= collecting, 40, "GC runs on every device that is written")
    (paused,) = daemons["paused"]
    paused.ftld("pause", "disk", "--for", "5m")
    time.sleep(7)
    return loads


@pytest.fixture(scope="module")
def now(loads):
    """One time for all queries."""
    return time.time()


def test_sources():
    """the dashboards are what their source makes."""
    run(ROOT / "deploy/grafana/dashboards.py", "--check")


def test_dashboards_are_found():
    """there are four dashboards."""
    assert len(BOARDS) == 4


@pytest.mark.parametrize("uid", BOARDS)
def test_lint(uid):
    """no fault by the linter's rules."""
    assert BOARDS[uid]["panels"]
    assert not grafana.lint(BOARDS[uid])


def test_lint_finds():
    """the linter's rules find a merged instance, a column without a name, p99 alone."""
    board = next(board for board in grafana.dashboards() if board["uid"] == "ftld-overview")
    table = next(panel for panel in board["panels"] if panel["type"] == "table")
    table["fieldConfig"]["overrides"].pop()
    tail = next(panel for panel in board["panels"] if panel["title"] == "Slowest 0.1 % of the FLUSHes")
    expr = tail["targets"][0]["expr"].replace("job, instance, device", "device")
    tail["targets"][0]["expr"] = expr.replace("quantile(0.999", "quantile(0.99")
    found = "\n".join(grafana.lint(board))
    assert all(part in found for part in ("has no name", "p99 without p99.9", "it merges instances")), found


def test_configuration(prometheus):
    """promtool accepts the configuration."""
    run("promtool", "check", "config", prometheus.config)


@pytest.mark.parametrize("situation", SITUATIONS)
def test_situation(daemons, prometheus, now, situation):
    """a situation is what it should be."""
    having = grafana.active(prometheus, f"ftld-{situation}", now)
    assert {need: len(instances) for need, instances in having.items()} == ACTIVE[situation]
    (state,) = {daemon.status("state") for daemon in daemons[situation]}
    assert state == {"read_only": "read-only", "paused": "paused"}.get(situation, "serving")
    if situation == "paused":
        assert prometheus.value(f'sum(ftld_host_ios_in_flight{{job="ftld-{situation}"}})') > 0


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("uid", BOARDS)
def test_queries(daemons, prometheus, now, situation, uid, note):
    """every query of a dashboard answers within its bounds."""
    instances = {daemon.address for daemon in daemons[situation]}
    wrong, queries = grafana.evaluate(BOARDS[uid], prometheus, f"ftld-{situation}", instances, now)
    note(f"{queries} queries")
    assert queries >= 10 and not wrong, "\n".join(wrong)


def test_evaluation_finds(daemons, prometheus, now):
    """NaN, a missing instance and a value out of bounds are found."""
    board = next(board for board in grafana.dashboards() if board["uid"] == "ftld-overview")
    panels = {panel["title"]: panel for panel in board["panels"]}
    latency = panels["Slowest 0.1 % (wall clock)"]["targets"][0]
    latency["expr"] = latency["expr"].split(" and ")[0]
    _, state, alerts, *_ = panels["Devices"]["targets"]
    state["expr"] = f"({state['expr']}) > 1"
    alerts["expr"] += " - 1"
    (idle,) = daemons["idle"]
    wrong, _ = grafana.evaluate(board, prometheus, "ftld-idle", {idle.address}, now)
    found = "\n".join(wrong)
    for part in ("'Slowest 0.1 % (wall clock)', A: NaN", "'Devices', B: set() answer", "'Devices', C: [-1"):
        assert part in found, found


def test_loads_end(daemons, loads):
    """the loads ran all the time."""
    (paused,) = daemons["paused"]
    paused.ftld("resume", "disk")
    for load in loads.values():
        load.stop()


def test_daemons_end(daemons, loads):
    """SIGTERM ends the daemons."""
    for of_situation in daemons.values():
        for daemon in of_situation:
            daemon.stop()
