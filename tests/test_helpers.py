"""The helpers of the suites, without their evidence: each has to fail.

`tests/lib.sh` runs under bash (native, systemd) and busybox sh (guest); both are tried. A helper
is called with an empty answer, a missing file, a dead process or a closed port, and has to print
FAIL; beside each stands a call with evidence that has to pass, so that the failure is not a typing
error. Programs of the machine are replaced by small scripts on the PATH. The helpers of the pytest
suites (`tests/native/harness.py`) are treated alike.
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).with_name("native")))
import harness  # noqa: E402

LIB = Path(__file__).with_name("lib.sh")
NATIVE = Path(__file__).with_name("native")
SHELLS = {"bash": ["bash"], "busybox": ["busybox", "sh"]}

KERNEL_LOG = "[    0.000000] Linux version 6.12\n[    1.0] I/O error, dev ublkb0, sector 0\n"


@pytest.fixture(params=SHELLS)
def shell(request, tmp_path):
    """Runs a script that has sourced lib.sh; returns its lines and whether it would pass."""
    programs = tmp_path / "bin"
    programs.mkdir()

    def run(script, timeout=60, **stubs):
        for name, body in stubs.items():
            (programs / name).write_text(f"#!/bin/sh\n{body}\n")
            (programs / name).chmod(0o755)
        path = tmp_path / "case.sh"
        # busybox prefers its own applets to the PATH.
        applets = [name for name in stubs if name in ("dmesg", "fstrim", "sync")]
        functions = "".join(f'{name}() {{ {programs}/{name} "$@"; }}\n' for name in applets)
        path.write_text(f". {LIB}\n{functions}ok begin\n{script}\nfinish\n")
        environment = dict(os.environ, SCRATCH=str(tmp_path), PATH=f"{programs}:{os.environ['PATH']}")
        done = subprocess.run(
            [*SHELLS[request.param], str(path)], env=environment, cwd=tmp_path, timeout=timeout,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, stdin=subprocess.DEVNULL,
        )
        log = tmp_path / "case.log"
        log.write_text(done.stdout)
        judged = subprocess.run([*SHELLS[request.param], "-c", f". {LIB}; log_passes {log}"], stdout=subprocess.DEVNULL)
        return done.stdout, done.returncode == 0 and judged.returncode == 0

    return run


# Calls without evidence, and the same calls with it.
PAIRS = {
    "an empty value is compared with an empty one": ('same x "$(cat missing)" "$(cat missing)"', "same x 1 1"),
    "a value that could not be read": ('same x "$(cat missing)" 0', "same x 0 0"),
    "two values that could not be read differ": ('differ x "$(cat missing)" ""', "differ x 1 2"),
    "values that shall differ do not": ("differ x 1 1", "differ x 1 2"),
    "no number is at least 0": ('at_least x "$(cat missing)" 0', "at_least x 0 0"),
    "a number is below its bound": ("at_least x 4 5", "at_least x 5 5"),
    "a bound that could not be read": ('at_least x 4 ""', "at_least x 4 4"),
    "a sum of what could not be read": ("same x $(( $(cat missing) - 1 )) 0", "same x $((1 - 1)) 0"),
    "a command that is not there": ("step x no-such-command", "step x true"),
    "a step without a command": ("step x", "step x true"),
    "a line that cannot be run": ("no-such-command; ok x", "true; ok x"),
    "a condition on what could not be read": ('[ "$(cat missing)" -gt 3 ] || ok x', "[ 2 -gt 3 ] || ok x"),
    "a condition that never holds": ("soon x 1 false", "soon x 1 true"),
    "a folder that cannot be read": ("soon x 1 gone missing/file", "soon x 1 gone ./missing"),
    "no path at all": ('soon x 1 gone ""', "soon x 1 gone ./missing"),
    "no process has ended": ('soon x 1 ended ""', "sleep 0 & wait $!; soon x 1 ended $!"),
    "a process that is not a number": ("soon x 1 ended none", "sleep 0 & wait $!; soon x 1 ended $!"),
    "a dead process is alive": ("sleep 0 & wait $!; step x alive $!", "alive $$ && ok x"),
    "a refusal of anything": ('refused x 1 "" false', 'refused x 1 because sh -c "echo because; exit 1"'),
    "a refusal for another reason": ("refused x 1 because sh -c 'exit 1'", "refused x 3 because sh -c 'echo because; exit 3'"),
    "a refusal by another code": ("refused x 1 because sh -c 'echo because; exit 2'", "refused x 2 because sh -c 'echo because; exit 2'"),
    "a refusal by a command that is not there": ("refused x 127 no-such no-such-command", "refused x 1 y sh -c 'echo y; exit 1'"),
    "a success is no refusal": ("refused x 0 fine echo fine", "refused x 1 y sh -c 'echo y; exit 1'"),
    "lines of a file that is not there": ('same x "$(count error cat missing)" 0', 'same x "$(count error echo fine)" 0'),
    "lines of an empty answer": ('same x "$(count error true)" 0', 'same x "$(count error echo fine)" 0'),
    "a pattern that is none": ('same x "$(count "(" echo fine)" 0', 'same x "$(count error echo fine)" 0'),
    "a dead fsync_markers": (
        "echo 'durable: x' > out; sleep 0 & wait $!; soon x 1 is_durable $! out",
        "echo 'durable: x' > out; soon x 1 is_durable $$ out",
    ),
    "fsync_markers without a durable operation": ("soon x 1 is_durable $$ missing", "echo 'durable: x' > out; soon x 1 is_durable $$ out"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_without_evidence(shell, name):
    without, with_it = PAIRS[name]
    output, passed = shell(with_it)
    assert passed, f"with evidence: {output}"
    output, passed = shell(without)
    assert not passed, output


# Pages of docs/ whose commands print something else than `text`, the output that they show, and
# pages that are right.
def page(command, text="", between="", column="A"):
    shown = f"{between}\n\n```text\n{text}\n```\n" if text else ""
    return f"# One\n\n**{column}:**\n\n```sh\n{command}\n```\n\n{shown}\n# Two\n\n```sh\nfalse\n```\n"


PAGES = {
    "a command that fails": (page("false"), page("true")),
    "one command of a block fails": (page("false\ntrue"), page("true\ntrue")),
    "no command for this column": (page("true", column="B"), page("true")),
    "another output": (page("echo a", "b"), page("echo a", "a")),
    "no output": (page("true", "a"), page("echo a >&2", "a")),
    "another number": (page("echo x 100 y", "x 140 y"), page("echo x 100 y", "x 120 y")),
    "another small number": (page("echo 1", "5"), page("echo 1", "4")),
    "a number with another unit": (page("echo 1 MiB", "1 GiB"), page("echo 1 MiB", "1 MiB")),
    "lines in another order": (page("echo a; echo b", "b\na"), page("echo a; echo c; echo b", "a\n...\nb")),
    "a line that begins otherwise": (page("echo a b c", "b c"), page("echo a b c", "a b")),
    "output of no block": (page("echo a", "a", between="Prose."), page("echo a", "a")),
}


@pytest.mark.parametrize("name", PAGES)
def test_pages(shell, tmp_path, name):
    file = tmp_path / "page.md"
    for text, passes in zip(PAGES[name], (False, True)):
        file.write_text(text)
        output, passed = shell(f'. {LIB.with_name("page.sh")}\npage_play x 1 {int("```text" in text)} {file} "# One" A')
        assert passed == passes, output


# Programs that answer nothing, or not at all; a call; the answer with which it passes.
STUBS = {
    "the kernel's log cannot be read": ('same x "$(io_errors nbd0)" 0', {"dmesg": "exit 1"}, {"dmesg": f"printf '{KERNEL_LOG}'"}),
    "the kernel's log is empty": ('same x "$(io_errors nbd0)" 0', {"dmesg": "true"}, {"dmesg": f"printf '{KERNEL_LOG}'"}),
    "the kernel's log has lost its beginning": (
        'same x "$(io_errors nbd0)" 0', {"dmesg": "echo later"}, {"dmesg": f"printf '{KERNEL_LOG}'"},
    ),
    "an I/O error of the device": (
        'same x "$(io_errors ublkb0)" 0', {"dmesg": f"printf '{KERNEL_LOG}'"}, {"dmesg": "echo Linux version"},
    ),
    "ftld names no scheme": (
        'SCHEMES=all; names=$(schemes) || give_up none; for s in $names; do ok "$s"; done',
        {"ftld": "true"}, {"ftld": """echo '"name": "lazyftl"'"""},
    ),
    "ftld ends before it is ready": ("serve --size 2MiB", {"ftld": "exit 1"}, {"ftld": "echo ready x; exec sleep 1"}),
    "the daemon ended by itself": (
        "serve; sleep 0.5; quit x", {"ftld": "echo ready x"}, {"ftld": "echo ready x; trap 'exit 0' TERM; sleep 3 & wait"},
    ),
    "the daemon's exit code": (
        "serve; quit x", {"ftld": "echo ready x; trap 'exit 3' TERM; sleep 3 & wait"},
        {"ftld": "echo ready x; trap 'exit 0' TERM; sleep 3 & wait"},
    ),
    "fio that wrote nothing": (
        "with_fio x 1", {"fio": "true"}, {"fio": "echo '  issued rwts: total=2048,2048,0,0'"},
    ),
    "fio that did not read everything back": (
        "with_fio x 1", {"fio": "echo '  issued rwts: total=1,2048,0,0'"}, {"fio": "echo '  issued rwts: total=2048,2048,0,0'"},
    ),
    "fstrim that gives nothing back": (
        ": > file; trims x . 8192 file",
        {"fstrim": "true", "sync": "true", "ftld": """echo '"mapped_pages": 9'"""},
        {"fstrim": "touch trimmed", "sync": "true", "ftld": """[ -e trimmed ] && echo '"mapped_pages": 7' || echo '"mapped_pages": 9'"""},
    ),
    "fstrim of a device that says nothing": (
        ": > file; trims x . 8192 file", {"fstrim": "true", "sync": "true", "ftld": "exit 1"},
        {"fstrim": "touch trimmed", "sync": "true", "ftld": """[ -e trimmed ] && echo '"mapped_pages": 7' || echo '"mapped_pages": 9'"""},
    ),
}


@pytest.mark.parametrize("name", STUBS)
def test_programs_that_say_nothing(shell, name, tmp_path):
    call, without, with_it = STUBS[name]
    quick = 'step() { shift; "$@" && ok step; }\nwait_for() { local left=3; shift; until "$@" > /dev/null 2>&1; do left=$((left - 1)); [ $left -gt 0 ] || return 1; sleep 0.2; done; }\n'
    output, passed = shell(quick + call, **with_it)
    assert passed, f"with evidence: {output}"
    for left in ("trimmed", "file"):
        (tmp_path / left).unlink(missing_ok=True)
    output, passed = shell(quick + call, **without)
    assert not passed, output


def test_a_kill_that_hits_nothing(shell):
    """No such device, and a process that is dead."""
    output, passed = shell("wait_for() { return 1; }; sleep 0 & wait $!; kill_9 $! nodev")
    assert not passed and "there is no process" in output and "the kill hit nothing" in output, output


def test_a_script_without_steps(shell, tmp_path):
    (tmp_path / "empty.sh").write_text(f". {LIB}\nfinish\n")
    done = subprocess.run(["bash", tmp_path / "empty.sh"], stdout=subprocess.PIPE, text=True)
    assert done.returncode == 1 and "no step passed" in done.stdout


@pytest.mark.parametrize("log", ["", "     note only\n", "ok   x\nFAIL y\n", "ok   x\ntests/x.sh: line 3: foo: command not found\n", None])
def test_logs_that_do_not_pass(shell, tmp_path, log):
    if log is not None:
        (tmp_path / "log").write_text(log)
    output, passed = shell("step x log_passes log; log_passes log && ok passes || bad no")
    assert not passed, output


def test_no_daemon_behind_nbdfuse(tmp_path):
    """nbdfuse.sh: a socket that nobody listens on."""
    with socket.socket(socket.AF_UNIX) as closed:
        closed.bind(str(tmp_path / "nbd.sock"))
    script = f"SCRATCH={tmp_path}; . {LIB}; . {NATIVE}/nbdfuse.sh; trap - EXIT; ok begin; attach; finish"
    done = subprocess.run(["bash", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert done.returncode == 1 and "FAIL" in done.stdout, done.stdout


@pytest.fixture
def closed_port():
    return f"http://127.0.0.1:{harness.free_port()}"


@pytest.fixture
def server():
    """Returns a function that starts a server with a fixed answer to every request, and returns its URL."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(text):
        def serve():
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.recv(65536)
                    client.sendall(text.encode())

        threading.Thread(target=serve, daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield answer
    listener.close()


def ok_answer(body):
    return f"HTTP/1.0 200 OK\r\n\r\n{body}"


def bare(kind, **fields):
    """An object of the harness without its process."""
    made = kind.__new__(kind)
    made.__dict__.update(fields)
    return made


def test_a_closed_port(closed_port):
    daemon, prometheus = bare(harness.Daemon, url=closed_port), bare(harness.Prometheus, url=closed_port)
    for call in (lambda: harness.page(closed_port), lambda: daemon.status("state"), lambda: prometheus.query("ALERTS")):
        with pytest.raises(OSError):
            call()
    with pytest.raises(AssertionError, match="not within"):
        harness.wait_for(lambda: daemon.status("state") == "serving", 0.5, "it serves")


@pytest.mark.parametrize("text", ["", "HTTP/1.0 200 OK\r\n\r\n", "HTTP/1.0 503 No\r\n\r\n{}", ok_answer("{"), ok_answer("{}")])
def test_an_empty_answer(server, text):
    url = server(text)
    daemon, prometheus = bare(harness.Daemon, url=url), bare(harness.Prometheus, url=url)
    for call in (lambda: daemon.status("state"), lambda: prometheus.query("ALERTS")):
        with pytest.raises((OSError, AssertionError, ValueError, KeyError)):
            call()


def test_an_answer(server):
    url = server(ok_answer('{"state": {"now": 3}, "status": "success", "data": {"result": []}}'))
    assert bare(harness.Daemon, url=url).status("state.now") == 3
    assert bare(harness.Prometheus, url=url).query("ALERTS") == []
    with pytest.raises(AssertionError, match="0 answers instead of one"):
        bare(harness.Prometheus, url=url).value("up")


def test_a_program_that_fails():
    for command in (["false"], ["sh", "-c", "echo fine; exit 3"]):
        with pytest.raises(AssertionError, match="exit code"):
            harness.run(*command)
    with pytest.raises(OSError):
        harness.run("no-such-program")


def test_no_scheme(monkeypatch):
    monkeypatch.setenv("SCHEMES", "")
    with pytest.raises(AssertionError, match="no scheme"):
        harness.schemes()


def test_a_dead_process(tmp_path, monkeypatch):
    """A daemon without a ready line, one that ended by itself, a load that ended by itself."""
    ftld = tmp_path / "ftld"
    ftld.write_text("#!/bin/sh\nexit 1\n")
    ftld.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(AssertionError, match="exit code 1"):
        harness.Daemon(tmp_path, "dead")
    ftld.write_text("#!/bin/sh\necho ready x metrics=http://127.0.0.1:1/metrics\n")
    daemon = harness.Daemon(tmp_path, "dead")
    daemon.process.wait()
    with pytest.raises(AssertionError, match="ended before SIGTERM"):
        daemon.stop()
    with pytest.raises((OSError, AssertionError)):
        daemon.cpu_ms()
    ended = subprocess.Popen(["true"])
    ended.wait()
    (tmp_path / "log").write_text("")
    with pytest.raises(AssertionError, match="ended by itself"):
        bare(harness.Load, process=ended, log=tmp_path / "log").stop()


CASES = {
    "import pytest\n@pytest.mark.skip\ndef test_left_out():\n    pass\n": "FAIL case: test_left_out",
    "def test_wrong():\n    assert 0\n": "FAIL case: test_wrong",
    "import pytest\n@pytest.fixture\ndef broken():\n    assert 0\ndef test_x(broken):\n    pass\n": "FAIL case: test_x (before it)",
    "": "no tests ran",
}


@pytest.mark.parametrize("text", CASES)
def test_a_suite_that_does_not_pass(tmp_path, text):
    """A skipped test, a failed one, a broken fixture and an empty suite."""
    for name in ("conftest.py", "harness.py"):
        shutil.copy(NATIVE / name, tmp_path)
    (tmp_path / "test_case.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_case.py"], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    assert done.returncode != 0 and CASES[text] in done.stdout, done.stdout


CANARIES = sorted((Path(__file__).parent / "canaries").glob("*.patch"))


@pytest.mark.parametrize("patch", CANARIES, ids=lambda patch: patch.stem)
def test_a_canary_applies(patch):
    root = Path(__file__).parent.parent
    done = subprocess.run(["git", "apply", "--check", patch], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, f"roll {patch.name} anew: {done.stderr}"


def test_there_are_canaries():
    assert len(CANARIES) >= 40


HERE = Path(__file__).parent
sys.path += [str(HERE), str(HERE / "canaries")]
import mistakes  # noqa: E402
import run as canaries  # noqa: E402

NAMED = {path.stem: head["test"] for path in CANARIES for head in [canaries.read(path)[0]] if "test" in head}


def test_there_are_named_tests():
    """The canaries from which `make test` draws."""
    assert len(NAMED) >= 10


@pytest.mark.parametrize("name", NAMED)
def test_a_named_test_exists(name):
    """Where `cargo test` would find it: renaming it must not wait for the draw of its canary."""
    one = mistakes.named(NAMED[name])
    words, test = one.select.split(), one.args[-1]
    crate = {"ftld-core": "ftl-core", "ftld-tests": "tests"}.get(words[1], words[1])
    folder = HERE.parent / crate / ("tests" if "--test" in words else "src")
    files = [path for path in folder.rglob("*.rs") if "--test" not in words or words[-1] in path.relative_to(folder).parts[0]]
    module, function = test.split("::")[-2:] if "::" in test else ("", test)
    files = [path for path in files if "--test" not in words or module in ("", path.stem, path.parent.name)]
    assert any(f"fn {function}()" in path.read_text() for path in files), f"{NAMED[name]}: not in {folder}"


class Tree(mistakes.Bench):
    """A bench without a copy: the suite is a script, before and after the patch."""

    def __init__(self, folder, clean, patched):
        self.level, self.passed, self.took, self.planted, self.folder = 0, {}, {}, False, folder
        self.script, self.files = {False: clean, True: patched}, {}

    def apply(self, diff):
        self.planted = True

    def revert(self, diff):
        self.planted = False

    def build(self, one):
        return [(self.folder / self.planted_name(), self.folder)], 0.0

    def planted_name(self):
        path = self.folder / f"suite-{self.planted}"
        path.write_text(f"#!/bin/sh\n{self.script[self.planted]}\n")
        path.chmod(0o755)
        return path.name


PASSES = "echo 'test result: ok. 1 passed'"
BUSY = "while :; do :; done"
# A named test without and with the mistake; what is said of the mistake.
VERDICTS = {
    (PASSES, "exit 1"): "caught by hunt x",
    (PASSES, PASSES): "MISSED",
    (PASSES, f"echo 'test a::b ... FAILED'; {BUSY}"): "caught by hunt x",
    (PASSES, BUSY): "CUT OFF by a limit of CPU time: hunt x (1 s)",
    (BUSY, "exit 1"): "cut off by the limit of 1 s of CPU time, without the mistake",
    ("exit 1", "exit 1"): "fails without the mistake",
    ("echo 'test result: ok. 0 passed'", "exit 1"): "there is no test",
}


@pytest.mark.parametrize("scripts", VERDICTS)
def test_verdict_of_a_named_test(scripts, tmp_path, monkeypatch):
    monkeypatch.setattr(mistakes, "WORK", tmp_path)
    monkeypatch.setattr(mistakes, "NAMED_LIMIT", 1)
    bench = Tree(tmp_path, *scripts)
    tests = canaries.passing(bench, {"x": {"test": "hunt x"}})
    row = canaries.judge_named(bench, "", *tests["x"])
    assert VERDICTS[scripts] in canaries.sentence(row)
    assert (row["verdict"] in canaries.CAUGHT) == ("caught" in VERDICTS[scripts])


def suite(name, **fields):
    return mistakes.hunter(name, "", {"daemon"}, **fields)


@pytest.mark.parametrize("limit, said", [(9, "short (1 s)"), (0, "short (0 s)")])
def test_a_suite_that_a_limit_ends_is_not_missed(tmp_path, monkeypatch, limit, said):
    """Also one for which no time was left."""
    monkeypatch.setattr(mistakes, "WORK", tmp_path)
    verdict, suites, *_ = Tree(tmp_path, PASSES, BUSY).judge("", limit, [suite("short", most=1, ends=False)])
    assert (verdict, suites) == ("cut off", said)
    assert verdict not in canaries.CAUGHT and "CUT OFF" in canaries.sentence({"verdict": verdict, "suite": suites, "s": 1, "build": 0})


def test_suites_that_end_without_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(mistakes, "WORK", tmp_path)
    assert Tree(tmp_path, PASSES, PASSES).judge("", 9, [suite("a"), suite("b")])[0] == "missed"


def test_a_line_that_names_no_suite():
    with pytest.raises(mistakes.Failed, match="is none of"):
        mistakes.named("nowhere x")


DEPS = HERE / "deps.sh"


@pytest.fixture
def machine(tmp_path):
    """Runs `deps.sh run` on a machine without dpkg and apt-get, with these programs alone; LIBCLANG_PATH is a folder of its own."""
    programs, libraries = tmp_path / "bin", tmp_path / "lib"
    programs.mkdir()
    libraries.mkdir()
    for name in "bash awk head id mktemp paste rm sed sort tr".split():
        (programs / name).symlink_to(shutil.which(name))

    def run(cc="exit 0", libclang="libclang-17.so.1", cargo="echo cargo 1.95.0 of a day"):
        for name, body in {"cc": cc, "cargo": cargo}.items():
            (programs / name).unlink(missing_ok=True)
            if body:
                (programs / name).write_text(f"#!{programs}/bash\n{body}\n")
                (programs / name).chmod(0o755)
        if libclang:
            (libraries / libclang).touch()
        environment = {"PATH": str(programs), "HOME": str(tmp_path), "LIBCLANG_PATH": str(libraries)}
        done = subprocess.run([programs / "bash", DEPS, "run"], env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    return run


def test_a_machine_that_can_build(machine):
    assert machine() == (0, "")


LACKING = {
    "no compiler": (dict(cc=None), "not found: cc"),
    "a compiler without the C library": (dict(cc="exit 1"), "not found: cc"),
    "no libclang": (dict(libclang=None), "not found: libclang"),
    "libclang-cpp alone": (dict(libclang="libclang-cpp.so.14"), "not found: libclang"),
    "neither": (dict(cc=None, libclang=None), "not found: cc libclang"),
    "no cargo": (dict(cargo=None), "there is no cargo"),
    "an old cargo": (dict(cargo="echo cargo 1.87.0"), "cargo 1.87.0 is older"),
}


@pytest.mark.parametrize("name", LACKING)
def test_a_machine_that_cannot_build(machine, name):
    """It names what is missing and changes nothing."""
    lacking, said = LACKING[name]
    code, text = machine(**lacking)
    assert code == 1 and said in text, text
    if said.startswith("not found"):
        assert "dnf install" in text and "--no-default-features" in text, text


def test_cargo_beside_the_path(machine, tmp_path):
    (tmp_path / ".cargo/bin").mkdir(parents=True)
    (tmp_path / ".cargo/bin/cargo").symlink_to("/bin/true")
    code, text = machine(cargo=None)
    assert code == 1 and ". ~/.cargo/env" in text, text


# Messages of other programs.
OF_OTHERS = (
    "server requires TLS encryption first", "A TLS fatal alert has been received", "recovery complete", "a line of the administrator",
    "Aborting journal", "blocked for more than", "ordering cycle", "Watchdog timeout", "Kernel panic - not", "Fatal exception",
)


def messages():
    """String literals of the programs and scripts that the suites start, without those of their tests; whitespace is one blank."""
    for folder, endings in {"daemon": "rs", "ftl-core": "rs", "nand-model": "rs", "tests/src": "rs", "deploy": "sh", "docs/examples": "py"}.items():
        for path in (HERE.parent / folder).rglob(f"*.{endings}"):
            if not {"tests", "tests.rs", "target"}.intersection(path.relative_to(HERE.parent / folder).parts):
                text = re.sub(r"^\s*//.*$", "", path.read_text(), flags=re.M) if endings == "rs" else path.read_text()
                for literal in re.findall(r'"((?:[^"\\]|\\.)*)"', text, re.S):
                    yield re.sub(r"\\\n\s*|\s+", lambda gap: "" if gap[0][0] == "\\" else " ", literal)


def compared(path):
    """What a script expects a program to say: line and text, without words that hold a value or a pattern."""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for text in re.findall(r"""(?:refused "[^"]*" \d+|status_says|grep -[acoqwF]+) (?:-- )?("(?:[^"\\]|\\.)*"|'[^']*')""", line):
            for part in re.split(r"\S*[^A-Za-z ,;-]\S*", text[1:-1]):
                if len(re.findall(r"[A-Za-z]{2,}", part)) > 1:
                    yield number, part.strip(" ,;-")


def test_scripts_expect_messages_that_there_are():
    """A changed message breaks scripts that run in a machine of their own, which `make check` does not start."""
    known = "\n".join(messages())
    scripts = [path for folder in ("guest", "native", "systemd") for path in (HERE / folder).glob("*.sh")]
    found = [(path, number, part) for path in scripts for number, part in compared(path) if part not in OF_OTHERS]
    assert len(found) >= 20
    stale = [f"{path.relative_to(HERE.parent)}:{number}: no program says {part!r}" for path, number, part in found if part not in known]
    assert not stale, "\n".join(stale)


def test_a_message_that_nobody_says(tmp_path):
    script = tmp_path / "x.sh"
    script.write_text("refused \"x\" 3 \"is served by process $PID\" ftld\nstep x sh -c 'tail log | grep -w \"all is well\"'\n")
    assert list(compared(script)) == [(1, "is served by process"), (2, "all is well")]


def test_no_reader_ends_before_its_writer():
    """Under pipefail, a writer whose reader has ended (grep -q, head, exit of awk) fails by SIGPIPE, now and then."""
    paths = [path for folder in ("deploy", "tests") for path in (HERE.parent / folder).rglob("*.sh")]
    texts = {str(path.relative_to(HERE.parent)): path.read_text() for path in paths}
    strict = {name: text for name, text in texts.items() if re.search(r"^set -.*pipefail", text, re.M) or name == "tests/lib.sh"}
    assert len(strict) >= 25
    early = re.compile(r"[^|]\|\s*(?:grep +-\w*[qm]|head\b|awk .*\bexit\b).*")
    assert [f"{name}: {found.group()}" for name, text in strict.items() for found in early.finditer(text)] == []
