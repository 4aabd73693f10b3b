"""The live page of a device under load, used in a real browser; `ftld pause`, `step` and `resume`; and
what an open page costs.
  CPU_SECONDS (10)     how long that is measured
  BROWSERS (chromium)  browsers to use: chromium firefox
Screenshots stay under target/live-page, in a folder for each browser."""

import json
import os
import sys
import time

import pytest
from harness import ROOT, Daemon, Load, http, page, run, wait_for

import nbd

CPU_SECONDS = int(os.environ.get("CPU_SECONDS", "10"))
BROWSE = [sys.executable, "-B", ROOT / "tests/live_page.py"]
BROWSERS = os.environ.get("BROWSERS", "chromium").split()
LOAD = ["--size=60m", "--iodepth=8", "--fsync=256", "--random_distribution=zipf:1.1", "--rate_iops=3000"]
# Beyond what fio writes.
OFFSET, BYTES = 62 << 20, 1 << 20


@pytest.fixture(scope="module")
def daemon(folder, to_kill):
    daemon = Daemon(folder, "page", "--scheme", "lazyftl", "--size", "64MiB")
    to_kill.append(daemon)
    return daemon


@pytest.fixture(scope="module")
def other(folder, to_kill):
    """A second instance of the same user."""
    daemon = Daemon(folder, "other", "--scheme", "dftl", "--size", "16MiB")
    to_kill.append(daemon)
    return daemon


@pytest.fixture(scope="module")
def load(folder, daemon, to_kill):
    load = Load(daemon, folder / "fio.log", *LOAD)
    to_kill.append(load)
    wait_for(lambda: daemon.status("scheme_stats.gc_runs") > 50, 90, "the device is written until it collects")
    return load


def history(daemon, since=0):
    return json.loads(page(f"{daemon.url}/api/history?since={since}"))


def written(daemon):
    return daemon.status("host.write.completed")


def served(daemon):
    return sum(daemon.status(f"host.{kind}.completed") for kind in ("read", "write", "flush"))


def test_foreign_name(daemon):
    """another name is refused, and the message says what to do."""
    status, text, _ = http(f"{daemon.url}/status", headers={"Host": "rebound.example"})
    assert status != 200 and "metrics-host" in text, (status, text)


def test_policy(daemon):
    """there is a strict policy, and nothing but GET and HEAD."""
    status, _, headers = http(f"{daemon.url}/", method="HEAD")
    assert status == 200 and "default-src 'none'" in headers["Content-Security-Policy"]
    assert http(f"{daemon.url}/", method="POST")[0] == 405


def test_history(daemon):
    """the history has a sample per second, and only the newer ones when asked for them."""
    wait_for(lambda: history(daemon)["samples"] >= 3, 10, "three seconds of history")
    answer = history(daemon)
    assert len(answer["at_ms"]) == answer["samples"] <= 600, answer["samples"]
    assert all(500 < ms < 2000 for ms in answer["host_ms"]), answer["host_ms"]
    newest = history(daemon, answer["next"] - 1)
    assert newest["samples"] <= 2 and newest["at_ms"][0] == answer["at_ms"][-1]


def test_history_counts(daemon):
    """the history adds up to the counters of the status."""
    client = nbd.NBD()
    client.connect_uri(daemon.uri)
    for at in range(64):
        client.pwrite(bytes(4096), at * 4096)
    client.shutdown()
    summed = lambda: sum(history(daemon)["host"]["write"]["completed"])
    wait_for(lambda: summed() == daemon.status("host.write.completed") > 0, 10, "as many writes as in the status")


def test_instances(daemon, other):
    """the running instances of this user are listed with scheme, state and address."""
    found = lambda: {one["name"]: one for one in json.loads(page(f"{daemon.url}/api/instances"))["instances"]}
    wait_for(lambda: "other" in found(), 10, "the other instance is listed")
    assert found()["other"] == {"name": "other", "scheme": "dftl", "state": "serving", "address": other.address}
    assert found()["page"]["address"] == daemon.address


def test_instances_beyond_loopback(folder, to_kill, daemon):
    """an instance whose page other machines can read names no other instance."""
    exposed = Daemon(folder, "exposed", "--scheme", "pagemap", "--size", "16MiB", "--metrics", "0.0.0.0:0")
    to_kill.append(exposed)
    url = exposed.url.replace("0.0.0.0", "127.0.0.1")
    for _ in range(3):
        time.sleep(1)
        assert [one["name"] for one in json.loads(page(f"{url}/api/instances"))["instances"]] == ["exposed"]
    exposed.stop()


def test_device_collects(load):
    """the device is written until it collects."""
    assert load.runs()


@pytest.mark.parametrize("browser", BROWSERS)
def test_browser(daemon, other, load, browser, note):
    """the page in a browser."""
    shots = ROOT / "target/live-page" / browser
    shots.mkdir(parents=True, exist_ok=True)
    for old in shots.glob("*.png"):
        old.unlink()
    note(run(*BROWSE, browser, f"{daemon.url}/", shots).strip())
    assert sorted(shot.name for shot in shots.glob("*.png")) == [
        "dark-1280.png", "dark-2560.png", "dark-360.png", "light-1280.png", "light-2560.png", "light-360.png", "paused.png"
    ]


@pytest.fixture(scope="module")
def errors(daemon, load):
    return daemon.status("host.write.errors.eio")


def test_pause(daemon, other, load, errors):
    """pause."""
    other.stop()
    daemon.ftld("pause", "page", "--for", "60s")


def test_paused(daemon, load):
    """everything says paused."""
    assert daemon.status("state") == "paused"
    assert http(f"{daemon.url}/healthz")[1].strip() == "paused"


def test_paused_writes(daemon, load, note):
    """nothing is served in a second of the pause."""
    before = served(daemon)
    assert before > 0 and load.runs()
    time.sleep(1)
    assert served(daemon) == before
    note(f"{before} before and after")


def test_step_by_requests(daemon, load, note):
    """a step serves so many requests."""
    before = served(daemon)
    daemon.ftld("step", "page", "--requests", "10")
    wait_for(lambda: served(daemon) >= before + 10, 10, "ten requests are served")
    note(f"{served(daemon) - before} requests")


def test_after_the_step(daemon, load):
    """no request is served after the step."""
    before = served(daemon)
    time.sleep(1)
    assert load.runs() and served(daemon) == before


@pytest.mark.parametrize("browser", BROWSERS)
def test_way_of_a_write(daemon, load, browser, note):
    """the page tells the way of the last write of a step."""
    note(run(*BROWSE, browser, f"{daemon.url}/", "--step", "ftld", "step", "page", "--requests", "10", env=daemon.environment).strip())


def test_step_by_events(daemon, load):
    """a step by events tells them."""
    answer = json.loads(daemon.ftld("step", "page", "--events", "2", "--json"))
    assert len(answer["events"]) >= 2 and answer["paused"] and not answer["stepping"], answer


def test_resume(daemon, load):
    """resume: requests go on."""
    before = served(daemon)
    daemon.ftld("resume", "page")
    wait_for(lambda: served(daemon) > before + 1000, 30, "a thousand requests after the pause")


def test_no_write_failed(daemon, load, errors):
    """no write failed."""
    assert daemon.status("host.write.errors.eio") == errors and load.runs()


def test_short_pause(daemon, load):
    """a short pause."""
    daemon.ftld("pause", "page", "--for", "2s")
    assert daemon.status("state") == "paused"


def test_short_pause_ends(daemon, load):
    """it ends by itself."""
    wait_for(lambda: daemon.status("state") == "serving", 10, "the pause ends")


def test_settles(daemon, load):
    """the device settles."""
    load.stop()

    def settled():
        before = daemon.status("nand.gc.programs")
        time.sleep(2)
        return daemon.status("nand.gc.programs") == before

    wait_for(settled, 60, "collection ends")


def test_cost_of_an_open_page(daemon, note):
    """an open page costs at most 1 % of a core."""
    began = daemon.cpu_ms()
    watched = run(*BROWSE, BROWSERS[0], f"{daemon.url}/", "--watch", CPU_SECONDS, timeout=CPU_SECONDS + 120).strip()
    with_it = daemon.cpu_ms() - began
    time.sleep(5)  # not a page that was looked at a moment ago
    began = daemon.cpu_ms()
    time.sleep(CPU_SECONDS)
    without = daemon.cpu_ms() - began
    # The browser's start and the page's first requests are within.
    note(f"{watched}; {with_it - without:.0f} ms of the daemon's CPU time ({with_it:.0f} ms with it, {without:.0f} ms without)")
    assert began > 0 and with_it > 0
    assert with_it - without <= CPU_SECONDS * 10


@pytest.fixture(scope="module")
def acknowledged(daemon):
    """Bytes that were written, acknowledged and never flushed."""
    data, client = os.urandom(BYTES), nbd.NBD()
    client.connect_uri(daemon.uri)
    for at in range(0, BYTES, 4096):
        client.pwrite(data[at : at + 4096], OFFSET + at)
    return data


def test_pause_under_load(daemon, folder, to_kill, acknowledged):
    """pause again, under load."""
    load = Load(daemon, folder / "fio.log", *LOAD)
    to_kill.append(load)
    before = written(daemon)
    wait_for(lambda: written(daemon) > before + 100, 30, "the load writes")
    daemon.ftld("pause", "page", "--for", "10m")
    assert load.runs() and daemon.status("state") == "paused"


def test_end_of_a_paused_daemon(daemon):
    """a pause does not stand in the way of an end: SIGTERM ends the daemon."""
    daemon.stop()


def test_acknowledged_data(daemon, acknowledged):
    """what was acknowledged before the pause is there after a restart."""
    daemon.start()
    client = nbd.NBD()
    client.connect_uri(daemon.uri)
    assert client.pread(BYTES, OFFSET) == acknowledged
    client.shutdown()


def test_end(daemon):
    """SIGTERM ends the daemon."""
    daemon.stop()


def test_check(daemon):
    """ftld check."""
    daemon.ftld("check", daemon.image)
