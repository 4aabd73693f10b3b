"""What clients commit, what they note about it, and what has to be there afterwards.

Transaction `number` of a client inserts rows that follow from both, makes the client's *head*
`number`, and deletes the rows of transaction `number - KEEP`. So the head alone determines
every row that the client must have, and a partial transaction is found.

A client notes `begin` before a transaction, and `done` after COMMIT returned, in a file outside
the device.
"""

import os
import random
import re
import subprocess

from device import TIMEOUT

KEEP = 500
# Exit code of a client whose database reported an error. Whether a fault explains it is known to
# the campaign, not to the client: on a device that is gone ext4 answers anything, ENOSPC included,
# and may even take a write that never leaves the page cache.
DATABASE_FAILED = 3


class CheckFailed(Exception):
    """A stack's own check, or the comparison with the notes, found something wrong."""


class CommitsLost(CheckFailed):
    """Commits were noted and are not there."""

    def __init__(self, count, why):
        super().__init__(f"{count} commits lost: {why}")
        self.count = count


def rows(client, number):
    """Rows of a transaction: (position, data). Now and then one is larger than a page."""
    rng = random.Random(f"{client}/{number}")
    sizes = [rng.randrange(1, 400) for _ in range(rng.randrange(1, 5))]
    if rng.random() < 0.03:
        sizes[0] = rng.randrange(4096, 65536)
    return [(position, rng.randbytes(size)) for position, size in enumerate(sizes)]


def compare(heads, found):
    """Compares all rows, as {(client, number): {position: data}}, with those that follow from the heads.

    Returns the number of compared transactions.
    """
    wanted = {
        (client, number)
        for client, head in heads.items()
        for number in range(max(1, head - KEEP + 1), head + 1)
    }
    if found.keys() != wanted:
        missing, foreign = sorted(wanted - found.keys()), sorted(found.keys() - wanted)
        raise CheckFailed(f"transactions missing: {missing[:5]}; not to be there: {foreign[:5]}")
    for (client, number), data in found.items():
        if data != dict(rows(client, number)):
            raise CheckFailed(f"transaction {number} of client {client} is not whole")
    return len(found)


class Notes:
    """Where a client notes its transactions."""

    def __init__(self, path, client):
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        self._client = client

    def begin(self, number):
        os.write(self._file, f"begin {self._client} {number}\n".encode())

    def done(self, number):
        os.write(self._file, f"done {self._client} {number}\n".encode())


class Clients:
    """Base of stacks whose clients keep a ledger.

    A stack defines how its clients start (`commands`) and which rows exist after a restart (`look`).
    """

    def __init__(self, scratch):
        self.scratch = scratch
        self._notes = scratch / "notes"
        self._output = scratch / "output"
        self._heads = {}
        self._processes = []

    def commands(self, folder, seed):
        """Commands that start the clients; each goes on from `self.head(client)`."""
        raise NotImplementedError

    def look(self, folder):
        """Opens and checks everything; returns the heads and how many commits were compared."""
        raise NotImplementedError

    def head(self, client):
        return self._heads.get(client, 0)

    def start(self, folder, seed):
        self._notes.unlink(missing_ok=True)
        with self._output.open("w") as output:
            for command in self.commands(folder, seed):
                self._processes.append(subprocess.Popen(
                    [str(word) for word in command], stdout=output, stderr=output,
                ))

    def has_ended(self):
        """Whether a client has ended."""
        return any(process.poll() is not None for process in self._processes)

    def output(self):
        """The end of what the clients printed since the start."""
        return self._output.read_text()[-2000:]

    def finish(self):
        """Waits for the clients; each ends with an error of its database when the device fails."""
        processes, self._processes = self._processes, []
        try:
            for process in processes:
                code = process.wait(TIMEOUT)
                if code != DATABASE_FAILED:
                    raise CheckFailed(f"client: exit code {code}\n{self.output()}")
        finally:
            for process in processes:
                process.kill()
                process.wait()

    def close(self):
        """Takes the clients away, whatever they do."""
        for process in self._processes:
            process.kill()
            process.wait()

    def _read(self):
        """Last transactions that were begun and done, by client."""
        last = {"begin": {}, "done": {}}
        text = self._notes.read_text() if self._notes.exists() else ""
        for word, client, number in re.findall(r"^(begin|done) (\d+) (\d+)\n", text, re.MULTILINE):
            last[word][int(client)] = int(number)
        return last["begin"], last["done"]

    def noted(self):
        """Commits noted since the start."""
        _, done = self._read()
        return sum(number - self.head(client) for client, number in done.items())

    def in_flight(self):
        """Transactions that began and have not returned."""
        begun, done = self._read()
        return sum(1 for client, number in begun.items() if number != done.get(client))

    def recover(self, folder):
        """Checks everything after a restart; returns how many commits were compared."""
        heads, looked_at = self.look(folder)
        begun, done = self._read()
        lost = {}
        for client in {*self._heads, *begun, *heads}:
            head, least = heads.get(client, 0), done.get(client, self.head(client))
            most = begun.get(client, least)
            if head > most:
                raise CheckFailed(f"client {client} has head {head}, and began {most} last")
            if head < least:
                lost[client] = (head, least)
        if lost:
            raise CommitsLost(
                sum(least - head for head, least in lost.values()),
                ", ".join(f"client {c} noted {n} and has {h}" for c, (h, n) in lost.items()),
            )
        self._heads = heads
        self._notes.unlink(missing_ok=True)
        return looked_at
