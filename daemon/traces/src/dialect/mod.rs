//! Formats of published traces, one file each.
//!
//! No two formats accept the same first line, so the first line alone determines the format.

mod alibaba;
mod ascii;
mod blkparse;
mod fio;
mod msr;
mod plain;
mod spc;
mod systor;
mod tencent;
#[cfg(test)]
mod tests;

use crate::record::Record;

/// Trace format.
pub struct TraceFormat {
    /// Name on the command line.
    pub name: &'static str,
    /// Origin of the format.
    pub title: &'static str,
    /// Example of a line.
    pub line: &'static str,
    pub(crate) parser: fn() -> Box<dyn Parse>,
}

/// Converts lines to records, in order.
pub(crate) trait Parse: Send {
    /// Parses a line; `None` if it is not a request. Times are on the trace's own clock. The error
    /// contains the reason.
    fn line(&mut self, line: &str) -> Result<Option<Record>, String>;

    /// Returns whether a trace of this format may begin with this line.
    fn begins(&mut self, line: &str) -> bool {
        self.line(line).is_ok()
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
    record: fn(&str) -> Result<Record, String>,
    first: bool,
}

impl Table {
    fn boxed(
        header: Option<&'static str>,
        record: fn(&str) -> Result<Record, String>,
    ) -> Box<dyn Parse> {
        Box::new(Table {
            header,
            record,
            first: true,
        })
    }
}

impl Parse for Table {
    fn line(&mut self, line: &str) -> Result<Option<Record>, String> {
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
