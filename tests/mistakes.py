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
from argparse import ArgumentTypeError
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target" / "canaries"
TREE = WORK / "tree"
CORE = {"nand-model", "ftl-core"}

BUILD = {
    "CARGO_INCREMENTAL": "1",
    "CARGO_PROFILE_TEST_DEBUG": "0",
    "CARGO_TARGET_DIR": str(WORK / "build"),
    "CARGO_TERM_COLOR": "never",
}


def positive(text):
    """A number of the command line that is at least 1."""
    if not text.isdigit() or int(text) == 0:
        raise ArgumentTypeError(f"{text!r} is no number above 0")
    return int(text)


@dataclass(frozen=True)
class Hunter:
    """A suite that may find a mistake in one of `crates`."""

    name: str
    select: str
    crates: frozenset
    level: int  # of optimisation
    most: float  # CPU seconds of its run
    ends: bool  # on the unpatched code well before `most`
    env: tuple
    args: tuple = ()


def hunter(name, select, crates, level=2, most=60, ends=True, args=(), **env):
    return Hunter(name, select, frozenset(crates), level, most, ends, tuple(env.items()), args)


# The suites in the order of their runs. One that runs for seconds is worth optimising: after a change the core and the sweeps build
# in 36 s of CPU time at level 2 and in 18 s at level 1, and the same cases take 2.9 s and 11 s. The daemon's build takes minutes.
TESTS = "-p ftld-tests --no-default-features --test"
NBD = "-p ftld-device --no-default-features --test nbd"
DRAWN = {"FTLD_SEED": "1", "FTLD_SWARM_SECONDS": "3600", "FTLD_SWARM_SHRINK": "0"}
# Unit tests that cut power take most of the time, and `hunt` does the same.
SKIPPED = ("--skip=cuts", "--skip=what_cannot_be", "--skip=agrees_with_a_model")
HUNTERS = [
    hunter("hunt", f"{TESTS} hunt", CORE, most=40, ends=False),
    hunter("ftl-core", "-p ftld-core --lib", {"ftl-core"}, level=1, most=60, args=SKIPPED),
    hunter("swarm", f"{TESTS} suites", CORE, ends=False, args=("swarm::",), **DRAWN),
    hunter("regressions", f"{TESTS} suites", CORE, most=10, ends=False, args=("regressions::",)),
    hunter("nand-model", "-p nand-model", {"nand-model"}, most=25, ends=False),
    hunter("ftld lib", "-p ftld -p ftld-lab -p ftld-device -p ftld-kit --no-default-features --lib", {"daemon"}, level=0, most=80),
    hunter("nbd_engine", NBD, {"daemon"}, level=0, most=20, args=("engine::",)),
    hunter("nbd_commands", NBD, {"daemon"}, level=0, most=20, args=("commands::",)),
    hunter("daemon_swarm", "-p ftld-tests --test daemon", CORE | {"daemon"}, level=1, most=100, ends=False, args=("daemon_swarm::",), **DRAWN),
]


# Suites of the tests that the line `test:` of a canary may name.
OF_NAMED = {
    "ftl-core": "-p ftld-core --lib",
    "nand-model": "-p nand-model --test suites",
    "suites": f"{TESTS} suites",
    "hunt": f"{TESTS} hunt",
}
NAMED_LIMIT = 120  # CPU seconds


def named(line):
    """The one test of a line `SUITE TEST [VARIABLE=VALUE...]`, as a suite."""
    suite, test, *env = line.split()
    if suite not in OF_NAMED:
        raise Failed(f"test: {line}: {suite} is none of {', '.join(OF_NAMED)}")
    variables = tuple(tuple(one.split("=", 1)) for one in env)
    return Hunter(f"{suite} {test}", OF_NAMED[suite], frozenset(), 2, NAMED_LIMIT, True, variables, ("--exact", test))


class Failed(Exception):
    """The patch cannot be judged; the text says why. `errors` are those of the compiler."""

    errors = ()


def crates_of(diff):
    """First folders of the files that a diff changes: crates, by their folder."""
    return {name.split("/")[0] for name in re.findall(r"^\+\+\+ b/(\S+)", diff, re.M)}


def hunters_of(diff, first=None):
    """The suites that may find the mistake; the one named `first` begins."""
    return sorted([one for one in HUNTERS if one.crates & crates_of(diff)], key=lambda one: one.name != first)


def tracked():
    """Names of the tracked files; outside a git repository, of all files except those that builds make."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if listed.returncode == 0:
        return listed.stdout.decode().split("\0")
    built = {"target", ".git"}
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file())
    return [str(path) for path in paths if not built.intersection(path.parts)]


class Bench:
    """The scratch copy, and what ran on it unpatched."""

    # Factor on the wanted time of the unpatched suites, because each check of them costs a build.
    AHEAD = 2

    def __init__(self, level=2):
        """With suites optimised up to this level."""
        self.level = level
        self.passed, self.took, self.planted = {}, {}, False
        self.copy()

    def copy(self):
        """Makes the scratch copy equal to the tracked files as they are now; later changes do not disturb the run. Files that are
        equal keep their time, so nothing rebuilds."""
        self.files = self.contents()
        for path in [path for path in TREE.rglob("*") if path.is_file()]:
            if str(path.relative_to(TREE)) not in self.files:
                path.unlink()
        for name in self.files:
            self.restore(name)

    def contents(self):
        """Files of the copy by name: bytes and mode."""
        paths = [(name, ROOT / name) for name in tracked()]
        return {name: (path.read_bytes(), path.stat().st_mode) for name, path in paths if path.is_file()}

    def restore(self, name):
        content, mode = self.files[name]
        there = TREE / name
        if there.is_file() and there.read_bytes() == content:
            return
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_bytes(content)
        there.chmod(mode)

    def revert(self, diff):
        self.planted = False
        for name in re.findall(r"^\+\+\+ b/(\S+)", diff, re.M):
            self.restore(name)

    def apply(self, diff):
        # Without the ceiling git would take the copy for a folder of the repository around it and apply nothing.
        env = os.environ | {"GIT_CEILING_DIRECTORIES": str(WORK)}
        done = subprocess.run(["git", "apply", "-p1", "-"], cwd=TREE, env=env, input=diff, text=True, capture_output=True)
        if done.returncode:
            raise Failed(f"the patch does not apply; make it again for the present code:\n{done.stderr.strip()}")
        if all((TREE / name).read_bytes() == content for name, (content, _) in self.files.items()):
            raise Failed("the patch changes nothing")
        self.planted = True

    def build(self, one):
        """Builds a suite. Returns its programs, each with the folder it runs in, and the CPU seconds."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = ["cargo", "test", "--no-run", "--message-format=json", *one.select.split()]
        env = os.environ | BUILD | {"CARGO_PROFILE_TEST_OPT_LEVEL": str(min(one.level, self.level))}
        done = subprocess.run(command, cwd=TREE, env=env, text=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
            errors = [line["message"] for line in lines if line.get("message", {}).get("level") == "error"]
            shown = "\n".join(error["rendered"] for error in errors[:3]) or done.stderr[-2000:]
            failed = Failed(f"does not compile:\n{shown}")
            failed.errors = errors
            raise failed
        programs = []
        for line in done.stdout.splitlines():
            message = json.loads(line) if line.startswith("{") else {}
            if message.get("executable") and message["profile"]["test"]:
                programs.append((message["executable"], Path(message["manifest_path"]).parent))
        if not programs:
            raise Failed(f"cargo test {one.select} built no test")
        return programs, used(before, after)

    def run(self, one, programs, limit):
        """Runs programs until one fails. Returns `passed`, `failed`, `limit` or `hangs`, CPU seconds, and what was printed last."""
        spent, text = 0.0, ""
        for program, folder in programs:
            verdict, seconds, text = execute([program, *one.args], folder, dict(one.env), limit - spent)
            spent += seconds
            if verdict != "passed":
                return verdict, spent, text
        return "passed", spent, text

    def require_one_pass(self, one):
        """Makes sure that a named test is there and passes without a mistake. Returns its CPU seconds."""
        programs, _ = self.build(one)
        verdict, seconds, text = self.run(one, programs, one.most)
        if verdict == "failed":
            raise Failed(f"{one.name} fails without the mistake, so its verdict means nothing:\n{text}")
        if verdict != "passed":
            raise Failed(f"{one.name} was cut off by the limit of {one.most} s of CPU time, without the mistake")
        if not re.search(r"^test result: ok\. 1 passed", text, re.M):
            raise Failed(f"there is no test {one.name}:\n{text}")
        return seconds

    def judge_named(self, diff, one):
        """Like `judge`, by one test that `require_one_pass` has seen pass."""
        try:
            self.apply(diff)
            programs, built = self.build(one)
            verdict, seconds, text = self.run(one, programs, one.most)
            found = {"failed": "caught", "passed": "missed"}.get(verdict, "cut off")
            suite = f"{one.name} ({one.most} s)" if found == "cut off" else one.name
            return found, suite, seconds, built, text
        finally:
            self.revert(diff)

    def require_pass(self, one, seconds, diff):
        """Makes sure that the unpatched suite does not fail in twice the CPU time. The copy is left unpatched."""
        wanted = 2 * seconds + 5
        if self.passed.get(one.name, 0) >= wanted:
            return
        self.revert(diff)
        programs, _ = self.build(one)
        verdict, seconds, text = self.run(one, programs, self.AHEAD * wanted)
        if verdict in ("failed", "hangs"):
            raise SystemExit(f"{one.name} fails without a mistake, so its verdicts mean nothing:\n{text}")
        say(f"    {one.name} does not fail without a mistake: {seconds:.1f} s")
        self.passed[one.name] = self.AHEAD * wanted
        if verdict == "passed":
            self.passed[one.name], self.took[one.name] = float("inf"), seconds

    def is_longer(self, one, seconds, diff):
        """Whether the suite takes less than half of this time on the unpatched copy."""
        self.require_pass(one, seconds / 2, diff)
        return 2 * self.took.get(one.name, seconds) < seconds

    def judge(self, diff, limit, hunters):
        """Runs the suites on the patched copy, in order. Returns verdict (`caught`, `timeout`, `cut off` or `missed`), suite, CPU
        seconds of the runs and of the builds, and what the suite printed last. A timeout is twice the time of the unpatched copy.
        `missed` means that every suite ended; `cut off` names those that a limit ended, or did not let begin."""
        try:
            spent, built, cut = 0.0, 0.0, []
            for one in hunters:
                if limit - spent < 1:
                    cut.append(f"{one.name} (0 s)")
                    continue
                if not self.planted:
                    self.apply(diff)
                programs, seconds = self.build(one)
                built += seconds
                verdict, seconds, text = self.run(one, programs, min(one.most, limit - spent))
                spent += seconds
                if verdict == "failed":
                    self.require_pass(one, seconds, diff)
                    return "caught", one.name, spent, built, text
                if one.ends and (verdict == "hangs" or verdict == "limit" and self.is_longer(one, seconds, diff)):
                    return "timeout", one.name, spent, built, text
                if verdict in ("limit", "hangs"):
                    cut.append(f"{one.name} ({seconds:.0f} s)")
            if cut:
                return "cut off", ", ".join(cut), spent, built, ""
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
        text = out.read()
    seconds = used(before, resource.getrusage(resource.RUSAGE_CHILDREN))
    over = status in (-signal.SIGXCPU, -signal.SIGKILL)
    # A suite ends after its last test; one that failed before the limit has failed.
    told = re.search(r"^test \S+ \.\.\. FAILED$", text, re.M)
    verdict = "passed" if status == 0 else "failed" if told or not (hangs or over) else "hangs" if hangs else "limit"
    return verdict, seconds, text[-4000:] if not (told and over) else told[0]


def case_of(text):
    """The first case, message of a panic, or name of a test that failed; files are named from the root of the tree."""
    text = text.replace(f"{TREE}/", "")
    ways = r"case (\d+): (\S+)", r"panicked at ([^\n]*)\n([^\n]*)", r"^test (\S+) \.\.\. FAILED$"
    found = next(filter(None, (re.search(way, text, re.M) for way in ways)), None)
    return " ".join(found.groups())[:120] if found else "-"


def say(text):
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit("a library of canaries/run.py and mutants.py")
