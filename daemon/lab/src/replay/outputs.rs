//! Files that a run writes besides its row, while it is measured.

use super::address::Extent;
use super::log::Log;
use super::series::Series;
use super::sim::Sim;
use super::trace_events::TraceEvents;
use clap::Args;
use ftld_kit::failure::Failure;
use ftld_kit::output::{spares, writable};
use ftld_traces::Op;
use nand_model::Nanos;
use std::path::{Path, PathBuf};

/// Options of what is written besides the row.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct OutputArgs {
    /// Print a line of JSON per interval of emulated time, such as 100ms or 10s, before the row;
    /// implies --json
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub(crate) interval: Option<Nanos>,
    /// Write a line per request to a file: .ndjson or .csv, compressed with .zst behind it
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Write the scheme's events to a file for Perfetto or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub(crate) trace_events: Option<PathBuf>,
}

impl OutputArgs {
    /// Checks the files of a run, before its trace is read.
    ///
    /// # Errors
    /// A file cannot be written, is the trace or the other file, or its name selects no format.
    pub(super) fn check(&self, trace: Option<&Path>) -> Result<(), Failure> {
        let files = [
            ("--log", self.log.as_deref()),
            ("--trace-events", self.trace_events.as_deref()),
        ];
        for (option, file) in files {
            if let (Some(file), Some(trace)) = (file, trace) {
                spares(option, file, (trace, "the trace"))?;
            }
        }
        if self.log.is_some() && self.log == self.trace_events {
            return Err(Failure::usage(
                "--log and --trace-events: each needs a file of its own",
            ));
        }
        self.log.as_deref().map_or(Ok(()), Log::check)?;
        files
            .into_iter()
            .filter_map(|(option, file)| Some((option, file?)))
            .try_for_each(|(option, file)| writable(option, file))
    }

    /// Refuses options that belong to a single run.
    ///
    /// # Errors
    /// One of them is set.
    pub(crate) fn refuse_seeds(&self) -> Result<(), Failure> {
        let set = [
            ("--interval", self.interval.is_some()),
            ("--log", self.log.is_some()),
            ("--trace-events", self.trace_events.is_some()),
        ];
        match set.iter().find(|(_, is_set)| *is_set) {
            None => Ok(()),
            Some((option, _)) => Err(Failure::usage(format!(
                "{option} describes one run; leave out --seeds, and choose the run by --seed"
            ))),
        }
    }
}

/// Parses a length of emulated time into ns.
fn interval(text: &str) -> Result<Nanos, Failure> {
    const UNITS: [(&str, u64); 6] = [
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let wrong = || Failure::usage("write a number and a unit: 500us, 100ms, 10s, 5min, 1h");
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let (_, ns) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(wrong)?;
    let number: u64 = number.trim().parse().map_err(|_| wrong())?;
    Err(Failure::usage(match number.checked_mul(*ns) {
        Some(0) => "an interval of no time; choose a longer one",
        Some(length) => return Ok(length),
        None => "longer than 584 years; choose a shorter one",
    }))
}

/// The open outputs of one run.
pub(super) struct Outputs {
    interval: Option<Nanos>,
    series: Option<Series>,
    log: Option<Log>,
    trace_events: Option<TraceEvents>,
    measuring: bool,
}

impl Outputs {
    /// Opens the files of a run.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(super) fn open(args: &OutputArgs) -> Result<Outputs, Failure> {
        Ok(Outputs {
            interval: args.interval,
            series: None,
            log: args.log.as_deref().map(Log::create).transpose()?,
            trace_events: args
                .trace_events
                .as_deref()
                .map(TraceEvents::create)
                .transpose()?,
            measuring: false,
        })
    }

    /// Begins with the measurement.
    pub(super) fn begin(&mut self, sim: &mut Sim) {
        self.measuring = true;
        self.series = self.interval.map(|interval| Series::new(interval, sim));
        if let Some(log) = &mut self.log {
            log.begin(sim);
        }
        if let Some(trace) = &mut self.trace_events {
            trace.begin(sim);
        }
    }

    /// Notes that a request starts at `at`.
    #[inline]
    pub(super) fn start(&mut self, at: Nanos, sim: &mut Sim) -> Result<(), Failure> {
        match &mut self.series {
            Some(series) => series.start(at, sim),
            None => Ok(()),
        }
    }

    /// Notes the request that ended at `done`.
    #[inline]
    pub(super) fn end(
        &mut self,
        op: Op,
        extents: &[Extent],
        at: Nanos,
        done: Nanos,
        sim: &Sim,
    ) -> Result<(), Failure> {
        if !self.measuring {
            return Ok(());
        }
        if let Some(trace) = &mut self.trace_events {
            trace.collect(sim);
        }
        match &mut self.log {
            Some(log) => log.note(op, extents, at, done, sim.ftl().chip().counters()),
            None => Ok(()),
        }
    }

    /// Writes what remains when the measurement has ended, with this outcome. `about` describes the
    /// run.
    pub(super) fn finish(
        self,
        outcome: Result<(), Failure>,
        sim: &mut Sim,
        about: &str,
    ) -> Result<(), Failure> {
        let mut outcome = outcome;
        if let Some(log) = self.log {
            outcome = log.finish(outcome);
        }
        outcome?;
        if let Some(trace) = self.trace_events {
            trace.finish(sim, about)?;
        }
        self.series.map_or(Ok(()), |series| series.finish(sim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_as_people_write_them() {
        assert_eq!(
            ["7ns", "500us", "100ms", "10 s", "5min", "1h"].map(|text| interval(text).unwrap()),
            [
                7,
                500_000,
                100_000_000,
                10_000_000_000,
                300_000_000_000,
                3_600_000_000_000
            ]
        );
        for (wrong, part) in [
            ("10", "a number and a unit"),
            ("s", "a number and a unit"),
            ("1.5s", "a number and a unit"),
            ("-1s", "a number and a unit"),
            ("3fortnights", "a number and a unit"),
            ("0ms", "of no time"),
            ("6000000h", "584 years"),
        ] {
            let error = interval(wrong).unwrap_err().message;
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }
}
