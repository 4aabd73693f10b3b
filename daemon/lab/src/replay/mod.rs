//! `ftld replay`: a trace or a workload on a scheme over a simulated chip, in virtual time. It
//! never touches a live device.
//!
//! Invariants: equal jobs give equal rows, except [`Row::run`]. Every request read is given to the
//! scheme, and every page given to the scheme is completed, or the run fails.

mod address;
mod args;
mod device;
mod job;
mod latency;
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
mod sample;
mod series;
mod sim;
mod source;
mod summary;
mod survey;
mod trace_events;

pub use crate::aging::{Conditioned, SteadyRule};
pub use crate::method::{AGE_MAX, Precondition, ResponseUnit};
pub use args::{Repeat, ReplayArgs};
pub use job::{Address, Arrival, Job, Method};
pub use latency::{Response, Responses};
pub use provenance::{Provenance, set_revision};
pub use ram::{Ram, RamPart};
pub(crate) use report::trace_format;
pub use row::{
    Busy, Collected, ConvertCost, Counts, Device, Erases, MapCache, Optimum, Requests, Row, SCHEMA,
    Stalls, WriteAmplification,
};
pub use sample::{Sample, run_sample};
pub use summary::{MEASURES, Quantity, SUMMARY_SCHEMA, Summary, estimate};

use crate::failure::{Failure, panic_text};
use crate::output::{print, wrapped_on_terminal};
use crate::sys;
use address::{AddressRule, Footprint};
use device::SimulatedDevice;
use ftl_core::schemes::SCHEMES;
use measurement::Measurement;
use nix::time::{ClockId, clock_gettime};
use outputs::{OutputArgs, Outputs};
pub use progress::{SOON, bar, show};
use replayer::{Replayer, TICK};
use source::Source;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// `ftld replay`.
///
/// # Errors
/// As [`run`], or standard output cannot be written.
pub fn replay(args: &ReplayArgs, as_json: bool) -> Result<(), Failure> {
    args.job.complete()?.requirements()?;
    let source = Source::new(&args.job)?;
    args.outputs.check(&source)?;
    source.check(&args.job)?;
    tell_shards(&args.job)?;
    let (bar, began) = (bar(), Instant::now());
    let row = run_with_outputs(&args.job, &args.outputs, &mut |share, doing| {
        if began.elapsed() > SOON {
            show(&bar, share, doing);
        }
    });
    bar.finish_and_clear();
    let row = row?;
    if row.precondition.steady == Some(false) {
        tracing::warn!(
            "write amplification was not steady after {:.0} drive writes; --age DRIVE-WRITES writes more",
            row.precondition.drive_writes
        );
    }
    if as_json || args.outputs.interval.is_some() {
        print(&(row.line() + "\n"))
    } else {
        print(&wrapped_on_terminal(&report::table(&row)))
    }
}

impl Row {
    /// Returns the row as one line of JSON.
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("a row is plain data")
    }
}

/// Progress callback: the share done, and the current activity.
pub type Tick<'a> = &'a mut dyn FnMut(f64, &'static str);

/// Runs one job. A scheme that breaks a NAND rule or one of its own guarantees fails only this job.
///
/// # Errors
/// The job is wrong, its trace cannot be read, or its scheme failed.
pub fn run(job: &Job, tick: Tick<'_>) -> Result<Row, Failure> {
    run_with_outputs(job, &OutputArgs::default(), tick)
}

fn run_with_outputs(job: &Job, watch: &OutputArgs, tick: Tick<'_>) -> Result<Row, Failure> {
    run_limited(job, watch, u64::MAX, tick).map(|(row, _)| row)
}

/// Runs a job until `limit` requests are completed in one of its loops. Returns also the share of
/// the workload that was replayed then.
fn run_limited(
    job: &Job,
    watch: &OutputArgs,
    limit: u64,
    tick: Tick<'_>,
) -> Result<(Row, f64), Failure> {
    let run = || run_unguarded(job, watch, limit, tick);
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let scheme = job.scheme.as_deref().unwrap_or(SCHEMES[0].name);
        Err(Failure::failed(format!(
            "{}: internal error in scheme {scheme}: {}",
            job.workload,
            panic_text(&*panic)
        )))
    })
}

fn run_unguarded(
    job: &Job,
    watched: &OutputArgs,
    limit: u64,
    tick: Tick<'_>,
) -> Result<(Row, f64), Failure> {
    let (began, cpu_began) = (Instant::now(), cpu());
    let job = &job.complete()?;
    let requirements = job.requirements()?;
    let source = Source::new(job)?;
    let trace_sha256 = source.sha256()?;
    let footprint = match job.method.address {
        Address::Compact => Some(footprint(&source, job, tick)?),
        Address::Exact | Address::Fold => None,
    };
    let mut bench =
        SimulatedDevice::new(job, &requirements, footprint.as_ref().map(Footprint::bytes))?;
    let touched = footprint.as_ref().map(Footprint::extents);
    let map = AddressRule::new(job.method.address, footprint);
    bench.fits_memory(sys::memory_available())?;
    bench.fit_ram(job)?;
    let mut watch = Outputs::open(watched)?;
    let mut sim = bench.start(job)?;
    let failed = |what: &str, why: &dyn std::fmt::Display| {
        Failure::failed(format!(
            "{} on {}: {what}: {why}",
            job.workload, bench.scheme.name
        ))
    };
    let mut feed = Replayer {
        job,
        source: &source,
        map,
        size: bench.size,
        requests: Requests::default(),
        limit,
        share: 1.0,
    };
    let pages = match job.method.precondition() {
        Precondition::Footprint => feed.touched(&bench, tick)?,
        Precondition::None => bench.content(job)?,
        Precondition::Fill | Precondition::Steady => Vec::new(),
    };
    let conditioned = sim
        .precondition(&job.method, &pages, job.seed, &mut |share| {
            tick(share, "preconditioning")
        })
        .map_err(|error| failed("preconditioning", &error))?;
    sim.settle()
        .map_err(|why| failed("preconditioning", &why))?;

    let warm_up = 0..job.method.warm_up;
    feed.rounds(&mut sim, warm_up, &mut watch, "warming up", tick)?;
    sim.settle().map_err(|why| failed("warming up", &why))?;

    feed.requests = Requests {
        touched_extents: touched,
        ..Requests::default()
    };
    let begun = Measurement::of(&sim);
    watch.begin(&mut sim);
    let cpu_measured = cpu();
    let measured = job.method.warm_up..job.method.warm_up.saturating_add(job.method.loops);
    let outcome = feed.rounds(&mut sim, measured, &mut watch, "replaying", tick);
    let about = format!("{} on {}", job.workload, bench.scheme.name);
    watch.finish(outcome, &mut sim, &about)?;
    let cpu_seconds = (cpu() - cpu_measured).as_secs_f64();
    let run = Provenance {
        cpu_seconds,
        cpu_seconds_total: (cpu() - cpu_began).as_secs_f64(),
        wall_seconds: began.elapsed().as_secs_f64(),
        ..Provenance::here(trace_sha256)
    };
    let mut requests = feed.requests.clone();
    (requests.pages_read, requests.pages_written) = (sim.pages.read, sim.pages.written);
    (requests.pages_rmw, requests.pages_trimmed) = (sim.pages.rmw, sim.pages.trimmed);
    let responses = sim.sides.view();
    let answered = responses.all.as_ref().map_or(0, |all| all.count);
    assert!(
        answered == requests.completed || job.method.response_unit() == ResponseUnit::PerPage,
        "{answered} response times of {} requests",
        requests.completed
    );
    sim.settle()
        .map_err(|why| failed("after the last request", &why))?;
    let row = bench.row(job, requests, responses, conditioned, &begun, &sim, run);
    Ok((row, feed.share))
}

/// Reads the trace of a job to its end, before anything is run. A job without a trace passes.
///
/// # Errors
/// The trace cannot be read, it is cut off, or its times are too long for the job.
pub(crate) fn check_trace(job: &Job) -> Result<(), Failure> {
    Source::new(job)?.check(job)?;
    tell_shards(job)
}

/// Says that a recording of several shards is replayed on one chip.
fn tell_shards(job: &Job) -> Result<(), Failure> {
    if let Some(shards) = recording::shards(job)? {
        tracing::warn!(
            "{}: recorded on {shards} shards, replayed on one chip: counters and times are not those \
             of the device; for equal ones record a device with one shard",
            job.workload
        );
    }
    Ok(())
}

/// Returns the bytes of the extents that a job's trace touches, if they determine the size of the
/// device. Reads the trace.
///
/// # Errors
/// The job is wrong, or its trace cannot be read.
pub(crate) fn touched_bytes(job: &Job) -> Result<Option<u64>, Failure> {
    match (job.method.address, &job.complete()?.size) {
        (Address::Compact, None) => {
            let source = Source::new(job)?;
            Ok(Some(footprint(&source, job, &mut |_, _| ())?.bytes()))
        }
        _ => Ok(None),
    }
}

/// Returns the raw flash in bytes that a job takes at its over-provisioning, or `None` on a profile
/// that fixes it. `touched`: as [`touched_bytes`] returns it.
///
/// # Errors
/// The job is wrong, or no device can be laid out for it.
pub(crate) fn raw_flash(job: &Job, touched: Option<u64>) -> Result<Option<u64>, Failure> {
    let job = &job.complete()?;
    let bench = SimulatedDevice::new(job, &job.requirements()?, touched)?;
    let raw_bytes = bench.layout.profile.geometry.data_bytes();
    Ok(bench.is_by_size().then_some(raw_bytes))
}

/// Checks that a job's scheme fits on its raw flash and into its RAM. `touched`: as
/// [`touched_bytes`] returns it.
///
/// # Errors
/// The job is wrong, or its scheme needs more.
pub(crate) fn check(job: &Job, touched: Option<u64>) -> Result<(), Failure> {
    let job = &job.complete()?;
    let bench = SimulatedDevice::new(job, &job.requirements()?, touched)?;
    bench.fits_memory(sys::memory_available())?;
    bench.check_ram(job)
}

/// Returns the CPU time of this thread: jobs run one per thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    Duration::from(time)
}

fn footprint(source: &Source, job: &Job, tick: Tick<'_>) -> Result<Footprint, Failure> {
    let (mut stream, mut footprint, mut count) = (source.begin(0, 0)?, Footprint::default(), 0u64);
    while let Some(record) = stream.next() {
        let record = record.map_err(|error| source::failure(&error))?;
        count += 1;
        if count.is_multiple_of(TICK) {
            tick(stream.progress(), "scanning");
        }
        footprint
            .add(&record)
            .map_err(|why| stream.misplaced(job, &why))?;
    }
    Ok(footprint)
}

#[cfg(test)]
mod tests;
