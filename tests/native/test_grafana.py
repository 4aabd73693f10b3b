"""The dashboards: made from their source, without a fault of the linter's rules, and every variable
and query answered by a real Prometheus that scrapes three devices under load, of three schemes."""

import sys
import time

import pytest
from harness import ROOT, Daemon, Load, Prometheus, run, wait_for

sys.path.insert(0, str(ROOT / "tests"))
import grafana  # noqa: E402

SCHEMES = ["lazyftl", "pagemap", "mnftl"]
BOARDS = {board["uid"]: board for board in grafana.dashboards()}


@pytest.fixture(scope="module")
def daemons(folder, to_kill):
    daemons = {scheme: Daemon(folder, scheme, "--scheme", scheme, "--size", "64MiB") for scheme in SCHEMES}
    to_kill.extend(daemons.values())
    return daemons


@pytest.fixture(scope="module")
def prometheus(folder, daemons, to_kill):
    prometheus = Prometheus(folder, ROOT / "deploy/prometheus/ftld.rules.yml", daemons.values())
    to_kill.append(prometheus)
    return prometheus


@pytest.fixture(scope="module")
def loads(folder, daemons, prometheus, to_kill):
    """Reads and writes until collection runs, for as long as the queries take."""
    loads = [
        Load(daemon, folder / f"{scheme}.fio", "--size=64m", "--iodepth=4", "--fsync=64", "--rate_iops=2000")
        for scheme, daemon in daemons.items()
    ]
    to_kill.extend(loads)
    wait_for(lambda: len(prometheus.query("rate(ftld_gc_runs_total[10s]) > 0")) == len(SCHEMES), 60, "all three collect")
    time.sleep(12)
    return loads


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


def test_configuration(prometheus):
    """promtool accepts the configuration."""
    run("promtool", "check", "config", prometheus.config)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_written_once(daemons, scheme):
    """a device is written once."""
    run("fio", "--name=fill", "--ioengine=nbd", f"--uri={daemons[scheme].uri}", "--rw=write", "--bs=1m", "--size=64m", "--thread")
    assert daemons[scheme].status("host.write.bytes") >= 64 << 20


def test_all_collect(loads):
    """all three collect."""
    assert all(load.runs() for load in loads)


@pytest.mark.parametrize("uid", BOARDS)
def test_queries(prometheus, loads, uid, note):
    """every query of a dashboard answers within its bounds."""
    wrong, queries = grafana.evaluate(BOARDS[uid], prometheus, len(SCHEMES))
    note(f"{queries} queries")
    assert queries >= 10 and not wrong, wrong


def test_loads_end(loads):
    """the load ran all the time."""
    for load in loads:
        load.stop()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_daemon_ends(daemons, scheme):
    """SIGTERM ends the daemon."""
    daemons[scheme].stop()
