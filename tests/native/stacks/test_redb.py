"""redb, an embedded database in Rust; transactions and checks are those of redb_commits.rs."""

import re

from device import run
from ledger import Clients


class Redb(Clients):
    """A process that writes to one database."""

    def create(self, folder):
        pass  # the client makes its file

    def commands(self, folder, seed):
        yield "redb_commits", "work", folder / "ledger.redb", self._notes, self.head(0)

    def look(self, folder):
        answer = run("redb_commits", "check", folder / "ledger.redb")
        head, looked_at = re.fullmatch(r"head=(\d+) looked_at=(\d+)\n", answer).groups()
        return {0: int(head)}, int(looked_at)


def test_redb(besiege):
    besiege("redb", lambda scratch, _: Redb(scratch), "48MiB")
