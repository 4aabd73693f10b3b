"""Panels and dashboards of Grafana as plain data; `dashboards.py` has what they show.

Every query has the matchers of the dashboard's variables in place of `{$}`. A table is one panel of
several queries, merged by their labels: a row per device, a column per query.
"""

import re
import string

MATCHERS = 'job=~"$job", instance=~"$instance", device=~"$device"'
# An alert about a whole instance has no device.
ALERT_MATCHERS = 'job=~"$job", instance=~"$instance", device=~"$device|"'
RATE = "[$__rate_interval]"
ID = "job, instance, device"
WIDTH = 24

# Bounds of values.
SHARE = (0, 1)
COUNT = (0, 1e9)
RATES = (0, 1e7)
BYTES = (0, 1e18)
BYTE_RATES = (0, 1e11)
SECONDS = (0, 60)
FACTOR = (0, 200)
NONE = (0, 0)

# Counters of failures of the flash, and of faults that were asked for.
FAULTS = {
    "programs": "ftld_nand_program_fails_total",
    "erases": "ftld_nand_erase_fails_total",
    "unreadable": "ftld_ecc_uncorrectable_total",
    "injected": "ftld_faults_injected_total",
    "of the plan": "ftld_nand_faults_injected_total",
}

# What a query needs for samples: the reason for an empty panel, and the expression that is positive
# on an instance with that activity.
NEEDS = {
    "requests": ("No host requests", f"sum by ({ID}) (rate(ftld_host_io_duration_seconds_count{{$}}{RATE}))"),
    "data": ("No reads, writes or trims", f"sum by ({ID}) (rate(ftld_host_io_size_bytes_count{{$}}{RATE}))"),
    "reads": ("No host reads", f'sum by ({ID}) (rate(ftld_host_ios_total{{$, op="read"}}{RATE}))'),
    "writes": ("No host writes", f"sum by ({ID}) (rate(ftld_host_written_bytes_total{{$}}{RATE}))"),
    "syncs": ("No FLUSH", f"sum by ({ID}) (rate(ftld_image_sync_duration_seconds_count{{$}}{RATE}))"),
    "errors": ("No errors", f"sum by ({ID}) (rate(ftld_host_io_errors_total{{$}}{RATE}))"),
    "faults": ("No failed program or erase, no unreadable page, no injected fault", "(" + " + ".join(
        f"sum by ({ID}) (rate({metric}{{$}}{RATE}))" for metric in FAULTS.values()) + ")"),
    "shadows": ("No shadow with requests; `ftld shadow add` starts one", f"sum by ({ID}) (rate(ftld_shadow_requests_total{{$}}{RATE}))"),
    "gc": ("No GC runs", f"sum by ({ID}) (rate(ftld_gc_runs_total{{$}}{RATE}))"),
    "lookups": ("No mapping lookups; a map in RAM has none", f"sum by ({ID}) (rate(ftld_map_cache_lookups_total{{$}}{RATE}))"),
}

# Labels in the order of a table's columns.
LABELS = ["instance", "device", "shadow", "scheme", "profile", "cell", "transport"]
# Units of counts: an axis of zeroes ends at 1.
COUNTED = ("iops", "wps", "rps", "ops", "reqps", "short", "none")

GREEN, YELLOW, RED = "green", "yellow", "red"
OK = [(None, GREEN)]
YES_IS_BAD = [(None, GREEN), (1, RED)]


def query(expr, legend, bounds, needs=None):
    return {"expr": expr, "legend": legend, "bounds": bounds, "needs": needs}


def rate(metric, labels="", by=""):
    """The rate of a counter, summed by device and perhaps more."""
    matchers = "$, " + labels if labels else "$"
    return f"sum by ({ID}{', ' + by if by else ''}) (rate({metric}{{{matchers}}}{RATE}))"


def quantile(share, metric, by="", labels=""):
    """A percentile; no sample where nothing happened, instead of NaN."""
    matchers, more = ("$, " + labels if labels else "$"), (f", {by}" if by else "")
    return (
        f"histogram_quantile({share}, sum by ({ID}{more}, le) (rate({metric}_bucket{{{matchers}}}{RATE})))"
        f" and sum by ({ID}{more}) (rate({metric}_count{{{matchers}}}{RATE})) > 0"
    )


def ratio(above, below):
    """A ratio of rates; no sample while the lower one is 0, instead of NaN."""
    return f"{above} / ({below} > 0)"


def scheme_of(expr):
    """An expression with the name of the device's scheme as a label."""
    return f"({expr}) * on ({ID}) group_left (scheme) max by ({ID}, scheme) (ftld_device_info{{$}})"


def column(title, expr, unit, bounds, needs=None, steps=None, values=None):
    """A column of a table; coloured if it has steps or values."""
    return {**query(expr, title, bounds, needs), "unit": unit, "steps": steps, "values": values or {}}


def panel(kind, title, description, unit, queries, width=None, height=8, stack=False, by=ID):
    return {
        "kind": kind,
        "title": title,
        "description": description,
        "unit": unit,
        "queries": queries,
        "width": width,
        "height": height,
        "stack": stack,
        "by": by,
    }


def graph(title, description, unit, *queries):
    """A line or a few a device."""
    return panel("timeseries", title, description, unit, queries)


def detail(title, description, unit, *queries, stack=False, height=12):
    """Many lines a device, with their names on the right."""
    return panel("timeseries", title, description, unit, queries, width=WIDTH // 2, height=height, stack=stack)


def table(title, description, *columns, height=6, by=ID):
    """A row a device; `by` has the labels of the rows."""
    return panel("table", title, description, "none", columns, width=WIDTH, height=height, by=by)


def heat(title, description, unit, metric, needs):
    """The distribution over time, of all chosen devices together."""
    count = f"sum (increase({metric}_count{{$}}{RATE}))"
    expr = f"sum by (le) (increase({metric}_bucket{{$}}{RATE})) and on () {count} > 0"
    return panel("heatmap", title, description, unit, [query(expr, "{{le}}", RATES, needs)], width=WIDTH // 2, height=9)


def bars(title, description, unit, *queries):
    return panel("bargauge", title, description, unit, queries, width=WIDTH, height=12)


def row(title):
    return panel("row", title, "", "", [], width=WIDTH, height=1)


DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def variable(name, label, what):
    matchers = {"job": "", "instance": 'job=~"$job"', "device": 'job=~"$job", instance=~"$instance"'}[name]
    found = f"label_values(ftld_build_info{{{matchers}}}, {name})" if name != "device" else f"label_values(ftld_device_info{{{matchers}}}, {name})"
    return {
        "name": name,
        "label": label,
        "description": what,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": found, "refId": name},
        "definition": found,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".+",
        "current": {"text": "All", "value": "$__all"},
    }


def annotation(name, expr, title, text, colour, **more):
    return {
        "name": name,
        "datasource": DATASOURCE,
        "enable": True,
        "hide": False,
        "iconColor": colour,
        "expr": expr,
        "step": "30s",
        "titleFormat": title,
        "textFormat": text,
        **more,
    }


ANNOTATIONS = [
    annotation("Restarts", "ftld_device_start_time_seconds{$} * 1000".replace("{$", "{" + MATCHERS), "Start",
               "{{device}} on {{instance}} started", "blue", useValueForTime=True),
    annotation("Alerts", f'ALERTS{{alertname=~"Ftld.+", alertstate="firing", {ALERT_MATCHERS}}}', "{{alertname}}",
               "{{severity}}: {{device}} on {{instance}}", "red", tagKeys="severity"),
]


# A line that is 0 all the time stays in the graph, but not in the legend: there are many causes.
ZEROES_WITHOUT_LEGEND = [
    {
        "matcher": {"id": "byValue", "options": {"op": "gte", "reducer": "allIsZero", "value": 0}},
        "properties": [{"id": "custom.hideFrom", "value": {"legend": True, "tooltip": True, "viz": False}}],
    }
]


def mappings(values):
    options = {str(value): {"text": text, "color": colour, "index": index} for index, (value, (text, colour)) in enumerate(values.items())}
    return [{"type": "value", "options": options}] if options else []


def defaults(panel):
    found = {"unit": panel["unit"]}
    needs = {query["needs"] for query in panel["queries"]} - {None}
    if needs:
        found["noValue"] = "; ".join(sorted(NEEDS[need][0] for need in needs))
    if panel["kind"] == "bargauge":
        found["thresholds"] = {"mode": "absolute", "steps": thresholds(OK)}
    if panel["kind"] == "timeseries":
        found["min"] = 0
        found["custom"] = {"fillOpacity": 60 if panel["stack"] else 0, "lineWidth": 1, "showPoints": "never"}
        if panel["stack"]:
            found["custom"]["stacking"] = {"mode": "normal", "group": "A"}
        if panel["unit"] in COUNTED:
            found["custom"]["axisSoftMax"] = 1
    return found


def thresholds(steps):
    return [{"value": value, "color": colour} for value, colour in steps]


def columns(panel):
    """The columns of a table: the values of the queries by their letters."""
    for letter, column in zip(string.ascii_uppercase, panel["queries"]):
        properties = [("displayName", column["legend"]), ("unit", column["unit"])]
        if column["steps"]:
            properties.append(("thresholds", {"mode": "absolute", "steps": thresholds(column["steps"])}))
        if column["values"]:
            properties.append(("mappings", mappings(column["values"])))
        if column["steps"] or column["values"]:
            properties.append(("custom.cellOptions", {"type": "color-background", "mode": "basic"}))
        if column["legend"]:
            yield {
                "matcher": {"id": "byName", "options": f"Value #{letter}"},
                "properties": [{"id": name, "value": value} for name, value in properties],
            }


def merged(panel):
    """The queries of a table as one: a row per labels; without the time, the job and values of 1."""
    nameless = [f"Value #{letter}" for letter, column in zip(string.ascii_uppercase, panel["queries"]) if not column["legend"]]
    labels = sorted({name for query in panel["queries"] for name in re.findall(r"by \(([^)]*)\)", query["expr"])[0].split(", ")} - {"job"},
                    key=LABELS.index)
    return [
        {"id": "merge", "options": {}},
        {"id": "organize", "options": {
            "excludeByName": {name: True for name in ("Time", "job", *nameless)},
            "indexByName": {name: index for index, name in enumerate(labels)},
            "renameByName": {name: name.capitalize() for name in labels},
        }},
    ]


def options(panel):
    many = panel["width"] == WIDTH // 2 and panel["kind"] == "timeseries"
    return {
        "timeseries": {
            "legend": {"displayMode": "list", "placement": "right" if many else "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "heatmap": {
            "calculate": False,
            "color": {"mode": "scheme", "scheme": "Oranges", "steps": 64, "scale": "exponential", "exponent": 0.5, "fill": "dark-orange"},
            "filterValues": {"le": 1e-9},
            "yAxis": {"unit": panel["unit"], "axisPlacement": "left"},
            "legend": {"show": True},
            "tooltip": {"mode": "single", "yHistogram": True},
            "cellGap": 1,
        },
        "bargauge": {"reduceOptions": {"calcs": ["lastNotNull"]}, "orientation": "horizontal", "displayMode": "basic"},
        "table": {"showHeader": True, "cellHeight": "sm", "sortBy": [{"displayName": "Device", "desc": False}]},
    }[panel["kind"]]


def rendered(number, panel, x, y):
    place = {"x": x, "y": y, "w": panel["width"], "h": panel["height"]}
    kind = panel["kind"]
    if kind == "row":
        return {"id": number, "type": "row", "title": panel["title"], "collapsed": False, "gridPos": place, "panels": []}
    instant = kind in ("bargauge", "table")
    formats = {"table": {"format": "table"}, "heatmap": {"format": "heatmap"}}
    targets = [
        {
            "refId": letter,
            "datasource": DATASOURCE,
            "expr": query["expr"].replace("{$", "{" + MATCHERS),
            "legendFormat": "" if kind == "table" else query["legend"].replace("{{device}}", "{{instance}} {{device}}"),
            "editorMode": "code",
            "instant": instant,
            "range": not instant,
            **formats.get(kind, {}),
        }
        for letter, query in zip(string.ascii_uppercase, panel["queries"])
    ]
    overrides = {"timeseries": ZEROES_WITHOUT_LEGEND, "table": list(columns(panel)) if kind == "table" else []}
    return {
        "id": number,
        "type": kind,
        "title": panel["title"],
        "description": panel["description"],
        "datasource": DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": defaults(panel), "overrides": overrides.get(kind, [])},
        "options": options(panel),
        **({"transformations": merged(panel)} if kind == "table" else {}),
        "targets": targets,
    }


def widths(count):
    """Panels per line, so that each line is full: threes, and a line of two or four."""
    lines = [3] * (count // 3)
    match count % 3:
        case 1 if lines:
            lines[-1] = 4
        case 0:
            pass
        case rest:
            lines.append(rest)
    return [WIDTH // line for line in lines for _ in range(line)]


def with_widths(panels):
    """Panels without a width share the lines between two rows."""
    starts = [index for index, panel in enumerate(panels) if panel["kind"] == "row"] + [len(panels)]
    for start, end in zip(starts, starts[1:]):
        free = [panel for panel in panels[start:end] if panel["width"] is None]
        shared = dict(zip(map(id, free), widths(len(free))))
        yield from ({**panel, "width": shared.get(id(panel), panel["width"])} for panel in panels[start:end])


def dashboard(uid, title, description, panels):
    placed, x, y, height = [], 0, 0, 0
    for number, panel in enumerate(with_widths(panels), 1):
        if x + panel["width"] > WIDTH:
            x, y, height = 0, y + height, 0
        placed.append(rendered(number, panel, x, y))
        x, height = x + panel["width"], max(height, panel["height"])
    datasource = {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": "default", "value": "default"},
    }
    variables = [
        datasource,
        variable("job", "Job", "Of Prometheus' configuration."),
        variable("instance", "Instance", "Machine and port."),
        variable("device", "Device", "Name of the ftld instance."),
    ]
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["ftld"],
        "schemaVersion": 36,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "links": [{"type": "dashboards", "title": "ftld", "tags": ["ftld"], "asDropdown": True, "includeVars": True, "keepTime": True}],
        "templating": {"list": variables},
        "annotations": {"list": ANNOTATIONS},
        "panels": placed,
    }
