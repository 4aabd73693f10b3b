"""docs/RESULTS.md has a row for every file of tests/results/, and a run without evidence is no file.

    /usr/bin/python3 -B -m pytest -q -p no:cacheprovider tests/test_results.py
"""

import subprocess
from pathlib import Path

import pytest
import results


@pytest.mark.parametrize("command", [["sh", "-c", "echo 'ok   x: y'; exit 1"], ["true"], ["echo", "FAIL x: y"]])
def test_a_run_without_result_is_not_recorded(command):
    """A command that fails, one that says nothing, and one without a step that passed."""
    parts = Path(__file__).with_name("results")
    before = {path: path.read_text() for path in parts.glob("*.md")}
    done = subprocess.run([parts.with_suffix(".py"), "record", "no-result", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    assert done.returncode != 0
    assert before and before == {path: path.read_text() for path in parts.glob("*.md")}


PART = "# Some suite\n\nCommand: `tests/run.sh`\\\nState: 1234567, 2026-11-21\\\nOutcome: 3 of 3 cases pass\n\nmore\n"


def test_a_row_of_the_results(tmp_path):
    """A file without one of the four lines is refused; so is a page that is not composed anew."""
    part = tmp_path / "suite.md"
    part.write_text(PART)
    assert results.part(part) == ("[Some suite](../tests/results/suite.md)", "1234567, 2026-11-21", "3 of 3 cases pass")
    for line in ("# ", "Command: ", "State: ", "Outcome: "):
        part.write_text(PART.replace(line, "- "))
        with pytest.raises(SystemExit):
            results.part(part)
    assert results.compose() == results.PAGE.read_text()


def test_the_outcome_of_a_recorded_run():
    cargo = ["ok   swarm: 3 runs", "test result: ok. 12 passed; 0 failed", "test result: ok. 1004 passed; 0 failed"]
    assert results.outcome(cargo) == "1,016 tests passed in 2 executables"
    assert results.outcome(["ok   a: 1 | 2", "native result: ok.   5 steps", "     a: 3 s"]) == "native result: ok. 5 steps"
    assert results.outcome(["     400 mutants: 308 | 2", "     survived: x"]) == "400 mutants: 308 / 2"
