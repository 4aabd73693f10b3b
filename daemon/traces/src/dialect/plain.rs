//! ftld's exchange format: one line of awk converts any other format to it.

use super::{BYTES, Table, TraceFormat, Units, ValueError, no_other_reading};
use crate::fields::{columns, letter, number, record, time};
use crate::record::Record;

pub(super) const DIALECT: TraceFormat = TraceFormat {
    name: "plain",
    title: "plain CSV",
    line: "time_us,op,offset_bytes,length_bytes (op R, W or T)",
    units: Units::new("us", BYTES, BYTES),
    parser: || Table::boxed(Some("time_us,op,offset_bytes,length_bytes"), parse),
    other_reading: no_other_reading,
};

fn parse(line: &str) -> Result<Record, ValueError> {
    let [at, op, offset, length] = columns(line)?;
    record(
        time("time", at, 1_000)?,
        letter(op)?,
        0,
        number("offset", offset)?,
        number("length", length)?,
    )
}
