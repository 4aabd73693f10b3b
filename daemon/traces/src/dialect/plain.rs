//! Our own exchange format: what every other can be turned into with a line of awk.

use super::{Dialect, Table};
use crate::fields::{columns, letter, number, record, time};
use crate::record::Record;

pub(super) const DIALECT: Dialect = Dialect {
    name: "plain",
    title: "plain CSV",
    line: "time_us,op,offset_bytes,length_bytes (op R, W or T)",
    parser: || Table::boxed(Some("time_us,op,offset_bytes,length_bytes"), parse),
};

fn parse(line: &str) -> Result<Record, String> {
    let [at, op, offset, length] = columns(line)?;
    record(
        time("time", at, 1_000)?,
        letter(op)?,
        0,
        number("offset", offset)?,
        number("length", length)?,
    )
}
