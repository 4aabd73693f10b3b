"""A real Prometheus scrapes a live daemon: promtool has nothing to say about the page, and every
catalogued metric, every formula of docs/METRICS.md and every recorded rule answers with values."""

import math
import re
import subprocess
import time

import pytest
from harness import ROOT, Daemon, Load, Prometheus, page, run, wait_for

DOCUMENT = (ROOT / "docs/METRICS.md").read_text()
RULES = ROOT / "deploy/prometheus"


def section(first, last):
    return DOCUMENT.split(f"\n## {first}")[1].split(f"\n## {last}")[0]


def catalogue():
    items = re.findall(r"^- `(ftld_[a-z0-9_]*)[^`]*`( \(histogram\))?:", section("Catalogue", "Causes"), re.M)
    return [f"{name}_count" if histogram else name for name, histogram in items]


def formulas():
    """Indented lines but for comments; a line that is indented further goes on from the one above."""
    lines = []
    for line in section("Formulas", "Dashboards").splitlines():
        if line.startswith("      "):
            lines[-1] += " " + line.strip()
        elif line.startswith("    ") and not line.startswith("    #"):
            lines.append(line.strip())
    return [line.replace("15s", "1s").replace("5m", "10s") for line in lines]


def names(file, pattern):
    return sorted(set(re.findall(pattern, file.read_text() if hasattr(file, "read_text") else file, re.M)))


RECORDS = names(RULES / "ftld.rules.yml", r"^ *- record: (.*)$")
ALERTS = names(RULES / "ftld.rules.yml", r"^ *- alert: (.*)$")


@pytest.fixture(scope="module")
def daemon(folder, to_kill):
    daemon = Daemon(folder, "default", "--scheme", "lazyftl", "--size", "64MiB", "--shadow", "pagemap")
    to_kill.append(daemon)
    return daemon


@pytest.fixture(scope="module")
def prometheus(folder, daemon, to_kill):
    prometheus = Prometheus(folder, RULES / "ftld.rules.yml", [daemon])
    to_kill.append(prometheus)
    return prometheus


@pytest.fixture(scope="module")
def load(folder, daemon, prometheus, to_kill):
    """Rates need a load as long as somebody asks."""
    load = Load(daemon, folder / "fio.log", "--rwmixread=20", "--size=64m", "--iodepth=8", "--fsync=64", "--rate_iops=4000")
    to_kill.append(load)
    wait_for(lambda: prometheus.query("rate(ftld_gc_runs_total[10s]) > 0"), 90, "the device is written until it collects")
    time.sleep(12)
    return load


def lint(daemon):
    text = page(daemon.metrics)
    assert text.count("# TYPE ") >= len(catalogue()), "the page lacks metrics of the catalogue"
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60
    )
    assert done.returncode == 0 and not done.stdout, done.stdout


def answers(prometheus, expression):
    samples = prometheus.query(expression)
    assert samples, f"{expression}: no answer"
    assert not any(math.isnan(number) for _, number in samples), f"{expression}: NaN"
    return samples


def test_fresh_page(daemon):
    """promtool has nothing to say about a fresh page."""
    lint(daemon)


def test_rules_are_valid():
    """promtool accepts the rules."""
    run("promtool", "check", "rules", "ftld.rules.yml", cwd=RULES)


def test_rules_pass_their_tests():
    """the rules pass their tests."""
    run("promtool", "test", "rules", "ftld.rules.test.yml", cwd=RULES)


def test_alerts_are_tested():
    """every alert has a test."""
    assert len(ALERTS) >= 10
    assert names(RULES / "ftld.rules.test.yml", r'^ *- name: "(Ftld[A-Za-z]*):') == ALERTS


def test_alerts_are_documented():
    """every alert has summary, description and a link to meaning, check and remedy, with its severity and delay."""
    rules = (RULES / "ftld.rules.yml").read_text().split("\n      - alert: ")[1:]
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", DOCUMENT.split("\n## Alerts\n")[1], re.M | re.S))
    assert sorted(sections) == ALERTS
    for rule in rules:
        name = rule.split()[0]
        annotations = dict(re.findall(r'^          (\w+): "(.*)"$', rule, re.M))
        assert set(annotations) == {"summary", "description", "runbook_url"} and all(annotations.values()), name
        assert annotations["runbook_url"] == f"docs/METRICS.md#{name.lower()}"
        assert re.findall(r"^\*\*(\w+)\.\*\* \S", sections[name], re.M) == ["Meaning", "Check", "Remedy"], name
        severity, delay = (re.search(rf"\b{key}: (\w+)", rule) for key in ("severity", "for"))
        begin = severity[1].capitalize() + (f", {delay[1]}:" if delay else ":")
        assert f"**Meaning.** {begin} " in sections[name], f"{name}: {begin}"


def test_document_is_read():
    """catalogue, formulas and records are found."""
    assert len(catalogue()) >= 60 and len(formulas()) >= 8 and len(RECORDS) >= 4, (catalogue(), formulas(), RECORDS)


def test_configuration(prometheus):
    """promtool accepts the configuration."""
    run("promtool", "check", "config", prometheus.config)


def test_device_collects(load):
    """the device is written until it collects."""
    assert load.runs()


def test_daemon_is_up(prometheus, load):
    """the daemon is up."""
    assert prometheus.value('up{job="ftld"}') == 1


@pytest.mark.parametrize("name", catalogue())
def test_metric(prometheus, load, name):
    """a metric of the catalogue has values."""
    answers(prometheus, f'{name}{{device="default"}}')


@pytest.mark.parametrize("formula", formulas())
def test_formula(prometheus, load, formula):
    """a formula of the document has values."""
    answers(prometheus, formula)


@pytest.mark.parametrize("record", RECORDS)
def test_record(prometheus, load, record):
    """a rule records values."""
    answers(prometheus, record)


def test_no_critical_alert(prometheus, load, note):
    """no critical alert fires."""
    rules = [rule for group in prometheus.get("rules", type="alert")["groups"] for rule in group["rules"]]
    critical = [rule for rule in rules if rule["labels"]["severity"] == "critical"]
    assert sorted({rule["name"] for rule in rules}) == ALERTS and len(critical) >= 3
    for rule in critical:
        assert rule["health"] == "ok" and float(rule["evaluationTime"]) > 0, f"{rule['name']} is not evaluated: {rule['health']}"
        assert not rule["alerts"], f"{rule['name']}: {rule['alerts']}"
    assert not prometheus.query('ALERTS{alertstate="firing",severity="critical"}')
    note(f"{len(critical)} alerts are evaluated")


def test_collections_are_counted(prometheus, load, note):
    """collections were counted."""
    runs, written = prometheus.value("ftld_gc_runs_total"), prometheus.value("ftld_host_written_bytes_total")
    note(f"{runs:.0f} after {written:.0f} bytes")
    assert runs > 0 and written > 64 << 20


def test_write_amplification(prometheus, load, note):
    """write amplification is plausible."""
    waf = prometheus.value("ftld_write_amplification_ratio")
    note(f"{waf:.2f}")
    assert 1 <= waf < 20


def test_busy_page(daemon, load):
    """promtool has nothing to say about a busy page."""
    lint(daemon)


def test_daemon_ends(daemon, load):
    """SIGTERM ends the daemon."""
    load.stop()
    daemon.stop()
