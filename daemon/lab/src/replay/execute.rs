//! Execution of a run: preconditioning, warm-up, measurement, row.

use super::address::{AddressMap, Footprint};
use super::arrivals::ArrivalRule;
use super::device::SimulatedDevice;
use super::job::{Address, Form, Job};
use super::load::LoadMeter;
use super::measurement::{Measured, Measurement};
use super::outputs::{OutputArgs, Outputs};
use super::progress::Tick;
use super::provenance::Provenance;
use super::replayer::Replayer;
use super::row::{Requests, Row};
use super::run::Run;
use super::settling::{Halves, PASSES_MAX, Passes, is_used, programs};
use super::source::Source;
use ftl_core::schemes::SCHEMES;
use ftld_device::method::{Precondition, ResponseUnit};
use ftld_device::sys;
use ftld_kit::failure::{Failure, panic_text};
use nix::time::{ClockId, clock_gettime};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Runs a job. A scheme that breaks a NAND rule or one of its own guarantees fails only this job.
pub(super) fn guarded<T>(
    job: &Job,
    run: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let scheme = job.scheme.as_deref().unwrap_or(SCHEMES[0].name);
        Err(Failure::failed(format!(
            "{}: internal error in scheme {scheme}: {}",
            job.workload,
            panic_text(&*panic)
        )))
    })
}

/// Refuses to rotate addresses on a device with a part of a page at its end: behind it, every pass
/// would write other parts of pages than the trace.
fn check_rotation(device: &SimulatedDevice) -> Result<(), Failure> {
    let page = u64::from(device.layout().profile.geometry.page_bytes);
    let beyond = device.size % page;
    if beyond == 0 {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "--form rotated: a device of {} bytes ends {beyond} bytes into a page of {page}; add --size {}",
        device.size,
        device.size - beyond
    )))
}

/// Executes a run until `limit` requests are completed in one of its loops. Returns also the share
/// of the workload that was replayed then.
pub(super) fn execute(
    run: &Run,
    source: &Source,
    outputs: &OutputArgs,
    limit: u64,
    tick: Tick<'_>,
) -> Result<(Row, f64), Failure> {
    let (began, cpu_began) = (Instant::now(), cpu());
    let (job, method) = (&run.job, &run.job.method);
    let trace_sha256 = source.sha256()?;
    let footprint = match method.address {
        Address::Compact => Some(Footprint::of(source, &job.workload, tick)?),
        Address::Exact | Address::Fold => None,
    };
    let rule = ArrivalRule::of(job, source)?;
    let mut device = run.device(footprint.as_ref().map(Footprint::bytes))?;
    let touched_extents = footprint.as_ref().map(Footprint::extents);
    let map = AddressMap::new(method.address, footprint);
    device.fits_memory(sys::memory_available())?;
    if let Some(ram) = run.ram {
        device.fit_ram(ram)?;
    }
    if method.form == Some(Form::Rotated) {
        check_rotation(&device)?;
    }
    let mut outputs = Outputs::open(outputs)?;
    let mut sim = device.format(method.response_unit())?;
    let about = format!("{} on {}", job.workload, device.flash.scheme.name);
    let failed = |step: &str, why: &dyn std::fmt::Display| {
        Failure::failed(format!("{about}: {step}: {why}"))
    };
    let mut replayer = Replayer::new(job, source, map, rule, device.size, limit, &sim);
    let pages = match method.precondition() {
        Precondition::Trace => replayer.touched(&device.layout(), tick)?,
        Precondition::Region => others(
            replayer.touched(&device.layout(), tick)?,
            device.layout().logical_pages,
        ),
        Precondition::New => run.content(&device)?,
        Precondition::Fill | Precondition::Steady => Vec::new(),
    };
    let conditioned = sim
        .precondition(method, &pages, job.seed, &mut |share| {
            tick(share, "preconditioning")
        })
        .map_err(|error| failed("preconditioning", &error))?;
    sim.settle()
        .map_err(|why| failed("preconditioning", &why))?;

    let is_repeated = matches!(method.form, Some(Form::Looped | Form::Rotated));
    let (mut passes, mut warm_up) = (Passes::default(), method.warm_up);
    replayer.rounds(&mut sim, 0..warm_up, &mut outputs, "warming up", tick)?;
    sim.settle().map_err(|why| failed("warming up", &why))?;
    while is_repeated && warm_up < PASSES_MAX {
        let before = programs(&sim);
        let pass = warm_up..warm_up + 1;
        replayer.rounds(&mut sim, pass, &mut outputs, "settling", tick)?;
        let (pages, _) = sim.settle().map_err(|why| failed("settling", &why))?;
        warm_up += 1;
        if !passes.add(pages.written, programs(&sim) - before, is_used(&sim)) {
            break;
        }
    }

    replayer.requests = Requests {
        touched_extents,
        ..Requests::default()
    };
    let measurement = Measurement::begin(&sim);
    replayer.halves = Halves::begin(&sim);
    replayer.load = (rule != ArrivalRule::Closed).then(|| LoadMeter::begin(&mut sim));
    outputs.begin(&mut sim);
    let cpu_measured = cpu();
    let measured = warm_up..warm_up.saturating_add(method.loops);
    let outcome = replayer.rounds(&mut sim, measured, &mut outputs, "replaying", tick);
    outputs.finish(outcome, &mut sim, &about)?;
    let provenance = Provenance {
        cpu_seconds: (cpu() - cpu_measured).as_secs_f64(),
        cpu_seconds_total: (cpu() - cpu_began).as_secs_f64(),
        wall_seconds: began.elapsed().as_secs_f64(),
        ..Provenance::here(trace_sha256)
    };
    let settling = passes.settling().or_else(|| replayer.halves.settling(&sim));
    let (pages, latencies) = sim
        .settle()
        .map_err(|why| failed("after the last request", &why))?;
    let requests = Requests {
        pages_read: pages.read,
        pages_written: pages.written,
        pages_rmw: pages.rmw,
        pages_trimmed: pages.trimmed,
        ..replayer.requests
    };
    let responses = latencies.view();
    let answered = responses.all.as_ref().map_or(0, |all| all.count);
    assert!(
        answered == requests.completed || method.response_unit() == ResponseUnit::PerPage,
        "{answered} response times of {} requests",
        requests.completed
    );
    let measured = Measured {
        requests,
        responses,
        conditioned,
        settling,
        load: replayer.load.as_ref().map(LoadMeter::view),
        provenance,
    };
    Ok((
        measurement.row(job, &device, &sim, measured),
        replayer.share,
    ))
}

/// Returns the pages of the device outside of these ascending runs.
fn others(runs: Vec<Range<u32>>, pages: u32) -> Vec<Range<u32>> {
    let mut first = 0;
    let ends = runs.into_iter().chain(std::iter::once(pages..pages));
    let gaps = ends.map(|run| std::mem::replace(&mut first, run.end)..run.start);
    gaps.filter(|gap| !gap.is_empty()).collect()
}

/// Returns the CPU time of this thread: jobs run one per thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("Linux has this clock");
    Duration::from(time)
}
