"""The names that exist: the program's commands, options, parameters and manual pages, and the names in the tree."""

import json
import re
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

# Suffixes of files that the repository has and nothing writes on a user's machine.
SUFFIXES = "c md patch plan png py rs rules service sh socket spec toml tsv txt yaml yml".split()
# Tests that name missing things on purpose; and kept results and inputs, which name things of their
# time.
STALE = ("tests/documents/", "tests/test_docs.py")
DATA = ("tests/results/", "tests/mutants/", "tests/fuzz/corpus/", "traces/tests/", "tests/decisions.tsv", "Cargo.lock")

NAME = r"[A-Za-z_][A-Za-z0-9_]*"


@dataclass
class Command:
    """One (sub)command of the program, from its help."""

    subcommands: dict
    # Option -> its values: None without one, a set where the help lists them, else an empty set.
    options: dict


def out(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


class Facts:
    def __init__(self, root, program):
        self.root, self.program = Path(root), Path(program)

    # The program.

    @cached_property
    def command(self):
        return self._command(())

    def _command(self, words):
        text = out(self.program, *words, "--help")
        # The program has its commands in groups, a command in one table.
        table = re.search(r"^Commands:\n((?:  .*\n)+)", text, re.M)
        groups = "" if words else text.split("\nArguments:\n")[0]
        names = re.findall(r"^  (\S+) ", table[1] if table else groups, re.M)
        options = {}
        # Options are under several headings.
        for block in re.split(r"\n(?= {2,6}-)", text):
            if found := re.match(r" *(?:-\w, )?(--[a-z-]+)( <[^>]*>)?", block):
                listed = re.search(r"\[possible values: ([^\]]*)\]", block)
                values = listed[1].split(", ") if listed else re.findall(r"^ +- ([a-z_-]+): ", block, re.M)
                if not values and found[2] and re.fullmatch(r" <[a-z-]+(\|[A-Za-z-]+)+>", found[2]):
                    values = [value for value in found[2][2:-1].split("|") if value.islower()]
                options[found[1]] = set(values) if found[2] else None
        return Command({name: self._command((*words, name)) for name in names if name != "help"}, options)

    @cached_property
    def commands(self):
        def walk(command):
            return [command, *(below for sub in command.subcommands.values() for below in walk(sub))]

        return walk(self.command)

    @cached_property
    def options(self):
        """Options of all commands, each with the values that any command takes."""
        union = {}
        for command in self.commands:
            for option, values in command.options.items():
                union[option] = (union.get(option) or set()) | (values or set())
        return union

    @cached_property
    def subcommands(self):
        return {name: sub for command in self.commands for name, sub in command.subcommands.items()}

    def listed(self, what):
        return json.loads(out(self.program, what, "--json"))[what]

    @cached_property
    def parameters(self):
        """Key -> what all schemes say about it."""
        keys = {}
        for scheme in self.listed("schemes"):
            for param in scheme["params"]:
                keys[param["key"]] = keys.get(param["key"], "") + " " + param["help"]
        return keys

    @cached_property
    def families(self):
        return {key.split(".")[0] for key in self.parameters if "." in key}

    @cached_property
    def choices(self):
        """Option -> the names that it takes from a table of the program."""
        return {f"--{what}": {row["name"] for row in self.listed(f"{what}s")} for what in ("scheme", "profile", "preset")}

    @cached_property
    def workloads(self):
        """Generator -> its keys."""
        answer = json.loads(out(self.program, "workloads", "--json"))
        common = {key["key"] for key in answer["common_keys"]}
        keys = {row["name"]: common | {key["key"] for key in row["keys"]} for row in answer["generators"]}
        # A stand-in takes the keys of the generator that it is made of.
        made_of = {row["name"]: (row["stands_for"] or "").split(":")[0] for row in answer["generators"]}
        return {name: own | keys.get(made_of[name], set()) for name, own in keys.items()}

    def manual(self, folder):
        """Manual pages as text, by name."""
        out(self.program, "man", folder)
        pages = {}
        for path in sorted(Path(folder).iterdir()):
            text = re.sub(r"\\f.|\\&|^\.\w\w? ?", "", path.read_text(), flags=re.M)
            pages[path.name] = text.replace("\\-", "-").replace("\\(aq", "'")
        return pages

    @cached_property
    def pages(self):
        """Names of manual pages, as name(section)."""
        def walk(name, command):
            return {f"{name}(8)"}.union(*(walk(f"{name}-{below}", sub) for below, sub in command.subcommands.items()))

        return {"ftld.toml(5)", "ftld-schemes(7)"} | walk("ftld", self.command)

    # The tree.

    @cached_property
    def files(self):
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=self.root, capture_output=True, text=True
        )
        names = listed.stdout.split("\n") if listed.returncode == 0 else (
            str(path.relative_to(self.root)) for path in self.root.rglob("*") if path.parts[0] not in ("target", ".git")
        )
        return {name for name in names if name and (self.root / name).is_file()}

    @cached_property
    def paths(self):
        """Files and folders; a folder has no slash at its end."""
        return self.files | {str(above) for name in self.files for above in Path(name).parents if str(above) != "."}

    @cached_property
    def tops(self):
        return {name.split("/")[0] for name in self.paths}

    @cached_property
    def endings(self):
        """Every path without some of its first folders."""
        return {name.split("/", n)[n] for name in self.paths for n in range(name.count("/") + 1)}

    @cached_property
    def sources(self):
        """File -> its text without comments."""
        texts = {}
        for name in self.files:
            if name.endswith((".md", ".png", ".svg")) or name.startswith((*DATA, *STALE)):
                continue
            try:
                text = (self.root / name).read_text()
            except UnicodeDecodeError:
                continue
            mark = "//" if name.endswith((".rs", ".c", ".js", ".html")) else "#"
            texts[name] = re.sub(rf"^\s*{mark}.*$" if mark == "#" else rf"(?<!:){mark}.*$", "", text, flags=re.M)
        return texts

    @cached_property
    def words(self):
        """Names in the source, whole and as words with hyphens, and the names of files."""
        words = {Path(name).stem for name in self.files} | {Path(name).name for name in self.files}
        for name, text in self.sources.items():
            words.update(re.findall(NAME, text))
            words.update(re.findall(r"\w+(?:-\w+)+", text))
        return words

    @cached_property
    def functions(self):
        rust = [(name, text) for name, text in self.sources.items() if name.endswith(".rs")]
        return {Path(name).stem for name, _ in rust} | {found for _, text in rust for found in re.findall(r"\bfn (\w+)", text)}

    @cached_property
    def metrics(self):
        return set(self.labels)

    @cached_property
    def labels(self):
        """Metric -> label -> values, from the catalogue of docs/METRICS.md, which a test holds to the code."""
        text = re.sub(r"\n  +", " ", (self.root / "docs/METRICS.md").read_text())
        labels, shared = {}, {}
        for name, keys, meaning in re.findall(r"^- `(ftld_\w+)(?:\{([\w,]+)\})?`(.*)$", text, re.M):
            own = {label: set(values.split()) for label, values in re.findall(r"`(\w+)`: ([^;.]*)", meaning)}
            # Values are listed at a label's first metric, and again where they differ.
            labels[name] = {label: own.get(label) or shared.get(label, set()) for label in filter(None, keys.split(","))}
            for label, values in own.items():
                shared.setdefault(label, values)
        return labels

    @cached_property
    def records(self):
        return set(re.findall(r"record: (\S+)", self.sources["deploy/prometheus/ftld.rules.yml"]))

    @cached_property
    def variables(self):
        """FTLD_... that something reads."""
        found = set()
        for name, text in self.sources.items():
            quoted = r'"(FTLD_[A-Z_]+)"' if name.endswith((".rs", ".py")) else r"\$[{(]?(FTLD_[A-Z_]+)"
            found.update(re.findall(quoted, text))
        return found

    @cached_property
    def make(self):
        return (self.root / "Makefile").read_text()

    @cached_property
    def targets(self):
        return set(re.findall(r"^([a-z][a-z-]*):", self.make, re.M))

    @cached_property
    def packages(self):
        names = {}
        for path in self.files:
            if Path(path).name == "Cargo.toml":
                if found := re.search(r'^\[package\]\n(?:#.*\n)*name = "([^"]*)"', (self.root / path).read_text(), re.M):
                    names[found[1]] = str(Path(path).parent)
        return names

    def headings(self, document):
        """Anchors of a document."""
        text = re.sub(r"^```.*?^```", "", (self.root / document).read_text(), flags=re.M | re.S)
        return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in re.findall(r"^#+ (.*)$", text, re.M)}
