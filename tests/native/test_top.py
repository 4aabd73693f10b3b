"""`ftld top` on a terminal, which tmux emulates: two instances, their load, and every key."""

import subprocess
import time

import pytest
from harness import Daemon, wait_for
from terminal import Terminal

COMMAND = "ftld top --delay 0.2"
WIDTH, HEIGHT = 100, 30


@pytest.fixture(scope="module")
def daemons(folder, to_kill):
    both = [Daemon(folder, "first", "--size", "64MiB"), Daemon(folder, "second", "--size", "64MiB", "--scheme", "pagemap")]
    to_kill.extend(both)
    return both


@pytest.fixture(scope="module")
def terminal(folder, daemons):
    terminal = Terminal(folder, daemons[0].environment, WIDTH, HEIGHT, COMMAND)
    yield terminal
    terminal.end()


def line(terminal, name):
    found = [line for line in terminal.text().splitlines() if line.startswith(name)]
    return found[0].split() if found else []


def test_both_instances_are_shown(terminal):
    """Both instances, and the first one below."""
    terminal.shows("2 instances", "first", "second", "lazyftl on mlc-4k", "no reads or writes")
    assert max(map(len, terminal.text().splitlines())) <= WIDTH


def test_load_is_shown(daemons, terminal, note):
    """Rates, latencies and causes of a load, on the instance that has it."""
    load = ["--name=load", "--ioengine=nbd", f"--uri={daemons[0].uri}", "--rw=randwrite", "--bs=4k", "--size=64M"]
    fio = subprocess.Popen(["fio", *load, "--time_based", "--runtime=60"], stdout=subprocess.DEVNULL)
    try:
        terminal.shows("host  ", "gc  ", "requests per second")
        wait_for(lambda: line(terminal, "first")[-1:] != ["-"] and int(line(terminal, "first")[7]) > 100, 20, "requests per second")
        note(" ".join(line(terminal, "first")))
        assert line(terminal, "second")[7] == "0", terminal.text()
    finally:
        fio.kill()
        fio.wait()


def test_keys(terminal):
    """The selection moves, the help opens and closes, the delay changes."""
    terminal.press("Down")
    terminal.shows("pagemap on mlc-4k")
    terminal.press("h")
    terminal.shows("select an instance")
    terminal.press("h")
    terminal.shows("pagemap on mlc-4k")
    terminal.press("+")
    terminal.shows("every 0.400 s")
    terminal.press("-", "-")
    terminal.shows("every 0.100 s")


def test_gone(daemons, terminal):
    """An instance that stops leaves the screen."""
    daemons[1].stop()
    terminal.shows("1 instance,", "lazyftl on mlc-4k")


def test_quit(terminal):
    """`q` ends it with exit code 0 and gives the terminal back."""
    terminal.press("q")
    terminal.shows("exit code 0")
    assert "lazyftl" not in terminal.text(), terminal.text()


def test_no_terminal(daemons):
    """Without a terminal it names the command that prints lines."""
    done = subprocess.run(["ftld", "top"], capture_output=True, text=True, env=daemons[0].environment)
    assert done.returncode == 2 and "no terminal" in done.stderr and "--watch" in done.stderr, done


def test_small_terminal(folder, daemons):
    """A terminal of 20 x 5 does no harm."""
    small = Terminal(folder, daemons[0].environment, 20, 5, COMMAND)
    try:
        wait_for(lambda: small.text().strip(), 20, "anything on the screen")
        time.sleep(1)
        small.press("q")
        small.shows("exit code 0")
    finally:
        small.end()
