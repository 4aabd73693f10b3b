//! MSR Cambridge (Narayanan et al., FAST 2008; SNIA IOTTA 388): times in units of 100 ns since
//! 1601.

use super::{BYTES, Table, TraceFormat, Units, ValueError, no_other_reading};
use crate::fields::{columns, letter, number, record, time};
use crate::record::Record;

pub(super) const DIALECT: TraceFormat = TraceFormat {
    name: "msr",
    title: "MSR Cambridge CSV",
    line: "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime (100 ns, Read or Write, bytes)",
    units: Units::new("100 ns", BYTES, BYTES),
    parser: || {
        Table::boxed(
            Some("Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime"),
            parse,
        )
    },
    other_reading: no_other_reading,
};

fn parse(line: &str) -> Result<Record, ValueError> {
    let [at, _host, disk, op, offset, size, took] = columns(line)?;
    number("response time", took)?;
    let (at, disk) = (time("timestamp", at, 100)?, number("disk number", disk)?);
    record(
        at,
        letter(op)?,
        disk,
        number("offset", offset)?,
        number("size", size)?,
    )
}
