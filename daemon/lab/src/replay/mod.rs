//! `ftld replay`: a trace or a workload on a scheme over a simulated chip, in virtual time. It
//! never touches a live device.
//!
//! Invariants: equal jobs give equal rows, except [`Row::run`]. Every request read is given to the
//! scheme, and every page given to the scheme is completed, or the run fails.

mod address;
mod args;
mod arrivals;
mod device;
mod execute;
mod job;
mod latency;
mod load;
mod log;
mod measurement;
mod outputs;
mod precondition;
mod progress;
mod provenance;
mod ram;
mod recording;
mod replayer;
mod report;
mod row;
mod run;
mod sample;
mod series;
mod settling;
mod sim;
mod source;
mod summary;
mod survey;
mod trace_events;
mod twin;

pub use args::{Repeat, ReplayArgs};
pub(crate) use arrivals::rate;
pub(crate) use ftld_device::aging::SteadyRule;
pub(crate) use job::{Address, Job, Method};
pub(crate) use latency::Response;
pub(crate) use load::OTHER;
pub(crate) use progress::Tick;
pub use progress::{SOON, bar, show};
pub use provenance::{Provenance, set_revision};
pub(crate) use report::{overload, trace_format};
pub(crate) use row::{ConvertCost, Load, Row, SCHEMA, Stalls};
pub(crate) use run::{Run, check_sizes};
pub(crate) use sample::{Sample, run_sample};
pub(crate) use summary::{MEASURES, Quantity, SUMMARY_SCHEMA, Summary, estimate, ratio};
pub use twin::{Twin, TwinPlan, TwinView};

use execute::{execute, guarded};
use ftld_kit::failure::Failure;
use ftld_kit::output::{print, wrapped_on_terminal};
use outputs::OutputArgs;
use source::Source;
use std::time::Instant;

/// `ftld replay`.
///
/// # Errors
/// As [`run`], or standard output cannot be written.
pub fn replay(args: &ReplayArgs, as_json: bool) -> Result<(), Failure> {
    let run = Run::resolve(&args.job)?;
    let source = run.source()?;
    args.outputs.check(source.file())?;
    source.check(&run.job.method, run.folded_bytes())?;
    run.warn_of_shards();
    let (bar, began) = (bar(), Instant::now());
    let mut tick = |share, doing| {
        if began.elapsed() > SOON {
            show(&bar, share, doing);
        }
    };
    let executed = guarded(&args.job, || {
        execute(&run, &source, &args.outputs, u64::MAX, &mut tick)
    });
    bar.finish_and_clear();
    let (row, _) = executed?;
    if row.precondition.steady == Some(false) {
        tracing::warn!(
            "write amplification was not steady after {:.0} drive writes; --age DRIVE-WRITES \
             writes more",
            row.precondition.drive_writes
        );
    }
    if let Some(warning) = overload(&row) {
        tracing::warn!("{warning}");
    }
    if as_json || args.outputs.interval.is_some() {
        print(&(row.line() + "\n"))
    } else {
        print(&wrapped_on_terminal(&report::table(&row)))
    }
}

/// Runs one job.
///
/// # Errors
/// The job is wrong, its trace cannot be read, or its scheme failed.
pub(crate) fn run(job: &Job, tick: Tick<'_>) -> Result<Row, Failure> {
    guarded(job, || {
        let run = Run::resolve(job)?;
        let (source, outputs) = (run.source()?, OutputArgs::default());
        execute(&run, &source, &outputs, u64::MAX, tick).map(|(row, _)| row)
    })
}

/// Reads the trace of a job to its end, before anything is run. A job without a trace passes, and
/// a wrong device is refused by its own run.
///
/// # Errors
/// The trace cannot be read, it is cut off, or its times are too long for the job.
pub(crate) fn check_trace(job: &Job) -> Result<(), Failure> {
    let source = Source::new(&job.workload, &job.method)?;
    let run = Run::resolve(job).ok();
    source.check(&job.method, run.as_ref().and_then(Run::folded_bytes))?;
    run.iter().for_each(Run::warn_of_shards);
    Ok(())
}

#[cfg(test)]
mod tests;
