"""Checks of the Grafana dashboards, for tests/native/test_grafana.py.

`lint` has the rules of Grafana's dashboard-linter. `evaluate` resolves the variables as Grafana does,
puts them into every query, and reports no answer, NaN, a value out of the bounds that
deploy/grafana/dashboards.py gives, or a device without an answer. Grafana itself, its rendering and
its migrations of dashboards are not tested.
"""

import json
import math
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GRAFANA = ROOT / "deploy" / "grafana"
sys.path.insert(0, str(GRAFANA))
sys.dont_write_bytecode = True

from dashboards import DASHBOARDS, FOLDER  # noqa: E402

DATASOURCE = "${datasource}"
COUNTER = re.compile(r"\b(ftld_\w+_total)\b")
RATES = ("rate(", "irate(", "increase(")


def dashboards():
    return [json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))]


def lint(board):
    """One line per rule that the dashboard breaks."""
    wrong = []
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}

    def want(holds, what):
        if not holds:
            wrong.append(f"{board['uid']}: {what}")

    source = variables.get("datasource", {})
    want(source.get("type") == "datasource" and source.get("query") == "prometheus", "no variable for the data source")
    want(source.get("label") == "Data source", "the data source's variable has another label")
    want(board["editable"] is False, "it can be edited")
    want(re.fullmatch(r"[a-z-]{1,40}", board["uid"]), "its uid is not a stable name")
    for name, label in (("job", "Job"), ("instance", "Instance")):
        variable = variables.get(name, {})
        want(variable.get("label") == label, f"variable {name}: no label {label}")
        want(variable.get("multi") and variable.get("includeAll"), f"variable {name}: not several, or not all")
        want(variable.get("allValue") == ".+", f"variable {name}: all is not .+")
    for name, variable in variables.items():
        if name != "datasource":
            want(variable.get("refresh") == 2, f"variable {name}: not looked up again with the time range")
            want(variable["datasource"]["uid"] == DATASOURCE, f"variable {name}: another data source")
    ids = [panel["id"] for panel in board["panels"]]
    want(len(set(ids)) == len(ids), "panels with the same number")
    for panel in board["panels"]:
        here = f"panel {panel['title']!r}"
        want(panel["title"] and panel["description"], f"{here}: no title or description")
        want(panel["fieldConfig"]["defaults"].get("unit"), f"{here}: no unit")
        want(panel["datasource"]["uid"] == DATASOURCE, f"{here}: another data source")
        want(panel["targets"], f"{here}: no query")
        for target in panel["targets"]:
            query = f"{here}, {target['refId']}"
            expr = target["expr"]
            want(target["datasource"]["uid"] == DATASOURCE, f"{query}: another data source")
            selectors = re.findall(r"ftld_\w+(\{[^}]*\})?", expr)
            for name in ("job", "instance"):
                want(all(f'{name}=~"${name}"' in selector for selector in selectors), f"{query}: a metric without {name}")
            ranges = re.findall(r"\[([^\]]*)\]", expr)
            want(all(r in ("$__rate_interval", "1h") for r in ranges), f"{query}: a range that is not $__rate_interval")
            for counter in COUNTER.finditer(expr):
                want(expr[: counter.start()].endswith(RATES), f"{query}: {counter[1]} is a counter without a rate")
    return wrong


def label_values(prometheus, definition):
    found = re.fullmatch(r"label_values\((.*), (\w+)\)", definition)
    selector = found[1].replace("{}", "")
    return prometheus.get(f"label/{found[2]}/values", **{"match[]": selector})


def resolved(board, prometheus):
    """Every variable with all its values, as Grafana writes a choice of several."""
    values = {}
    for variable in board["templating"]["list"]:
        if variable["type"] == "datasource":
            continue
        found = label_values(prometheus, substituted(variable["query"]["query"], values))
        if not found:
            raise LookupError(f"{board['uid']}: variable {variable['name']} has no value")
        values[variable["name"]] = "(" + "|".join(re.escape(value).replace("\\", "\\\\") for value in found) + ")"
    return values


def substituted(expr, values):
    for name, value in values.items():
        expr = expr.replace(f"${name}", value)
    return expr.replace("$__rate_interval", "10s")


def evaluate(board, prometheus, devices):
    """One line per query that does not answer as it should, and how many there are."""
    wrong, values, queries = [], resolved(board, prometheus), 0
    source = DASHBOARDS[board["uid"]][2]
    for panel, origin in zip(board["panels"], source, strict=True):
        for target, query in zip(panel["targets"], origin["queries"], strict=True):
            queries += 1
            here = f"{board['uid']}, {panel['title']!r}, {target['refId']}"
            samples = prometheus.get("query", query=substituted(target["expr"], values))["result"]
            numbers = [float(sample["value"][1]) for sample in samples]
            low, high = query["bounds"]
            if any(math.isnan(number) for number in numbers):
                wrong.append(f"{here}: NaN")
            elif not all(low <= number <= high for number in numbers):
                out = [number for number in numbers if not low <= number <= high]
                wrong.append(f"{here}: {out[:4]} beyond {low} to {high}")
            seen = {sample["metric"].get("device") for sample in samples}
            # A scheme with the whole map in RAM has no ratio of hits: pagemap, one of the devices.
            is_hit_ratio = "ftld_map_cache_lookups_total" in target["expr"] and "/" in target["expr"]
            expected = devices - 1 if is_hit_ratio else devices
            if len(seen) != expected:
                wrong.append(f"{here}: {len(seen)} devices answer, not {expected}")
    return wrong, queries
