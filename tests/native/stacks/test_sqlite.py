"""SQLite with a write-ahead log and with each kind of rollback journal."""

import sqlite3
import sys
from pathlib import Path

from device import TIMEOUT
from ledger import DATABASE_FAILED, KEEP, CheckFailed, Clients, Notes, compare, rows

CLIENTS = 2
# Setting with which a COMMIT is durable when it returns. With DELETE, synchronous=FULL may roll the
# last commit back after a power cut, because nothing syncs the folder that the journal is deleted
# from.
SYNCHRONOUS = {"wal": "full", "truncate": "full", "persist": "full", "delete": "extra"}


def connect(folder, journal):
    connection = sqlite3.connect(folder / "ledger.db", timeout=TIMEOUT, isolation_level=None)
    connection.execute(f"PRAGMA journal_mode={journal}")
    connection.execute(f"PRAGMA synchronous={SYNCHRONOUS[journal]}")
    connection.execute("PRAGMA wal_autocheckpoint=200")
    return connection


class Sqlite(Clients):
    """Two processes that write to one database."""

    def __init__(self, scratch, journal):
        super().__init__(scratch)
        self._journal = journal

    def create(self, folder):
        connection = connect(folder, self._journal)
        connection.executescript("""
            BEGIN;
            CREATE TABLE heads (client INTEGER PRIMARY KEY, number INTEGER NOT NULL);
            CREATE TABLE ledger (client INTEGER, number INTEGER, position INTEGER, data BLOB,
                                 PRIMARY KEY (client, number, position));
            CREATE INDEX by_data ON ledger (data);
            COMMIT;
        """)
        connection.close()

    def commands(self, folder, seed):
        for client in range(CLIENTS):
            yield (sys.executable, __file__, folder, self._journal, self._notes, client,
                   self.head(client))

    def look(self, folder):
        connection = connect(folder, self._journal)
        verdict = connection.execute("PRAGMA integrity_check").fetchall()
        if verdict != [("ok",)]:
            raise CheckFailed(f"integrity_check: {verdict[:5]}")
        heads = dict(connection.execute("SELECT client, number FROM heads"))
        found = {}
        for client, number, position, data in connection.execute("SELECT * FROM ledger"):
            found.setdefault((client, number), {})[position] = data
        connection.close()
        return heads, compare(heads, found)


def work(folder, journal, notes, client, head):
    """A client: transactions one after the other, until SQLite reports an error."""
    try:
        connection = connect(folder, journal)
        while True:
            head += 1
            notes.begin(head)
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(
                "INSERT INTO ledger VALUES (?, ?, ?, ?)",
                [(client, head, position, data) for position, data in rows(client, head)],
            )
            connection.execute("INSERT OR REPLACE INTO heads VALUES (?, ?)", (client, head))
            connection.execute(
                "DELETE FROM ledger WHERE client = ? AND number = ?", (client, head - KEEP)
            )
            connection.execute("COMMIT")
            notes.done(head)
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
        raise  # no device makes them
    except sqlite3.DatabaseError as error:
        # SQLITE_CORRUPT among them: pages of a file in the page cache of a device that is gone may
        # differ from those written.
        print(error)
        sys.exit(DATABASE_FAILED)


def test_write_ahead_log(besiege):
    besiege("SQLite, WAL", lambda scratch, _: Sqlite(scratch, "wal"), "48MiB")


def test_rollback_journal(besiege):
    kinds = ["truncate", "persist", "delete"]
    besiege(
        "SQLite, rollback journal",
        lambda scratch, rng: Sqlite(scratch, rng.choice(kinds)), "48MiB",
    )


if __name__ == "__main__":
    where, journal_mode, path, number, last = sys.argv[1:]
    work(Path(where), journal_mode, Notes(path, int(number)), int(number), int(last))
