//! Formats of published traces, one file each.
//!
//! The first line determines the format. Some formats have the same columns as other layouts: then
//! the first lines must exclude the other reading, or the trace is refused (`readings.rs`).
//!
//! A new format is a file, an entry of [`DIALECTS`], a sample in `tests.rs`, a detection in tests
//! of `trace.rs`, and a row in `docs/REPLAY.md`. The first format of the list that accepts a line
//! has it, so no format may need a header.

mod alibaba;
mod ascii;
mod blkparse;
mod fio;
mod msr;
mod plain;
mod readings;
mod spc;
mod systor;
mod tencent;
#[cfg(test)]
mod tests;

use crate::error::ValueError;
use crate::record::Record;
use std::fmt;

/// Trace format.
pub struct TraceFormat {
    /// Name on the command line.
    pub name: &'static str,
    /// Origin of the format.
    pub title: &'static str,
    /// Example of a line.
    pub line: &'static str,
    /// Units of its columns.
    pub units: Units,
    pub(crate) parser: fn() -> Box<dyn Parse>,
    /// Returns another reading that the first lines do not exclude, and the way out.
    pub(crate) other_reading: fn(&[&str]) -> Option<String>,
}

/// Units of the columns of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Units {
    /// Unit of a time.
    pub time: &'static str,
    /// Unit of an offset: [`BYTES`] or [`SECTORS`].
    pub offset: &'static str,
    /// Unit of a length: [`BYTES`] or [`SECTORS`].
    pub length: &'static str,
}

/// Unit of offsets and lengths.
pub const BYTES: &str = "bytes";
/// Unit of offsets and lengths.
pub const SECTORS: &str = "512-byte sectors";

impl Units {
    pub(crate) const fn new(
        time: &'static str,
        offset: &'static str,
        length: &'static str,
    ) -> Self {
        Units {
            time,
            offset,
            length,
        }
    }
}

impl fmt::Display for Units {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Units {
            time,
            offset,
            length,
        } = self;
        match offset == length {
            true => write!(f, "times in {time}, offsets and lengths in {offset}"),
            false => write!(
                f,
                "times in {time}, offsets in {offset}, lengths in {length}"
            ),
        }
    }
}

/// For a format whose columns no other layout has.
fn no_other_reading(_: &[&str]) -> Option<String> {
    None
}

/// Converts lines to records, in order.
pub(crate) trait Parse: Send {
    /// Parses a line; `None` if it is not a request. Times are on the trace's own clock. The error
    /// contains the reason.
    fn line(&mut self, line: &str) -> Result<Option<Record>, ValueError>;

    /// Returns whether a trace of this format may begin with this line.
    fn begins(&mut self, line: &str) -> bool {
        self.line(line).is_ok()
    }

    /// Returns why a whole trace had no request, and the way out.
    fn without_request(&self) -> Option<String> {
        None
    }
}

/// All formats.
pub const DIALECTS: &[TraceFormat] = &[
    plain::DIALECT,
    msr::DIALECT,
    spc::DIALECT,
    blkparse::DIALECT,
    fio::DIALECT,
    ascii::DISKSIM,
    ascii::DISKSIM_BYTES,
    ascii::MQSIM,
    systor::DIALECT,
    alibaba::DIALECT,
    tencent::DIALECT,
];

impl TraceFormat {
    /// Returns the format with this name.
    pub fn find(name: &str) -> Option<&'static TraceFormat> {
        DIALECTS.iter().find(|dialect| dialect.name == name)
    }

    pub(crate) fn begins(&self, line: &str) -> bool {
        (self.parser)().begins(line)
    }
}

/// Format with a record in every line, except for an optional header in the first.
struct Table {
    header: Option<&'static str>,
    record: fn(&str) -> Result<Record, ValueError>,
    first: bool,
}

impl Table {
    fn boxed(
        header: Option<&'static str>,
        record: fn(&str) -> Result<Record, ValueError>,
    ) -> Box<dyn Parse> {
        Box::new(Table {
            header,
            record,
            first: true,
        })
    }
}

impl Parse for Table {
    fn line(&mut self, line: &str) -> Result<Option<Record>, ValueError> {
        let first = std::mem::take(&mut self.first);
        if first && self.header.is_some_and(|header| is_header(line, header)) {
            return Ok(None);
        }
        (self.record)(line).map(Some)
    }
}

/// Ignores case and blanks around the commas.
fn is_header(line: &str, header: &str) -> bool {
    let names = |text: &str| {
        text.split(',')
            .map(|name| name.trim().to_ascii_lowercase())
            .collect::<Vec<_>>()
    };
    names(line) == names(header)
}
