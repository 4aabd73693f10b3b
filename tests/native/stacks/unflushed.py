"""Writes that were acknowledged and never flushed: the daemon's death must not lose them.

A thread overwrites pages of a file that is allocated completely, with direct I/O, so that a write
that returned was acknowledged by the daemon.
"""

import mmap
import os
import random
import threading

PAGE = 4096
PAGES = 64


class Unflushed:
    """The file, and what was acknowledged of it."""

    def __init__(self):
        self._acknowledged = [0] * PAGES
        self._in_flight = {}
        self._value = 0
        self._thread = None
        self._error = ""

    def create(self, folder):
        with open(folder / "unflushed", "wb") as file:
            file.write(bytes(PAGE * PAGES))
            os.fsync(file.fileno())

    def start(self, folder, seed):
        file = os.open(folder / "unflushed", os.O_WRONLY | os.O_DIRECT)
        self._in_flight = {}
        self._thread = threading.Thread(target=self._write, args=(file, random.Random(seed)))
        self._thread.start()

    def _write(self, file, rng):
        buffer = mmap.mmap(-1, PAGE)
        try:
            while True:
                page = rng.randrange(PAGES)
                self._value += 1
                buffer[:] = self._value.to_bytes(8, "little") * (PAGE // 8)
                self._in_flight = {page: self._value}
                os.pwrite(file, buffer, page * PAGE)
                self._acknowledged[page] = self._value
        except OSError as error:
            self._error = f"unflushed: {error}\n"  # the device failed
        finally:
            os.close(file)

    def has_ended(self):
        """Whether a write failed."""
        return not self._thread.is_alive()

    def output(self):
        return self._error

    def finish(self):
        self._thread.join()

    def check(self, folder, was_killed):
        """Compares the file; what a power cut or a failed sync left may be older.

        Returns how many pages were compared.
        """
        content = (folder / "unflushed").read_bytes()
        for page in range(PAGES):
            found = content[page * PAGE:(page + 1) * PAGE]
            value = int.from_bytes(found[:8], "little")
            if found != found[:8] * (PAGE // 8):
                raise AssertionError(f"unflushed: page {page} is a mixture")
            wanted = {self._acknowledged[page], self._in_flight.get(page, 0)}
            if was_killed and value not in wanted:
                raise AssertionError(f"unflushed: page {page} is {value}, not one of {wanted}")
            self._acknowledged[page] = value
        return PAGES if was_killed else 0
