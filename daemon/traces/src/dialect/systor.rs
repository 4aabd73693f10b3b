//! SYSTOR '17 (Lee et al., a VDI's storage; SNIA IOTTA 4928): one address space per LUN.

use super::{BYTES, Table, TraceFormat, Units, ValueError, no_other_reading};
use crate::fields::{columns, letter, number, record, seconds};
use crate::record::Record;

pub(super) const DIALECT: TraceFormat = TraceFormat {
    name: "systor",
    title: "SYSTOR '17 CSV",
    line: "Timestamp,Response,IOType,LUN,Offset,Size (seconds, seconds or nothing, R or W, bytes)",
    units: Units::new("s", BYTES, BYTES),
    parser: || Table::boxed(Some("Timestamp,Response,IOType,LUN,Offset,Size"), parse),
    other_reading: no_other_reading,
};

fn parse(line: &str) -> Result<Record, ValueError> {
    let [at, took, op, lun, offset, size] = columns(line)?;
    if !took.is_empty() {
        seconds("response", took)?;
    }
    let (at, lun) = (seconds("timestamp", at)?, number("LUN", lun)?);
    record(
        at,
        letter(op)?,
        lun,
        number("offset", offset)?,
        number("size", size)?,
    )
}
