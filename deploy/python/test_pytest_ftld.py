"""The fixture on real devices. Needs python3-libnbd and the program ftld."""

import sys

import nbd
import pytest

from pytest_ftld import FtldError

BLOCK = 4096


def connected(device):
    client = nbd.NBD()
    client.connect_uri(device.uri)
    return client


def written(device, byte, at=0, flush=True):
    client = connected(device)
    client.pwrite(bytes([byte]) * BLOCK, at)
    if flush:
        client.flush()
    client.shutdown()


def read(device, at=0):
    client = connected(device)
    data = client.pread(BLOCK, at)
    client.shutdown()
    return data


def test_what_was_flushed_survives_kill_and_power_cut(ftld):
    device = ftld(size="16MiB")
    written(device, 1)
    device.kill()
    assert not device.running
    assert read(device.start()) == b"\1" * BLOCK
    written(device, 2)
    device.power_cut()
    assert not device.running
    assert read(device.start()) == b"\2" * BLOCK
    device.stop()


def test_a_write_cache_loses_what_was_not_flushed(ftld):
    device = ftld(size="16MiB", write_cache="1MiB", cache_model="lost")
    written(device, 1)
    written(device, 2, flush=False)
    assert read(device) == b"\2" * BLOCK
    device.power_cut()
    assert read(device.start()) == b"\1" * BLOCK


def test_faults_are_injected_and_cleared(ftld):
    device = ftld(size="16MiB")
    device.inject("flush-fails", "--count", 1)
    with pytest.raises(nbd.Error):
        written(device, 1)
    written(device, 1)
    device.inject("read-errors")
    with pytest.raises(nbd.Error):
        read(device)
    device.inject("clear")
    assert read(device) == b"\1" * BLOCK
    with pytest.raises(FtldError, match="nosuch"):
        device.inject("nosuch")


CHECK = """
import os, sys
state = open(os.environ["FTLD_IMAGE"], "rb").read(8192)
count, block = state[0], state[4096]
sys.exit(f"{count} counted, {block} written" if block < count else 0)
"""


@pytest.mark.parametrize("careful", [True, False])
def test_a_forgotten_flush_is_found(ftld, tmp_path, careful):
    check = tmp_path / "check.py"
    check.write_text(CHECK)
    device = ftld(size="16MiB", record=True)
    for count in range(1, 4):
        written(device, count, at=BLOCK, flush=careful)
        written(device, count)
        device.mark(str(count))
    device.stop()
    report = device.crashes(f"{sys.executable} {check}")
    assert (report["failed"] == []) == careful, report


def test_a_copy_of_a_running_device_is_a_device(ftld, tmp_path):
    device = ftld(size="16MiB")
    written(device, 7)
    copy = device.clone(tmp_path / "copy.ftld")
    other = ftld(image=copy, size="16MiB")
    assert read(other) == read(device) == b"\7" * BLOCK
    assert other.status()["image"] == str(copy)


def test_a_device_that_cannot_start_says_why(ftld):
    with pytest.raises(FtldError, match="2KiB") as failed:
        ftld(size="2KiB")
    assert failed.value.exit == 2
    device = ftld(size="16MiB")
    with pytest.raises(FtldError, match="records nothing"):
        device.crashes("true")
    with pytest.raises(FtldError, match="is running"):
        device.start()
    device.stop()
    with pytest.raises(FtldError, match="not running"):
        device.kill()


def test_a_check_that_cannot_run_is_an_error(ftld):
    device = ftld(size="16MiB", record=True)
    written(device, 1)
    device.stop()
    with pytest.raises(FtldError, match="nosuchcheck"):
        device.crashes("nosuchcheck")
