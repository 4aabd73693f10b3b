//! `--interval`: counters of every window of emulated time, a line of NDJSON each.
//!
//! Invariants: a request and its flash operations count in the window in which it starts.
//! Background work counts with the request that follows it. So the windows add up to the row.
//! Memory is that of one window.

use super::latency::{Latencies, Response};
use super::row::by_cause;
use super::sim::{Pages, Sim};
use ftld_device::counters::Operations;
use ftld_kit::convert::to_f64;
use ftld_kit::failure::Failure;
use ftld_kit::output::print;
use nand_model::{Counters, Nanos};
use serde::Serialize;
use std::collections::BTreeMap;

/// Schema name of an [`Interval`].
const SCHEMA: &str = "ftld.interval/1";

/// The time series of one run.
pub(super) struct Series {
    interval: Nanos,
    /// Start of the measurement; windows count from there.
    begun: Nanos,
    window: u64,
    requests: u64,
    /// State at the beginning of the window.
    pages: Pages,
    counters: Counters,
}

/// A window; times in emulated ns since the measurement began.
#[derive(Serialize)]
struct Interval {
    schema: &'static str,
    from_ns: u64,
    /// End of the window, or of the run if that is earlier.
    to_ns: u64,
    requests: u64,
    pages_read: u64,
    pages_written: u64,
    pages_trimmed: u64,
    flash: BTreeMap<String, Operations>,
    write_amplification: Option<f64>,
    response_ns: BTreeMap<&'static str, WindowResponse>,
    /// Erased blocks at the end of the window.
    free_blocks: u32,
}

/// Response times of a window.
#[derive(Serialize)]
struct WindowResponse {
    count: u64,
    mean: f64,
    p99: u64,
    max: u64,
}

impl From<Response> for WindowResponse {
    fn from(of: Response) -> Self {
        WindowResponse {
            count: of.count,
            mean: of.mean,
            p99: of.p99,
            max: of.max,
        }
    }
}

impl Series {
    /// Begins a series with the measurement.
    pub(super) fn new(interval: Nanos, sim: &mut Sim) -> Series {
        assert!(interval > 0, "windows of no time");
        sim.window = Some(Latencies::default());
        Series {
            interval,
            begun: sim.now,
            window: 0,
            requests: 0,
            pages: sim.pages,
            counters: sim.ftl().chip().counters().clone(),
        }
    }

    /// Prints the current window if the request that starts at `at` belongs to a later one.
    #[inline]
    pub(super) fn start(&mut self, at: Nanos, sim: &mut Sim) -> Result<(), Failure> {
        assert!(at >= self.begun, "a request before the measurement");
        let window = (at - self.begun) / self.interval;
        if window != self.window {
            self.end(self.interval, sim)?;
            self.window = window;
        }
        self.requests += 1;
        Ok(())
    }

    /// Prints the last window.
    pub(super) fn finish(mut self, sim: &mut Sim) -> Result<(), Failure> {
        let from = self.window.saturating_mul(self.interval);
        let rest = (sim.now - self.begun).saturating_sub(from);
        self.end(rest.min(self.interval), sim)?;
        sim.window = None;
        Ok(())
    }

    /// Prints the window, of this length, and begins another one. A window without requests has no
    /// line.
    fn end(&mut self, length: Nanos, sim: &mut Sim) -> Result<(), Failure> {
        if self.requests == 0 {
            return Ok(());
        }
        let counters = sim.ftl().chip().counters().clone();
        let flash = by_cause(&self.counters, &counters);
        let programs: u64 = flash.values().map(|of| of.programs).sum();
        let written = sim.pages.written - self.pages.written;
        let from = self.window.saturating_mul(self.interval);
        let responses = sim.window.as_ref().expect("begun by new").view();
        let sides = [
            ("all", responses.all),
            ("read", responses.read),
            ("write", responses.write),
            ("trim", responses.trim),
        ];
        let line = Interval {
            schema: SCHEMA,
            from_ns: from,
            to_ns: from.saturating_add(length),
            requests: self.requests,
            pages_read: sim.pages.read - self.pages.read,
            pages_written: written,
            pages_trimmed: sim.pages.trimmed - self.pages.trimmed,
            write_amplification: (written > 0).then(|| to_f64(programs) / to_f64(written)),
            flash,
            response_ns: sides
                .into_iter()
                .filter_map(|(side, of)| Some((side, of?.into())))
                .collect(),
            free_blocks: sim.ftl().stats().blocks.free,
        };
        let line = serde_json::to_string(&line).expect("a window is plain data");
        (self.requests, self.pages, self.counters) = (0, sim.pages, counters);
        sim.window.as_mut().expect("begun by new").clear();
        print(&(line + "\n"))
    }
}
