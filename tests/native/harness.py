"""Shared parts of the pytest suites: a daemon, HTTP with timeouts, load, a real Prometheus.

Unreadable evidence raises: a closed port, a dead process, an answer that is not JSON, a missing key.
"""

import functools
import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*command, timeout=300, **options):
    """Runs a program; returns its output, raises with it on any exit code but 0."""
    done = subprocess.run(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, **options
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-4000:]}"
    return done.stdout


def wait_for(condition, seconds, what):
    """Polls until the condition holds; a connection that is refused meanwhile is waited for, too."""
    until, last = time.monotonic() + seconds, None
    while time.monotonic() < until:
        try:
            if condition():
                return
        except OSError as error:
            last = error
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what} ({last})")


def http(url, method="GET", headers=None, timeout=10):
    """One request: status, text and headers of the answer, whatever the status."""
    request = urllib.request.Request(url, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def page(url):
    """The text of a page that has to be there."""
    status, text, _ = http(url)
    assert status == 200 and text, f"{url}: status {status}, {len(text)} bytes"
    return text


def schemes():
    """Schemes to test: those in $SCHEMES, or all in the program's table."""
    wanted = os.environ.get("SCHEMES", "lazyftl pagemap").replace(",", " ").split()
    if wanted == ["all"]:
        wanted = [scheme["name"] for scheme in json.loads(run("ftld", "schemes", "--json"))["schemes"]]
    assert wanted, "no scheme to test"
    return wanted


class Daemon:
    """`ftld` over NBD on an instance of its own below `folder`; started again, it opens the same image."""

    def __init__(self, folder, name, *options, image=None):
        self.folder, self.name = Path(folder), name
        self.image = Path(image or self.folder / f"{name}.ftld")
        self.uri = f"nbd+unix:///?socket={self.folder / name}.sock"
        self.environment = dict(os.environ, FTLD_RUNTIME_DIR=f"{folder}/run", FTLD_STATE_DIR=str(folder))
        self.process = None
        self.start(*options)

    def start(self, *options):
        metrics = () if "--metrics" in options else ("--metrics", "127.0.0.1:0")
        command = ["ftld", *metrics, "--image", str(self.image), "--name", self.name, *options, self.uri]
        self.log = self.folder / f"{self.name}.log"
        out = self.folder / f"{self.name}.out"
        with open(out, "w") as stdout, open(self.log, "w") as stderr:
            self.process = subprocess.Popen(command, env=self.environment, stdout=stdout, stderr=stderr)
        ready = lambda: "ready " in out.read_text()
        wait_for(lambda: ready() or self.process.poll() is not None, 60, f"the ready line of {self.name}")
        assert ready(), f"{self.name}: exit code {self.process.poll()}: {self.log.read_text()[-2000:]}"
        words = dict(word.split("=", 1) for word in out.read_text().split() if "=" in word)
        self.metrics = words["metrics"]
        self.url = self.metrics.removesuffix("/metrics")
        self.address = self.url.removeprefix("http://")

    def status(self, path):
        """A value of /status, such as host.write.completed."""
        return functools.reduce(lambda value, key: value[key], path.split("."), json.loads(page(f"{self.url}/status")))

    def ftld(self, *words):
        """A command of ftld's that steers or asks this daemon."""
        return run("ftld", *words, env=self.environment)

    def stop(self):
        """SIGTERM ends a daemon that runs within 5 s, with exit code 0."""
        assert self.process.poll() is None, f"{self.name} ended before SIGTERM: {self.log.read_text()[-2000:]}"
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=5)
        assert code == 0, f"exit code {code}: {self.log.read_text()[-2000:]}"

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def cpu_ms(self):
        """CPU time of all threads of the daemon, in milliseconds."""
        tasks = list(Path(f"/proc/{self.process.pid}/task").iterdir())
        assert tasks, "the daemon has no threads"
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6


class Load:
    """fio on an NBD device until it is stopped, or for `runtime` seconds."""

    def __init__(self, daemon, log, *options, runtime=600):
        command = [
            "fio", "--name=load", "--ioengine=nbd", f"--uri={daemon.uri}", "--rw=randrw", "--rwmixread=30", "--bs=4k", "--norandommap",
            "--randrepeat=0", "--time_based", f"--runtime={runtime}", "--thread", *options,
        ]
        self.log = Path(log)
        with open(log, "w") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    def runs(self):
        return self.process.poll() is None

    def stop(self):
        """Ends the load, which has to run still."""
        assert self.runs(), f"the load ended by itself: {self.log.read_text()[-2000:]}"
        self.process.terminate()
        self.process.wait(timeout=30)

    def kill(self):
        if self.runs():
            self.process.kill()
            self.process.wait()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Prometheus:
    """A real Prometheus that scrapes the daemons every second and evaluates the rules.

    `daemons` is a list, scraped by the job `ftld`, or a dictionary with the daemons of each job."""

    def __init__(self, folder, rules, daemons):
        self.url = f"http://127.0.0.1:{free_port()}"
        jobs = daemons if isinstance(daemons, dict) else {"ftld": list(daemons)}
        targets = {job: ", ".join(f'"{daemon.address}"' for daemon in of_job) for job, of_job in jobs.items()}
        self.config = Path(folder) / "prometheus.yml"
        self.config.write_text(
            "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
            f'rule_files: ["{rules}"]\n'
            "scrape_configs:\n"
            + "".join(
                f"  - job_name: {job}\n    static_configs: [{{targets: [{of_job}]}}]\n" for job, of_job in targets.items()
            )
        )
        self.log = Path(folder) / "prometheus.log"
        with open(self.log, "w") as output:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={self.config}", f"--storage.tsdb.path={folder}/tsdb",
                 f"--web.listen-address={self.url.removeprefix('http://')}"],
                stdout=output, stderr=subprocess.STDOUT,
            )
        wait_for(lambda: http(f"{self.url}/-/ready")[0] == 200, 30, "Prometheus is ready")

    def get(self, path, **query):
        status, text, _ = http(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=30)
        assert status == 200, f"{path} {query}: status {status}: {text}"
        answer = json.loads(text)
        assert answer["status"] == "success", text
        return answer["data"]

    def query(self, expression):
        """Samples of an instant query, each as its labels and its number."""
        return [(sample["metric"], float(sample["value"][1])) for sample in self.get("query", query=expression)["result"]]

    def value(self, expression):
        """The one number that a query answers with."""
        samples = self.query(expression)
        assert len(samples) == 1, f"{expression}: {len(samples)} answers instead of one"
        return samples[0][1]

    def kill(self):
        self.process.kill()
        self.process.wait()
