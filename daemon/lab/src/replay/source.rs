//! Sources of requests: a trace file, or a synthetic workload.

use super::job::{Address, Arrival, Method};
use super::provenance::sha256;
use super::survey::Survey;
use ftl_core::near_miss;
use ftld_kit::convert::to_f64;
use ftld_kit::failure::{Exit, Failure};
use ftld_traces::workload::{GENERATORS, Requests};
use ftld_traces::{DIALECTS, Record, Trace, TraceError, TraceFormat, Units, Workload};
use nand_model::Nanos;
use std::path::{Path, PathBuf};

/// Latest arrival of a request, 292 years: emulated time does not overflow behind it.
pub(super) const LATEST: Nanos = i64::MAX.unsigned_abs();

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
    /// Returns the source that a job names.
    ///
    /// # Errors
    /// There is no such file or generator, or an option does not apply to it.
    pub(super) fn new(workload: &str, method: &Method) -> Result<Source, Failure> {
        if workload.is_empty() {
            return Err(Failure::usage(
                "no workload: name a trace file or a generator; see `ftld workloads`",
            ));
        }
        let dialect = method.format.as_deref().map(dialect).transpose()?;
        if let Some(made) = Workload::parse(workload) {
            let fits =
                dialect.is_none() && method.disk.is_none() && method.address == Address::Exact;
            return match made {
                Ok(_) if !fits => Err(Failure::usage(format!(
                    "{workload} is a generator: --format, --disk and --address are for trace files \
                     such as ./{workload}"
                ))),
                made => made.map(Source::Made).map_err(Failure::usage),
            };
        }
        let file = PathBuf::from(workload);
        if !file.exists() {
            let names = GENERATORS.iter().map(|generator| generator.name);
            let name = workload.split(':').next().unwrap_or(workload);
            return Err(Failure::usage(format!(
                "{workload}: no such file, and no workload of that name{}; see `ftld workloads`",
                near_miss(name, names)
            )));
        }
        Ok(Source::Trace {
            file,
            dialect,
            disk: method.disk,
            cut_off: method.cut_off,
        })
    }

    /// Returns the trace file.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Source::Trace { file, .. } => Some(file),
            Source::Made(_) => None,
        }
    }

    /// Returns the SHA-256 of the trace file; `None` for a workload, and for a pipe, which can be
    /// read only once.
    pub(super) fn sha256(&self) -> Result<Option<String>, Failure> {
        let file = self.file().filter(|file| file.is_file());
        file.map(sha256).transpose()
    }

    /// Reads a trace file to its end: a run that fails at its last line would have been for
    /// nothing. A pipe can be read only once. Signs of a wrong unit, and a last line without a line
    /// end, are named on standard error. `folded_bytes`: the device to which addresses are folded.
    ///
    /// # Errors
    /// A line cannot be read, the file is cut off, or its times are too long for the method.
    pub(super) fn check(&self, method: &Method, folded_bytes: Option<u64>) -> Result<(), Failure> {
        let Some(file) = self.file().filter(|file| file.is_file()) else {
            return Ok(());
        };
        let Stream::Trace { mut trace, .. } = self.begin(0, 0)? else {
            unreachable!("a trace file is read as a trace");
        };
        let mut survey = Survey::new(folded_bytes);
        while let Some(record) = trace.next() {
            let record = record.map_err(|error| failure(&error))?;
            survey.note(&record, trace.is_early());
        }
        fits_time(file, method, survey.last_ns())?;
        if method.arrival == Arrival::Trace
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
                "{}: {}: the last line has no line end; if the file was cut off, its last number \
                 is too short",
                file.display(),
                trace.place()
            );
        }
        Ok(())
    }

    /// Returns the mean number of requests per second, reading a trace to its end; `None` if all of
    /// them have one time.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub(super) fn mean_rate(&self) -> Result<Option<f64>, Failure> {
        if let Source::Made(workload) = self {
            return Ok(Some(workload.rate()));
        }
        let (mut requests, mut last_ns) = (0u64, 0);
        for record in self.begin(0, 0)? {
            requests += 1;
            last_ns = last_ns.max(record?.time_ns);
        }
        let gaps = to_f64(requests.saturating_sub(1));
        Ok((last_ns > 0).then(|| gaps * 1e9 / to_f64(last_ns)))
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
                let trace = Trace::open(file, *dialect, *cut_off);
                let trace = trace.map_err(|error| failure(&error))?;
                Ok(Stream::Trace { trace, disk: *disk })
            }
            Source::Made(workload) => {
                let name = workload.generator;
                assert!(device_bytes > 0, "workload {name} on a device of no bytes");
                let requests = workload.begin(device_bytes, seed);
                requests
                    .map(Stream::Made)
                    .map_err(|why| Failure::usage(format!("workload {name}: {why}")))
            }
        }
    }
}

/// Checks that all passes of a trace end within emulated time, if its timestamps determine it.
fn fits_time(file: &Path, method: &Method, last_ns: u64) -> Result<(), Failure> {
    let passes = u64::from(method.passes_most());
    let ends = last_ns.checked_mul(passes);
    match ends.filter(|ends| *ends <= LATEST) {
        None if method.arrival == Arrival::Trace => Err(Failure::usage(format!(
            "{}: {passes} passes by its timestamps take more than 292 years; check the unit of its \
             times (--format), or take fewer --loops",
            file.display()
        ))),
        _ => Ok(()),
    }
}

/// Returns the trace format of this name.
fn dialect(name: &str) -> Result<&'static TraceFormat, Failure> {
    TraceFormat::find(name).ok_or_else(|| {
        let names: Vec<_> = DIALECTS.iter().map(|dialect| dialect.name).collect();
        let names = names.join(", ");
        Failure::usage(format!("no trace format {name:?}; there are {names}"))
    })
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
    pub(super) fn misplaced(&self, workload: &str, why: &Failure) -> Failure {
        let about = format!("{workload}: {}", self.place());
        Failure::failed(match self.format() {
            None => format!("{about}: {why}"),
            Some((name, units)) => format!("{about}, read as {name} ({units}): {why}"),
        })
    }
}

impl Iterator for Stream {
    type Item = Result<Record, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Stream::Trace { trace, disk } => {
                let is_of = |record: &Result<Record, TraceError>| match (record, *disk) {
                    (Ok(record), Some(disk)) => record.device == disk,
                    _ => true,
                };
                let found = trace.find(is_of)?;
                Some(found.map_err(|error| failure(&error)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_format_is_refused_with_the_known_ones() {
        let method = Method {
            format: Some("mrs".into()),
            ..Method::default()
        };
        let failure = Source::new("zipf", &method).err().unwrap();
        assert!(
            failure
                .message
                .contains("no trace format \"mrs\"; there are plain, msr, spc"),
            "{failure}"
        );
    }
}
