//! Rows of earlier runs, read from files and matched with the plan that they are to complete.

use super::knee::KNEE_SCHEMA;
use super::outcome::{self, FAILURE_SCHEMA, Outcome};
use super::plan::Plan;
use crate::replay::{Provenance, Row, SCHEMA, SUMMARY_SCHEMA};
use ftld_kit::failure::Failure;
use ftld_kit::output::without_mark;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// A row, and where it is.
pub(super) struct Placed {
    pub(super) outcome: Outcome,
    /// File and line.
    pub(super) place: String,
}

/// Rows of several files.
pub(super) struct Files {
    pub(super) rows: Vec<Placed>,
    /// Files without a row.
    empty: Vec<PathBuf>,
}

/// Reads rows and failures.
pub(super) fn read(files: &[PathBuf]) -> Result<Files, Failure> {
    let (mut rows, mut empty) = (Vec::new(), Vec::new());
    for file in files {
        let text =
            std::fs::read_to_string(file).map_err(|error| Failure::io(file.display(), &error))?;
        let found = parse(file, &text)?;
        if found.is_empty() {
            empty.push(file.clone());
        }
        rows.extend(found);
    }
    Ok(Files { rows, empty })
}

/// Key by which a row, a failure and a summary are distinguished.
#[derive(Deserialize)]
struct Head {
    schema: Option<String>,
}

/// Parses rows and failures, one a line. Summaries and knees are left out: they follow from the
/// rows.
pub(super) fn parse(file: &Path, text: &str) -> Result<Vec<Placed>, Failure> {
    let mut rows = Vec::new();
    let lines = without_mark(text).lines().enumerate();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let place = format!("{}: line {}", file.display(), number + 1);
        let wrong =
            |why: &dyn std::fmt::Display| Failure::failed(format!("{place}: not a row: {why}"));
        // An untagged enumeration would not report the cause.
        let value: serde_json::Value = serde_json::from_str(line).map_err(|error| wrong(&error))?;
        let Head { schema } = Head::deserialize(&value).map_err(|error| wrong(&error))?;
        let outcome = match schema.as_deref() {
            Some(SCHEMA) => {
                let row: Box<Row> = serde_json::from_value(value).map_err(|error| wrong(&error))?;
                row.check().map_err(|why| wrong(&why))?;
                Outcome::Done(row)
            }
            Some(FAILURE_SCHEMA) => {
                Outcome::Failed(serde_json::from_value(value).map_err(|error| wrong(&error))?)
            }
            Some(SUMMARY_SCHEMA | KNEE_SCHEMA) => continue,
            Some(other) => return Err(wrong(&format!("schema {other:?}, not {SCHEMA:?}"))),
            None => return Err(wrong(&format!("schema {SCHEMA:?} is missing"))),
        };
        rows.push(Placed { outcome, place });
    }
    Ok(rows)
}

/// Findings of one kind that are printed; the failure has their number.
const PRINTED: usize = 20;

impl Files {
    /// Names files without a row.
    ///
    /// # Errors
    /// There is no row at all.
    pub(super) fn has_rows(&self) -> Result<(), Failure> {
        let names: Vec<String> = self
            .empty
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        let names = names.join(", ");
        if self.rows.is_empty() {
            return Err(Failure::failed(format!(
                "{names}: no row; `ftld compare ... --ndjson` and --append write rows"
            )));
        }
        if !self.empty.is_empty() {
            tracing::warn!("{names}: no row in it");
        }
        Ok(())
    }

    /// Compares the rows with a plan: each job has one row, and each row a job, all of one program.
    ///
    /// # Errors
    /// They differ. Every finding is a line on standard error, up to a limit.
    pub(super) fn check(&self, plan: &Path, planned: &Plan) -> Result<(), Failure> {
        let mut places: HashMap<String, Vec<&Placed>> = HashMap::new();
        for row in &self.rows {
            places.entry(row.outcome.key()).or_default().push(row);
        }
        let mut findings: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        let Plan { jobs, version } = planned;
        let mut keys = BTreeSet::new();
        for (number, job) in jobs.iter().enumerate() {
            let key = job.key();
            if !places.contains_key(&key) {
                let text = format!(
                    "{}: line {}: {} has no row",
                    plan.display(),
                    number + 1,
                    outcome::name(job)
                );
                findings.entry("missing").or_default().push(text);
            }
            keys.insert(key);
        }
        for row in &self.rows {
            let key = row.outcome.key();
            let (name, own) = (row.outcome.name(), &places[&key]);
            if !keys.contains(&key) {
                let text = format!("{}: {name} is not in {}", row.place, plan.display());
                findings.entry("foreign").or_default().push(text);
            } else if !std::ptr::eq(own[0], row) {
                let text = format!("{}: {name} has a row already, {}", row.place, own[0].place);
                findings.entry("double").or_default().push(text);
            }
        }
        for file in &self.empty {
            let text = format!("{}: no row in it", file.display());
            findings.entry("empty").or_default().push(text);
        }
        if let (Some(version), Some((place, run))) = (version, self.first_run())
            && *version != run.version
        {
            let text = format!(
                "{}: is of ftld {version}, {place} of {}",
                plan.display(),
                run.program()
            );
            findings.entry("of another program").or_default().push(text);
        }
        for text in self.other_programs() {
            findings.entry("of another program").or_default().push(text);
        }
        for texts in findings.values() {
            texts
                .iter()
                .take(PRINTED)
                .for_each(|text| tracing::error!("{text}"));
        }
        if findings.is_empty() {
            return Ok(());
        }
        let counts: Vec<String> = findings
            .iter()
            .map(|(kind, texts)| format!("{} {kind}", texts.len()))
            .collect();
        Err(Failure::failed(format!(
            "the rows are not those of {}: {}; run the plan again to complete it",
            plan.display(),
            counts.join(", ")
        )))
    }

    /// Returns the runs that ended with a row, and where their rows are.
    fn runs(&self) -> impl Iterator<Item = (&String, &Provenance)> {
        self.rows
            .iter()
            .filter_map(|row| Some((&row.place, &row.outcome.row()?.run)))
    }

    fn first_run(&self) -> Option<(&String, &Provenance)> {
        self.runs().next()
    }

    /// Returns a text for every row of another program than the first row's.
    fn other_programs(&self) -> Vec<String> {
        let Some((first, run)) = self.first_run() else {
            return Vec::new();
        };
        self.runs()
            .filter(|(_, other)| !other.is_program_of(run))
            .map(|(place, other)| {
                format!(
                    "{place}: is of {}, {first} of {}",
                    other.program(),
                    run.program()
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::csv::Csv;
    use super::super::{html, notes, table};
    use super::*;
    use crate::replay::{self, Job};
    use proptest::prelude::*;
    use proptest::sample::{Index, select};
    use serde_json::{Value, json};
    use std::sync::LazyLock;

    /// The row of a short run.
    static ROW: LazyLock<Value> = LazyLock::new(|| {
        let job = Job {
            workload: "uniform:requests=300,read=30%".into(),
            scheme: Some("lazyftl".into()),
            size: Some("1MiB".into()),
            ..Job::default()
        };
        let row = replay::run(&job, &mut |_, _| ()).unwrap();
        serde_json::to_value(row).unwrap()
    });

    fn parsed(row: &Value) -> Result<Vec<Placed>, Failure> {
        parse(Path::new("rows"), &format!("{row}\n"))
    }

    /// Shows rows in every way.
    fn show(read: &[Placed]) {
        let rows: Vec<&Row> = read.iter().filter_map(|read| read.outcome.row()).collect();
        assert!(!table::text(&rows).is_empty());
        notes::warnings(&rows);
        assert!(html::page(&rows, &[], &["ftld".into()]).ends_with("</html>\n"));
        for row in &rows {
            assert!(Csv::default().line(row, None).ends_with('\n'));
        }
    }

    /// Returns the paths of all values of a row.
    fn paths(value: &Value, above: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                for (name, below) in fields {
                    paths(below, &format!("{above}/{name}"), found);
                }
            }
            Value::Array(list) => {
                for (number, below) in list.iter().enumerate() {
                    paths(below, &format!("{above}/{number}"), found);
                }
            }
            _ => {}
        }
        found.push(above.to_owned());
    }

    #[test]
    fn figures_that_no_run_has_are_refused_with_their_name() {
        assert_eq!(parsed(&ROW).unwrap().len(), 1);
        for (path, value, part) in [
            (
                "/optimum/work_ns",
                json!(1e300),
                "line 1: not a row: optimum.work_ns is 1e+300",
            ),
            ("/device/blocks", json!(0), "device.blocks is 0"),
            (
                "/erases/distribution",
                json!([[2, 1], [1, 1]]),
                "does not ascend",
            ),
            ("/device/blocks", json!(-1), "invalid value"),
        ] {
            let mut row = ROW.clone();
            *row.pointer_mut(path).unwrap() = value;
            let failure = parsed(&row).err().unwrap();
            assert!(failure.message.contains(part), "{failure}");
        }
        // Sums of figures that are each possible do not overflow.
        let mut row = ROW.clone();
        for path in [
            "/flash_busy_ns/read",
            "/flash_busy_ns/program",
            "/collected/erases",
        ] {
            *row.pointer_mut(path).unwrap() = json!(u64::MAX);
        }
        row["collected"]["copies"] = json!(0);
        let text = format!("\u{feff}{row}\n{row}\n");
        show(&parse(Path::new("rows"), &text).unwrap());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// A row with some changed values is refused, or shown.
        #[test]
        fn a_forged_row_is_refused_or_shown(
            changes in prop::collection::vec((any::<Index>(), select(vec![
                json!(null), json!(0), json!(1), json!(-1), json!(u32::MAX), json!(u64::MAX), json!(1e-308), json!(1e20),
                json!(1e308), json!(""), json!("=\u{1b}[31m\r\"<x>"), json!([]), json!([[0, 1], [u32::MAX, u64::MAX]]),
                json!([[-1.0, 0], [2.0, u64::MAX]]), json!({}),
            ])), 1..4),
        ) {
            let mut row = ROW.clone();
            let mut all = Vec::new();
            paths(&row, "", &mut all);
            for (at, value) in changes {
                if let Some(place) = row.pointer_mut(&all[at.index(all.len())]) {
                    *place = value;
                }
            }
            if let Ok(read) = parsed(&row) {
                show(&read);
            }
        }
    }
}
