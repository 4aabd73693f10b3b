"""Options of the stacks, and the summary line that each of them prints.

FAULTS (3)   SEED (1; new: a fresh one, printed)   STACK_SCHEMES (all)
"""

import os
import random
import signal

import pytest

from campaign import Campaign, Tally

SEED = os.environ.get("SEED") or "1"
if SEED == "new":
    SEED = str(random.SystemRandom().randrange(1 << 32))
FAULTS = int(os.environ.get("FAULTS") or 3)
lines = []


@pytest.fixture
def besiege(request):
    """besiege(NAME, make_stack, SIZE): a whole campaign, and its line in the summary."""

    def besiege(name, make_stack, size):
        tally = Tally(name)
        try:
            Campaign(make_stack, tally, SEED, size).run(FAULTS)
        except BaseException:
            lines.append(f"FAIL stacks: {tally}")
            raise
        lines.append(f"ok   stacks: {tally}")

    return besiege


def pytest_configure():
    # A campaign that is terminated takes its mounts away, as one that is interrupted does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_report_teststatus(report):
    # Our own lines say what passed.
    if report.passed and report.when == "call":
        return "passed", "", ""
    return None


def pytest_terminal_summary(terminalreporter):
    for line in [f"     stacks: SEED={SEED} FAULTS={FAULTS}", *lines]:
        terminalreporter.write_line(line)
