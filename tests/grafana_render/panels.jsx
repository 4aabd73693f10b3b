// Draws a dashboard of boards.json with the components of Grafana's panels: PanelChrome, TimeSeries,
// BigValue, BarGauge, Table. The plugins around these components are part of Grafana itself and are
// not on npm, so this file does their work: frames, display names, zero series without a legend.
import { FieldType, LoadingState, ThemeContext, createTheme, dateTime, getDisplayProcessor, getFieldDisplayValues, toDataFrame } from "@grafana/data";
import { BarGauge, BigValue, BigValueColorMode, BigValueGraphMode, BigValueJustifyMode, PanelChrome, Table, TimeSeries, VizRepeater } from "@grafana/ui";
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

function Rows({ panel, width, height }) {
  const rows = panel.targets[0].result.map((found) => found.metric);
  const columns = Object.keys(rows[0]);
  const fields = columns.map((name) => ({ name, type: FieldType.string, config: {}, values: rows.map((row) => row[name]) }));
  const frame = toDataFrame({ fields });
  frame.fields.forEach((field) => (field.display = getDisplayProcessor({ field, theme })));
  return <Table data={frame} width={width} height={height} />;
}

function Values({ panel, data, width, height }) {
  const defaults = { ...panel.fieldConfig.defaults, color: { mode: "thresholds" } };
  const values = getFieldDisplayValues({
    fieldConfig: { defaults, overrides: [] }, reduceOptions: panel.options.reduceOptions, replaceVariables: (text) => text,
    theme, data, timeZone: "utc",
  });
  const most = Math.max(...values.map((value) => value.display.numeric));
  const number = ({ value, width, height, count }) => (
    <BigValue value={value.display} count={count} width={width} height={height} theme={theme} textMode={panel.options.textMode}
      colorMode={BigValueColorMode.Value} graphMode={BigValueGraphMode.None} justifyMode={BigValueJustifyMode.Auto} />
  );
  const bar = ({ value, width, height }) => (
    <BarGauge value={value.display} field={{ ...value.field, min: 0, max: most }} width={width} height={height} theme={theme}
      orientation="horizontal" displayMode={panel.options.displayMode} showUnfilled itemSpacing={4} lcdCellWidth={12} text={{ titleSize: 11, valueSize: 11 }} />
  );
  const isStat = panel.type === "stat";
  return (
    <VizRepeater getValues={() => values} source={values} renderCounter={1} width={width} height={height} itemSpacing={3}
      orientation={isStat ? "auto" : "horizontal"} autoGrid={isStat} minVizHeight={12} minVizWidth={8} renderValue={isStat ? number : bar} />
  );
}

function Body(of) {
  const data = of.panel.type === "table" ? of.panel.targets[0].result : frames(of.panel);
  if (data.length === 0) {
    const style = { height: of.height, display: "grid", placeContent: "center", color: theme.colors.text.secondary };
    return <div style={style}>{of.panel.fieldConfig.defaults.noValue ?? "No data"}</div>;
  }
  const Kind = { timeseries: Lines, table: Rows, stat: Values, bargauge: Values }[of.panel.type];
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
