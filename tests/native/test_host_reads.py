"""A host that cannot read the image while readers are at it: its disk returns EIO, or the file was cut off.

The image is mapped, so the kernel tells the daemon by SIGBUS. Every request has an answer, an error or the right bytes;
the daemon stays, and serves all again when the host can read again."""

import os
import subprocess
import threading

import nbd
import pytest
from harness import Daemon, run, wait_for

MIB = 1 << 20
SIZE = 32 * MIB
READERS = 4


def content(at):
    """Bytes of the piece at this address; every piece differs."""
    return at.to_bytes(8, "little") * (MIB // 8)


@pytest.fixture(params=["pagemap", "lazyftl"])
def image(request, folder, to_kill):
    """A written image; its daemon has stopped."""
    daemon = Daemon(folder, f"written-{request.param}", "--scheme", request.param, "--size", str(SIZE))
    to_kill.append(daemon)
    client = nbd.NBD()
    client.connect_uri(daemon.uri)
    for at in range(0, SIZE, MIB):
        client.pwrite(content(at), at)
    client.flush()
    client.shutdown()
    daemon.stop()
    yield daemon.image
    daemon.image.unlink()


def read_all(uri):
    """Reads the device from several connections; returns how many pieces were right, and the errors."""
    right, errors, wrong = [], [], []

    def reader(number):
        client = nbd.NBD()
        client.connect_uri(uri)
        for at in range(number * MIB, SIZE, READERS * MIB):
            try:
                (right if bytes(client.pread(MIB, at)) == content(at) else wrong).append(at)
            except nbd.Error as error:
                errors.append(error.errno)
        client.shutdown()

    readers = [threading.Thread(target=reader, args=(number,)) for number in range(READERS)]
    for thread in readers:
        thread.start()
    for thread in readers:
        thread.join(120)
        assert not thread.is_alive(), "a read has no answer"
    assert not wrong, f"other bytes than written, without an error: {wrong}"
    assert len(right) + len(errors) == SIZE // MIB, "a reader ended early"
    return len(right), errors


def drop_cache(path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def test_disk_error(image, folder, to_kill, note):
    """EIO of the host's disk under readers."""
    below, trigger, socket = (folder / f"{image.stem}.{what}" for what in ("below", "trigger", "sock"))
    below.mkdir()
    error = ["--filter=error", "error-pread=EIO", "error-pread-rate=100%", f"error-file={trigger}"]
    server = subprocess.Popen(["nbdkit", "-f", "-U", socket, error[0], "file", image, *error[1:]])
    mounted = None
    try:
        wait_for(socket.exists, 30, "nbdkit")
        mounted = subprocess.Popen(["nbdfuse", below / image.name, "--unix", socket])
        wait_for((below / image.name).exists, 30, "nbdfuse")
        daemon = Daemon(folder, f"above-{image.stem}", image=below / image.name)
        to_kill.append(daemon)
        with open(f"/proc/{daemon.process.pid}/maps", encoding="utf-8") as maps:
            assert str(below) in maps.read(), "the image is not mapped: this test is about mapped reads"
        trigger.touch()
        drop_cache(below / image.name)
        right, errors = read_all(daemon.uri)
        assert errors and set(errors) == {"EIO"}, f"{right} right, errors {errors}"
        trigger.unlink()
        assert read_all(daemon.uri) == (SIZE // MIB, []), "the disk can be read again"
        note(f"{right} pieces right, {len(errors)} times EIO, then all")
        daemon.stop()
    finally:
        if mounted:
            run("fusermount3", "-u", "-z", below)
            mounted.wait(30)
        server.kill()
        server.wait(30)
        trigger.unlink(missing_ok=True)
        below.rmdir()


def test_truncation(image, folder, to_kill, note):
    """the image is cut off under readers."""
    daemon = Daemon(folder, f"cut-{image.stem}", image=image)
    to_kill.append(daemon)
    assert read_all(daemon.uri) == (SIZE // MIB, [])
    length = image.stat().st_size
    os.truncate(image, length // 2)
    right, errors = read_all(daemon.uri)
    assert errors and right + len(errors) == SIZE // MIB, f"{right} right, errors {errors}"
    note(f"{right} pieces right, {len(errors)} errors: {', '.join(sorted(set(errors)))}")
    assert daemon.process.poll() is None, "the daemon has ended"
    daemon.kill()
