"""Compares a document with the facts: what is recognised by its look, code spans, blocks, links, terms."""

import difflib
import re
from dataclasses import dataclass
from pathlib import Path

from .facts import NAME, SUFFIXES

# Programs that documents call. Their options are not ours to check.
FOREIGN_COMMANDS = set(
    "apt apt-get cargo cc chgrp cp curl dd debugfs dnf docker e2fsck fio fuser kill mkfs.ext4 mount nbdcopy"
    " nbdfuse nbdinfo parallel sbatch ssh systemctl umount".split()
)
# Options outside a command, with the program that they belong to.
FOREIGN_OPTIONS = {"--no-default-features": "cargo", "--dry-run": "cargo publish", "--nocapture": "tests of cargo", "--array": "sbatch", "--norandommap": "fio"}
# Foreign names that look like ours, with their owner.
FOREIGN = {
    "generic/quick": "a group of xfstests",
    "queue/rotational": "a file of sysfs",
    "local-fs.target": "a unit of systemd",
    "prometheus.yml": "the configuration of Prometheus",
    "hung_task": "a message of the kernel",
    "UUID": "a field of fstab",
    "nofail": "an option of fstab",
    "_netdev": "an option of fstab",
    "ftld_end": "a label of a udev rule",
    "gc.fre_threshold": "a typing error whose message is shown",
}
# Stands for something else: NAME, N, ..., TARGET/, *.json, a brace.
PLACEHOLDER = re.compile(r"(?<![A-Za-z])[A-Z][A-Z0-9_]*(?![a-z])|\.\.\.|…|[*<>{}$%]")


@dataclass(frozen=True)
class Finding:
    place: str
    word: str
    what: str
    nearest: str = ""

    def __str__(self):
        return f"{self.place}: `{self.word}` {self.what}" + (f"; did you mean `{self.nearest}`?" if self.nearest else "")


def nearest(word, names):
    near = difflib.get_close_matches(word, sorted(names), 1, 0.5)
    return near[0] if near else ""


@dataclass
class Fragment:
    """Code in a document: a span between backticks, or a line of a block in `language`."""

    line: int
    text: str
    language: str = ""

    @property
    def is_span(self):
        return self.language == "span"


def fragments(text):
    """Spans and lines of blocks; an indented block has the language ''."""
    found, paragraphs, fence, blank, indented = [], [], None, True, False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            fence = None if fence is not None else line[3:]
            paragraphs.append((number, ""))
            continue
        indented = fence is None and line.startswith("    ") and (blank or indented)
        if fence is not None or indented:
            found.append(Fragment(number, line.strip(), fence or ""))
        paragraphs.append((number, "" if fence is not None or indented else line))
        blank = not line.strip()
    prose = "\n".join(line for _, line in paragraphs)
    for span in re.finditer(r"`([^`\n]*(?:\n(?!\s*\n)[^`\n]*)*)`", prose):
        found.append(Fragment(prose.count("\n", 0, span.start()) + 1, " ".join(span[1].split()), "span"))
    return sorted(found, key=lambda fragment: fragment.line)


class Check:
    """Compares one document with the facts."""

    def __init__(self, facts, document, text):
        self.facts, self.document, self.text = facts, document, text
        self.found = []
        # Files that the document's own commands write.
        self.written = {file for block in re.findall(r"^```sh$(.*?)^```$", text, re.M | re.S) for file in re.findall(r" > ([\w.-]+)", block)}
        self.is_manual = re.search(r"\.[1-8]$", document) is not None

    def report(self, line, word, what, names=()):
        self.found.append(Finding(f"{self.document}:{line}", word, what, nearest(word, names)))

    def run(self):
        self.anywhere()
        for fragment in fragments(self.text):
            if fragment.language == "rust":
                continue
            self.fragment(fragment)
        self.links()
        return list(dict.fromkeys(self.found))

    def anywhere(self):
        """Words that are recognised by their form alone, in prose as well."""
        facts = self.facts
        # Rust in a document is compiled by a test.
        text = re.sub(r"^```rust$.*?^```$", lambda block: "\n" * block[0].count("\n"), self.text, flags=re.M | re.S)
        for number, line in enumerate(text.split("\n"), 1):
            for name in re.findall(r"(?<![\w:./])ftld_[a-z0-9_]+(?![\w*:/])", line):
                if re.sub(r"_(bucket|sum|count)$", "", name) not in facts.metrics | {crate.replace("-", "_") for crate in facts.packages} | FOREIGN.keys():
                    self.report(number, name, "is no metric", facts.metrics)
            for name in re.findall(r"\bdevice:ftld_[\w:]+", line):
                if name not in facts.records:
                    self.report(number, name, "is recorded by no rule", facts.records)
            for name, label, value in re.findall(r'\b(ftld_\w+)\{(\w+)=~?"([^"]*)"', line):
                known = facts.labels.get(re.sub(r"_(bucket|sum|count)$", "", name), {})
                if label not in {*known, "device", "le", "instance", "job"}:
                    self.report(number, label, f"is no label of {name}", known)
                for one in value.split("|") if known.get(label) else ():
                    if one not in known[label]:
                        self.report(number, one, f"is no {label} of {name}", known[label])
            for name in re.findall(r"\bFTLD_[A-Z_]+\b", line):
                if name not in facts.variables | {"FTLD_OPTION"}:
                    self.report(number, name, "is a variable that nothing reads", facts.variables)
            for key in re.findall(r"(?<![\w./-])[a-z]\w*\.[a-z]\w*(?![\w/]|\.\w|\()", line):
                family, name = key.split(".")
                if family in facts.families and name not in SUFFIXES and key not in {*facts.parameters, *FOREIGN}:
                    self.report(number, key, "is no parameter", facts.parameters)
            for key, value in re.findall(r'(?<![\w.-])"?([a-z]\w*(?:\.\w+)?)"? ?= ?"?([a-z]\w*)\b', line):
                if key in facts.parameters and "." in key and value not in {"true", "false", *re.findall(r"\w+", facts.parameters[key])}:
                    self.report(number, value, f"is no value of {key}", re.findall(r"\w+", facts.parameters[key]))
            for name in re.findall(r"(?<![\w/.])[A-Z_]{4,}\.md\b", line):
                if name not in {"NAME.md", *facts.endings}:
                    self.report(number, name, "is no document", [path for path in facts.endings if path.endswith(".md")])
            for page in re.findall(r"\bftld[\w.-]*\([1-9]\)", line):
                if page not in facts.pages:
                    self.report(number, page, "is no manual page", facts.pages)
            if self.is_manual or line.strip().startswith("command:"):
                self.options(number, re.findall(r"(?<![\w-])--[a-z-]+\b", line), facts.options)
            call = re.search(rf"(?<!-p)(?:^|[\s/])ftld ((?:--|(?:{'|'.join(facts.command.subcommands)})\b).*)", line)
            if call and not self.document.endswith(".md"):
                self.ftld(Fragment(number, line, "sh"), re.split(r" [>;|<#]|\s{2,}", call[1])[0].split())

    def fragment(self, fragment):
        # A block's line ends at a comment, or at the words beside a synopsis.
        text = fragment.text if fragment.is_span else re.sub(r"\s#\s.*$|\s{2,}\S.*$", "", fragment.text)
        if fragment.language == "toml":
            return self.toml(fragment)
        if not re.match(r"^(#|\w+ = )", text):
            for segment in re.split(r"[|;&]+(?![^\s'\"]*['\"])|\$\(", text):
                self.segment(fragment, segment.replace("[", " ").replace("]", " ") if fragment.is_span else segment)
        for name, keys in re.findall(r"(?<![\w-])([a-z][\w-]*):((?:\w+=[^\s,`'\"]+,?)+)", text):
            for key in re.findall(r"(\w+)=", keys):
                if name in self.facts.workloads and key not in self.facts.workloads[name]:
                    self.report(fragment.line, key, f"is no key of {name}", self.facts.workloads[name])
        for word in re.split(r"[\s'\"(),=]+", text):
            self.path(fragment.line, word, fragment.is_span and word == text)
        if fragment.is_span:
            self.name(fragment.line, text)
        names = rf"(?<![\w./-])[a-z]\w*_\w+(?![\w./(:*-])" + (r"|(?<![\w./@:-])[a-z]\w*(?:-[a-z]\w*)+(?![\w.@/:-])" if fragment.is_span else "")
        for name in re.findall(names, text):
            if name != text and not name.startswith("ftld_"):
                self.word(fragment.line, name)

    def toml(self, fragment):
        keys = {option[2:] for option in self.facts.command.options} | {"target"}
        if found := re.match(r"#?([a-z-]+) = \"?([^\"]*)", fragment.text):
            if found[1] not in keys:
                self.report(fragment.line, found[1], "is no key of a configuration file", keys)
            self.value(fragment.line, f"--{found[1]}", found[2], self.facts.command.options)

    def segment(self, fragment, text):
        """One command of a line, or options alone."""
        facts, line = self.facts, fragment.line
        words = [word.strip("'\"`()") for word in text.split()]
        while words and (re.match(r"^[A-Z_]+=", words[0]) or words[0] in ("env", "sudo", "-", "head", "-1")):
            self.variable(line, words.pop(0), words)
        if not words:
            return
        command = words[0]
        if "ftld" in words and (command == "ftld" or command in FOREIGN_COMMANDS):
            at = words.index("ftld")
            if words[at - 1] not in ("-p", "--bin"):
                return self.ftld(fragment, words[at + 1 :])
        if command == "make":
            for word in words[1:]:
                name = word.split("=")[0]
                if re.fullmatch(r"[a-z-]+", word) and fragment.is_span | (fragment.language == "sh") and word not in facts.targets:
                    self.report(line, word, "is no target of make", facts.targets)
                elif "=" in word and not re.search(rf"\$\({name}\)|^{name} \?=", facts.make, re.M):
                    self.report(line, name, "is no variable of the Makefile", re.findall(r"\$\((\w+)\)", facts.make))
        elif command == "cargo":
            self.cargo(line, words)
        elif command.lstrip("./") in facts.files:
            self.script(line, command.lstrip("./"), words[1:])
        elif command in facts.subcommands and fragment.is_span and len(words) > 1:
            self.options(line, words[1:], facts.subcommands[command].options)
        elif command not in FOREIGN_COMMANDS and fragment.language in ("span", "sh"):
            self.options(line, words, dict.fromkeys(re.findall(r"--[a-z][a-z-]*", self.near(line))) | facts.options)

    def near(self, line):
        """Scripts that a section names, itself or as a target of make, and programs in the document's folder."""
        facts, lines = self.facts, self.text.split("\n")
        first = max((n for n in range(line) if lines[n].startswith("#")), default=0)
        last = next((n for n in range(line, len(lines)) if lines[n].startswith("#")), len(lines))
        section = "\n".join(lines[first:last])
        for target in re.findall(r"\bmake ([a-z-]+)", section):
            recipe = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", facts.make, re.M)
            section += recipe[1] if recipe else ""
        paths = {path for path in re.findall(r"[\w./-]+\.(?:py|sh)\b", section) if path in facts.files}
        home = str(Path(self.document).parent)
        paths |= {path for path in facts.files if home not in (".", "docs") and path.startswith(f"{home}/src/")}
        return "\n".join((facts.root / path).read_text() for path in sorted(paths))

    def variable(self, line, word, rest):
        """X=value before a command: something has to read it."""
        name = word.split("=")[0]
        if "=" in word and not name.startswith("FTLD_") and name not in self.facts.words and name not in FOREIGN:
            self.report(line, name, "is a variable that nothing reads", (w for w in self.facts.words if w.isupper()))

    def ftld(self, fragment, words):
        facts, command, line = self.facts, self.facts.command, fragment.line
        if words and words[0] == "help":
            return
        while words and words[0] in command.subcommands:
            command, words = command.subcommands[words[0]], words[1:]
        if words and re.fullmatch(r"[a-z][a-z-]*", words[0]) and command.subcommands:
            if fragment.is_span or fragment.language == "sh":
                self.report(line, words[0], "is no subcommand", command.subcommands)
            return
        self.options(line, words, command.options)
        if command in (facts.subcommands["replay"], facts.subcommands["compare"]):
            takes = False
            for word in words:
                name = word.split(":")[0]
                if not takes and re.fullmatch(r"[a-z][\w-]*", name) and name not in facts.workloads:
                    self.report(line, name, "is no workload", facts.workloads)
                takes = word.startswith("-") and command.options.get(word.split("=")[0]) is not None
                if word in ("<", ">"):
                    break

    def options(self, line, words, known):
        for word, value in zip(words, [*words[1:], ""]):
            if word == "--":
                break
            option = word.split("=")[0].rstrip(",.:")
            if not re.fullmatch(r"--[a-z][a-z-]*", option) or option in FOREIGN_OPTIONS:
                continue
            if option not in known:
                self.report(line, option, "is no option of this command" if self.facts.options.keys() - known.keys() else "is no option", known)
            else:
                self.value(line, option, value, known)

    def value(self, line, option, value, known):
        takes = self.facts.choices.get(option) or known.get(option)
        if takes and (option in self.facts.choices or re.fullmatch(r"[a-z_-]+", value)):
            for one in value.split(","):
                if re.fullmatch(r"[a-z][\w-]*", one) and one not in takes:
                    self.report(line, one, f"is nothing that {option} takes", takes)
        if option == "--set" and (key := re.match(r"([a-z]\w*(?:\.\w+)?)=", value)) and key[1] not in self.facts.parameters:
            if key[1].split(".")[0] not in self.facts.families:  # those are found anywhere
                self.report(line, key[1], "is no parameter", self.facts.parameters)

    def cargo(self, line, words):
        facts = self.facts
        package = next((after for word, after in zip(words, words[1:]) if word == "-p"), None)
        for word, after in zip(words, words[1:]):
            if word == "-p" and after not in facts.packages:
                self.report(line, after, "is no package", facts.packages)
            folder = {"--test": "tests", "--bin": "src/bin", "--example": "examples"}.get(word)
            if folder and re.fullmatch(r"[a-z]\w*", after) and package in facts.packages:
                home = facts.packages[package]
                there = {name[len(f"{home}/{folder}/") :].split("/")[0].removesuffix(".rs") for name in facts.files if name.startswith(f"{home}/{folder}/")} | {package}
                if after not in there:
                    self.report(line, after, f"is none of {home}/{folder}", there)
        if "--test" in words and package in facts.packages:
            program = f"{facts.packages[package]}/tests/{words[words.index('--test') + 1]}/"
            modules = {name[len(program) :].split("/")[0].removesuffix(".rs") for name in facts.files if name.startswith(program)}
            for module in re.findall(r"(?<=\s)([a-z]\w*)::", " ".join(words)):
                if module not in modules:
                    self.report(line, module, f"is no module of {program}", modules)
        if "--" in words and words[1] == "test":
            for word in words[words.index("--") + 1 :]:
                if re.fullmatch(r"[a-z]\w*", word) and not any(word in name for name in facts.functions):
                    self.report(line, word, "is in the name of no test", facts.functions)

    def script(self, line, path, words):
        facts, text = self.facts, self.facts.sources.get(path, "")
        whole = (facts.root / path).read_text()
        for word in words:
            option = word.split("=")[0]
            if re.fullmatch(r"--[a-z][a-z-]*", option) and option not in whole:
                self.report(line, option, f"is no option of {path}", re.findall(r"--[a-z][a-z-]*", text))
        folder = str(Path(path).parent)
        if Path(path).name == "run.sh" and folder in ("tests/native", "tests/guest"):
            there = {Path(name).stem.removeprefix("test_") for name in facts.files if re.match(rf"{folder}/(test_\w+\.py|\w+\.sh)$", name)}
            for word in words:
                if re.fullmatch(r"[a-z]\w*", word) and word not in there | {"all"}:
                    self.report(line, word, f"is none of {folder}", there)

    def path(self, line, word, whole):
        facts = self.facts
        word = re.sub(r":\d+(:\d+)*$", "", word.rstrip(".,;:")).removeprefix("./")
        if word in FOREIGN or word in self.written or re.match(r"^(/|~|\$|-|@|.*:/|\.)|.*[\\?+^]", word) or word.startswith("target/"):
            return self.installed(line, word)
        word = re.sub(r"@[a-z0-9]+\.", "@.", word)
        suffix = word.rsplit(".", 1)[-1] if "." in word else ""
        if PLACEHOLDER.search(word) and not re.search(r"/[A-Z]+\.md$", f"/{word.replace('NAME', '*')}"):
            word = word[: PLACEHOLDER.search(word).start()]
            word, suffix = word[: word.rfind("/") + 1], ""
        is_path = suffix in SUFFIXES or word.split("/")[0] in facts.tops and "/" in word
        is_path = is_path or whole and re.fullmatch(r"[a-z_][\w-]*/[\w./-]*", word) is not None
        if not is_path or not word or word in ("ftld.toml",):
            return
        name, home = word.rstrip("/"), str(Path(self.document).parent)
        near = name if home == "." else f"{home}/{name}"
        if name in facts.paths or near in facts.paths or name.split("/")[0] not in facts.tops and name in facts.endings:
            return
        last = name.split("/")[-1]
        same = sorted(path for path in facts.paths if path.split("/")[-1] in (last, last.rsplit(".", 1)[0]))
        self.report(line, word, "is no path", same[:1] or facts.endings if "/" not in name else [nearest(name, same) or nearest(name, facts.paths)])

    def installed(self, line, word):
        """Absolute paths with our name, and those of the HTTP server."""
        found = re.match(r"/(?:[\w.-]+/)*?ftld[a-z-]*(?=/|$)|/api/[a-z]+$|/(?:metrics|status|healthz)$", word)
        if found and not any(re.search(rf"{re.escape(found[0])}(?![\w-])", text) for text in self.facts.sources.values()):
            self.report(line, word, "is in no source")

    def word(self, line, word, may_be_part=True):
        if any(word in known for known in (self.facts.words, FOREIGN, FOREIGN_COMMANDS)):
            return
        # A word that selects tests or metrics is a part of their names.
        if not (may_be_part and "_" in word and any(word in name for name in self.facts.functions | self.facts.metrics)):
            self.report(line, word, "is a name that the source does not have", self.facts.words)

    def name(self, line, text):
        """A span that is one name: of the source, a file, or a word of a file that it reads."""
        facts = self.facts
        for part in re.sub(r"\(.*\)$", "", text).split("::"):
            if re.fullmatch(rf"{NAME}|[a-z]\w*(-\w+)+", part) and not part.startswith(("ftld_", "FTLD_")):
                self.word(line, part, "::" not in text)
        if re.fullmatch(r"[a-z_]\w*(\.[a-z_]\w*)+", text) and text not in facts.parameters and text not in FOREIGN:
            parts = text.split(".")
            if parts[-1] not in SUFFIXES and parts[0] not in facts.families and not facts.words.issuperset(parts):
                self.report(line, text, "is a name that the source does not have", facts.words)
        if found := re.fullmatch(r'(?:"schema": ?)?"?(ftld)\.([a-z-]+)/\d+"?', text):
            if not any(f'"{found[2]}"' in source or f"{found[1]}.{found[2]}/" in source for name, source in facts.sources.items() if name.startswith("daemon/")):
                self.report(line, found[2], "is no schema of an answer")

    def links(self):
        for found in re.finditer(r"\]\(([^)\s]+)\)", self.text):
            target, line = found[1], self.text.count("\n", 0, found.start()) + 1
            if "://" in target:
                continue
            file, _, anchor = target.partition("#")
            path = (self.facts.root / self.document).parent / file if file else self.facts.root / self.document
            relative = str(Path(path).resolve().relative_to(self.facts.root.resolve())) if path.exists() else ""
            if not path.exists():
                self.report(line, target, "is a link to nothing", (name for name in self.facts.paths if name.endswith(".md")))
            elif anchor and anchor not in self.facts.headings(relative):
                self.report(line, f"#{anchor}", f"is no heading of {relative}", self.facts.headings(relative))


def findings(facts, document, text):
    return Check(facts, document, text).run()


def glossary(facts, document, others):
    """Terms that neither the source nor another document uses."""
    text = (facts.root / document).read_text()
    whole = "\n".join([*others, *((facts.root / name).read_text() for name in facts.sources)])
    unused = []
    for number, line in enumerate(text.split("\n"), 1):
        if not (row := re.match(r"\| ([^|]*[^|\s-][^|]*) \|", line)) or row[1] == "word":
            continue
        for term in row[1].split(", "):
            words = re.escape(term).replace("\\ ", r"[ _\-\n]")
            pattern = rf"\b{words}" if len(term) > 3 else rf"\b{words}s?\b"
            if not re.search(pattern, whole, re.I if len(term) > 1 else 0):
                unused.append(Finding(f"{document}:{number}", term, "is a word that nothing else uses"))
    return unused


def missing_documents(facts, name, text):
    """Documents that another kind of file names, with their headings."""
    found = []
    for match in re.finditer(r"\bdocs/([A-Z_]+\.md)(?:#([\w-]+))?", text):
        place, document = f"{name}:{text.count(chr(10), 0, match.start()) + 1}", f"docs/{match[1]}"
        if document not in facts.files:
            found.append(Finding(place, document, "is no document", nearest(document, [path for path in facts.files if path.endswith(".md")])))
        elif match[2] and match[2] not in facts.headings(document):
            found.append(Finding(place, f"#{match[2]}", f"is no heading of {document}", nearest(match[2], facts.headings(document))))
    return found
