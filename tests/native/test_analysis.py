"""The last section of docs/REPLAY.md is a notebook that runs: its commands make rows, its Python reads and plots them, as
the page prints both. A column that the rows do not have any more is an error, not an empty plot."""

import json
import re

import matplotlib
import pandas as pd
import pytest
from harness import ROOT, run

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

SECTION = (ROOT / "docs/REPLAY.md").read_text().partition("\n## Reading rows in pandas\n")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```(sh|python)\n(.*?)^```$", SECTION, re.M | re.S)
CELLS = "\n".join(block for language, block in BLOCKS if language == "python")
# Parts of the paths that the cells read, by file.
COLUMNS = {
    "rows.ndjson": ["schema", "job", "workload", "seed", "device", "raw_bytes", "effective_op_percent", "scheme", "write_amplification", "total",
                    "by_cause", "response_ns", "write", "quantiles", "ratios", "ratio", "low", "high", "difference"],
    "series.ndjson": ["schema", "from_ns", "write_amplification"],
}


@pytest.fixture(scope="module")
def files(folder):
    """The folder in which every command of the page ran."""
    for language, block in BLOCKS:
        if language == "sh":
            run("bash", "-euo", "pipefail", "-c", block, cwd=folder)
    return folder


def drawn():
    """Numbers that the open figures show: ends of lines, and sizes of bars."""
    axes = [axis for number in plt.get_fignums() for axis in plt.figure(number).axes]
    lines = [list(line.get_ydata()) for axis in axes for line in axis.lines]
    bars = [[bar.get_width() for bar in axis.patches] for axis in axes if axis.patches]
    return lines, bars


def cells(folder, monkeypatch):
    """Runs all cells in a folder; returns what they drew."""
    monkeypatch.chdir(folder)
    plt.close("all")
    try:
        exec(compile(CELLS, "docs/REPLAY.md", "exec"), {})
        return drawn()
    finally:
        plt.close("all")


def test_short(folder):
    """rows to plots is at most 20 lines of Python."""
    first = next(block for language, block in BLOCKS if language == "python")
    assert 10 <= len([line for line in first.splitlines() if line.strip()]) <= 20
    assert [language for language, _ in BLOCKS] == ["sh", "python", "python", "sh", "python"]


def test_cells(files, monkeypatch, capsys):
    """every cell runs, and its tables and plots have numbers."""
    lines, bars = cells(files, monkeypatch)
    table = capsys.readouterr().out
    # Bars of three schemes by cause, then of the slowest requests; tails of three schemes on two devices; one series.
    rows = pd.json_normalize([json.loads(line) for line in open(files / "rows.ndjson")])
    causes = [name for name in rows if name.startswith("write_amplification.by_cause.")]
    assert len(bars) == 2 and len(bars[0]) == 3 * len(causes) and len(causes) >= 5
    assert abs(sum(bars[0]) - 3 * rows["write_amplification.total"].mean()) < 1e-6
    assert len(bars[1]) >= 10 and sum(bars[1]) > 0
    assert len(lines) == 7 and min(map(len, lines)) >= 5 and all(max(line) > 0 for line in lines)
    assert all(word in table for word in ["lazyftl", "zipf:requests=20K", "difference"])


def without(text, column):
    return re.sub(rf'"{column}":', f'"{column}_renamed":', text)


@pytest.mark.parametrize("name,column", [(name, column) for name, columns in COLUMNS.items() for column in columns])
def test_renamed(files, tmp_path, monkeypatch, name, column):
    """a renamed column is an error."""
    for file in files.iterdir():
        if file.is_file():
            (tmp_path / file.name).symlink_to(file)
    text = (files / name).read_text()
    (tmp_path / name).unlink()
    (tmp_path / name).write_text(without(text, column))
    assert without(text, column) != text
    with pytest.raises((KeyError, TypeError, ValueError, AttributeError, pd.errors.UndefinedVariableError)):
        cells(tmp_path, monkeypatch)


@pytest.mark.parametrize("column", ["response_ns", "programs_"])
def test_renamed_log(files, tmp_path, monkeypatch, column):
    """a renamed column of the log is an error."""
    for file in files.iterdir():
        if file.is_file():
            (tmp_path / file.name).symlink_to(file)
    log = pd.read_csv(files / "requests.csv.zst")
    (tmp_path / "requests.csv.zst").unlink()
    log.rename(columns=lambda head: head.replace(column, "renamed_")).to_csv(tmp_path / "requests.csv.zst", index=False)
    with pytest.raises((KeyError, IndexError)):
        cells(tmp_path, monkeypatch)
