"""kill -9 at random moments under load: everything acknowledged has to be there after the restart.

usage: kill_nbd.py FTLD SCHEME FOLDER KILLS SEED [OPTION...]
The options are those of the daemon, such as --write-cache 1MiB or --shards 2.
Each of CONNECTIONS (1) connections has a part of the device and one request under way at a time, so after a kill at most that
one may be old or new; all others are exact. A single connection never flushes; several send FLUSH and FUA, too. Prints one
line; exits 1 and says which page on the first difference.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import nbd

PAGE = 4096
PAGES = 16384
program, scheme, folder, kills, seed = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])
options = sys.argv[6:]
connections = int(os.environ.get("CONNECTIONS", "1"))
rng = random.Random(seed)
socket = os.path.join(folder, "kill.sock")
uri = "nbd+unix:///?socket=" + socket
environment = dict(os.environ, FTLD_STATE_DIR=folder, FTLD_RUNTIME_DIR=folder, FTLD_LOG="warn")


def serve():
    size = ["--scheme", scheme, "--size", str(PAGE * PAGES)]
    command = [program, "--metrics", "off", *size, *options, uri]
    daemon = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    ready = daemon.stdout.readline()
    if not ready.startswith("ready "):
        sys.exit(f"FAIL {scheme}: the daemon did not become ready (seed {seed})")
    return daemon


def connect():
    client = nbd.NBD()
    client.connect_uri(uri)
    return client


def content(page, value):
    return b"" if value == 0 else (page.to_bytes(8, "little") + value.to_bytes(8, "little")) * (PAGE // 16)


def image(page, value):
    return content(page, value) or bytes(PAGE)


def request(client, rng, first, count, value):
    """Writes, or makes zeros of, a run of pages; value 0 is zeros."""
    flags = nbd.CMD_FLAG_FUA if connections > 1 and rng.random() < 0.1 else 0
    if value:
        client.pwrite(b"".join(content(first + i, value) for i in range(count)), first * PAGE, flags)
    elif rng.random() < 0.5:
        client.zero(count * PAGE, first * PAGE, flags)
    else:
        client.trim(count * PAGE, first * PAGE, flags)
    if connections > 1 and rng.random() < 0.1:
        client.flush()


def verify(client, pages, under_way):
    for page, value in enumerate(pages):
        data = client.pread(PAGE, page * PAGE)
        allowed = {value} | under_way.get(page, set())
        found = next((v for v in allowed if data == image(page, v)), None)
        if found is None:
            words = (int.from_bytes(data[:8], "little"), int.from_bytes(data[8:16], "little"))
            sys.exit(f"FAIL {scheme}: page {page} holds {words}, acknowledged was {sorted(allowed)} (seed {seed})")
        pages[page] = found


class Load(threading.Thread):
    """Requests of one connection to its part of the device, until the daemon is killed."""

    def __init__(self, who, seed):
        super().__init__()
        self.part = range(who * PAGES // connections, (who + 1) * PAGES // connections)
        self.rng, self.client = random.Random(seed), connect()
        self.under_way, self.acknowledged, self.zeros, self.failure = {}, 0, 0, None

    def run(self):
        rng, value = self.rng, 0
        try:
            while True:
                first, count = rng.choice(self.part), rng.choice([1, 1, 1, 2, 8, 64])
                count = min(count, self.part.stop - first)
                value += 1
                new = 0 if rng.random() < 0.1 else number * 10**9 + value
                self.under_way = {page: {new} for page in range(first, first + count)}
                request(self.client, rng, first, count, new)
                for page in range(first, first + count):
                    pages[page] = new
                self.under_way = {}
                self.acknowledged += 1
                self.zeros += new == 0
        except nbd.Error as error:
            # An error reply of a living daemon is a failure; only a lost connection is the kill.
            if self.client.aio_is_ready():
                self.failure = error


pages = [0] * PAGES
acknowledged = zeros = 0
under_way = {}
for number in range(kills + 1):
    daemon = serve()
    client = connect()
    verify(client, pages, under_way)
    if number == kills:
        daemon.send_signal(signal.SIGTERM)
        daemon.wait()
        break
    client.shutdown()
    loads = [Load(who, rng.random()) for who in range(connections)]
    wait = rng.uniform(0.05, 0.6)
    for load in loads:
        load.start()
    time.sleep(wait)
    daemon.kill()
    under_way = {}
    for load in loads:
        load.join()
        if load.failure:
            sys.exit(f"FAIL {scheme}: a request failed: {load.failure} (seed {seed})")
        under_way |= load.under_way
        acknowledged += load.acknowledged
        zeros += load.zeros
    daemon.wait()
if daemon.returncode != 0:
    sys.exit(f"FAIL {scheme}: SIGTERM ended with {daemon.returncode} (seed {seed})")
if acknowledged < kills:
    sys.exit(f"FAIL {scheme}: {acknowledged} requests before {kills} kills (seed {seed})")
how = "and never flushed" if connections == 1 else f"on {connections} connections with FUA and FLUSH"
print(f"ok   kill_nbd: {scheme} {' '.join(options)}: {kills} kills, {acknowledged} requests acknowledged {how}, {zeros} of them zeros; all there")
