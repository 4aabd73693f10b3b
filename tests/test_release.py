"""What deploy/release.sh refuses, before it builds anything; and that fuzz inputs survive an archive."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ADDRESS = "https://github.com/someone/ftld"


def run(folder, *command, **environment):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GITHUB_")} | environment
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def edit(file, pattern, replacement):
    text, count = re.subn(pattern, replacement, file.read_text(), count=1, flags=re.M | re.S)
    assert count == 1, f"{file} has no {pattern}"
    file.write_text(text)


def commit(folder):
    git = ("git", "-c", "user.name=tester", "-c", "user.email=tester@localhost")
    assert run(folder, *git, "commit", "-q", "--allow-empty", "-a", "-m", "a release").returncode == 0


@pytest.fixture
def ready(tmp_path):
    """A clone of the last commit with this release.sh, of which a release could be made: one version everywhere, an address, a tag."""
    copy = tmp_path / "ftld"
    assert run(tmp_path, "git", "clone", "-q", str(ROOT), str(copy)).returncode == 0
    for name in ["deploy/release.sh", "tests/fuzz/corpus.sh"]:
        shutil.copy(ROOT / name, copy / name)
    edit(copy / "Cargo.toml", r'^repository = ".*?"', f'repository = "{ADDRESS}"')
    edit(copy / "CHANGELOG.md", r"^## (\S+)[^\n]*", r"## \1")
    # It ends there, so that nothing is built.
    (copy / "deploy/packages.sh").write_text("#!/bin/sh\necho builds >&2\nexit 7\n")
    commit(copy)
    version = re.search(r'^version = "(.*)"', (copy / "Cargo.toml").read_text(), re.M)[1]
    assert run(copy, "git", "tag", f"v{version}").returncode == 0
    # Tools of a release that a machine with the tests alone may lack; none of them is reached.
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ["musl-gcc", "rpmbuild"]:
        (tools / tool).write_text("#!/bin/sh\n")
        (tools / tool).chmod(0o755)
    return copy, version, f"{os.environ['PATH']}:{tools}"


def refused(ready, text, *options, code=1, **environment):
    copy, _, path = ready
    ended = run(copy, "deploy/release.sh", *options, PATH=path, **environment)
    assert (ended.returncode, text in ended.stderr) == (code, True), ended.stderr
    return ended.stderr


def test_a_ready_tree_is_built(ready):
    refused(ready, "builds", code=7)
    refused(ready, "builds", code=7, GITHUB_REPOSITORY="someone/ftld")


def test_this_tree_has_one_version():
    """Finds two versions before release.sh refuses them."""
    version = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
    for file, pattern in [("CITATION.cff", r"^version: (.*)"), ("deploy/python/pyproject.toml", r'^version = "(.*)"')]:
        assert re.findall(pattern, (ROOT / file).read_text(), re.M) == [version], file


def test_options(ready):
    refused(ready, "usage: deploy/release.sh [--trial]", "--now", code=2)


def test_another_version_in_citation(ready):
    edit(ready[0] / "CITATION.cff", r"^version: .*?$", "version: 0.0.9")
    refused(ready, "CITATION.cff has version 0.0.9")


def test_another_version_of_the_fixture(ready):
    edit(ready[0] / "deploy/python/pyproject.toml", r'^version = ".*?"$', 'version = "0.0.9"')
    refused(ready, "deploy/python/pyproject.toml has version 0.0.9")


def test_another_version_of_a_crate(ready):
    edit(ready[0] / "Cargo.toml", r'^(nand-model = .*?version = )"[^"]*"', r'\1"0.0.9"')
    refused(ready, "has another version than")


def test_a_version_without_section(ready):
    edit(ready[0] / "CHANGELOG.md", r"^## [^\n]*", "## 0.0.9")
    refused(ready, "the first section of CHANGELOG.md is '## 0.0.9'")


def test_an_empty_section(ready):
    edit(ready[0] / "CHANGELOG.md", r"^(## [^\n]*\n).*?(?=^## )", r"\1\n")
    refused(ready, "of CHANGELOG.md is empty")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda copy, version: edit(copy / "CHANGELOG.md", r"^(## \S+)", r"\1 (unreleased)"), "(unreleased)"),
        (lambda copy, version: run(copy, "git", "tag", "-d", f"v{version}"), "no tag, not v"),
        (lambda copy, version: edit(copy / "README.md", r"^# ftld", "# ftld!"), "files differ from the commit"),
        (lambda copy, version: edit(copy / "Cargo.toml", r'^repository = ".*?"', 'repository = "https://ftld.example/ftld"'), "not the address"),
    ],
)
def test_a_trial_names_what_a_release_refuses(ready, change, text):
    copy, version, _ = ready
    change(copy, version)
    if "files differ" not in text:
        tagged = run(copy, "git", "tag", "--points-at", "HEAD").stdout.strip()
        commit(copy)
        if tagged:
            run(copy, "git", "tag", "-f", tagged)
    refused(ready, text)
    assert "builds" in refused(ready, text, "--trial", code=7)


def test_another_repository(ready):
    refused(ready, f"repository in Cargo.toml is {ADDRESS}, this is https://github.com/fork/ftld", GITHUB_REPOSITORY="fork/ftld")


def test_fuzz_inputs(ready, tmp_path):
    copy, _, _ = ready
    found = copy / "target/fuzz/corpus/nbd"
    found.mkdir(parents=True)
    (found / "found").write_bytes(b"an input of this machine")
    for folder in ["first", "second"]:
        packed = run(copy, "tests/fuzz/corpus.sh", "pack", str(tmp_path / folder))
        assert packed.returncode == 0, packed.stderr
    archives = sorted((tmp_path / "first").iterdir())
    assert [archive.name for archive in archives] == [f"ftld-fuzz-{name}.tar.gz" for name in sorted(os.listdir(copy / "tests/fuzz/corpus"))]
    for archive in archives:
        assert archive.read_bytes() == (tmp_path / "second" / archive.name).read_bytes()
    shutil.rmtree(copy / "target/fuzz")
    assert run(copy, "tests/fuzz/corpus.sh", "unpack", *map(str, archives)).returncode == 0
    inputs = {path.read_bytes() for path in found.iterdir()}
    kept = {path.read_bytes() for path in (copy / "tests/fuzz/corpus/nbd").iterdir()}
    assert inputs == kept | {b"an input of this machine"}


def test_an_archive_of_something_else(ready, tmp_path):
    for name, reason in [("elsewhere", "which is no fuzz target here"), ("nbd", "has other files than inputs")]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("no input")
        run(tmp_path, "tar", "czf", "archive.tar.gz", name)
        ended = run(ready[0], "tests/fuzz/corpus.sh", "unpack", str(tmp_path / "archive.tar.gz"))
        assert (ended.returncode, reason in ended.stderr) == (1, True), ended.stderr
