"""Prints the steps of a pytest suite as the shell suites do: `ok` or `FAIL`, suite and step.

A step is a test; its name is the first line of its docstring. A skipped test is a failure."""


import pytest

PARTS = {"setup": " (before it)", "teardown": " (after it)", "call": ""}


def pytest_configure(config):
    config.option.tbstyle = "short"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    line = (item.function.__doc__ or item.name).strip().splitlines()[0].rstrip(".")
    callspec = getattr(item, "callspec", None)
    report.step = f"{line} [{callspec.id}]" if callspec else line
    report.suite = item.path.stem.removeprefix("test_")


def pytest_report_teststatus(report, config):
    """No dots: the lines of `pytest_runtest_logreport` say it."""
    category = "failed" if report.failed or report.skipped else "passed" if report.when == "call" else ""
    return category, "", ""


class Lines:
    def __init__(self, config):
        self.terminal = config.pluginmanager.get_plugin("terminalreporter")

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report):
        if report.passed and report.when != "call":
            return
        word = "ok  " if report.passed else "FAIL"
        notes = "".join(f": {text}" for name, text in report.user_properties if name == "note")
        self.terminal.write_line(f"{word} {report.suite}: {report.step}{PARTS[report.when]}{notes} ({report.duration:.0f} s)")


def pytest_sessionstart(session):
    session.config.pluginmanager.register(Lines(session.config))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    """A skipped test is a failure: nothing is left out silently."""
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == 0 and terminal.stats.get("failed"):
        session.exitstatus = 1


@pytest.fixture
def note(record_property):
    """Adds a figure to the step's line."""
    return lambda text: record_property("note", text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ftld")


@pytest.fixture(scope="module")
def to_kill():
    """Kills the processes that still run at the end of a module, also after a failure."""
    started = []
    yield started
    for process in reversed(started):
        process.kill()
