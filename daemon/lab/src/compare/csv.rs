//! Rows as comma-separated values: a line per run with everything that its JSON has, and the
//! statistics of its cell if that has several seeds.
//!
//! A column is named by its path in the JSON, with dots: `device.raw_bytes`. An empty cell is a
//! value that does not exist. Lists are JSON in one cell.

use super::cells::Cell;
use crate::replay::{
    ConvertCost, Load, MEASURES, OTHER, Response, Row, Stalls, SteadyRule, Summary,
};
use nand_model::Cause;
use serde_json::{Map, Value};

/// Columns of the statistics of each measure of a cell, behind the measure's name.
const STATISTICS: [&str; 7] = [
    "mean",
    "low",
    "high",
    "ratio",
    "ratio_low",
    "ratio_high",
    "difference",
];

/// Lines of one table. All rows have the same columns: those of the first one.
#[derive(Default)]
pub(super) struct Csv {
    columns: Vec<String>,
}

impl Csv {
    /// Returns the line of a row, with the names of the columns before the first one.
    pub(super) fn line(&mut self, row: &Row, cell: Option<&Summary>) -> String {
        let mut text = String::new();
        let json = |row: &Row| serde_json::to_value(row).expect("a row is plain data");
        if self.columns.is_empty() {
            self.columns = paths(&json(&complete(row.clone())));
            let mut heads = self.columns.clone();
            heads.push("seeds".into());
            for (measure, _) in MEASURES {
                heads.extend(STATISTICS.map(|name| format!("{measure}_{name}")));
            }
            text += &(heads.join(",") + "\n");
        }
        let row = json(row);
        let pointer = |path: &String| format!("/{}", path.replace('.', "/"));
        let value = |path| row.pointer(&pointer(path)).unwrap_or(&Value::Null);
        let mut values: Vec<String> = self
            .columns
            .iter()
            .map(|path| shown(value(path)))
            .map(quoted)
            .collect();
        values.push(cell.map_or(1, |cell| cell.seeds.len()).to_string());
        for (measure, _) in MEASURES {
            values.extend(statistics(measure, cell));
        }
        text + &values.join(",") + "\n"
    }

    /// Returns the lines of every run, cell by cell.
    pub(super) fn text(&mut self, cells: &[Cell<'_>], summaries: &[Summary]) -> String {
        let mut text = String::new();
        for (cell, summary) in cells.iter().zip(summaries) {
            for row in &cell.runs {
                text += &self.line(row, Some(summary));
            }
        }
        text
    }
}

/// Adds the fields that only other rows may have: causes, kinds of requests, options.
fn complete(mut row: Row) -> Row {
    for cause in Cause::ALL {
        let name = || cause.name().to_owned();
        row.flash.insert(name(), row.flash_total);
        row.write_amplification.by_cause.insert(name(), 0.0);
        row.write_stalls.insert(name(), Stalls::default());
    }
    if let Some(energy) = &mut row.energy_j {
        let all = Cause::ALL.map(|cause| (cause.name().to_owned(), 0.0));
        energy.by_cause.extend(all);
    }
    let of = &mut row.response_ns;
    for side in [&mut of.all, &mut of.read, &mut of.write, &mut of.trim] {
        *side = Some(Response::default());
    }
    row.convert_cost = Some(ConvertCost::default());
    row.precondition.rule = Some(SteadyRule::default());
    let job = &mut row.job;
    for option in [&mut job.preset, &mut job.raw, &mut job.ram] {
        option.get_or_insert_default();
    }
    job.rate.get_or_insert_default();
    let mut load = Load::default();
    for spent in [&mut load.all, &mut load.slowest, &mut load.maximum] {
        let causes = Cause::ALL.map(Cause::name).into_iter().chain([OTHER]);
        spent.by_cause_ns = causes.map(|cause| (cause.to_owned(), 0.0)).collect();
    }
    row.load = Some(load);
    row
}

/// Returns the paths of all values that are no objects.
fn paths(value: &Value) -> Vec<String> {
    fn walk(object: &Map<String, Value>, above: &str, paths: &mut Vec<String>) {
        for (key, value) in object {
            match value {
                Value::Object(below) => walk(below, &format!("{above}{key}."), paths),
                _ => paths.push(format!("{above}{key}")),
            }
        }
    }
    let mut found = Vec::new();
    if let Value::Object(object) = value {
        walk(object, "", &mut found);
    }
    found
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        // A spreadsheet would run it as a formula.
        Value::String(text) if text.starts_with(['=', '+', '-', '@', '\t', '\r']) => {
            format!("'{text}")
        }
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn statistics(measure: &str, cell: Option<&Summary>) -> [String; STATISTICS.len()] {
    let option = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    let estimate = cell.and_then(|cell| cell.measures.get(measure));
    let ratio = cell.and_then(|cell| cell.ratios.get(measure));
    [
        option(estimate.map(|estimate| estimate.mean)),
        option(estimate.and_then(|estimate| estimate.low)),
        option(estimate.and_then(|estimate| estimate.high)),
        option(ratio.map(|ratio| ratio.ratio)),
        option(ratio.map(|ratio| ratio.low)),
        option(ratio.map(|ratio| ratio.high)),
        ratio.map_or(String::new(), |ratio| ratio.difference.mark().into()),
    ]
}

fn quoted(text: String) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cells_with_commas_and_quotes_are_quoted() {
        assert_eq!(quoted("a b".into()), "a b");
        assert_eq!(quoted("zipf:a=1,b=2".into()), "\"zipf:a=1,b=2\"");
        assert_eq!(quoted("[\"x\"]".into()), "\"[\"\"x\"\"]\"");
        assert_eq!(quoted("a\rb".into()), "\"a\rb\"");
    }

    #[test]
    fn a_text_is_no_formula() {
        for text in ["=1+1.csv", "+1", "-2", "@x", "\t=1", "\r=1"] {
            assert_eq!(shown(&json!(text)), format!("'{text}"));
        }
        assert_eq!(
            [json!("a=1"), json!(-2), json!(null)].map(|value| shown(&value)),
            ["a=1", "-2", ""]
        );
    }

    #[test]
    fn a_column_is_a_path_of_the_json() {
        let value = json!({"a": {"b": 1, "c": {"d": null}}, "e": [1, 2], "f": {}});
        assert_eq!(paths(&value), ["a.b", "a.c.d", "e"]);
    }
}
