//! A short version of a job, to estimate its cost.

use super::execute::{execute, guarded};
use super::job::Job;
use super::outputs::OutputArgs;
use super::row::Row;
use super::run::Run;
use ftld_device::aging::SteadyRule;
use ftld_device::method::Precondition;
use ftld_kit::failure::Failure;

/// Requests of a short run.
const REQUESTS: u64 = 20_000;
/// Its drive writes of random pages.
const AGE: f64 = 1.0;
/// Least share of a trace to assume as read: a compressed trace is read in large blocks, so its
/// reported share is coarse.
const SHARE_MIN: f64 = 1e-6;

/// Result of a short run.
pub(crate) struct Sample {
    /// Its row.
    pub(crate) row: Row,
    /// The share of the workload that it replayed.
    pub(crate) share: f64,
    /// Drive writes of the whole job's preconditioning, at most.
    pub(crate) drive_writes: f64,
}

/// Runs a short version of a job on the same device.
///
/// # Errors
/// As [`super::run`].
pub(crate) fn run_sample(job: &Job) -> Result<Sample, Failure> {
    guarded(job, || {
        let mut run = Run::resolve(job)?;
        let method = &mut run.job.method;
        let random = match method.precondition() {
            Precondition::Steady => Some(SteadyRule::default().limit_drive_writes),
            Precondition::Fill => Some(method.age.unwrap_or(0.0)),
            Precondition::New | Precondition::Region | Precondition::Trace => None,
        };
        if let Some(random) = random {
            method.precondition = Some(Precondition::Fill);
            method.age = Some(random.min(AGE));
        }
        method.precondition = Some(method.precondition());
        (method.form, method.warm_up, method.loops) = (None, 0, 1);
        let (source, outputs) = (run.source()?, OutputArgs::default());
        let (row, share) = execute(&run, &source, &outputs, REQUESTS, &mut |_, _| ())?;
        Ok(Sample {
            drive_writes: random.map_or(row.precondition.drive_writes, |random| 1.0 + random),
            share: share.max(SHARE_MIN),
            row,
        })
    })
}
