"""Documents and manual pages name existing things (tests/documents); stale names are found."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from dead_links import dead_links
from documents.check import FOREIGN, FOREIGN_COMMANDS, FOREIGN_OPTIONS, findings, glossary, missing_documents
from documents.facts import Facts

ROOT = Path(__file__).resolve().parents[1]
# The program of the tests' build, as for the native suites.
FACTS = Facts(ROOT, ROOT / os.environ.get("BUILT", "target/debug") / "ftld")
GLOSSARY = "docs/GLOSSARY.md"
# Records name the tree of the commit that was measured; their headings, commands and links hold today.
RECORDS = sorted(name for name in FACTS.files if name.startswith("tests/results/") and name.endswith(".md"))
# CHANGELOG.md is left out: it names what there was.
DOCUMENTS = ["README.md", "CONTRIBUTING.md", *sorted(name for name in FACTS.files if name.startswith("docs/") and name.endswith(".md"))]


@pytest.fixture(scope="session", autouse=True)
def program():
    assert FACTS.program.exists(), f"there is no {FACTS.program}: cargo build -p ftld, or BUILT=FOLDER"


def show(found):
    return "\n" + "\n".join(map(str, found))


@pytest.mark.parametrize("name", [*DOCUMENTS, *RECORDS])
def test_a_document(name):
    text = (ROOT / name).read_text()
    if name in RECORDS:
        text = re.sub(r"^(?!#|Command: |.*\]\().*$", "", text, flags=re.M)
    found = findings(FACTS, name, text)
    assert not found, show(found)


def test_the_manual_pages(tmp_path):
    pages = FACTS.manual(tmp_path)
    assert {name.replace(".8", "(8)") for name in pages if name.endswith(".8")} <= FACTS.pages and len(pages) >= 20
    found = [finding for name, text in pages.items() for finding in findings(FACTS, name, text)]
    assert not found, show(found)


def test_what_is_deployed():
    """Units, containers and packages: command lines, variables, metrics, names in comments."""
    names = [name for name in FACTS.sources if name.startswith("deploy/") and not name.endswith((".json", ".py"))]
    assert len(names) >= 12
    found = [finding for name in names for finding in findings(FACTS, name, (ROOT / name).read_text())]
    assert not found, show(found)


def test_the_documents_of_the_packages(tmp_path):
    """No link is dead, and pictures and examples are there."""
    command = [ROOT / "deploy/packages.sh", "documents"]
    out = {**os.environ, "OUT": str(tmp_path / "packages")}
    folder = Path(subprocess.run(command, env=out, check=True, capture_output=True, text=True).stdout.strip())
    assert not dead_links(folder), show(dead_links(folder))
    for name in ("docs/live-page.png", "docs/examples/qlc-16-dies.toml", "docs/examples/my-scheme/src/lib.rs", *RECORDS):
        assert (folder / name).is_file(), name
    (folder / "docs/NAND.md").unlink()
    assert dead_links(folder), "a link to a document that is missing is found"


def test_the_glossary():
    others = [(ROOT / name).read_text() for name in DOCUMENTS if name != GLOSSARY]
    found = glossary(FACTS, GLOSSARY, others)
    assert not found, show(found)


def test_documents_that_the_source_names():
    """Comments, messages, units, packages."""
    found = []
    for name, text in ((name, (ROOT / name).read_text()) for name in FACTS.sources):
        found += missing_documents(FACTS, name, text)
    assert not found, show(found)


def test_there_is_something_to_compare_with():
    """Facts that were not found would make everything stale, or nothing."""
    least = {
        "files": 400, "functions": 1000, "parameters": 40, "families": 15, "options": 50, "subcommands": 20, "metrics": 70,
        "records": 3, "variables": 25, "targets": 10, "packages": 5, "workloads": 10, "pages": 20, "words": 10_000,
    }
    assert {name: len(getattr(FACTS, name)) for name, count in least.items() if len(getattr(FACTS, name)) < count} == {}
    assert len(DOCUMENTS) >= 15


def test_the_schemes_on_mlc():
    """The column of docs/SCHEMES.md agrees with the program."""
    rows = dict(re.findall(r"^\| `(\w+)`.* \| (yes|adapted)[^|]* \|$", (ROOT / "docs/SCHEMES.md").read_text(), re.M))
    told = {row["name"]: "yes" if row["mlc"] == "as published" else "adapted" for row in FACTS.listed("schemes")}
    assert rows == told


def test_the_causes():
    """The glossary lists the causes of the metrics."""
    row = re.search(r"^\| cause \|[^`\n]*`([^`\n]*)`", (ROOT / GLOSSARY).read_text(), re.M)
    assert set(row[1].split()) == FACTS.labels["ftld_nand_erases_total"]["cause"]


def lines(name):
    return [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]


# Document, pattern of a sentence with a count, and the true count.
COUNTED = [
    ("README.md", r"how (\d+) published flash translation", lambda: len(FACTS.listed("schemes"))),
    ("ftl-core/README.md", r"(\d+) published schemes", lambda: len(FACTS.listed("schemes"))),
    ("docs/TESTING.md", r"the cost of mounts for (\d+) runs", lambda: len(lines("tests/decisions.tsv"))),
    ("docs/TESTING.md", r"has (\d+) small patches", lambda: len(list((ROOT / "tests/canaries").glob("*.patch")))),
    ("docs/TESTING.md", r"tests (\d+) mutants", lambda: len(lines("tests/mutants/state.tsv"))),
]


@pytest.mark.parametrize("name, pattern, count", COUNTED, ids=[pattern for _, pattern, _ in COUNTED])
def test_a_count(name, pattern, count):
    found = re.findall(pattern, (ROOT / name).read_text())
    assert found == [str(count())], f"{name}: {pattern!r}"


def test_the_tables_of_the_measurements():
    """docs/PERFORMANCE.md and its record show the kept results."""
    done = subprocess.run([ROOT / "tests/bench/page.py", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def printed(name):
    """Commands of a document that stand above their output, as `$ ftld ...`, and that output."""
    return [(name, *block) for block in re.findall(r"^```\n\$ ftld (.*)\n((?s:.*?))^```$", (ROOT / name).read_text(), re.M)]


PRINTED = [block for name in DOCUMENTS for block in printed(name)]


@pytest.mark.parametrize("name, command, shown", PRINTED, ids=[command for _, command, _ in PRINTED])
def test_a_printed_output(name, command, shown):
    """It is what the program prints, in emulated time to the last digit; `...` stands for any lines."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("FTLD_")}
    done = subprocess.run([FACTS.program, *command.split()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    pattern = "".join("(?s:.*)" if line == "..." else f"{re.escape(line)}\\n" for line in shown.splitlines())
    assert re.match(pattern, done.stdout), f"{name}: ftld {command} prints\n{done.stdout}"


def test_there_are_printed_outputs():
    assert len(PRINTED) >= 2


def test_every_exception_is_needed():
    texts = [(ROOT / name).read_text() for name in FACTS.files if name in {*DOCUMENTS, *RECORDS} or name.startswith("deploy/") or name == "daemon/src/cli.rs"]
    unused = [word for word in {*FOREIGN, *FOREIGN_OPTIONS, *FOREIGN_COMMANDS} if not any(word in text for text in texts)]
    assert not unused, unused


# Kind of stale word; a document with it; the word; the nearest word that exists ("": any).
STALE = {
    "a parameter (OPERATING)": ('In the environment `--set` is\n`FTLD_SET="gc.polices=greedy wear.gap=4"`.', "gc.polices", "gc.policy"),
    "a parameter in a file (manual)": ('```toml\n[set]\n"gc.polices" = "greedy"\n```', "gc.polices", "gc.policy"),
    "a path that is a folder now (NAND)": ("The contract is `nand-model/src/chip.rs`.", "nand-model/src/chip.rs", "nand-model/src/chip"),
    "a path (CONTRIBUTING)": ("`unsafe` in `daemon/device/src/transport/ublk.rs`", "daemon/device/src/transport/ublk.rs", "daemon/device/src/transport/ublk"),
    "a bare file": ("`clean_stopp.rs` says", "clean_stopp.rs", "clean_stop.rs"),
    "a part of a path": ("as `unitz/slices.rs` does", "unitz/slices.rs", "units/slices.rs"),
    "a document": ("see `docs/NANDS.md`", "docs/NANDS.md", "docs/NAND.md"),
    "a document in prose": ("The causes are those of ARCHITEKTURE.md.", "ARCHITEKTURE.md", "ARCHITECTURE.md"),
    "a link": ("see [the chip](docs/NANDS.md)", "docs/NANDS.md", "docs/NAND.md"),
    "an anchor": ("see [it](docs/OPERATING.md#instalation)", "#instalation", "installing"),
    "an anchor of its own": ("# One\n\n[it](#two)", "#two", ""),
    "a folder of the machine": ("in `/var/lib/ftld-data/NAME`", "/var/lib/ftld-data/NAME", ""),
    "a unit": ("`ftld-nbds@disk.socket` serves", "ftld-nbds@.socket", "ftld-nbd@.socket"),
    "an option": ("with `--latenzy emulate`", "--latenzy", "--latency"),
    "an option of a subcommand": ("`ftld stop --forced ublkb0`", "--forced", "--force"),
    "an option of another subcommand": ("```sh\nftld stop lesson --watch\n```", "--watch", ""),
    "an option in a block": ("Try\n\n    ftld --sise 1GiB /dev/ublkb0     # a comment\n", "--sise", "--size"),
    "an option of a script": ("`tests/mutants.py --sumary`", "--sumary", "--summary"),
    "a value of an option": ("with `--latency emulated`", "emulated", "emulate"),
    "a scheme": ("`ftld compare uniform --scheme lazyftl,pagemp`", "pagemp", "pagemap"),
    "a profile": ("with `--profile mlc-8k`", "mlc-8k", "mlc-4k"),
    "a preset": ("with `--preset rose-papers`", "rose-papers", "rose-paper"),
    "a workload": ("```sh\nftld compare unifrom --size 1GiB\n```", "unifrom", "uniform"),
    "a key of a workload": ("`ftld replay zipf:teta=1.1`", "teta", "theta"),
    "a value of a parameter": ("with `--set wear.policy=static`", "static", ""),
    "a parameter without a family": ("with `--set valid_trackin=oob_mark`", "valid_trackin", "lazy.valid_tracking"),
    "a parameter in prose": ("more with wear.gapp, less without", "wear.gapp", "wear.gap"),
    "a key of a file": ("```toml\nsise = 4\n```", "sise", "size"),
    "a subcommand": ("see `ftld presetz`", "presetz", "presets"),
    "a subcommand below": ("`ftld inject power-out`", "power-out", "power-cut"),
    "a manual page": ("see ftld-scheme(7)", "ftld-scheme(7)", "ftld-schemes(7)"),
    "a metric": ("    rate(ftld_nand_erased_total[5m])", "ftld_nand_erased_total", "ftld_nand_erases_total"),
    "a label": ('`ftld_nand_erases_total{reason="gc"}`', "reason", ""),
    "a value of a label": ('`ftld_nand_erases_total{cause="pads"}`', "pads", "pad"),
    "a recorded rule": ("`device:ftld_write_amplification:ratio`", "device:ftld_write_amplification:ratio", "device:ftld_write_amplification:ratio_rate5m"),
    "an alert": ("`FtldSlowSyncs` fires", "FtldSlowSyncs", "FtldSlowSync"),
    "a variable": ("FTLD_SWARM_SECOND=5 before it", "FTLD_SWARM_SECOND", "FTLD_SWARM_SECONDS"),
    "a variable of a script": ("`FIO_SECOND=5 tests/native/run.sh kill_nbd`", "FIO_SECOND", "FIO_SECONDS"),
    "a target of make": ("`make\npackage` builds", "package", "packages"),
    "a variable of the Makefile": ("`make bench FTLSIMS=DIR`", "FTLSIMS", "FTLSIM"),
    "a suite": ("`cargo test -p ftld-tests --test suite`", "suite", "suites"),
    "a module of a suite": ("`cargo test -p ftld-tests --test suites power_cuts::`", "power_cuts", "power_cut"),
    "a program": ("    cargo run -p ftld-tests --bin paper_lazy", "paper_lazy", "paper_lazyftl"),
    "a package": ("    cargo test -p ftld-test", "ftld-test", "ftld-tests"),
    "a name of a test": ("`cargo test -p ftld-tests --test suites -- a_cut_at_no_place`", "a_cut_at_no_place", ""),
    "a script of a suite": ("`tests/guest/run.sh ublk_kills`", "ublk_kills", "ublk_kill"),
    "a type": ("a `FaultPlanner` is asked", "FaultPlanner", "FaultPlan"),
    "a function": ("`Chip::cut_hit` counts", "cut_hit", "cut_hits"),
    "a field of JSON": ("`writes_are_failing` has the reason", "writes_are_failing", "writes_failing"),
    "a field in an object": ('`{"generations", "per_cel"}`', "per_cel", "per_cell"),
    "a path of JSON": ("`device.raw_bites` says", "device.raw_bites", ""),
    "a schema": ("`ftld.stats/1`", "stats", ""),
}


@pytest.mark.parametrize("kind", STALE)
def test_a_stale_document(kind):
    text, word, right = STALE[kind]
    # At some line that is not the first, beside something true.
    found = findings(FACTS, "README.md", f"`ftld schemes`, `docs/NAND.md`, `gc.free_threshold`.\n\n{text}\n")
    assert word in [finding.word for finding in found], show(found)
    hit = next(finding for finding in found if finding.word == word)
    assert int(hit.place.removeprefix("README.md:")) >= 3
    assert hit.nearest.endswith(right), show(found)


def test_an_unused_term(tmp_path):
    term = "-".join(["flux", "capacitor"])
    (tmp_path / "docs").mkdir()
    (tmp_path / GLOSSARY).write_text(f"| word | meaning |\n|---|---|\n| block | a block |\n| {term}, page | none |\n")
    facts = Facts(tmp_path, FACTS.program)
    facts.__dict__["sources"] = {}
    assert [finding.word for finding in glossary(facts, GLOSSARY, ["a page of a block"])] == [term]


def test_a_stale_manual_page():
    found = findings(FACTS, "ftld.8", "EXAMPLE\nUse --sise, see ftld-serve(8).\n\"gc.polices\" = \"greedy\"\n")
    assert {finding.word for finding in found} >= {"--sise", "ftld-serve(8)", "gc.polices"}, show(found)


@pytest.mark.parametrize(
    "line", ["#   docker run --rm ftld compare uniform zipf --sise 1GiB", 'command: ["--sise", "1GiB"]', "ExecStart=/usr/bin/ftld --sise 1GiB /dev/%i"]
)
def test_a_stale_unit(line):
    assert "--sise" in [finding.word for finding in findings(FACTS, "deploy/Dockerfile", line)]


def test_a_comment_that_names_no_document():
    found = missing_documents(FACTS, "x.rs", "//! Bytes: docs/" + "FORMATS.md\n//! Rules: docs/" + "NAND.md#what-it-is-not\n")
    assert len(found) == 2, show(found)
