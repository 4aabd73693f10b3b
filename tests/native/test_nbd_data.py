"""A whole device of random bytes in and out by nbdcopy, and fio's verified random writes of any size,
for every scheme.
  DATA_MIB (128)  size of the device    FIO_SECONDS (5)    SCHEMES (lazyftl pagemap)"""

import filecmp
import json
import os

import pytest
from harness import Daemon, run, schemes

MIB = int(os.environ.get("DATA_MIB", "128"))
SECONDS = int(os.environ.get("FIO_SECONDS", "5"))


@pytest.fixture(scope="module")
def data(folder):
    file = folder / "in"
    with open(file, "wb") as out:
        for _ in range(MIB):
            out.write(os.urandom(1 << 20))
    return file


@pytest.fixture(scope="module", params=schemes())
def daemon(request, folder, to_kill):
    daemon = Daemon(folder, request.param, "--scheme", request.param, "--size", f"{MIB}MiB")
    to_kill.append(daemon)
    yield daemon
    daemon.kill()
    daemon.image.unlink()


def test_copy_in(daemon, data):
    """nbdcopy in."""
    run("nbdcopy", "--flush", data, daemon.uri, timeout=600)


def test_copy_out(daemon, folder):
    """nbdcopy out."""
    (folder / "out").unlink(missing_ok=True)
    run("nbdcopy", daemon.uri, folder / "out", timeout=600)


def test_same_bytes(daemon, data, folder):
    """the same bytes."""
    assert data.stat().st_size == MIB << 20
    assert filecmp.cmp(data, folder / "out", shallow=False)


def test_fio(daemon, note, folder):
    """fio verify 512 B to 256 KiB."""
    # Verified as it is written, so that it may run for a time instead of for a size.
    answer = run(
        "fio", "--name=verify", "--eta=never", "--ioengine=nbd", f"--uri={daemon.uri}", "--rw=randwrite", "--bsrange=512-256k",
        "--bs_unaligned=0", "--blockalign=512", "--iodepth=16", f"--size={MIB}m", "--time_based", f"--runtime={SECONDS}",
        "--verify=crc32c", "--verify_backlog=256", "--verify_fatal=1", "--verify_state_save=0", "--serialize_overlap=1",
        "--randseed=11", "--output-format=json", f"--output={folder}/fio.json", timeout=SECONDS * 10 + 120,
    )
    job = json.loads((folder / "fio.json").read_text())["jobs"][0]
    reads, writes = job["read"]["total_ios"], job["write"]["total_ios"]
    note(f"{reads} reads, {writes} writes")
    assert job["error"] == 0, answer
    # The last stretch of 256 is not read back when time is up.
    assert reads >= 256 and reads >= writes - 512


def test_daemon_ends(daemon):
    """SIGTERM ends the daemon."""
    daemon.stop()


def test_check(daemon):
    """ftld check."""
    daemon.ftld("check", daemon.image)
