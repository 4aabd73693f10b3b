"""Checks of the Grafana dashboards, for tests/native/test_grafana.py.

`lint` has the rules of Grafana's dashboard-linter and the conventions of the Prometheus mixins.
`evaluate` resolves the variables as Grafana does, substitutes them in every query, and reports NaN,
a value out of the bounds of deploy/grafana/dashboards.py, and an instance that answers without the
activity that the query needs, or does not answer with it. Grafana itself, its rendering and its
migrations of dashboards are not tested.
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
from layout import MATCHERS, NEEDS  # noqa: E402

DATASOURCE = "${datasource}"
COUNTER = re.compile(r"\b(ftld_\w+_total)\b")
RATES = ("rate(", "irate(", "increase(")
RATE_INTERVAL = "5s"


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
    want(board["graphTooltip"] == 1, "the crosshair is not shared")
    annotations = {annotation["name"]: annotation for annotation in board["annotations"]["list"]}
    want({"Restarts", "Alerts"} <= set(annotations), "no annotations for restarts or for alerts")
    for name, annotation in annotations.items():
        want(annotation["enable"] and annotation["datasource"]["uid"] == DATASOURCE, f"annotation {name}: off, or another data source")
        want(all(f'{label}=~"${label}' in annotation["expr"] for label in ("job", "instance", "device")), f"annotation {name}: a label is missing")
    ids = [panel["id"] for panel in board["panels"]]
    want(len(set(ids)) == len(ids), "panels with the same number")
    want(board["panels"][0]["type"] == "row", "the first panel is not a row")
    lines = {}
    for panel in board["panels"]:
        lines.setdefault(panel["gridPos"]["y"], []).append(panel)
    for line in lines.values():
        want(sum(panel["gridPos"]["w"] for panel in line) == 24, f"a line with a gap: {line[0]['title']!r}")
    for panel in board["panels"]:
        if panel["type"] == "row":
            want(panel["title"] and not panel["collapsed"], f"row {panel['title']!r}: no title, or collapsed")
            continue
        here = f"panel {panel['title']!r}"
        want(panel["title"] and panel["description"], f"{here}: no title or description")
        want(panel["fieldConfig"]["defaults"].get("unit"), f"{here}: no unit")
        want(panel["datasource"]["uid"] == DATASOURCE, f"{here}: another data source")
        want(panel["targets"], f"{here}: no query")
        if panel["type"] == "table":
            named = {override["matcher"]["options"] for override in panel["fieldConfig"]["overrides"]}
            hidden = panel["transformations"][-1]["options"]["excludeByName"]
            for target in panel["targets"]:
                want(f"Value #{target['refId']}" in {*named, *hidden}, f"{here}: column {target['refId']} has no name")
        percentiles = {found for target in panel["targets"] for found in re.findall(r"histogram_quantile\((0\.9\d*)", target["expr"])}
        seconds = panel["fieldConfig"]["defaults"].get("unit") == "s"
        want(not (seconds and "0.99" in percentiles) or "0.999" in percentiles, f"{here}: p99 without p99.9")
        for target in panel["targets"]:
            query = f"{here}, {target['refId']}"
            expr = target["expr"]
            want(target["datasource"]["uid"] == DATASOURCE, f"{query}: another data source")
            selectors = re.findall(r"\bftld_\w+(\{[^}]*\})?", expr)
            if panel["type"] == "heatmap":
                want(re.search(r"sum by \(le\)", expr), f"{query}: not the sum of its devices")
                continue
            for grouping in re.findall(r"(?:by|on) \(([^)]*)\)", expr):
                want({"job", "instance", "device"} <= set(grouping.split(", ")), f"{query}: it merges instances")
            want(panel["type"] == "table" or "{{instance}}" in target["legendFormat"], f"{query}: no instance")
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


def resolved(board, prometheus, job):
    """Every variable with all its values, as Grafana writes a choice of several; one job."""
    values = {"job": job}
    for variable in board["templating"]["list"]:
        if variable["type"] == "datasource" or variable["name"] in values:
            continue
        found = label_values(prometheus, substituted(variable["query"]["query"], values))
        if not found:
            raise LookupError(f"{board['uid']}: variable {variable['name']} has no value")
        values[variable["name"]] = "(" + "|".join(re.escape(value).replace("\\", "\\\\") for value in found) + ")"
    return values


def substituted(expr, values):
    for name, value in values.items():
        expr = expr.replace(f"${name}", value)
    return expr.replace("$__rate_interval", RATE_INTERVAL)


def active(prometheus, job, at):
    """Per activity of NEEDS: the instances of the job that had it."""
    values = {"job": job, "instance": ".+", "device": ".+"}
    exprs = {need: expr.replace("{$", "{" + MATCHERS) + " > 0" for need, (_, expr) in NEEDS.items()}
    samples = {need: prometheus.get("query", query=substituted(expr, values), time=at)["result"] for need, expr in exprs.items()}
    return {need: {sample["metric"]["instance"] for sample in found} for need, found in samples.items()}


def evaluate(board, prometheus, job, instances, at):
    """One line per query that does not answer as it should at this time, and the number of queries."""
    wrong, values, queries = [], resolved(board, prometheus, job), 0
    having = active(prometheus, job, at)
    source = DASHBOARDS[board["uid"]][2]
    for panel, origin in zip(board["panels"], source, strict=True):
        for target, query in zip(panel.get("targets", []), origin["queries"], strict=True):
            queries += 1
            here = f"{board['uid']}, {panel['title']!r}, {target['refId']}"
            samples = prometheus.get("query", query=substituted(target["expr"], values), time=at)["result"]
            numbers = [float(sample["value"][1]) for sample in samples]
            low, high = query["bounds"]
            if any(math.isnan(number) for number in numbers):
                wrong.append(f"{here}: NaN")
            elif not all(low <= number <= high for number in numbers):
                out = [number for number in numbers if not low <= number <= high]
                wrong.append(f"{here}: {out[:4]} beyond {low} to {high}")
            expected = having[query["needs"]] if query["needs"] else instances
            # The fields of a heat map are those of all its instances.
            is_heat = panel["type"] == "heatmap"
            seen = expected if is_heat and bool(samples) == bool(expected) else {sample["metric"].get("instance") for sample in samples}
            if seen != expected:
                wrong.append(f"{here}: {seen} answer, not {expected}")
            if expected != instances and query["needs"] and NEEDS[query["needs"]][0] not in panel["fieldConfig"]["defaults"]["noValue"]:
                wrong.append(f"{here}: empty without a reason")
    for annotation in board["annotations"]["list"]:
        samples = prometheus.get("query", query=substituted(annotation["expr"], values), time=at)["result"]
        if annotation["name"] == "Restarts" and {sample["metric"]["instance"] for sample in samples} != instances:
            wrong.append(f"{board['uid']}: restarts of {len(samples)} instances, not {len(instances)}")
    return wrong, queries
