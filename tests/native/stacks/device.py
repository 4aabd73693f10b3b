"""An ext4 file system on ftld: NBD unix socket, nbdfuse, loop device; and the faults that strike it.

nbdfuse and nothing else: the FUSE export of qemu-storage-daemon loses data under a loop device
with direct I/O.
"""

import enum
import json
import os
import subprocess
import time

# Until a tool is taken for hung; a busy machine takes long.
TIMEOUT = 300
# A power cut strikes after at most this many programs and erases, GC included.
CUT_AFTER = 1500
MKFS = ["mkfs.ext4", "-q", "-F", "-b", "4096", "-J", "size=4"]
MKFS += ["-E", "lazy_itable_init=0,lazy_journal_init=0"]


class Fault(enum.Enum):
    """A kind of fault."""

    POWER_CUT = "power cut"
    KILL = "kill"
    SYNC = "failing sync"


class DeviceError(Exception):
    """The device, or a tool below the stack, did not do what it has to."""


def run(*command, timeout=TIMEOUT, **more):
    """Runs a command to its end and returns its output; any other exit code than 0 is an error."""
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL, timeout=timeout, text=True, errors="replace", **more,
    )
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise DeviceError(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{tail}")
    return done.stdout


def wait_for(what, condition, seconds=TIMEOUT):
    """Waits until `condition` is true and returns its value; not within `seconds` is an error."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > end:
            raise DeviceError(f"not within {seconds} s: {what}")
        time.sleep(0.02)
    return value


class Device:
    """One image, served and mounted at `at`, until its daemon dies of a fault and starts again."""

    def __init__(self, folder, scheme, size):
        self.image = folder / "image.ftld"
        self.at = folder / "mnt"
        self.scheme = scheme
        self.size = size
        self._fuse = folder / "fuse"
        self._log = folder / "ftld.log"
        self._trace = folder / "strace.log"
        self._uri = f"nbd+unix:///?socket={folder}/nbd.sock"
        self._env = dict(
            os.environ, FTLD_RUNTIME_DIR=str(folder / "run"), FTLD_STATE_DIR=str(folder),
            FTLD_LOG="error",
        )
        self._daemon = self._nbdfuse = self._strace = self._loop = None
        self.at.mkdir()
        self._fuse.mkdir()

    @property
    def loop(self):
        """The block device that stands on the daemon."""
        return self._loop

    # Life of the daemon and of the stack above it.

    def start(self):
        """Serves the image, which the first start makes, up to the loop device."""
        ready = self._log.with_suffix(".out")
        command = ["ftld", "--metrics", "off", "--image", str(self.image)]
        if not self.image.exists():
            command += ["--scheme", self.scheme, "--size", self.size]
        with ready.open("w") as out, self._log.open("w") as log:
            self._daemon = subprocess.Popen(
                [*command, self._uri], env=self._env, stdout=out, stderr=log
            )
        wait_for("ftld is ready", lambda: self._check_alive() and "ready " in ready.read_text())
        export = self._fuse / "disk"
        self._nbdfuse = subprocess.Popen(
            ["nbdfuse", str(export), self._uri], stderr=subprocess.DEVNULL
        )
        wait_for("nbdfuse serves", lambda: export.exists() and export.stat().st_size > 0)
        self._loop = wait_for("a loop device is free", lambda: self._attach(export), 10)

    def _check_alive(self):
        if self._daemon.poll() is not None:
            raise DeviceError(f"ftld: exit code {self._daemon.returncode}\n{self._log.read_text()}")
        return True

    @staticmethod
    def _attach(export):
        try:
            return run("losetup", "--find", "--show", "--direct-io=on", export).strip()
        except DeviceError:
            return None  # somebody else took the free one first

    def make_file_system(self):
        run(*MKFS, self._loop)

    def mount(self):
        run("mount", "-t", "ext4", "-o", "discard", self._loop, self.at)
        # A stack that found no mount here would run on the host's own file system.
        if not os.path.ismount(self.at):
            raise DeviceError(f"{self.at} is not mounted")

    def unmount(self):
        run("umount", self.at)

    def has_to_replay(self):
        """Whether ext4 will replay its journal when it is mounted."""
        return "needs_recovery" in run("dumpe2fs", "-h", self._loop)

    def check_file_system(self):
        run("e2fsck", "-fn", self._loop)

    def detach(self):
        """Takes the loop device and nbdfuse away; the daemon may be dead."""
        run("losetup", "-d", self._loop)
        self._loop = None
        run("fusermount3", "-u", self._fuse)
        self._nbdfuse.wait(TIMEOUT)
        self._nbdfuse = None

    def stop(self):
        """Ends the daemon in an orderly way, and lets `ftld check` look at the image."""
        self._daemon.terminate()
        code = self._daemon.wait(TIMEOUT)
        if code != 0:
            raise DeviceError(f"SIGTERM: exit code {code}\n{self._log.read_text()}")
        self._daemon = None
        run("ftld", "check", self.image, env=self._env)

    # Faults.

    def inject(self, fault, rng):
        """Lets a fault happen to the mounted device, at once or soon."""
        {
            Fault.POWER_CUT: self._cut_power, Fault.KILL: self._kill, Fault.SYNC: self._fail_syncs,
        }[fault](rng)

    def has_struck(self, fault):
        """Whether the fault has happened. It is evident before any request fails because of it."""
        if fault is Fault.SYNC:
            if self._strace.poll() is not None:
                raise DeviceError(f"strace ended with exit code {self._strace.returncode}")
            return self._trace.exists() and "(INJECTED)" in self._trace.read_text()
        if fault is Fault.POWER_CUT:
            return "power cut injected" in self._log.read_text()
        return self._daemon.poll() is not None

    def _cut_power(self, rng):
        self._control("inject", "power-cut", "--after", rng.randrange(CUT_AFTER),
                      "--seed", rng.randrange(1 << 32))

    def _kill(self, _rng):
        self._daemon.kill()
        self._daemon.wait(TIMEOUT)

    def _fail_syncs(self, rng):
        """Fails fdatasync of the image: the next one, or all from now on.

        The daemon calls the kernel itself, so LD_PRELOAD would see nothing: strace answers.
        """
        times = rng.choice([":when=1", ""])
        self._trace.unlink(missing_ok=True)
        self._strace = subprocess.Popen(
            ["strace", "-f", "-q", "-p", str(self._daemon.pid), "-o", str(self._trace),
             "-e", "trace=fdatasync", "-e", f"inject=fdatasync:error=EIO{times}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )

    def bury(self, fault):
        """Takes away what stands on a device that a fault has struck, and ends its daemon."""
        wait_for("what stood on the failed device lets go of it", self._unmounted)
        self.detach()
        if fault is Fault.SYNC:
            self._strace.terminate()
            self._strace.wait(TIMEOUT)
            self._strace = None
            state = json.loads(self._control("status", "--json"))
            if not state["read_only_reason"] and not state["failure"]:
                raise DeviceError("a sync of the image failed, and the device still takes writes")
            self._daemon.terminate()
        code = self._daemon.wait(TIMEOUT)
        if fault is Fault.POWER_CUT and code != 9:
            raise DeviceError(f"power cut: exit code {code}, not 9\n{self._log.read_text()}")
        self._daemon = None

    def _unmounted(self):
        try:
            self.unmount()
        except DeviceError:
            return False
        return True

    def _control(self, *words):
        return run("ftld", *words, env=self._env)

    def close(self):
        """Takes everything away, whatever state it is in."""
        for process in (self._strace, self._daemon):
            if process and process.poll() is None:
                process.kill()
                process.wait()
        quietly = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=TIMEOUT)
        if os.path.ismount(self.at):
            subprocess.run(["umount", "-l", self.at], **quietly)
        if self._loop:
            subprocess.run(["losetup", "-d", self._loop], **quietly)
        if self._nbdfuse:
            subprocess.run(["fusermount3", "-uz", self._fuse], **quietly)
            self._nbdfuse.kill()
            self._nbdfuse.wait()
