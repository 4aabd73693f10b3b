"""Block devices of ftld in tests.

The fixture `ftld` starts devices, each with folders of its own, and stops them after the test:

    def test_commit(ftld):
        device = ftld(size="64MiB", record=True)
        database = Database(device.uri)
        database.commit("a")
        device.mark("a")
        device.power_cut()
        device.start()
        assert "a" in Database(device.uri)

A device is a Linux program that serves NBD on a unix socket: no root, no kernel module. The program
`ftld` is found on the PATH, or named by FTLD_PROGRAM.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

__all__ = ["Device", "FtldError", "ftld"]


class FtldError(Exception):
    """A command of ftld failed; `exit` is its exit code."""

    def __init__(self, message, exit=None):
        super().__init__(message)
        self.exit = exit


def _program():
    name = os.environ.get("FTLD_PROGRAM", "ftld")
    found = shutil.which(name)
    if found is None:
        raise FtldError(f"there is no program {name!r}: install ftld, or name it in FTLD_PROGRAM")
    return found


def _remove(folder):
    """Removes a folder, unless something is mounted in it: that belongs to somebody else."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    if not any(line.split()[4].startswith(f"{folder}/") for line in mounts):
        shutil.rmtree(folder, ignore_errors=True)


class Device:
    """A device. `options` are those of the command line: write_cache="1MiB" is --write-cache 1MiB,
    cache_plp=True is --cache-plp. `image` is an image that is there already. `record` is True, or the path of the recording; each start after
    the first adds its number to the name."""

    def __init__(self, folder, name="disk", size="64MiB", record=None, image=None, **options):
        self.folder = Path(folder)
        self.name = name
        self.size = size
        self.options = options
        self.image = Path(image) if image else self.folder / f"{name}.ftld"
        # A socket's path has 107 characters at most, and a test's folder may be longer.
        self._sockets = Path(tempfile.mkdtemp(prefix="ftld-", dir="/tmp"))
        self.socket = self._sockets / "nbd"
        self.uri = f"nbd+unix:///?socket={self.socket}"
        self.log = self.folder / f"{name}.log"
        self.recording = None
        self._record = self.folder / f"{name}.rec" if record is True else record and Path(record)
        self._starts = 0
        self._process = None
        self._program = _program()
        self._environment = dict(
            {key: value for key, value in os.environ.items() if not key.startswith("FTLD_")},
            FTLD_STATE_DIR=str(self.folder / "state"),
            FTLD_RUNTIME_DIR=str(self._sockets / "run"),
            FTLD_CONFIG_DIR=str(self.folder / "etc"),
            FTLD_METRICS="off",
        )

    def start(self, timeout=30):
        """Starts the device and waits until it is ready. Its image stays from start to start."""
        if self.running:
            raise FtldError(f"{self.name} is running")
        command = [self._program, "--name", self.name, "--image", str(self.image), "--size", self.size]
        if self._record is not None:
            number = f".{self._starts}" if self._starts else ""
            self.recording = self._record.with_name(self._record.name + number)
            command += ["--record", str(self.recording)]
        for key, value in self.options.items():
            option = "--" + key.replace("_", "-")
            if value is True:
                command += [option]
            elif value is not None and value is not False:
                command += [option, str(value)]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command + [self.uri],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._starts += 1
        ready, _, _ = select.select([self._process.stdout], [], [], timeout)
        line = self._process.stdout.readline().decode() if ready else ""
        if not line.startswith("ready "):
            if ready:
                code = self._ended(timeout)
            else:
                self._process.kill()
                self._ended(timeout)
                code = None
            raise FtldError(f"{self.name} did not start: {self._last_line()}", code)
        return self

    @property
    def running(self):
        """Whether its process runs."""
        return self._process is not None and self._process.poll() is None

    def stop(self, timeout=60):
        """Stops the device cleanly. A recording is complete afterwards."""
        self._signal(signal.SIGTERM)
        code = self._ended(timeout)
        if code != 0:
            raise FtldError(f"{self.name} ended with exit code {code}: {self._last_line()}", code)

    def kill(self, timeout=60):
        """Kills the process. What was acknowledged is there after the next start."""
        self._signal(signal.SIGKILL)
        self._ended(timeout)

    def power_cut(self, *arguments, timeout=60):
        """Cuts the power of the flash and waits for the end of the process. What was not flushed may
        be lost. `arguments` are those of `ftld inject power-cut`; with `--after N` the cut comes
        while requests run, so wait for it by `wait()`."""
        self.inject("power-cut", *arguments)
        if not any(str(argument).startswith("--after") for argument in arguments):
            self._ended(timeout)

    def wait(self, timeout=60):
        """Waits until the process has ended; returns its exit code."""
        return self._ended(timeout)

    def inject(self, fault, *arguments):
        """Injects a fault, such as inject("flush-fails", "--count", 1); "clear" ends faults of
        requests. Returns the answer."""
        return self._ask("inject", fault, self.name, *arguments)

    def mark(self, text):
        """Puts a mark into the recording: what the text names was reported as done."""
        return self._ask("mark", self.name, text)

    def status(self):
        """Returns the status, as `ftld status --json`."""
        return self._ask("status", self.name)

    def clone(self, copy, seed=None, timeout=600):
        """Copies the image, of a running device as a power cut would leave it: `seed` draws what its
        write cache loses. Returns the path; `ftld(image=path)` serves it."""
        source = self.name if self.running else str(self.image)
        options = [] if seed is None else ["--seed", seed]
        self._ask("clone", source, Path(copy).absolute(), *options, timeout=timeout)
        return Path(copy)

    def crashes(self, check, *arguments, recording=None, timeout=None):
        """Visits the states that a power cut can leave of the recording, and runs the check on each.
        Returns the report; `report["failed"]` lists the states that failed."""
        recording = recording or self.recording
        if recording is None:
            raise FtldError(f"{self.name} records nothing: start it with record=True")
        command = ["crashes", str(recording), "--check", check]
        return self._ask(*command, *arguments, codes=(0, 1), timeout=timeout)

    def close(self):
        """Ends the process, if it runs, and removes its sockets."""
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
        if self._process is not None:
            self._process.wait()
            self._process.stdout.close()
        _remove(self._sockets)

    def _signal(self, number):
        if not self.running:
            raise FtldError(f"{self.name} is not running: {self._last_line()}")
        self._process.send_signal(number)

    def _ended(self, timeout):
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise FtldError(f"{self.name} has not ended after {timeout} s") from None

    def _last_line(self):
        lines = self.log.read_text(errors="replace").splitlines()
        return lines[-1] if lines else "it wrote nothing"

    def _ask(self, *words, codes=(0,), timeout=60):
        command = [self._program, "--json", *map(str, words)]
        done = subprocess.run(
            command, env=self._environment, capture_output=True, text=True, timeout=timeout
        )
        if done.returncode not in codes or not done.stdout:
            try:
                message = json.loads(done.stderr.splitlines()[-1])["error"]
            except (IndexError, KeyError, ValueError):
                message = done.stderr.strip()
            raise FtldError(message, done.returncode)
        return json.loads(done.stdout)


@pytest.fixture
def ftld(tmp_path):
    """Starts devices of ftld: `ftld(size="64MiB", record=True, write_cache="1MiB")` returns one that
    is ready. All end after the test."""
    devices = []

    def start(name=None, **options):
        device = Device(tmp_path, name=name or f"disk{len(devices)}", **options)
        devices.append(device)
        return device.start()

    yield start
    errors = []
    for device in devices:
        try:
            device.close()
        except Exception as error:  # The others end, too.
            errors.append(error)
    if errors:
        raise errors[0]
