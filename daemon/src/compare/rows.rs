//! Rows of earlier runs, read from files, and held against the plan that they are to complete.

use super::jobs::Plan;
use super::{FAILURE_SCHEMA, Outcome, jobs};
use crate::failure::Failure;
use crate::replay::{Run, SCHEMA, SUMMARY_SCHEMA};
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

/// Parses rows and failures, one a line. Summaries are left out: they follow from the rows.
pub(super) fn parse(file: &Path, text: &str) -> Result<Vec<Placed>, Failure> {
    let mut rows = Vec::new();
    let lines = text.lines().enumerate();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let place = format!("{}: line {}", file.display(), number + 1);
        let wrong =
            |why: &dyn std::fmt::Display| Failure::failed(format!("{place}: not a row: {why}"));
        // An untagged enumeration would not report the cause.
        let value: serde_json::Value = serde_json::from_str(line).map_err(|error| wrong(&error))?;
        let outcome = match value["schema"].as_str() {
            Some(SCHEMA) => {
                Outcome::Done(serde_json::from_value(value).map_err(|error| wrong(&error))?)
            }
            Some(FAILURE_SCHEMA) => {
                Outcome::Failed(serde_json::from_value(value).map_err(|error| wrong(&error))?)
            }
            Some(SUMMARY_SCHEMA) => continue,
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
                    jobs::name(job)
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
    fn runs(&self) -> impl Iterator<Item = (&String, &Run)> {
        self.rows.iter().filter_map(|row| match &row.outcome {
            Outcome::Done(of) => Some((&row.place, &of.run)),
            Outcome::Failed(_) => None,
        })
    }

    fn first_run(&self) -> Option<(&String, &Run)> {
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
