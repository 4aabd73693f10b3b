//! Plans: jobs in a file, as `--plan` prints them.

use crate::replay::Job;
use ftld_kit::failure::Failure;
use ftld_kit::output::without_mark;
use serde_json::Value;
use std::io::Read;
use std::path::Path;

/// Key of a job in a plan: the version of the program that printed it; the job has that program's
/// defaults.
const VERSION: &str = "version";

/// Jobs of a file.
pub(super) struct Plan {
    pub(super) jobs: Vec<Job>,
    /// The version that printed it; `None` if it was written by hand.
    pub(super) version: Option<String>,
}

/// Returns the line of a plan.
pub(super) fn line(job: &Job) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("{{\"{VERSION}\":\"{version}\",{}\n", &job.line()[1..])
}

/// Reads jobs that this program is to run, as `--plan` prints them; `-` is standard input.
///
/// # Errors
/// The file cannot be read, has something else, or was printed by another version.
pub(super) fn read_jobs(path: &Path) -> Result<Vec<Job>, Failure> {
    let plan = read_plan(path)?;
    let here = env!("CARGO_PKG_VERSION");
    match plan.version {
        Some(version) if version != here => Err(Failure::failed(format!(
            "{}: a plan of ftld {version}, this is ftld {here}, whose defaults may differ; print it again by \
             `ftld compare --plan`, or use that program",
            path.display()
        ))),
        _ => Ok(plan.jobs),
    }
}

/// Reads a plan of any version.
///
/// # Errors
/// The file cannot be read, or is not a plan.
pub(super) fn read_plan(path: &Path) -> Result<Plan, Failure> {
    let (name, text) = match path.to_str() {
        Some("-") => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            ("standard input".into(), read.map(|_| text))
        }
        _ => (path.display().to_string(), std::fs::read_to_string(path)),
    };
    let text = text.map_err(|error| Failure::io(&name, &error))?;
    let wrong = |number: usize, error| Failure::usage(format!("{name}: job {number}: {error}"));
    let (mut jobs, mut version) = (Vec::new(), None);
    for (number, value) in
        (1..).zip(serde_json::Deserializer::from_str(without_mark(&text)).into_iter())
    {
        let mut value: Value = value.map_err(|error| wrong(number, error))?;
        if let Some(Value::String(of)) = value.as_object_mut().and_then(|job| job.remove(VERSION)) {
            let first = version.get_or_insert(of.clone());
            if *first != of {
                return Err(Failure::failed(format!(
                    "{name}: jobs of ftld {first} and of ftld {of}; print the plan again by `ftld compare --plan`"
                )));
            }
        }
        jobs.push(serde_json::from_value(value).map_err(|error| wrong(number, error))?);
    }
    if jobs.is_empty() {
        return Err(Failure::usage(format!(
            "{name}: no job in it; `ftld compare --plan` prints jobs"
        )));
    }
    Ok(Plan { jobs, version })
}
