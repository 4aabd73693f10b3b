"""The checks themselves: each of them finds what it is there for."""

import shutil
import sys

import pytest

import campaign
from device import Device, Fault
from ledger import DATABASE_FAILED, KEEP, CheckFailed, Clients, CommitsLost, compare, rows
from test_sqlite import Sqlite


def ledger(heads):
    """All rows that follow from the heads."""
    return {
        (client, number): dict(rows(client, number))
        for client, head in heads.items()
        for number in range(max(1, head - KEEP + 1), head + 1)
    }


def test_a_half_transaction_is_found():
    heads = {0: KEEP + 9, 1: 3}
    assert compare(heads, ledger(heads)) == KEEP + 3
    position, data = rows(1, 2)[-1]
    for change in (
        lambda found: found[1, 2].pop(position),
        lambda found: found[1, 2].update({position: data[:-1] + b"?"}),
        lambda found: found.update({(1, 4): dict(rows(1, 4))}),
        lambda found: found.update({(0, 9): dict(rows(0, 9))}),
        lambda found: found.pop((0, 10)),
    ):
        found = ledger(heads)
        change(found)
        with pytest.raises(CheckFailed):
            compare(heads, found)


@pytest.mark.parametrize(
    "heads, outcome", [({0: 4}, CommitsLost), ({}, CommitsLost), ({0: 7}, CheckFailed), ({0: 6}, 1)]
)
def test_a_head_is_one_of_those_begun(tmp_path, heads, outcome):
    class Stack(Clients):
        def look(self, folder):
            return heads, 1

    stack = Stack(tmp_path)
    (tmp_path / "notes").write_text("begin 0 5\ndone 0 5\nbegin 0 6\n")
    assert (stack.noted(), stack.in_flight()) == (5, 1)
    if outcome == 1:
        assert stack.recover(tmp_path) == 1
        assert stack.head(0) == 6
    else:
        with pytest.raises(outcome):
            stack.recover(tmp_path)


def test_a_device_that_forgets_is_found(monkeypatch):
    """After a kill the image is the one from before the load: every commit noted since is lost."""

    class Forgetful(Device):
        def unmount(self):
            super().unmount()
            if not (old := self.image.with_suffix(".old")).exists():
                shutil.copy(self.image, old)

        def inject(self, fault, rng):
            super().inject(Fault.KILL, rng)
            shutil.copy(self.image.with_suffix(".old"), self.image)

        def has_struck(self, fault):
            return super().has_struck(Fault.KILL)

        def bury(self, fault):
            super().bury(Fault.KILL)

    monkeypatch.setattr(campaign, "Device", Forgetful)
    monkeypatch.setattr(campaign.Unflushed, "check", lambda *_: 0)
    tally = campaign.Tally("forgetful")
    siege = campaign.Campaign(lambda scratch, _: Sqlite(scratch, "wal"), tally, "1", "48MiB")
    with pytest.raises(CommitsLost):
        siege.run(1)
    assert tally.lost == tally.noted > 0


class Ending(Clients):
    """A client that prints a line, and ends with an exit code after so many seconds."""

    def __init__(self, scratch, code, seconds):
        super().__init__(scratch)
        self._text = f"import sys, time; print('ends'); time.sleep({seconds}); sys.exit({code})"

    def commands(self, folder, seed):
        yield sys.executable, "-c", self._text


@pytest.fixture
def ending(tmp_path):
    """ending(CODE, SECONDS): such a client, started."""
    stacks = []

    def ending(code, seconds=0):
        stacks.append(Ending(tmp_path, code, seconds))
        stacks[-1].start(tmp_path, 1)
        return stacks[-1]

    yield ending
    for stack in stacks:
        stack.close()


def test_an_error_without_a_fault_is_found(ending):
    with pytest.raises(CheckFailed, match="a client ended without a fault, before: never\nends"):
        campaign.wait_under_load("never", [ending(DATABASE_FAILED)], lambda: False)


def test_an_error_at_the_moment_of_the_fault_is_none(ending):
    """The client ends between two looks at it, and the fault is evident at the second."""
    stack = ending(DATABASE_FAILED, 0.2)
    campaign.wait_under_load("the fault strikes", [stack], stack.has_ended)
    stack.finish()


@pytest.mark.parametrize("code", [0, 1, -6])
def test_after_a_fault_a_client_ends_by_an_error_of_its_database(ending, code):
    text = code if code >= 0 else "__import__('os').abort()"
    with pytest.raises(CheckFailed, match=f"client: exit code {code}"):
        ending(text).finish()


def test_an_error_of_a_database_on_a_healthy_device_is_found(tmp_path):
    """The file of the database is none: SQLite says so, and no fault explains it."""
    (tmp_path / "ledger.db").write_bytes(b"?" * 8192)
    stack = Sqlite(tmp_path, "wal")
    stack.start(tmp_path, 1)
    with pytest.raises(CheckFailed, match="file is not a database"):
        campaign.wait_under_load("commits", [stack], lambda: stack.noted() > 0)
    stack.finish()
