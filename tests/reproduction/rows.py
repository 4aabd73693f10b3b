"""Rows of `ftld compare`: running plans, and finding a row again."""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "target"
# Error of a run whose device wore out.
WORN = "end of life"
# Devices of papers whose profile fixes the raw flash, as TOML files that take any size.
DEVICES = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Load:
    """A workload, the options that it always takes, and whether it is a real trace."""

    label: str
    workload: str
    options: tuple = ()
    real: bool = False


class Ftld:
    """The program, and where the rows of its runs are kept."""

    def __init__(self, program, threads, scale, reuse, traces=None):
        self.program, self.threads, self.scale, self.reuse = program, threads, scale, reuse
        self.traces = Path(traces) if traces else None
        self.folder = TARGET / "reproduction"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.runs, self.failed, self.missing = 0, [], set()
        listed = subprocess.run([program, "schemes", "--json"], capture_output=True, text=True, check=True)
        self.schemes = {scheme["name"]: scheme for scheme in json.loads(listed.stdout)["schemes"]}

    def have(self, *names):
        """The names among these that are schemes of the program, in this order."""
        return [name for name in names if name in self.schemes]

    def graded(self, name, title=None):
        """A scheme's name with its grade of fidelity."""
        return f"{title or name} ({self.schemes[name]['fidelity']})"

    def trace(self, stem):
        """The file of a real trace, or None."""
        files = sorted(self.traces.glob(f"{stem}.*")) if self.traces else []
        if not files:
            self.missing.add(stem)
        return files[0] if files else None

    def scaled(self, workload, requests, share=1):
        """The workload with this share of its requests, or of as many as a trial asks for."""
        if self.scale == 1 and share == 1:
            return workload
        key = f"requests={max(1, int(requests * self.scale * share))}"
        return workload + ("," if ":" in workload else ":") + key

    def run(self, name, load, schemes, *options, raw="own"):
        """Rows of one load."""
        slug = re.sub(r"[^a-z0-9]+", "-", load.label.lower()).strip("-")
        return self.compare(f"{name}-{slug}", [load.workload], schemes, *load.options, *options, raw=raw)

    def compare(self, name, workloads, schemes, *options, raw="own", lenient=False):
        """Rows of every workload under every scheme, kept under this name. A failed run ends it all. If lenient it is left out and
        named, and a device that wore out is a result."""
        file = self.folder / f"{name}.ndjson"
        if not schemes:
            return Rows([])
        question = [str(word) for word in ["compare", "--ndjson", *workloads, "--scheme", ",".join(schemes), *options, "--raw", raw]]
        asked, command = file.with_suffix(".command"), "\n".join([*question, *(Path(word).read_text() for word in question if word.endswith(".toml"))])
        # Rows of another command are no answer to this one, nor are those of another device.
        if not (self.reuse and file.exists() and asked.exists() and asked.read_text() == command):
            self.runs += 1
            line = [str(self.program), *question, "--threads", str(self.threads)]
            print("reproduction:", " ".join(line), file=sys.stderr, flush=True)
            done = subprocess.run(line, stdout=subprocess.PIPE, text=True)
            if not done.stdout:
                sys.exit(f"reproduction: {name}: ftld compare gave no row, exit code {done.returncode}")
            file.write_text(done.stdout)
            asked.write_text(command)
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for row in rows:
            if "error" in row:
                why = f"{name}: {row['job']['scheme']} on {row['job']['workload']}: {row['error']}"
                if not lenient:
                    sys.exit(f"reproduction: {why}")
                if WORN not in row["error"]:
                    self.failed.append(why)
        worn = [row["job"]["scheme"] for row in rows if WORN in row.get("error", "")]
        rows = Rows([row for row in rows if "error" not in row])
        rows.worn = worn
        return rows


class Rows(list):
    """Rows of one comparison; `worn` names the schemes under which the device reached its end of life."""

    worn = ()

    def one(self, scheme, workload=None, **parameters):
        """The row of this scheme, workload (or the beginning of one) and parameter values, or None."""
        wanted = {key.replace("__", "."): str(value) for key, value in parameters.items()}
        for row in self:
            job = row["job"]
            fits = workload is None or job["workload"] == workload or job["workload"].startswith(workload + ":")
            # The last value of a parameter counts.
            values = dict(pair.split("=", 1) for pair in job["set"])
            if row["scheme"] == scheme and fits and wanted.items() <= values.items():
                return row
        return None


# Why mapping pages are read and programmed.
MAPPING = ("translation", "gc_translation", "convert")


def programs(row, *causes):
    return sum(row["flash"].get(cause, {}).get("programs", 0) for cause in causes)


def copies(row):
    """Valid data pages that collections and merges moved; mapping pages are not among them."""
    return programs(row, "gc", "merge")


# Least pages copied to reclaim space; with fewer, runs do not compare reclaiming.
LEAST_COPIES = 200


def collected(*rows):
    """Whether any of these runs copied enough pages to reclaim space."""
    return any(copies(row) >= LEAST_COPIES for row in rows)


def erases(row):
    return row["flash_total"]["erases"]


def waf(row):
    return row["write_amplification"]["total"]


def mean_us(row, side):
    response = row["response_ns"][side]
    return response["mean"] / 1000 if response else None


def state(row):
    """How full the device was at the end, what it was given before (the first time in order), and whether anything was collected."""
    before = row["precondition"]
    aged = "" if not before or not before.get("drive_writes") else f", {before['drive_writes']:.3g} drive writes before"
    share = f"{100 * row['collected']['utilisation']:.0f} %"
    return share + aged + ("" if copies(row) else ", **nothing collected**")
