// Draws a dashboard of boards.json with the components of Grafana's panels: PanelChrome, TimeSeries,
// BarGauge, Table. The plugins around these components are part of Grafana itself and are not on npm,
// so this file does their work: frames, display names, zero series without a legend, the columns of a
// table, and heat maps, for which there is no component.
import { FieldType, LoadingState, ThemeContext, createTheme, dateTime, getDisplayProcessor, getFieldDisplayValues, toDataFrame } from "@grafana/data";
import { BarGauge, PanelChrome, Table, TimeSeries, VizRepeater } from "@grafana/ui";
import React from "react";
import { createRoot } from "react-dom/client";
import boards from "./boards.json";

const theme = createTheme({ colors: { mode: "light" } });
const [COLUMN, LINE, GAP, TOP] = [62, 34, 8, 54];
const LINES = {
  drawStyle: "line", lineInterpolation: "linear", gradientMode: "none", axisPlacement: "auto", axisColorMode: "text",
  pointSize: 5, spanNulls: false, insertNulls: false, barAlignment: 0, barWidthFactor: 0.6,
  stacking: { mode: "none", group: "A" }, scaleDistribution: { type: "linear" }, thresholdsStyle: { mode: "off" },
};

const legend = (format, labels) => format.replace(/\{\{(\w+)\}\}/g, (_, name) => labels[name] ?? "");

function frames(panel) {
  const { defaults, overrides } = panel.fieldConfig;
  const series = panel.targets.flatMap((target) => target.result.map((found) => ({ target, ...found })));
  return series.map(({ target, metric, values }, index) => {
    const numbers = values.map((sample) => Number(sample[1]));
    const hidden = overrides.length > 0 && numbers.every((number) => number === 0);
    const config = {
      ...defaults,
      color: { mode: panel.type === "timeseries" ? "palette-classic" : "thresholds" },
      custom: { ...LINES, hideFrom: { legend: hidden, tooltip: hidden, viz: false }, ...defaults.custom },
    };
    const displayName = legend(target.legendFormat, metric);
    config.displayNameFromDS = displayName;
    const frame = toDataFrame({
      refId: target.refId,
      fields: [
        { name: "Time", type: FieldType.time, config: {}, values: values.map((sample) => sample[0] * 1000) },
        { name: "Value", type: FieldType.number, config, labels: metric, values: numbers },
      ],
    });
    for (const field of frame.fields) {
      field.state = { seriesIndex: index, displayName: field.type === FieldType.number ? displayName : "Time" };
      field.display = getDisplayProcessor({ field, theme, timeZone: "utc" });
    }
    return frame;
  });
}

function Lines({ panel, data, width, height, range }) {
  const [from, to] = range.map((seconds) => dateTime(seconds * 1000));
  return (
    <TimeSeries frames={data} structureRev={1} timeRange={{ from, to, raw: { from, to } }} timeZone="utc" theme={theme}
      width={width} height={height} legend={{ ...panel.options.legend, showLegend: true, calcs: [] }} options={panel.options} />
  );
}

const same = (metric) => JSON.stringify(Object.entries(metric).sort());

// Merges the queries of a table: a row per set of labels, a column per label and per query.
function Rows({ panel, width, height }) {
  const { excludeByName, indexByName, renameByName } = panel.transformations.at(-1).options;
  const { overrides } = panel.fieldConfig;
  const labels = Object.keys(indexByName);
  const device = (metric) => same(Object.fromEntries(Object.entries(metric).filter(([name]) => ["instance", "device", "shadow"].includes(name))));
  const rows = new Map();
  for (const target of panel.targets) {
    for (const { metric, values } of target.result) {
      const row = rows.get(device(metric)) ?? {};
      rows.set(device(metric), { ...row, ...metric, [`Value #${target.refId}`]: Number(values[0][1]) });
    }
  }
  const sorted = [...rows.values()].sort((one, next) => (one.device + one.shadow).localeCompare(next.device + next.shadow));
  const text = (name) => ({ name: renameByName[name], type: FieldType.string, config: {}, values: sorted.map((row) => row[name]) });
  const number = (target) => {
    const name = `Value #${target.refId}`;
    const properties = overrides.find((override) => override.matcher.options === name)?.properties ?? [];
    const config = { color: { mode: "thresholds" }, thresholds: { mode: "absolute", steps: [{ value: -Infinity, color: "transparent" }] }, custom: {} };
    for (const { id, value } of properties) {
      if (id === "custom.cellOptions") config.custom.cellOptions = value;
      else config[id] = value;
    }
    return { name: config.displayName ?? name, type: FieldType.number, config, values: sorted.map((row) => row[name]) };
  };
  const targets = panel.targets.filter((target) => !excludeByName[`Value #${target.refId}`]);
  const fields = [...labels.map(text), ...targets.map(number)];
  const frame = toDataFrame({ fields });
  frame.fields.forEach((field, index) => {
    field.config = fields[index].config;
    field.config.custom = { ...field.config.custom, align: "left", minWidth: 60, wrapHeaderText: true };
    field.state = { displayName: fields[index].name };
    field.display = getDisplayProcessor({ field, theme });
  });
  return <Table data={frame} width={width} height={height} />;
}

// The steps of a heat map, from few to many.
const ORANGES = ["#fff5eb", "#fee6ce", "#fdd0a2", "#fdae6b", "#fd8d3c", "#f16913", "#d94801", "#a63603", "#7f2704"];

// Buckets are cumulative: a field is the difference to the one below.
function Heat({ panel, width, height, range }) {
  const found = panel.targets[0].result.map(({ metric, values }) => ({ le: metric.le === "+Inf" ? Infinity : Number(metric.le), values }));
  found.sort((one, next) => one.le - next.le);
  const counts = found.map(({ values }, index) => values.map(([time, value]) => {
    const below = index ? found[index - 1].values.find((sample) => sample[0] === time) : undefined;
    return { time, count: Math.max(0, Number(value) - Number(below?.[1] ?? 0)) };
  }));
  const used = counts.map((row) => row.some(({ count }) => count > 0));
  const [first, last] = [used.indexOf(true), used.lastIndexOf(true)];
  const rows = counts.slice(first, last + 1);
  const most = Math.max(...rows.flat().map(({ count }) => count));
  const field = { type: FieldType.number, config: { unit: panel.fieldConfig.defaults.unit } };
  const shown = getDisplayProcessor({ field, theme });
  const name = (le) => (le === Infinity ? "more" : ((of) => `≤ ${of.text}${of.suffix ?? ""}`)(shown(le)));
  const [left, foot, [from, to]] = [70, 22, range];
  const [step, line] = [((width - left) * 2) / (to - from), (height - foot) / rows.length];
  const style = { fontSize: 12, fill: theme.colors.text.primary };
  return (
    <svg width={width} height={height}>
      {rows.flatMap((row, index) => row.filter(({ count }) => count > 0).map(({ time, count }) => (
        <rect key={`${index} ${time}`} x={left + ((time - from) / (to - from)) * (width - left)} y={height - foot - (index + 1) * line}
          width={Math.max(1, step - 0.5)} height={line - 0.5} fill={ORANGES[Math.round(Math.sqrt(count / most) * (ORANGES.length - 1))]} />
      )))}
      {rows.map((_, index) => index % Math.ceil(14 / line) === 0 && (
        <text key={index} x={left - 6} y={height - foot - (index + 0.5) * line + 4} textAnchor="end" style={style}>{name(found[first + index].le)}</text>
      ))}
      {[0.1, 0.5, 0.9].map((share) => (
        <text key={share} x={left + share * (width - left)} y={height - 5} textAnchor="middle" style={style}>
          {new Date((from + share * (to - from)) * 1000).toISOString().slice(11, 19)}
        </text>
      ))}
    </svg>
  );
}

function Values({ panel, data, width, height }) {
  const defaults = { ...panel.fieldConfig.defaults, color: { mode: "thresholds" } };
  const values = getFieldDisplayValues({
    fieldConfig: { defaults, overrides: [] }, reduceOptions: panel.options.reduceOptions, replaceVariables: (text) => text,
    theme, data, timeZone: "utc",
  });
  const most = Math.max(...values.map((value) => value.display.numeric));
  const bar = ({ value, width, height }) => (
    <BarGauge value={value.display} field={{ ...value.field, min: 0, max: most }} width={width} height={height} theme={theme}
      orientation="horizontal" displayMode={panel.options.displayMode} showUnfilled itemSpacing={4} lcdCellWidth={12} text={{ titleSize: 11, valueSize: 11 }} />
  );
  return (
    <VizRepeater getValues={() => values} source={values} renderCounter={1} width={width} height={height} itemSpacing={3}
      orientation="horizontal" minVizHeight={12} minVizWidth={8} renderValue={bar} />
  );
}

function Body(of) {
  const { panel } = of;
  const isOwn = panel.type === "table" || panel.type === "heatmap";
  const data = isOwn ? panel.targets.flatMap((target) => target.result) : frames(panel);
  if (data.length === 0) {
    const style = { height: of.height, display: "grid", placeContent: "center", color: theme.colors.text.secondary };
    return <div style={style}>{panel.fieldConfig.defaults.noValue ?? "No data"}</div>;
  }
  const Kind = { timeseries: Lines, table: Rows, heatmap: Heat, bargauge: Values }[panel.type];
  return <Kind {...of} data={data} />;
}

class Guard extends React.Component {
  state = {};
  static getDerivedStateFromError(error) {
    console.error(`panel: ${error}`);
    return { error };
  }
  render() {
    return this.state.error ? String(this.state.error) : this.props.children;
  }
}

function Panel({ panel, range, style }) {
  if (panel.type === "row") {
    return <div style={{ ...style, fontSize: 16, fontWeight: 500, paddingTop: 4 }}>{panel.title}</div>;
  }
  return (
    <div style={style}>
      <PanelChrome title={panel.title} width={style.width} height={style.height} padding="md" loadingState={LoadingState.Done}>
        {(width, height) => <Guard><Body panel={panel} width={width} height={height} range={range} /></Guard>}
      </PanelChrome>
    </div>
  );
}

function Board({ title, panels, range }) {
  const style = ({ x, y, w, h }) => ({
    position: "absolute", left: x * COLUMN + GAP, top: y * LINE + TOP, width: w * COLUMN - GAP, height: h * LINE - GAP,
  });
  return (
    <div style={{ position: "relative", height: "100vh", background: theme.colors.background.canvas, color: theme.colors.text.primary, fontFamily: theme.typography.fontFamily }}>
      <div style={{ padding: "14px 10px", fontSize: 20 }}>{title}</div>
      {panels.map((panel) => <Panel key={panel.id} panel={panel} range={range} style={style(panel.gridPos)} />)}
    </div>
  );
}

const board = boards.find((board) => board.uid === location.hash.slice(1));
createRoot(document.getElementById("root")).render(
  <ThemeContext.Provider value={theme}><Board {...board} /></ThemeContext.Provider>,
);
