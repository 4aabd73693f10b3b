"""Judges code with a mistake: a scratch copy of the tree, a patch, and the suites that must find it.

`canaries/run.py` and `mutants.py` share this. CPU time is measured, not wall time, so that a busy machine gives the same
verdicts. A failure counts if the same suite does not fail on the unpatched copy in twice the time.
"""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "canaries"
TREE = WORK / "tree"
CORE = {"nand-model", "ftl-core"}

# Incremental builds without optimisation take seconds; the cases run five to ten times longer, which is less than they gain.
BUILD = {
    "CARGO_INCREMENTAL": "1",
    "CARGO_PROFILE_TEST_DEBUG": "0",
    "CARGO_PROFILE_TEST_OPT_LEVEL": "0",
    "CARGO_TARGET_DIR": str(WORK / "build"),
    "CARGO_TERM_COLOR": "never",
}


@dataclass(frozen=True)
class Hunter:
    """A suite that may find a mistake in one of `crates`."""

    name: str
    select: str
    crates: frozenset
    env: tuple = ()


def hunter(name, select, crates, **env):
    return Hunter(name, select, frozenset(crates), tuple(env.items()))


# The suites in the order of their runs.
TESTS = "-p ftld-tests --no-default-features --test"
HUNTERS = [
    hunter("hunt", f"{TESTS} hunt", CORE),
    hunter("nand-model", "-p nand-model", {"nand-model"}),
    hunter("ftl-core", "-p ftl-core --lib", {"ftl-core"}),
    hunter("regressions", f"{TESTS} regressions", CORE),
    hunter("recovery_stories", f"{TESTS} recovery_stories", CORE),
    hunter("faulty_parts", f"{TESTS} faulty_parts", CORE),
    hunter("ftld lib", "-p ftld --no-default-features --lib", {"daemon"}),
    hunter("nbd_engine", "-p ftld --no-default-features --test nbd_engine", {"daemon"}),
    hunter("nbd_commands", "-p ftld --no-default-features --test nbd_commands", {"daemon"}),
]


class Failed(Exception):
    """The patch cannot be judged; the text says why."""


def crates_of(diff):
    """First folders of the files that a diff changes: crates, by their folder."""
    return {name.split("/")[0] for name in re.findall(r"^\+\+\+ b/(\S+)", diff, re.M)}


def hunters_of(diff):
    return [one for one in HUNTERS if one.crates & crates_of(diff)]


class Bench:
    """The scratch copy, and what ran on it unpatched."""

    def __init__(self):
        self.passed = {}
        self.copy()

    def copy(self):
        """Makes the scratch copy equal to the tracked files. Files that are equal keep their time, so nothing rebuilds."""
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
        self.files = {name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()}
        for path in [path for path in TREE.rglob("*") if path.is_file()]:
            if str(path.relative_to(TREE)) not in self.files:
                path.unlink()
        for name in self.files:
            self.restore(name)

    def restore(self, name):
        here, there = ROOT / name, TREE / name
        content = here.read_bytes()
        if there.is_file() and there.read_bytes() == content:
            return
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(content)
        there.chmod(here.stat().st_mode)

    def revert(self, diff):
        for name in re.findall(r"^\+\+\+ b/(\S+)", diff, re.M):
            self.restore(name)

    def apply(self, diff):
        # Without the ceiling git would take the copy for a folder of the repository around it and apply nothing.
        env = os.environ | {"GIT_CEILING_DIRECTORIES": str(WORK)}
        done = subprocess.run(["git", "apply", "-p1", "-"], cwd=TREE, env=env, input=diff, text=True, capture_output=True)
        if done.returncode:
            raise Failed(f"the patch does not apply; make it again for the present code:\n{done.stderr.strip()}")
        if not any((ROOT / name).read_bytes() != (TREE / name).read_bytes() for name in self.files):
            raise Failed("the patch changes nothing")

    def build(self, one):
        """Builds a suite. Returns its programs, each with the folder it runs in, and the CPU seconds."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = ["cargo", "test", "--no-run", "--message-format=json", *one.select.split()]
        done = subprocess.run(command, cwd=TREE, env=os.environ | BUILD, text=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            errors = [line["message"]["rendered"] for line in lines if line.get("message", {}).get("level") == "error"]
            raise Failed("does not compile:\n" + ("\n".join(errors[:3]) or done.stderr[-2000:]))
        programs = []
        for line in done.stdout.splitlines():
            message = json.loads(line) if line.startswith("{") else {}
            if message.get("executable") and message["profile"]["test"]:
                programs.append((message["executable"], Path(message["manifest_path"]).parent))
        if not programs:
            raise Failed(f"cargo test {one.select} built no test")
        return programs, used(before, after)

    def run(self, one, programs, limit):
        """Runs programs until one fails. Returns `passed`, `failed` or `limit`, CPU seconds, and what was printed last."""
        spent, text = 0.0, ""
        for program, folder in programs:
            verdict, seconds, text = execute([program], folder, dict(one.env), limit - spent)
            spent += seconds
            if verdict != "passed":
                return verdict, spent, text
        return "passed", spent, text

    def require_pass(self, one, seconds, diff):
        """Makes sure that the unpatched suite does not fail in twice the CPU time. The copy is left unpatched."""
        wanted = 2 * seconds + 5
        if self.passed.get(one.name, 0) >= wanted:
            return
        self.revert(diff)
        programs, _ = self.build(one)
        verdict, seconds, text = self.run(one, programs, wanted)
        if verdict == "failed":
            raise SystemExit(f"{one.name} fails without a mistake, so its verdicts mean nothing:\n{text}")
        say(f"    {one.name} does not fail without a mistake: {seconds:.1f} s")
        self.passed[one.name] = float("inf") if verdict == "passed" else wanted

    def judge(self, diff, limit):
        """Runs the suites on the patched copy, in order. Returns verdict (`caught`, `missed` or `limit`), suite, CPU
        seconds of the runs, CPU seconds of the builds, and what the suite printed last."""
        self.apply(diff)
        try:
            spent, built = 0.0, 0.0
            for one in hunters_of(diff):
                programs, seconds = self.build(one)
                built += seconds
                verdict, seconds, text = self.run(one, programs, limit - spent)
                spent += seconds
                if verdict == "failed":
                    self.require_pass(one, seconds, diff)
                    return "caught", one.name, spent, built, text
                if verdict == "limit":
                    return "limit", one.name, spent, built, text
            return "missed", "-", spent, built, ""
        finally:
            self.revert(diff)


def used(before, after):
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def execute(command, folder, env, limit):
    """Runs a command for at most `limit` CPU seconds. The kernel ends it there; if it hangs, we do after ten times as long."""
    limit = max(1, int(limit))

    def bound():
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))

    before, deadline = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() + 10 * limit + 60
    with open(WORK / "output", "w+") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=os.environ | env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            start_new_session=True, preexec_fn=bound,
        )
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        hangs = process.poll() is None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        status = process.wait()
        out.seek(0)
        text = out.read()[-4000:]
    seconds = used(before, resource.getrusage(resource.RUSAGE_CHILDREN))
    over = hangs or status in (-signal.SIGXCPU, -signal.SIGKILL)
    return "passed" if status == 0 else "limit" if over else "failed", seconds, text


def case_of(text):
    """The first case that failed, or the first message of a panic."""
    found = re.search(r"case (\d+): (\S+)", text) or re.search(r"panicked at ([^\n]*)\n([^\n]*)", text)
    return " ".join(found.groups())[:120] if found else "-"


def say(text):
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit("a library of canaries/run.py and mutants.py")
