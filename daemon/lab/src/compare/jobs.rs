//! Jobs of a plan, read from a file, and the file to which their rows are appended.

use super::{Failed, Outcome, rows};
use crate::convert::to_u64;
use crate::failure::{Exit, Failure};
use crate::output::{unwritable, without_mark};
use crate::replay::{Job, Run};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use serde_json::Value;
use std::collections::HashSet;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Key of a job in a plan: the version of the program that printed it, whose defaults it means.
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
/// The file cannot be read, or has something else.
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

/// Opens a file for appending, and locks it until it is closed: a task that outlived its sweep
/// would append the rows of the next one a second time.
fn locked(path: &Path) -> Result<File, Failure> {
    let failed = |error: std::io::Error| Failure::io(path.display(), &error);
    loop {
        let file = File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| unwritable("--append", path, &error))?;
        // Any other error is that of a file system without locks, which clusters have.
        let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        if locked == Err(Errno::WOULDBLOCK) {
            return Err(Failure::new(
                Exit::InUse,
                format!(
                    "{}: another run appends rows to it; wait until that has ended, or end it",
                    path.display()
                ),
            ));
        }
        // The run that held the lock may have given the name to a new file.
        let (ours, now) = (file.metadata(), std::fs::metadata(path));
        let (ours, now) = (ours.map_err(failed)?, now.map_err(failed)?);
        if (ours.dev(), ours.ino()) == (now.dev(), now.ino()) {
            return Ok(file);
        }
    }
}

/// A file of rows that grows.
pub(super) struct Appended {
    name: String,
    file: File,
    /// Rows that were there, in their order.
    pub(super) rows: Vec<Outcome>,
}

/// Beginning of every row and failure.
const ROW_BEGINS: &str = "{\"schema\":\"ftld.";

impl Appended {
    /// Opens a file of rows, or creates it. What a killed run left of a line is cut off, and rows
    /// of failed runs are removed: these runs are repeated.
    ///
    /// # Errors
    /// The file cannot be written, another run appends to it, it contains something else, or rows
    /// of another program.
    pub(super) fn open(path: &Path) -> Result<Appended, Failure> {
        let failed = |error: std::io::Error| Failure::io(path.display(), &error);
        let mut file = locked(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(failed)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let found = rows::parse(path, &text[..whole])?;
        // Nothing is cut off a file of something else.
        let rest = &text[whole..];
        if !(rest.starts_with(ROW_BEGINS) || ROW_BEGINS.starts_with(rest)) {
            return Err(Failure::failed(format!(
                "{}: its last line is not the beginning of a row; give another file",
                path.display()
            )));
        }
        let (done, again): (Vec<_>, Vec<_>) = found
            .into_iter()
            .map(|read| read.outcome)
            .partition(|outcome| matches!(outcome, Outcome::Done(_)));
        let here = Run::here(None);
        for outcome in &done {
            if let Outcome::Done(row) = outcome
                && !row.run.is_program_of(&here)
            {
                return Err(Failure::failed(format!(
                    "{}: has rows of {}, this is {}; use another file, or that program",
                    path.display(),
                    row.run.program(),
                    here.program()
                )));
            }
        }
        if !again.is_empty() {
            let kept: String = done.iter().map(Outcome::line).collect();
            let mut part = path.as_os_str().to_owned();
            part.push(".part");
            // Locked before it is written, and before it has the name. The lock of the old file
            // ends when it has none.
            let mut new = locked(Path::new(&part))?;
            // Synced before it has the name: a host crash must not leave an empty file there.
            new.set_len(0)
                .and_then(|()| new.write_all(kept.as_bytes()))
                .and_then(|()| new.sync_all())
                .map_err(failed)?;
            std::fs::rename(&part, path).map_err(failed)?;
            file = new;
        } else if !rest.is_empty() {
            file.set_len(to_u64(whole)).map_err(failed)?;
        }
        Ok(Appended {
            name: path.display().to_string(),
            file,
            rows: done,
        })
    }

    /// Returns the jobs that have no row yet.
    pub(super) fn remaining(&self, jobs: Vec<Job>) -> Vec<Job> {
        let done: HashSet<String> = self.rows.iter().map(Outcome::key).collect();
        jobs.into_iter()
            .filter(|job| !done.contains(&job.key()))
            .collect()
    }

    /// Appends a row, in one call to the kernel.
    pub(super) fn add(&mut self, outcome: &Outcome) -> Result<(), Failure> {
        self.file
            .write_all(outcome.line().as_bytes())
            .map_err(|error| Failure::io(&self.name, &error))
    }
}

impl Outcome {
    /// Returns what equals [`Job::key`] of the job.
    pub(super) fn key(&self) -> String {
        match self {
            // The job of a row is complete.
            Outcome::Done(row) => row.job.line(),
            Outcome::Failed(failed) => failed.job.key(),
        }
    }

    /// Returns a name for messages.
    pub(super) fn name(&self) -> String {
        match self {
            Outcome::Done(row) => name(&row.job),
            Outcome::Failed(failed) => failed.name(),
        }
    }
}

impl Failed {
    pub(super) fn name(&self) -> String {
        name(&self.job)
    }
}

/// Returns the name of a job for messages: what a plan usually varies.
pub(super) fn name(job: &Job) -> String {
    let scheme = job.scheme.as_deref().unwrap_or("default");
    let mut name = format!("{scheme} on {}", job.workload);
    let settings = [
        ("preset ", job.preset.clone()),
        ("profile ", job.profile.clone()),
        ("size ", job.size.clone()),
        ("op ", job.op.map(|op| op.to_string())),
        ("raw ", job.raw.clone()),
        ("ram ", job.ram.clone()),
        ("seed ", Some(job.seed.to_string())),
    ];
    for (what, value) in settings {
        if let Some(value) = value {
            name += &format!(", {what}{value}");
        }
    }
    for pair in &job.set {
        name += &format!(", {pair}");
    }
    name
}
