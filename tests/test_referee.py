"""Compares ftld's counts with those of tests/referee/referee.c, a simulator written from the papers that shares no code with it.

The loads are made here. With TRACES=DIR, the real traces of that folder are compared, too. BUILT names the folder with ftld.
"""

import functools
import json
import os
import random
import subprocess
from pathlib import Path

import pytest
from referee.requests import compact, pages, read

TESTS = Path(__file__).resolve().parent
PROGRAM = TESTS.parent / os.environ.get("BUILT", "target/release") / "ftld"
KEEP, MIB = 6, 1 << 20
# Off: what no paper has.
OFF = ["wear.policy=none", "scrub.hours=0", "nand.pair_policy=none", f"gc.free_threshold={KEEP}"]
PAGED = ["ckpt.interval=0"]
NEVER = 10**9
# By name: the scheme, its parameters in ftld, and those in the referee. `late=1`: ftld's order in a conversion, see the README.
SCHEMES = {
    "pagemap": ("pagemap", [*PAGED, "gc.placement=single"], []),
    "pagemap, copies apart": ("pagemap", [*PAGED, "gc.placement=copies_apart"], ["apart=1"]),
    "lazyftl": ("lazyftl", [*PAGED, "lazy.buffer_blocks=16", "lazy.cache_pages=3", f"lazy.age_window={NEVER}"], ["area=16", "cache=3", "late=1"]),
    "dftl": ("dftl", [*PAGED, "gc.placement=single", "dftl.cache=4096", f"map.age_window={NEVER}"], ["cached=512"]),
    "dftl, copies apart": ("dftl", [*PAGED, "gc.placement=copies_apart", "dftl.cache=4096", f"map.age_window={NEVER}"], ["cached=512", "apart=1"]),
    "mnftl": ("mnftl", ["mnftl.idle_min_chain=0"], []),
    "fast": ("fast", ["log.blocks=16"], ["log=16"]),
}
# A part of any size without bad blocks, SLC of 64 pages of 2 KiB. MLC may not program a page of FAST's data blocks at its place.
PROFILES = ["rose-part", "mlc-4k"]


REAL = ["spc_financial1_asu0", "1and1_windows_mssql", "1and1_linux_mysql"]


def made(kind, size):
    """Requests with parts of pages, runs over several blocks, and reads: most writes fall on a third of the device."""
    rng = random.Random(kind)
    for _ in range(size // MIB * (900 if kind == "small" else 300)):
        share = 0.3 if kind != "uniform" and rng.random() < 0.8 else 1
        length = rng.choice([512, 2048, 4096, 8192] if kind == "small" else [1024, 4096, 16384, 65536])
        if kind == "long" and rng.random() < 0.05:
            length = 512 * 1024
        offset = rng.randrange(int(size * share) // 512) * 512
        yield rng.choices("WR", [9, 1])[0], min(offset, size - length), length


@pytest.fixture(scope="module")
def referee(tmp_path_factory):
    program = tmp_path_factory.mktemp("referee") / "referee"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-std=c11", "-o", program, TESTS / "referee/referee.c"], check=True)
    return program


@pytest.fixture(scope="module", params=["small", "uniform", "long"])
def load(request, tmp_path_factory):
    trace = tmp_path_factory.mktemp("load") / f"{request.param}.csv"
    lines = [f"{i},{kind},{offset},{length}" for i, (kind, offset, length) in enumerate(made(request.param, 16 * MIB))]
    trace.write_text("time_us,op,offset_bytes,length_bytes\n" + "\n".join(lines) + "\n")
    return trace


def counts_of_ftld(trace, name, profile, passes):
    scheme, params, _ = SCHEMES[name]
    command = [PROGRAM, "replay", trace, "--json", "--address", "compact", "--precondition", "new", "--warm-up", str(passes)]
    command += ["--scheme", scheme, "--profile", profile, "--op", "12"]
    done = subprocess.run([*command, *(word for one in OFF + params for word in ("--set", one))], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    flash = row["flash"]

    def total(operation, *causes):
        return sum(flash.get(cause, {}).get(operation, 0) for cause in causes)

    table = ("convert", "translation", "gc_translation")
    counts = {
        "host reads": total("reads", "host"),
        "host programs": total("programs", "host"),
        "copies": total("programs", "gc", "merge"),
        "map programs": total("programs", *table),
        "map reads": total("reads", *table),
        "erases": total("erases", *flash),
        "conversions": row["scheme_stats"]["converts"],
    }
    counts |= {kind: row["scheme_stats"][kind] for kind in ("switch_merges", "partial_merges", "full_merges")}
    return counts, row["device"]


@functools.cache
def requests_of(trace, folder, page, block):
    """The file with the requests of a trace, and the bytes that they touch."""
    requests, size = compact(list(read(trace)))
    lines = folder / f"{trace.name}.{page}.{block}"
    lines.write_text("".join(f"{kind} {first} {count}\n" for kind, first, count in pages(requests, page, block)))
    return lines, size


def counts_of_referee(program, trace, name, device, passes, *first):
    """The options in `first` have priority."""
    page = device["page_bytes"]
    lines, size = requests_of(trace, program.parent, page, page * device["pages_per_block"])
    assert size == device["size_bytes"]
    scheme, _, params = SCHEMES[name]
    shape = {
        "pages": device["pages_per_block"],
        "blocks": device["blocks"] - device["bad_blocks"],
        "logical": device["logical_pages"],
        "entries": device["page_bytes"] // 4,
        "threshold": KEEP,
        "passes": passes,
    }
    command = [program, scheme, *first, *(f"{key}={n}" for key, n in shape.items()), *params]
    with lines.open() as stdin:
        done = subprocess.run(command, stdin=stdin, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    counts = {kind.replace("_", " "): found[kind] for kind in ("host_reads", "host_programs", "copies", "erases", "conversions")}
    # ftld counts mapping pages that GC writes anew and those that it copies together.
    counts |= {"map programs": found["map_programs"] + found["map_copies"], "map reads": found["map_reads"] + found["map_copies"]}
    return counts | {kind: found[kind] for kind in ("switch_merges", "partial_merges", "full_merges")}


def compare(program, trace, name, profile, passes):
    ours, device = counts_of_ftld(trace, name, profile, passes)
    assert ours == counts_of_referee(program, trace, name, device, passes)
    return ours


def cases():
    return [(name, profile) for name in SCHEMES for profile in PROFILES if (name, profile) != ("fast", "mlc-4k")]


@pytest.mark.parametrize("passes", [0, 2])
@pytest.mark.parametrize("name, profile", cases())
def test_counts_are_equal(referee, load, name, profile, passes):
    counts = compare(referee, load, name, profile, passes)
    # Otherwise nothing was compared but writes.
    assert counts["copies"] > 1000 and counts["erases"] > 50


def test_algorithm_1_in_its_own_order_counts_almost_the_same(referee, load):
    """LazyFTL's paper invalidates pages in another order than ftld. It takes any block with the fewest valid pages as the victim."""
    ours, device = counts_of_ftld(load, "lazyftl", "rose-part", 2)
    theirs = counts_of_referee(referee, load, "lazyftl", device, 2, "late=0")
    assert ours != theirs, "the order has no effect"
    assert all(abs(n - ours[kind]) <= 0.05 * ours[kind] * (kind[:4] != "host") for kind, n in theirs.items())


def test_the_mutants_apply():
    """One for each scheme, see the README."""
    mutants = sorted((TESTS / "referee/mutants").glob("*.patch"))
    assert {one.stem for one in mutants} == {scheme for scheme, *_ in SCHEMES.values()}
    subprocess.run(["git", "apply", "--check", *mutants], cwd=TESTS.parent, check=True)


@pytest.mark.skipif("TRACES" not in os.environ, reason="TRACES=DIR names no folder of real traces")
@pytest.mark.parametrize("passes", [0, 2])
@pytest.mark.parametrize("name, profile", cases())
@pytest.mark.parametrize("stem", REAL)
def test_counts_on_real_traces_are_equal(referee, stem, name, profile, passes):
    compare(referee, Path(os.environ["TRACES"]) / f"{stem}.csv.zst", name, profile, passes)
