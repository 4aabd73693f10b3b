"""What the benchmarks share: interleaved rounds, ratios beside peers, noise, results as JSON.

A *point* is a quantity that several *contenders* have. In every round all contenders are measured
in turn; each round begins with another one. The first contender is ours. A ratio is ours : theirs
within a round; the median of the ratios and their range are shown. A goal is a bound of the median.

A point is *noisy* if other processes used more than `OTHERS_MAX` CPUs meanwhile, or if the ratios
of a goal spread by more than `SPREAD_MAX` of their median. What the machine did is counted in
/proc/stat; the benchmark's own share is that of its processes and of the servers that it names
(`own`). A noisy point is marked, and counted in the last line.

`--json FILE` adds the results to a file as the section of this script, beside those of other
scripts; `against.py` compares two such files.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = "ftld.bench/1"
TICK = os.sysconf("SC_CLK_TCK")
# CPUs that others may use, and the part of the median by which ratios may spread.
OTHERS_MAX = 0.15
SPREAD_MAX = 0.25


@dataclass(frozen=True)
class Goal:
    """A bound of a ratio or a figure."""

    sign: str
    bound: float

    def __str__(self):
        return f"{self.sign} {self.bound:g}"

    def met(self, value):
        return value >= self.bound if self.sign == ">=" else value <= self.bound


def at_least(bound):
    return Goal(">=", bound)


def at_most(bound):
    return Goal("<=", bound)


@dataclass(frozen=True)
class Ratio:
    """Ours : theirs over the rounds."""

    median: float
    least: float
    most: float

    @staticmethod
    def of(ours, theirs):
        each = [our / their for our, their in zip(ours, theirs, strict=True)]
        return Ratio(statistics.median(each), min(each), max(each))

    @property
    def spread(self):
        return (self.most - self.least) / self.median

    def __str__(self):
        return f"{self.median:.2f}x ({self.least:.2f}..{self.most:.2f})"


@dataclass
class Point:
    """A quantity of all contenders, per round."""

    name: str
    unit: str
    values: dict
    goals: dict = field(default_factory=dict)
    load: tuple = (0.0, 0.0)
    others: float = 0.0
    # Other figures measured with it: contender -> name -> figure.
    extra: dict = field(default_factory=dict)

    @property
    def ours(self):
        return next(iter(self.values))

    def ratios(self):
        ours = self.values[self.ours]
        return {name: Ratio.of(ours, theirs) for name, theirs in self.values.items() if name != self.ours}

    def noise(self):
        """Reasons for which the point is noisy."""
        reasons = []
        if self.others > OTHERS_MAX:
            reasons.append(f"others used {self.others:.2f} CPUs")
        for name, ratio in self.ratios().items():
            if name in self.goals and ratio.spread > SPREAD_MAX:
                reasons.append(f"ratios beside {name} spread by {ratio.spread:.0%}")
        return reasons

    def verdicts(self):
        """Goal by goal: name of the peer, the goal, whether it is met."""
        ratios = self.ratios()
        return [(name, goal, goal.met(ratios[name].median)) for name, goal in self.goals.items() if name in ratios]

    def lines(self):
        median = statistics.median(self.values[self.ours])
        yield f"{self.name}: {self.ours} {number(median)} {self.unit}; load {self.load[1]:.2f}, others {self.others:.2f} CPUs"
        met = {name: f"target {goal}: {'met' if good else 'MISSED'}" for name, goal, good in self.verdicts()}
        for name, ratio in self.ratios().items():
            theirs = number(statistics.median(self.values[name]))
            yield f"    beside {name:<22} {theirs:>10}  {str(ratio):<20} {met.get(name, '')}".rstrip()
        for name, figures in self.extra.items():
            yield f"    {name}: " + ", ".join(f"{key} {number(value)}" for key, value in figures.items())
        for reason in self.noise():
            yield f"    NOISY: {reason}"

    def as_json(self):
        return {
            "name": self.name, "unit": self.unit, "ours": self.ours, "values": self.values,
            "ratios": {name: {"median": r.median, "least": r.least, "most": r.most} for name, r in self.ratios().items()},
            "goals": {name: {"target": str(goal), "met": met} for name, goal, met in self.verdicts()},
            "load": self.load, "others_cpus": self.others, "noisy": self.noise(), "extra": self.extra,
        }


@dataclass
class Figure:
    """A quantity without a peer, per round, with a goal or without."""

    name: str
    unit: str
    values: list
    goal: Goal | None = None

    @property
    def median(self):
        return statistics.median(self.values)

    def line(self):
        verdict = "" if self.goal is None else f"  target {self.goal}: {'met' if self.goal.met(self.median) else 'MISSED'}"
        spread = f" ({number(min(self.values))}..{number(max(self.values))})" if len(self.values) > 1 else ""
        return f"{self.name}: {number(self.median)} {self.unit}{spread}{verdict}"

    def as_json(self):
        goal = {} if self.goal is None else {"target": str(self.goal), "met": self.goal.met(self.median)}
        return {"name": self.name, "unit": self.unit, "values": self.values, **goal}


def number(value):
    """A figure with three digits or more."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def text(cell):
    """A cell of a table."""
    return cell if isinstance(cell, str) else number(cell)


def rounds_of(contenders, rounds):
    """Calls every contender once per round, another one first each time; returns what they returned, by contender."""
    names, results = list(contenders), {name: [] for name in contenders}
    for index in range(rounds):
        turn = index % len(names)
        for name in names[turn:] + names[:turn]:
            results[name].append(contenders[name]())
    return results


class Machine:
    """CPU time of this machine: all of it, and that of the benchmark's own processes. In seconds."""

    def __init__(self, own=lambda: ()):
        """`own` returns the ids of running processes that belong to the benchmark."""
        self.own = own

    def busy(self):
        """Of everybody, and what the host took from this machine."""
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
        return (user + nice + system + irq + softirq + steal) / TICK

    def mine(self):
        usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return sum(each.ru_utime + each.ru_stime for each in usage) + sum(cpu_seconds(pid, True) for pid in self.own())

    def watch(self):
        """A function that returns the CPUs that others have used since."""
        start, busy, mine = time.monotonic(), self.busy(), self.mine()

        def others():
            passed = max(time.monotonic() - start, 1e-9)
            return max(0.0, (self.busy() - busy) - (self.mine() - mine)) / passed

        return others


def cpu_seconds(pid, with_children=False):
    """CPU time of a process, with that of its children that have ended. Nothing of a process that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(map(int, fields[11 : 15 if with_children else 13])) / TICK


def load():
    return round(os.getloadavg()[0], 2)


class Run:
    """A run of a script: measures points, prints them as they are done, keeps them."""

    def __init__(self, script, args, own=lambda: ()):
        self.script, self.rounds, self.file, self.filter = script, args.rounds, args.json, args.only
        self.machine, self.points, self.figures, self.tables, self.before = Machine(own), [], [], [], load()
        self.facts = {"short": args.short, **facts()}
        print(f"{script}: {self.facts['revision']}, {self.facts['cpus']} CPUs, load before {self.before:.2f}", flush=True)

    def wants(self, name):
        """Whether `--only` leaves this name in."""
        return self.filter is None or self.filter in name

    def point(self, name, unit, contenders, goals=None, extra=None, rounds=None):
        """Measures a point. A contender returns its figure. `extra(name)` returns what to print with a contender."""
        if not self.wants(name):
            return None
        before, others = load(), self.machine.watch()
        values = rounds_of(contenders, rounds or self.rounds)
        return self.add(Point(name, unit, values, goals or {}, (before, load()), others(), extra() if extra else {}))

    def add(self, point):
        self.points.append(point)
        print("\n" + "\n".join(point.lines()), flush=True)
        return point

    def figure(self, name, unit, values, goal=None):
        self.figures.append(Figure(name, unit, values, goal))
        print(self.figures[-1].line(), flush=True)

    def table(self, name, columns, rows):
        """Prints and keeps a table without goals. The first column has names."""
        self.tables.append({"name": name, "columns": columns, "rows": rows})
        texts = [columns, *([text(cell) for cell in row] for row in rows)]
        widths = [max(len(row[column]) for row in texts) for column in range(len(columns))]
        print(f"\n{name}")
        for first, *others in texts:
            print("  ".join([f"{first:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(others, widths[1:]))]).rstrip(), flush=True)

    def finish(self):
        """Prints the sum of it, and adds the section to the file."""
        if not self.points and not self.figures:
            sys.exit(f"{self.script}: --only {self.filter} leaves nothing to measure")
        verdicts = [good for point in self.points for _, _, good in point.verdicts()]
        verdicts += [figure.goal.met(figure.median) for figure in self.figures if figure.goal]
        noisy = sum(bool(point.noise()) for point in self.points)
        after = load()
        print(f"\n{self.script}: {sum(verdicts)} of {len(verdicts)} targets met; load before {self.before:.2f}, after {after:.2f}")
        if noisy:
            print(f"{self.script}: a NOISY run: {noisy} of {len(self.points)} points; measure again on a quiet machine")
        section = {
            **self.facts, "rounds": self.rounds, "load": [self.before, after],
            "points": [point.as_json() for point in self.points], "figures": [figure.as_json() for figure in self.figures],
            "tables": self.tables,
        }
        if self.file:
            store(Path(self.file), self.script, section)


def store(path, script, section):
    """Replaces the section of a script in a file of results."""
    results = {"schema": SCHEMA, "sections": {}}
    if path.exists():
        results = read(path)
    results["sections"][script] = section
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1) + "\n")
    part.replace(path)


def read(path):
    """Results of a file. Ends the program if it has none."""
    try:
        results = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"{path}: {error}")
    if results.get("schema") != SCHEMA:
        sys.exit(f"{path}: no results of a benchmark ({SCHEMA})")
    return results


def facts():
    """Revision, time and machine of the run."""
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    revision = subprocess.run(git, capture_output=True, text=True).stdout.strip() or "unknown revision"
    model = [line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "revision": revision, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "cpus": os.cpu_count(),
        "cpu": model[0] if model else platform.machine(), "kernel": platform.release().split("-")[0],
    }


def parser(doc, rounds=5):
    """The options that all benchmarks have."""
    options = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--short", action="store_true", help="little data and short rounds, for a look")
    options.add_argument("--rounds", type=int, default=rounds, help=f"of every point (default {rounds})")
    options.add_argument("--only", metavar="TEXT", help="points whose name has this text")
    options.add_argument("--json", metavar="FILE", help="adds the results to this file")
    return options


def build(*words):
    """Builds a release."""
    subprocess.run(["cargo", "build", "--quiet", "--release", *words], cwd=ROOT, check=True)
