//! Rows of earlier runs, read from files.

use super::{FAILURE_SCHEMA, Outcome};
use crate::failure::Failure;
use crate::replay::{SCHEMA, SUMMARY_SCHEMA};
use std::path::PathBuf;

/// Reads rows and failures. Summaries are left out: they follow from the rows.
pub(super) fn read_rows(files: &[PathBuf]) -> Result<Vec<Outcome>, Failure> {
    let mut outcomes = Vec::new();
    for file in files {
        let text =
            std::fs::read_to_string(file).map_err(|error| Failure::io(file.display(), &error))?;
        for (number, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let wrong = |why: &dyn std::fmt::Display| {
                Failure::failed(format!(
                    "{}: line {}: not a row: {why}",
                    file.display(),
                    number + 1
                ))
            };
            // An untagged enumeration would not report the cause.
            let value: serde_json::Value =
                serde_json::from_str(line).map_err(|error| wrong(&error))?;
            outcomes.push(match value["schema"].as_str() {
                Some(SCHEMA) => {
                    Outcome::Done(serde_json::from_value(value).map_err(|error| wrong(&error))?)
                }
                Some(FAILURE_SCHEMA) => {
                    Outcome::Failed(serde_json::from_value(value).map_err(|error| wrong(&error))?)
                }
                Some(SUMMARY_SCHEMA) => continue,
                other => return Err(wrong(&format!("schema {other:?}, not {SCHEMA:?}"))),
            });
        }
    }
    Ok(outcomes)
}
