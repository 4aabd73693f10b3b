//! What is asked of the device: a trace file, or a workload that is made up on the way.

use super::job::{Address, Job};
use crate::failure::{Exit, Failure};
use ftld_traces::workload::{GENERATORS, Requests};
use ftld_traces::{Dialect, Record, Trace, TraceError, Workload};
use std::path::PathBuf;

/// A source of requests that can be read more than once.
pub(super) enum Source {
    Trace {
        file: PathBuf,
        dialect: Option<&'static Dialect>,
        disk: Option<u64>,
    },
    Made(Workload),
}

/// Requests, one by one.
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
                    "{text} is made up for this device: --format, --disk and --address are for trace files; ./{text} would be one"
                ))),
                workload => workload.map(Source::Made).map_err(Failure::usage),
            };
        }
        let file = PathBuf::from(text);
        if !file.exists() {
            let names: Vec<_> = GENERATORS.iter().map(|generator| generator.name).collect();
            return Err(Failure::failed(format!(
                "{text}: no such file, and no workload of that name; there are {}",
                names.join(", ")
            )));
        }
        Ok(Source::Trace {
            file,
            dialect,
            disk: job.method.disk,
        })
    }

    /// Begins from the start, on a device of so many bytes.
    pub(super) fn begin(&self, device_bytes: u64, seed: u64) -> Result<Stream, Failure> {
        match self {
            Source::Trace {
                file,
                dialect,
                disk,
            } => {
                let trace = Trace::open(file, *dialect).map_err(|error| failure(&error))?;
                Ok(Stream::Trace { trace, disk: *disk })
            }
            Source::Made(workload) => {
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
    /// Share that was read, 0 to 1.
    pub(super) fn progress(&self) -> f64 {
        match self {
            Stream::Trace { trace, .. } => trace.progress(),
            Stream::Made(requests) => requests.progress(),
        }
    }

    /// Where the last request came from, for messages.
    pub(super) fn place(&self) -> String {
        match self {
            Stream::Trace { trace, .. } => format!("line {}", trace.line()),
            Stream::Made(requests) => format!("request {}", requests.done()),
        }
    }

    /// Name of the format; `None` for what is made up.
    pub(super) fn format(&self) -> Option<&'static str> {
        match self {
            Stream::Trace { trace, .. } => Some(trace.dialect().name),
            Stream::Made(_) => None,
        }
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

/// The exit code of a trace that cannot be read; the message says the rest.
pub(super) fn failure(error: &TraceError) -> Failure {
    let exit = match error {
        TraceError::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
            Exit::Permission
        }
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}
