"""The checks themselves: each of them finds what it is there for."""

import shutil

import pytest

import campaign
from device import Device, Fault
from ledger import KEEP, CheckFailed, Clients, CommitsLost, compare, rows
from test_sqlite import Sqlite


def ledger(heads):
    """All rows that the heads tell."""
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

        def strike(self, fault, rng):
            super().strike(Fault.KILL, rng)
            shutil.copy(self.image.with_suffix(".old"), self.image)

    monkeypatch.setattr(campaign, "Device", Forgetful)
    monkeypatch.setattr(campaign.Unflushed, "check", lambda *_: 0)
    tally = campaign.Tally("forgetful")
    siege = campaign.Campaign(lambda scratch, _: Sqlite(scratch, "wal"), tally, "1", "48MiB")
    with pytest.raises(CommitsLost):
        siege.run(1)
    assert tally.lost == tally.noted > 0
