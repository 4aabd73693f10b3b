"""Faults under a stack: load, a fault, a restart, the checks, again and again.

A *stack* has
  create(folder)        its files on a new file system;
  start(folder, seed)   starts clients that note their commits outside the device;
  noted(), in_flight()  commits noted since the start, and commits that have not returned;
  has_ended()           whether a client saw an error, and ended;
  output()              what the clients printed;
  finish()              waits for the clients, which end by themselves when the device fails;
  recover(folder)       opens everything again, checks, and returns how many commits it compared;
  close()               takes the clients away, whatever they do.

A client may see an error, and of any kind, when a fault has struck, and no error before.
"""

import contextlib
import json
import os
import random
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from device import Device, Fault, run, wait_for
from ledger import CheckFailed, CommitsLost
from unflushed import Unflushed

# Times that each kind of fault strikes one image.
TIMES_PER_IMAGE = 2
# A fault strikes under load once this many commits were noted since the restart, and at least one
# began and never returned.
LEAST_COMMITS = 3


@dataclass
class Tally:
    """Counts of a campaign."""

    stack: str
    faults: dict = field(default_factory=lambda: dict.fromkeys(Fault, 0))
    idle: int = 0
    noted: int = 0
    looked_at: int = 0
    lost: int = 0
    failed: int = 0
    replays: int = 0
    unflushed: int = 0
    schemes: set = field(default_factory=set)

    def struck(self):
        return sum(self.faults.values())

    def __str__(self):
        kinds = ", ".join(f"{count} {kind.value}s" for kind, count in self.faults.items())
        return (
            f"{self.stack}: {self.struck()} faults under load ({kinds}) and {self.idle} without, "
            f"{len(self.schemes)} schemes; {self.noted} commits noted, {self.looked_at} looked "
            f"at, {self.lost} lost, {self.failed} checks failed; {self.replays} journal replays; "
            f"{self.unflushed} unflushed pages compared after kills"
        )


def schemes():
    """Names of the schemes to draw from: $STACK_SCHEMES, or all."""
    named = os.environ.get("STACK_SCHEMES", "all")
    if named != "all":
        return named.split()
    return [each["name"] for each in json.loads(run("ftld", "schemes", "--json"))["schemes"]]


def wait_under_load(what, load, condition):
    """Waits until `condition` is true; a client that ends before had no fault to end by."""
    def is_reached():
        # In this order: a client that ended just when the fault struck was ended by the fault.
        ended = any(each.has_ended() for each in load)
        if condition():
            return True
        if ended:
            said = "".join(each.output() for each in load)
            raise CheckFailed(f"a client ended without a fault, before: {what}\n{said}")
        return False

    wait_for(what, is_reached)


class Campaign:
    """A tally's faults, image after image, each on a scheme of its own."""

    def __init__(self, make_stack, tally, seed, size):
        self._make_stack, self._tally, self._seed, self._size = make_stack, tally, seed, size

    def run(self, faults):
        """Strikes until so many faults have struck under load; the first wrong thing raises."""
        rng = random.Random(f"{self._seed}/{self._tally.stack}")
        names = schemes()
        rng.shuffle(names)
        image = 0
        while (left := faults - self._tally.struck()) > 0:
            kinds = [kind for _ in range(TIMES_PER_IMAGE) for kind in rng.sample(list(Fault), 3)]
            scheme = names[image % len(names)]
            try:
                self._image(scheme, kinds[:left], rng)
            except Exception as error:
                self._tally.lost += error.count if isinstance(error, CommitsLost) else 0
                self._tally.failed += 1
                error.add_note(f"image {image}, scheme {scheme}, SEED={self._seed}: {self._tally}")
                raise
            image += 1
            if self._tally.idle > 10 + faults // 2:
                raise AssertionError(f"too many faults without load: {self._tally}")

    def _image(self, scheme, kinds, rng):
        """Strikes one image with faults in a row, and looks at what is there after each."""
        with contextlib.ExitStack() as cleanup:
            scratch = Path(tempfile.mkdtemp(prefix="ftld-stacks."))
            cleanup.callback(shutil.rmtree, scratch, ignore_errors=True)
            scratch.chmod(0o755)  # clients may run as another user
            device = Device(scratch, scheme, self._size)
            cleanup.callback(device.close)
            stack, unflushed = self._make_stack(scratch, rng), Unflushed()
            cleanup.callback(stack.close)

            device.start()
            device.make_file_system()
            device.mount()
            stack.create(device.at)
            unflushed.create(device.at)
            device.unmount()
            for kind in kinds:
                device.mount()
                self._strike(device, stack, unflushed, kind, rng)
                device.start()
                self._judge(device, stack, unflushed, kind)
            device.detach()
            device.stop()
            self._tally.schemes.add(scheme)

    def _strike(self, device, stack, unflushed, kind, rng):
        """Load, and a fault."""
        stack.start(device.at, rng.randrange(1 << 32))
        unflushed.start(device.at, rng.randrange(1 << 32))
        load = (stack, unflushed)
        wait_under_load("commits", load, lambda: stack.noted() >= LEAST_COMMITS)
        time.sleep(rng.uniform(0, 0.5))
        device.inject(kind, rng)
        wait_under_load(f"the {kind.value} strikes", load, lambda: device.has_struck(kind))
        stack.finish()
        unflushed.finish()
        device.bury(kind)
        self._tally.noted += stack.noted()
        if stack.in_flight() > 0:
            self._tally.faults[kind] += 1
        else:
            self._tally.idle += 1

    def _judge(self, device, stack, unflushed, kind):
        """Everything noted is there, and the file system is clean."""
        self._tally.replays += device.has_to_replay()
        device.mount()
        self._tally.unflushed += unflushed.check(device.at, kind is Fault.KILL)
        self._tally.looked_at += stack.recover(device.at)
        device.unmount()
        device.check_file_system()
