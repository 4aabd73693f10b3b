//! Sources of requests: a trace file, or a synthetic workload.

use super::job::{Address, Arrival, Job};
use super::provenance::sha256;
use super::survey::Survey;
use crate::failure::{Exit, Failure};
use ftl_core::near_miss;
use ftld_traces::workload::{GENERATORS, Requests};
use ftld_traces::{Record, Trace, TraceError, TraceFormat, Units, Workload};
use std::path::PathBuf;

/// A source of requests; can be read more than once.
pub(super) enum Source {
    Trace {
        file: PathBuf,
        dialect: Option<&'static TraceFormat>,
        disk: Option<u64>,
        cut_off: bool,
    },
    Made(Workload),
}

/// A stream of requests.
pub(super) enum Stream {
    Trace { trace: Trace, disk: Option<u64> },
    Made(Requests),
}

impl Source {
    pub(super) fn new(job: &Job) -> Result<Source, Failure> {
        let text = job.workload.as_str();
        if text.is_empty() {
            return Err(Failure::usage(
                "no workload: name a trace file or a generator; see `ftld workloads`",
            ));
        }
        let dialect = job.dialect()?;
        if let Some(workload) = Workload::parse(text) {
            let fits = dialect.is_none()
                && job.method.disk.is_none()
                && job.method.address == Address::Exact;
            return match workload {
                Ok(_) if !fits => Err(Failure::usage(format!(
                    "{text} is a generator: --format, --disk and --address are for trace files such as ./{text}"
                ))),
                workload => workload.map(Source::Made).map_err(Failure::usage),
            };
        }
        let file = PathBuf::from(text);
        if !file.exists() {
            let names = GENERATORS.iter().map(|generator| generator.name);
            let name = text.split(':').next().unwrap_or(text);
            return Err(Failure::usage(format!(
                "{text}: no such file, and no workload of that name{}; see `ftld workloads`",
                near_miss(name, names)
            )));
        }
        Ok(Source::Trace {
            file,
            dialect,
            disk: job.method.disk,
            cut_off: job.method.cut_off,
        })
    }

    /// Returns the SHA-256 of the trace file; `None` for a workload, and for a pipe, which can be
    /// read only once.
    pub(super) fn sha256(&self) -> Result<Option<String>, Failure> {
        match self {
            Source::Trace { file, .. } if file.is_file() => sha256(file).map(Some),
            Source::Trace { .. } | Source::Made(_) => Ok(None),
        }
    }

    /// Reads the trace file of a job to its end: a run that fails at its last line would have been for
    /// nothing. A pipe can be read only once. Signs of a wrong unit, and a last line without a line end,
    /// are named on standard error.
    ///
    /// # Errors
    /// A line cannot be read, the file is cut off, or its times are too long for the job.
    pub(super) fn check(&self, job: &Job) -> Result<(), Failure> {
        let Source::Trace {
            file,
            dialect,
            cut_off,
            ..
        } = self
        else {
            return Ok(());
        };
        if !file.is_file() {
            return Ok(());
        }
        let mut trace = Trace::open(file, *dialect, *cut_off).map_err(|error| failure(&error))?;
        let mut survey = Survey::new(job.folded_bytes());
        while let Some(record) = trace.next() {
            let record = record.map_err(|error| failure(&error))?;
            survey.note(&record, trace.is_early());
        }
        job.fits_time(survey.last_ns())?;
        if job.method.arrival == Arrival::Trace
            && let Some(sign) = survey.disorder()
        {
            tracing::warn!("{}: {sign}; sort the trace by its times", file.display());
        }
        for sign in survey.signs(&trace.units()) {
            tracing::warn!(
                "{}: {sign}; read as {} ({}): if its units are others, name the format by --format",
                file.display(),
                trace.format(),
                trace.units()
            );
        }
        if trace.is_last_line_open() {
            tracing::warn!(
                "{}: {}: the last line has no line end; if the file was cut off, its last number is too short",
                file.display(),
                trace.place()
            );
        }
        Ok(())
    }

    /// Opens a stream at the start, for a device of `device_bytes` bytes.
    pub(super) fn begin(&self, device_bytes: u64, seed: u64) -> Result<Stream, Failure> {
        match self {
            Source::Trace {
                file,
                dialect,
                disk,
                cut_off,
            } => {
                let trace =
                    Trace::open(file, *dialect, *cut_off).map_err(|error| failure(&error))?;
                Ok(Stream::Trace { trace, disk: *disk })
            }
            Source::Made(workload) => {
                assert!(
                    device_bytes > 0,
                    "workload {} on a device of no bytes",
                    workload.generator
                );
                let failed =
                    |why| Failure::usage(format!("workload {}: {why}", workload.generator));
                workload
                    .begin(device_bytes, seed)
                    .map(Stream::Made)
                    .map_err(failed)
            }
        }
    }
}

impl Stream {
    /// Returns the share read, 0 to 1.
    pub(super) fn progress(&self) -> f64 {
        match self {
            Stream::Trace { trace, .. } => trace.progress(),
            Stream::Made(requests) => requests.progress(),
        }
    }

    /// Returns the origin of the last request, for messages.
    pub(super) fn place(&self) -> String {
        match self {
            Stream::Trace { trace, .. } => trace.place(),
            Stream::Made(requests) => format!("request {}", requests.done()),
        }
    }

    /// Returns whether the last request is earlier than the first one.
    pub(super) fn is_early(&self) -> bool {
        matches!(self, Stream::Trace { trace, .. } if trace.is_early())
    }

    /// Returns the name of the format, and its units; `None` for a synthetic workload.
    pub(super) fn format(&self) -> Option<(&'static str, Units)> {
        match self {
            Stream::Trace { trace, .. } => Some((trace.format(), trace.units())),
            Stream::Made(_) => None,
        }
    }

    /// Returns the failure of the last request, which has no place on the device, with the units of
    /// the trace.
    pub(super) fn misplaced(&self, job: &Job, why: &str) -> Failure {
        let (workload, place) = (&job.workload, self.place());
        Failure::failed(match self.format() {
            None => format!("{workload}: {place}: {why}"),
            Some((name, units)) => {
                format!("{workload}: {place}, read as {name} ({units}): {why}")
            }
        })
    }
}

impl Iterator for Stream {
    type Item = Result<Record, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Stream::Trace { trace, disk } => {
                trace.find(|record| !matches!((record, *disk), (Ok(record), Some(disk)) if record.device != disk))
            }
            Stream::Made(requests) => requests.next().map(Ok),
        }
    }
}

/// Returns the failure with its exit code for a trace that cannot be read.
pub(super) fn failure(error: &TraceError) -> Failure {
    let exit = match error {
        TraceError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Exit::Permission
        }
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}
