//! The formats traces are published in, one file each.
//!
//! No two accept the same first line, so that the first line alone tells which it is.

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

/// One format.
pub struct Dialect {
    /// Name on the command line.
    pub name: &'static str,
    /// Whose it is.
    pub title: &'static str,
    /// What a line looks like.
    pub line: &'static str,
    pub(crate) parser: fn() -> Box<dyn Parse>,
}

/// Turns lines into records, in order.
pub(crate) trait Parse: Send {
    /// What the line holds; `None` where that is no request. Times are on the trace's own clock.
    /// The error says what is wrong.
    fn line(&mut self, line: &str) -> Result<Option<Record>, String>;

    /// Whether a trace of this format may begin with this line.
    fn begins(&mut self, line: &str) -> bool {
        self.line(line).is_ok()
    }
}

/// Every format.
pub const DIALECTS: &[Dialect] = &[
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

impl Dialect {
    /// The format of this name.
    pub fn find(name: &str) -> Option<&'static Dialect> {
        DIALECTS.iter().find(|dialect| dialect.name == name)
    }

    pub(crate) fn begins(&self, line: &str) -> bool {
        (self.parser)().begins(line)
    }
}

/// A format of which every line is a record, but perhaps for a header in the first.
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

/// Case and blanks around the commas are free.
fn is_header(line: &str, header: &str) -> bool {
    let names = |text: &str| {
        text.split(',')
            .map(|name| name.trim().to_ascii_lowercase())
            .collect::<Vec<_>>()
    };
    names(line) == names(header)
}
