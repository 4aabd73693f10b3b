"""Metrics move when they should, and only then: one request, command or operation each, read from
the page of a live daemon."""

import re
import socket
import time

import nbd
import pytest
from harness import Daemon, http, page, run, wait_for

SIZE = 16


class Page:
    """The samples of one scrape: name and labels without `device`, and value."""

    def __init__(self, daemon):
        lines = re.findall(r'^(\w+)\{device="[^"]*",?([^}]*)\} (\S+)$', page(daemon.metrics), re.M)
        self.samples = {f"{name}{{{labels}}}": float(value) for name, labels, value in lines}

    def __getitem__(self, series):
        return self.samples[series if "{" in series else f"{series}{{}}"]


def client(daemon):
    handle = nbd.NBD()
    handle.connect_uri(daemon.uri)
    return handle


def difference(daemon, act, *series):
    """What `act` adds to each series; the flash snapshot is at most a few tenths of a second old."""
    time.sleep(0.4)
    before = Page(daemon)
    act()
    time.sleep(0.4)
    after = Page(daemon)
    return [after[name] - before[name] for name in series]


def fio(daemon, *options):
    run("fio", "--name=load", "--ioengine=nbd", f"--uri={daemon.uri}", f"--size={SIZE}m", "--thread", "--randrepeat=0", *options)


def daemon_of(folder, to_kill, scheme, *options):
    daemon = Daemon(folder, scheme, "--scheme", scheme, "--size", f"{SIZE}MiB", *options)
    to_kill.append(daemon)
    return daemon


@pytest.fixture(scope="module")
def lazyftl(folder, to_kill):
    return daemon_of(folder, to_kill, "lazyftl")


def test_sizes(lazyftl):
    """a request is counted in the class of its size."""
    handle = client(lazyftl)

    def act():
        handle.pwrite(b"x" * 4096, 0)
        handle.pread(20000, 0)
        handle.trim(8192, 65536)

    size = "ftld_host_io_size_bytes"
    bucket = lambda op, bound: f'{size}_bucket{{op="{op}",le="{bound}"}}'
    assert difference(
        lazyftl, act, bucket("write", 512), bucket("write", 4096), bucket("read", 16384), bucket("read", 32768), bucket("discard", 8192),
        f'{size}_sum{{op="write"}}', f'{size}_sum{{op="read"}}', f'{size}_count{{op="write_zeroes"}}',
    ) == [0, 1, 0, 1, 1, 4096, 20000, 0]


def test_fua(lazyftl):
    """FUA counts with its FLUSH; a plain write and a plain FLUSH do not count as FUA."""
    handle = client(lazyftl)
    series = "ftld_host_fua_ios_total", 'ftld_host_ios_total{op="flush"}'
    assert difference(lazyftl, lambda: handle.pwrite(b"x" * 4096, 0), *series) == [0, 0]
    assert difference(lazyftl, handle.flush, *series) == [0, 1]
    assert difference(lazyftl, lambda: handle.pwrite(b"x" * 4096, 0, flags=nbd.CMD_FLAG_FUA), *series) == [1, 1]
    assert difference(lazyftl, lambda: handle.trim(4096, 0, flags=nbd.CMD_FLAG_FUA), *series) == [1, 1]


def test_http(lazyftl):
    """answers are counted by code."""

    def act():
        assert http(f"{lazyftl.url}/nowhere")[0] == 404
        assert http(f"{lazyftl.url}/", method="POST")[0] == 405
        assert http(f"{lazyftl.url}/", headers={"Host": "rebound.example"})[0] == 421

    codes = [f'ftld_http_requests_total{{code="{code}"}}' for code in (200, 404, 405, 421, 503)]
    # The scrape before `act` is counted after its own answer.
    assert difference(lazyftl, act, *codes) == [1, 1, 1, 1, 0]


def test_control_and_queue_depth(lazyftl):
    """commands are counted; a pause holds requests in flight."""
    commands = [f'ftld_control_requests_total{{command="{command}"}}' for command in ("status", "pause", "inject", "stop", "invalid")]
    depth = 'ftld_host_ios_in_flight{op="write"}'
    handle = client(lazyftl)

    def act():
        lazyftl.ftld("status", "lazyftl")
        lazyftl.ftld("pause", "lazyftl")
        cookies = [handle.aio_pwrite(nbd.Buffer.from_bytearray(bytearray(4096)), 4096 * index) for index in range(3)]
        try:
            wait_for(lambda: Page(lazyftl)[depth] > 0, 5, "a write in flight")
        finally:
            lazyftl.ftld("resume", "lazyftl")
        # A completed command is retired when it is asked for.
        while cookies := [cookie for cookie in cookies if not handle.aio_command_completed(cookie)]:
            handle.poll(1000)

    status, pause, inject, stop, invalid = difference(lazyftl, act, *commands)
    assert (pause, inject, stop, invalid) == (2, 0, 0, 0) and status >= 1
    assert Page(lazyftl)[depth] == 0


def test_pending(lazyftl):
    """a write leaves an entry that is newer than the map on flash."""
    handle = client(lazyftl)
    (added,) = difference(lazyftl, lambda: handle.pwrite(b"x" * 4096 * 16, 1 << 20), "ftld_map_pending_entries")
    assert added == 16


def test_checkpoint_age(lazyftl):
    """the age is the number of programs; a clean restart begins with less."""
    handle = client(lazyftl)
    programs = lambda: sum(value for name, value in Page(lazyftl).samples.items() if name.startswith("ftld_nand_pages_programmed_total"))
    before = programs()
    (aged,) = difference(lazyftl, lambda: handle.pwrite(b"x" * (1 << 20), 0), "ftld_checkpoint_age_pages")
    assert aged == programs() - before >= 256
    age = Page(lazyftl)["ftld_checkpoint_age_pages"]
    lazyftl.stop()
    lazyftl.start()
    assert Page(lazyftl)["ftld_checkpoint_age_pages"] < age


def test_gc_and_remaining_writes(lazyftl, note):
    """each victim is in a class, stalls have a cause, and wear lowers the remaining writes."""
    remaining = Page(lazyftl)["ftld_remaining_writes_bytes"]
    fio(lazyftl, "--rw=write", "--bs=1m")
    fio(lazyftl, "--rw=randwrite", "--bs=4k", "--norandommap", "--io_size=24m")
    time.sleep(0.5)
    now = Page(lazyftl)
    victims = "ftld_gc_victim_valid_pages"
    assert now[f"{victims}_count"] == now["ftld_gc_runs_total"] > 0
    assert now[f"{victims}_sum"] == now["ftld_gc_pages_moved_total"] > 0
    assert now[f'{victims}_bucket{{le="{now["ftld_nand_block_pages"]:.0f}"}}'] == now[f"{victims}_count"]
    assert now['ftld_write_stalls_total{cause="gc"}'] > 0
    note(f"{now[f'{victims}_count']:.0f} victims")
    bad = now['ftld_bad_blocks{origin="factory"}'] + now['ftld_bad_blocks{origin="grown"}']
    block = now["ftld_nand_block_pages"] * now["ftld_nand_page_bytes"]
    good = now["ftld_nand_capacity_bytes"] / block - bad
    erases = now["ftld_block_erase_limit"] - now["ftld_block_erases_avg"]
    expected = erases * good * block / now["ftld_write_amplification_ratio"]
    assert now["ftld_remaining_writes_bytes"] == pytest.approx(expected, rel=1e-6) and expected < remaining


def test_map_cache(folder, to_kill):
    """a small cache fills, then evicts; a dirty entry evicts as dirty."""
    dftl = daemon_of(folder, to_kill, "dftl", "--set", "dftl.cache=512")
    evictions = [f'ftld_map_cache_evictions_total{{state="{state}"}}' for state in ("clean", "dirty")]
    assert Page(dftl)["ftld_map_cache_entries"] == 0
    fio(dftl, "--rw=write", "--bs=1m")
    clean, dirty = difference(dftl, lambda: fio(dftl, "--rw=randread", "--bs=4k", "--io_size=2m"), *evictions)
    assert clean > 0
    assert Page(dftl)["ftld_map_cache_entries"] == 64
    clean, dirty = difference(dftl, lambda: fio(dftl, "--rw=randwrite", "--bs=4k", "--io_size=2m"), *evictions)
    assert dirty > 0
    dftl.stop()


def test_buffer_and_copybacks(folder, to_kill):
    """mlam holds pages in its buffer, and copies pages inside a plane."""
    mlam = daemon_of(folder, to_kill, "mlam")
    assert Page(mlam)["ftld_write_buffer_bytes"] == 0 < Page(mlam)["ftld_write_buffer_capacity_bytes"]
    handle = client(mlam)
    (held,) = difference(mlam, lambda: handle.pwrite(b"x" * 4096 * 4, 0), "ftld_write_buffer_bytes")
    assert held == 4 * 4096
    fio(mlam, "--rw=write", "--bs=1m")
    (copied,) = difference(mlam, lambda: fio(mlam, "--rw=randwrite", "--bs=4k", "--io_size=16m"), "ftld_nand_copybacks_total")
    assert copied > 0
    mlam.stop()


def test_watchdog(folder, to_kill, monkeypatch):
    """every keep-alive is counted."""
    path = str(folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        monkeypatch.setenv("WATCHDOG_USEC", "400000")
        pagemap = daemon_of(folder, to_kill, "pagemap")
        wait_for(lambda: Page(pagemap)["ftld_watchdog_pings_total"] >= 2, 10, "two keep-alives")
        pings = Page(pagemap)["ftld_watchdog_pings_total"]
        pagemap.stop()
        manager.setblocking(False)
        heard = 0
        try:
            while True:
                heard += b"WATCHDOG=1" in manager.recv(4096)
        except BlockingIOError:
            pass
    assert heard >= pings >= 2


def test_without_a_manager(lazyftl):
    """without a service manager there are no keep-alives."""
    assert Page(lazyftl)["ftld_watchdog_pings_total"] == 0


def test_daemon_ends(lazyftl):
    """SIGTERM ends the daemon."""
    lazyftl.stop()
