"""PostgreSQL under pgbench, with clients that note their commits."""

import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

from device import TIMEOUT, DeviceError, run, wait_for
from ledger import DATABASE_FAILED, KEEP, CheckFailed, Clients, Notes, compare, rows

CLIENTS = 2
# Replaces the default only where the disk is small; durability stays as PostgreSQL has it.
SETTINGS = """
listen_addresses = ''
unix_socket_directories = '{sockets}'
shared_buffers = 8MB
min_wal_size = 2MB
max_wal_size = 4MB
checkpoint_timeout = 30s
autovacuum_naptime = 2s
"""


def programs():
    """Folder of Debian's PostgreSQL."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not found:
        raise DeviceError("there is no PostgreSQL: tests/deps.sh long")
    return found[-1].parent


class Postgres(Clients):
    """A server, pgbench, and two clients with a ledger."""

    def __init__(self, scratch):
        super().__init__(scratch)
        self._bin = programs()
        self._server = self._pgbench = None
        user = pwd.getpwnam("postgres")
        self._user = dict(user=user.pw_uid, group=user.pw_gid, extra_groups=[], cwd="/")
        self._ids = (user.pw_uid, user.pw_gid)
        self._sockets = scratch / "sockets"
        self._sockets.mkdir()
        os.chown(self._sockets, *self._ids)
        self._log = scratch / "postgres.log"
        self._env = dict(
            os.environ, PGHOST=str(self._sockets), PGUSER="postgres", PGDATABASE="postgres"
        )

    def _run(self, program, *words):
        return run(self._bin / program, *words, env=self._env, **self._user)

    def create(self, folder):
        data = folder / "data"
        data.mkdir(mode=0o700)
        os.chown(data, *self._ids)
        self._run("initdb", "-D", data, "-A", "trust", "--data-checksums", "--wal-segsize=1")
        with (data / "postgresql.conf").open("a") as file:
            file.write(SETTINGS.format(sockets=self._sockets))
        self._serve(folder)
        self._run("pgbench", "--initialize", "--quiet", "--scale=1")
        self._sql("CREATE EXTENSION amcheck")
        self._sql("CREATE TABLE heads (client int PRIMARY KEY, number int NOT NULL)")
        self._sql("CREATE TABLE ledger (client int, number int, position int, data bytea,"
                  " PRIMARY KEY (client, number, position))")
        self._sql("CREATE INDEX ON ledger (md5(data))")
        self._stop()

    def _serve(self, folder):
        """Starts the server, and waits until it has recovered."""
        with self._log.open("w") as log:
            self._server = subprocess.Popen(
                [self._bin / "postgres", "-D", folder / "data"], env=self._env,
                stdout=log, stderr=log, **self._user,
            )
        wait_for("PostgreSQL has recovered", self._is_ready)

    def _is_ready(self):
        if self._server.poll() is not None:
            raise CheckFailed(f"PostgreSQL does not start\n{self._log.read_text()[-3000:]}")
        try:
            self._run("pg_isready", "-q")
        except DeviceError:
            return False
        return True

    def _stop(self):
        self._server.terminate()  # "smart": waits for sessions, of which there are none
        if self._server.wait(TIMEOUT) != 0:
            raise CheckFailed(f"PostgreSQL does not stop\n{self._log.read_text()[-3000:]}")
        self._server = None

    def _sql(self, text):
        return self._run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", text).strip()

    def commands(self, folder, seed):
        for client in range(CLIENTS):
            yield sys.executable, __file__, self._sockets, self._notes, client, self.head(client)

    def start(self, folder, seed):
        self._serve(folder)
        self._pgbench = subprocess.Popen(
            [self._bin / "pgbench", "--client=2", "--time=600", "--no-vacuum",
             f"--random-seed={seed}"],
            env=self._env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self._user,
        )
        super().start(folder, seed)

    def output(self):
        return super().output() + self._log.read_text()[-2000:]

    def has_ended(self):
        return super().has_ended() or self._server.poll() is not None

    def finish(self):
        # The server has lost its disk: it panics, recovers in vain, and ends, or it is made to.
        try:
            super().finish()
        finally:
            self._kill()

    def _kill(self):
        if self._pgbench:
            self._pgbench.kill()
            self._pgbench.wait()
        if self._server:
            self._server.send_signal(signal.SIGQUIT)  # ends its processes too
            try:
                self._server.wait(20)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
        self._server = self._pgbench = None

    def close(self):
        super().close()
        self._kill()

    def look(self, folder):
        self._serve(folder)
        self._run("pg_amcheck", "--heapallindexed", "--parent-check", "postgres")
        sums = self._sql("""
            SELECT (SELECT sum(abalance) FROM pgbench_accounts),
                   (SELECT sum(tbalance) FROM pgbench_tellers),
                   (SELECT sum(bbalance) FROM pgbench_branches),
                   (SELECT coalesce(sum(delta), 0) FROM pgbench_history)
        """).split("|")
        if len(set(sums)) != 1:
            raise CheckFailed(f"pgbench: accounts, tellers, branches, history add up to {sums}")
        heads, found = {}, {}
        for line in self._sql("SELECT client, number FROM heads").split():
            client, number = map(int, line.split("|"))
            heads[client] = number
        query = "SELECT client, number, position, encode(data, 'hex') FROM ledger"
        for line in self._sql(query).split():
            client, number, position, data = line.split("|")
            entry = found.setdefault((int(client), int(number)), {})
            entry[int(position)] = bytes.fromhex(data)
        self._stop()
        return heads, compare(heads, found)


def work(sockets, notes, client, head):
    """A client: transactions one after the other, until the server reports an error or ends."""
    import psycopg2

    try:
        connection = psycopg2.connect(host=sockets, user="postgres", dbname="postgres")
        cursor = connection.cursor()
        while True:
            head += 1
            notes.begin(head)
            for position, data in rows(client, head):
                cursor.execute(
                    "INSERT INTO ledger VALUES (%s, %s, %s, %s)", (client, head, position, data)
                )
            cursor.execute(
                "INSERT INTO heads VALUES (%s, %s)"
                " ON CONFLICT (client) DO UPDATE SET number = excluded.number",
                (client, head),
            )
            cursor.execute(
                "DELETE FROM ledger WHERE client = %s AND number = %s", (client, head - KEEP)
            )
            connection.commit()
            notes.done(head)
    except (psycopg2.OperationalError, psycopg2.InternalError) as error:
        print(error)
        sys.exit(DATABASE_FAILED)


def test_postgres(besiege):
    besiege("PostgreSQL", lambda scratch, _: Postgres(scratch), "160MiB")


if __name__ == "__main__":
    server, path, number, last = sys.argv[1:]
    work(server, Notes(path, int(number)), int(number), int(last))
