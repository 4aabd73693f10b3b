//! Outcome of a job: a row, or a failure.

use crate::replay::{self, Job, Row};
use ftld_kit::failure::{Exit, Failure};
use serde::{Deserialize, Serialize};

/// Result of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub(super) enum Outcome {
    /// Success, with a row.
    Done(Box<Row>),
    /// Failure.
    Failed(Box<Failed>),
}

/// A job without a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Failed {
    /// [`FAILURE_SCHEMA`].
    pub(crate) schema: String,
    /// The job.
    pub(crate) job: Job,
    /// The error message.
    pub(crate) error: String,
    /// The exit code of the error.
    pub(crate) exit: i32,
}

/// Schema name of a [`Failed`].
pub(super) const FAILURE_SCHEMA: &str = "ftld.failure/1";

impl Failed {
    /// Returns the failure, which names the seed.
    pub(super) fn failure(&self) -> Failure {
        let error = format!("seed {}: {}", self.job.seed, self.error);
        Failure::new(Exit::from_code(self.exit), error)
    }
}

impl Outcome {
    /// Runs a job.
    pub(super) fn of(job: Job) -> Outcome {
        match replay::run(&job, &mut |_, _| ()) {
            Ok(row) => Outcome::Done(Box::new(row)),
            Err(failure) => Outcome::failed(job, failure),
        }
    }

    /// Returns the outcome of a job that failed.
    pub(super) fn failed(job: Job, failure: Failure) -> Outcome {
        Outcome::Failed(Box::new(Failed {
            schema: FAILURE_SCHEMA.into(),
            job,
            error: failure.message,
            exit: i32::from(failure.exit.code()),
        }))
    }

    /// Returns the outcome as one line of JSON.
    pub(super) fn line(&self) -> String {
        serde_json::to_string(self).expect("plain data") + "\n"
    }

    /// Returns the row of a run that succeeded.
    pub(super) fn row(&self) -> Option<&Row> {
        match self {
            Outcome::Done(row) => Some(row),
            Outcome::Failed(_) => None,
        }
    }

    /// Returns the failure of a run that failed.
    pub(super) fn failure(&self) -> Option<&Failed> {
        match self {
            Outcome::Done(_) => None,
            Outcome::Failed(failed) => Some(failed),
        }
    }

    /// Returns the job; that of a row is complete.
    fn job(&self) -> &Job {
        match self {
            Outcome::Done(row) => &row.job,
            Outcome::Failed(failed) => &failed.job,
        }
    }

    /// Returns the value that equals [`Job::key`] of the job.
    pub(super) fn key(&self) -> String {
        match self {
            Outcome::Done(row) => row.job.line(),
            Outcome::Failed(failed) => failed.job.key(),
        }
    }

    /// Returns a name for messages.
    pub(super) fn name(&self) -> String {
        name(self.job())
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
