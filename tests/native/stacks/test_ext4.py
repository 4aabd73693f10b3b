"""ext4 itself: what programs may rely on after fsync; the work is that of fsync_markers.rs."""

import re
import subprocess

from device import TIMEOUT, run
from ledger import CheckFailed


# fsync_markers takes EIO and EROFS for a device that is gone. An ext4 that cannot read its bitmaps
# there answers ENOSPC or EUCLEAN, too, and now and then a rename EINVAL.
ANSWERS = re.compile(r"\(os error (22|28|117)\)")


class Ext4:
    """Four workers that change files, and note what fsync made durable."""

    def __init__(self, scratch):
        self._markers = scratch / "markers"
        self._output = scratch / "output"
        self._seen = 0
        self._worker = None

    def create(self, folder):
        self._markers.touch()

    def start(self, folder, seed):
        self._seen = self._markers.stat().st_size
        with self._output.open("w") as output:
            self._worker = subprocess.Popen(
                ["fsync_markers", "work", str(folder), str(self._markers), str(seed >> 8)],
                stdout=output, stderr=output,
            )

    def has_ended(self):
        return self._worker.poll() is not None

    def output(self):
        return self._output.read_text()

    def finish(self):
        worker, self._worker = self._worker, None
        try:
            code = worker.wait(TIMEOUT)
        finally:
            worker.kill()
            worker.wait()
        if code != 0 and not ANSWERS.search(self.output()):
            raise CheckFailed(self.output())

    def close(self):
        if self._worker:
            self._worker.kill()
            self._worker.wait()

    def _count(self, word):
        with self._markers.open("rb") as file:
            file.seek(self._seen)
            return len(re.findall(rb"^%s " % word, file.read(), re.MULTILINE))

    def noted(self):
        return self._count(b"done")

    def in_flight(self):
        return self._count(b"begin") - self._count(b"done") - self._count(b"claimed")

    def recover(self, folder):
        answer = run("fsync_markers", "check", folder, self._markers)
        return int(re.search(r"objects=(\d+)", answer)[1])


def test_ext4(besiege):
    besiege("ext4, fsync", lambda scratch, _: Ext4(scratch), "48MiB")
