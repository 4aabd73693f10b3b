//! A twin: a scheme on a simulated chip that gets the requests of a live device.
//!
//! Invariants: a twin begins as a replay of the device's recording does, and equal requests give it
//! equal counters. Nothing of it is stored, so power failure does not matter.

use super::address::Extent;
use super::device::SimulatedDevice;
use super::job::SEED_DEFAULT;
use super::recording::{Recording, add_pages};
use super::sim::Sim;
use ftl_core::FtlError;
use ftld_device::config::{Latency, RawFlash, ShadowOptions};
use ftld_device::flash_device::recorded_profile;
use ftld_device::method::ResponseUnit;
use ftld_device::shadow::Request;
use ftld_device::volume::{Completions, HistogramView};
use ftld_kit::convert::to_f64;
use ftld_kit::failure::{Failure, panic_text};
use ftld_traces::Op;
use ftld_traces::recording::Head;
use nand_model::{Nanos, OpCounts};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Blocks that are filled between two looks at whether the twin is still wanted.
const FILL_BLOCKS: u32 = 64;

/// A twin that can be made.
pub struct TwinPlan {
    name: String,
    device: SimulatedDevice,
    latency: Latency,
}

/// Facts and counters of a twin; those of the requests since its content was written.
#[derive(Clone, Debug, Default)]
pub struct TwinView {
    /// Requests executed.
    pub requests: u64,
    /// Pages that the host wrote.
    pub host_pages_written: u64,
    /// Flash programs.
    pub programs: u64,
    /// Block erases.
    pub erases: u64,
    /// Bytes of the scheme's tables by the paper's count.
    pub ram_bytes: u64,
    /// Emulated times of reads.
    pub reads: HistogramView,
    /// Emulated times of writes.
    pub writes: HistogramView,
}

impl TwinPlan {
    /// Plans a twin of a device that a recording would describe by `head`.
    ///
    /// # Errors
    /// A value is wrong, or the twin is smaller than the device.
    pub fn new(shadow: &ShadowOptions, head: &Head, latency: Latency) -> Result<TwinPlan, Failure> {
        let wrong = |failure: Failure| {
            Failure::new(failure.exit, format!("shadow {:?}: {failure}", shadow.name))
        };
        let device = device_of(shadow, head).map_err(wrong)?;
        if device.size < head.size {
            return Err(wrong(Failure::usage(format!(
                "has {} bytes, the device {}; choose a larger profile, or a smaller op",
                device.size, head.size
            ))));
        }
        Ok(TwinPlan {
            name: shadow.name.clone(),
            device,
            latency,
        })
    }

    /// Returns its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of its scheme.
    pub fn scheme(&self) -> &'static str {
        self.device.flash.scheme.name
    }

    /// Returns the name of its flash device.
    pub fn profile(&self) -> &'static str {
        self.device.flash.profile.name
    }

    /// Returns its over-provisioning in percent of the size, by its flash and the size.
    pub fn op_percent(&self) -> f64 {
        let raw = self.device.flash.profile.geometry.data_bytes();
        (to_f64(raw) / to_f64(self.device.size) - 1.0) * 100.0
    }

    /// Returns the parameters of its scheme that are not the default, as KEY=VALUE,KEY=VALUE.
    pub fn parameters(&self) -> String {
        let params = self.device.flash.config.params.iter();
        let pairs: Vec<_> = params
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        pairs.join(",")
    }

    /// Returns the least memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.device.memory_bytes()
    }

    /// Makes the twin with data in these ranges of bytes, ascending; with less once it has `ended`.
    ///
    /// # Errors
    /// The scheme refuses its parameters, or fails.
    pub fn make(&self, content: &[Range<u64>], ended: &AtomicBool) -> Result<Twin, Failure> {
        self.guarded(|| {
            let mut sim = self.device.format(ResponseUnit::PerRequest)?;
            let (page, pages) = (sim.page_bytes(), self.device.flash.config.logical_pages);
            let mut runs = Vec::new();
            for range in content {
                let fits = add_pages(&mut runs, range.clone(), page, pages);
                assert!(fits, "content at {range:?} of a twin of {pages} pages");
            }
            // Whole blocks, as a replay fills them.
            let part = FILL_BLOCKS * self.device.flash.profile.geometry.pages_per_block;
            for run in runs {
                let mut first = run.start;
                while first < run.end && !ended.load(Relaxed) {
                    let next = run.end.min((first / part + 1) * part);
                    let filled = sim.fill_runs(std::slice::from_ref(&(first..next)));
                    filled.map_err(|error| self.failed(&error))?;
                    first = next;
                }
            }
            sim.settle()?;
            let began = Began {
                counters: sim.ftl().chip().counters().total(),
                pages_written: sim.ftl().stats().host_pages_written,
                at: sim.now,
            };
            Ok(Twin {
                completions: Completions::default(),
                emulates: self.latency == Latency::Emulate,
                sim,
                began,
                first_ns: None,
                arrived: 0,
                view: TwinView::default(),
            })
        })
    }

    /// Executes requests.
    ///
    /// # Errors
    /// The scheme failed, such as at the end of its life. No request can follow.
    pub fn run(&self, twin: &mut Twin, requests: &[Request]) -> Result<(), Failure> {
        self.guarded(|| {
            let mut requests = requests.iter();
            let done = requests.try_for_each(|request| twin.request(request));
            done.map_err(|error| self.failed(&error))
        })
    }

    fn failed(&self, error: &FtlError) -> Failure {
        Failure::failed(format!("shadow {:?}: {error}", self.name))
    }

    fn guarded<T>(&self, run: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            Err(Failure::failed(format!(
                "shadow {:?}: internal error: {}",
                self.name,
                panic_text(&*panic)
            )))
        })
    }
}

fn device_of(shadow: &ShadowOptions, head: &Head) -> Result<SimulatedDevice, Failure> {
    let recording = Recording::of_head("the device", head.clone());
    let asked = shadow.device.requirements()?;
    if let Some((device, size)) = recording.device(&asked)? {
        return Ok(SimulatedDevice::recorded(device, size));
    }
    // Like for like: on as much flash as the device, unless another is asked for.
    let raw = match &head.flash {
        Some(flash) if asked.op.is_none() && asked.profile.is_none() => {
            let of_chip = recorded_profile(flash, "the device")?.0.geometry;
            RawFlash::Bytes(of_chip.data_bytes() * u64::from(flash.shards.unwrap_or(1)))
        }
        _ => RawFlash::Own,
    };
    let filled = recording.fill(asked)?;
    let device = filled.device(None, raw).map_err(|failure| match raw {
        RawFlash::Own => failure,
        _ => Failure::new(
            failure.exit,
            format!("on the device's flash: {failure}; op=PERCENT gives it a flash of its own"),
        ),
    })?;
    let params = filled.params.clone();
    Ok(SimulatedDevice::new(device, params, SEED_DEFAULT))
}

/// Counters when the content had been written.
struct Began {
    counters: OpCounts,
    pages_written: u64,
    /// Emulated time.
    at: Nanos,
}

/// A scheme that follows a device.
pub struct Twin {
    sim: Sim,
    began: Began,
    completions: Completions,
    /// Whether the device has the latency of its flash, so that arrivals are those of such a host.
    emulates: bool,
    /// Beginning of the first request, ns.
    first_ns: Option<u64>,
    /// Latest arrival, emulated.
    arrived: Nanos,
    view: TwinView,
}

impl Twin {
    /// Returns its counters.
    pub fn view(&self) -> TwinView {
        let total = self.sim.ftl().chip().counters().total();
        let stats = self.sim.ftl().stats();
        let ram = self.sim.ftl().ram_report();
        TwinView {
            host_pages_written: stats.host_pages_written - self.began.pages_written,
            programs: total.programs - self.began.counters.programs,
            erases: total.erases - self.began.counters.erases,
            ram_bytes: ram.iter().map(|entry| entry.paper_bytes).sum(),
            ..self.view.clone()
        }
    }

    fn request(&mut self, request: &Request) -> Result<(), FtlError> {
        let first = *self.first_ns.get_or_insert(request.ns);
        let now = self.began.at + request.ns.saturating_sub(first);
        self.arrived = self.arrived.max(now);
        let at = match self.emulates {
            true => self.arrived,
            false => self.completions.start(self.arrived, request.depth.into()),
        };
        let extent = [Extent {
            offset: request.offset,
            len: request.length,
        }];
        let extents = match request.op {
            Op::Flush => &extent[..0],
            _ => &extent[..],
        };
        let done = self.sim.request(at, request.op, extents)?;
        match request.op {
            Op::Read => self.view.reads.record(done - at),
            Op::Write => self.view.writes.record(done - at),
            Op::Trim | Op::Flush => {}
        }
        self.completions.done(done);
        self.view.requests += 1;
        Ok(())
    }
}
