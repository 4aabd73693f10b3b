"""NBD servers for the benchmarks, over unix sockets: ftld and its peers; and fio, their client."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

TOOLS = {"fio": "fio", "nbdkit": "nbdkit", "qemu-nbd": "qemu-utils", "nbd-server": "nbd-server"}


def need(*tools):
    """Ends the program if a tool is missing."""
    for tool in tools or TOOLS:
        if shutil.which(tool) is None:
            sys.exit(f"{tool} is missing: apt-get install {TOOLS[tool]}")


class Server:
    """A running server. Leaving its `with` stops it."""

    def __init__(self, name, uri, pid, size, process=None):
        self.name, self.uri, self.pid, self.size, self.process = name, uri, pid, size, process

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        if self.process is None:
            os.kill(self.pid, signal.SIGTERM)
        elif self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def fio(self, **options):
        """Runs fio on the whole device, and returns its first job."""
        options = {"name": "bench", "ioengine": "nbd", "uri": self.uri, "size": self.size, "thread": 1, **options}
        options |= {"group_reporting": 1, "randrepeat": 0, "norandommap": 1, "output-format": "json"}
        done = subprocess.run(["fio", *(f"--{key}={value}" for key, value in options.items())], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"fio on {self.name} failed: {done.stderr.strip() or done.stdout[-500:]}")
        return json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]


class Ftld(Server):
    """ftld on a new image. `options` are those of its command line, without target, image and name."""

    def __init__(self, name, program, folder, size, *options):
        word = re.sub(r"\W+", "-", name)
        socket, self.image = folder / f"{word}.sock", folder / f"{word}.ftld"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("FTLD_")}
        environment |= {"FTLD_STATE_DIR": str(folder), "FTLD_RUNTIME_DIR": str(folder / "run")}
        uri = f"nbd+unix:///?socket={socket}"
        command = [program, "--size", size, "--image", self.image, "--name", word, "--metrics", "127.0.0.1:0", *options, uri]
        self.log = folder / f"{word}.log"
        with open(self.log, "w") as log:
            process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        line = process.stdout.readline()
        if not line.startswith("ready "):
            sys.exit(f"{name}: no ready line but {line!r}\n{self.log.read_text()}")
        self.status = line.split("metrics=")[1].strip().replace("/metrics", "/status")
        super().__init__(name, uri, process.pid, size, process)

    def figures(self):
        with urllib.request.urlopen(self.status, timeout=10) as answer:
            return json.load(answer)

    def settled(self, what):
        """A figure that is published ten times a second, after the last request."""
        time.sleep(0.3)
        return what(self.figures())

    def gc_runs(self):
        return self.settled(lambda figures: figures["scheme_stats"]["gc_runs"])

    def stop(self):
        super().stop()
        if self.process.returncode != 0:
            sys.exit(f"{self.name}: exit code {self.process.returncode}\n{self.log.read_text()}")

    def discard(self):
        """Stops it and removes its image."""
        self.stop()
        self.image.unlink(missing_ok=True)


def has_option(program, option):
    """Whether the program's help has this option."""
    text = subprocess.run([str(program), "--help"], capture_output=True, text=True, check=True).stdout
    return re.search(rf"(?m)^ *(-\w, )?{re.escape(option)}(?![\w-])", text) is not None


def schemes(program):
    answer = subprocess.run([str(program), "schemes", "--json"], capture_output=True, check=True).stdout
    return [entry["name"] for entry in json.loads(answer)["schemes"]]


def peers(folder, size, names=None):
    """Other NBD servers, over a file or memory of `size` bytes; all servers, or the named ones."""
    shared = folder / "peers.raw"
    with open(shared, "ab") as file:
        file.truncate(size)
    qemu = ["qemu-nbd", "-t", "-f", "raw", "-e", "8", "--cache=writeback", "--aio=threads"]
    commands = {
        "nbdkit memory": lambda socket: ["nbdkit", "-f", "-U", socket, "memory", str(size)],
        "nbdkit file": lambda socket: ["nbdkit", "-f", "-U", socket, "file", shared],
        "qemu-nbd": lambda socket: [*qemu, "-k", socket, shared],
    }
    started = []
    for name, command in commands.items():
        if names is None or name in names:
            socket = folder / f"{name.replace(' ', '-')}.sock"
            socket.unlink(missing_ok=True)
            process = subprocess.Popen([str(word) for word in command(socket)], stdout=subprocess.DEVNULL)
            started.append(Server(name, f"nbd+unix:///?socket={socket}", process.pid, size, process))
            wait_for(socket, name)
    if names is None or "nbd-server" in names:
        started.append(nbd_server(folder, shared, size))
    return started


def nbd_server(folder, file, size):
    # In the foreground (-d, -n) it would end after its first client, so it goes into the background by itself.
    socket, config, pid = (folder / f"nbd-server.{suffix}" for suffix in ("sock", "conf", "pid"))
    for path in (socket, pid):
        path.unlink(missing_ok=True)
    config.write_text(
        f"[generic]\nallowlist = true\nunixsock = {socket}\n[bench]\nexportname = {file}\nflush = true\nfua = true\ntrim = true\n"
    )
    subprocess.run(["nbd-server", "-C", config, "-p", pid], check=True, stdout=subprocess.DEVNULL)
    wait_for(pid, "nbd-server")
    wait_for(socket, "nbd-server")
    return Server("nbd-server", f"nbd+unix:///bench?socket={socket}", int(pid.read_text()), size)


def wait_for(path, name):
    end = time.monotonic() + 15
    while not path.exists() or path.stat().st_size == 0 and not path.is_socket():
        if time.monotonic() > end:
            sys.exit(f"{name} does not start: no {path}")
        time.sleep(0.05)


def memory_bytes(smaps):
    """Anonymous and locked memory, from the text of /proc/PID/smaps: of each mapping the larger of both, since locked memory
    may be anonymous."""
    total = 0
    for mapping in re.split(r"(?m)^[0-9a-f]+-[0-9a-f]+ ", smaps)[1:]:
        fields = dict(re.findall(r"(?m)^(\w+): +(\d+) kB$", mapping))
        total += max(int(fields["Anonymous"]), int(fields["Locked"])) * 1024
    return total


def memory_in_use(pid):
    return memory_bytes(Path(f"/proc/{pid}/smaps").read_text())
