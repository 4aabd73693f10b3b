//! Storage Performance Council (SPC trace file format 1.0.1; UMass Financial and WebSearch): one
//! address space per ASU.

use super::{Table, TraceFormat};
use crate::fields::{SECTOR, bytes, letter, number, record, seconds};
use crate::record::Record;

pub(super) const DIALECT: TraceFormat = TraceFormat {
    name: "spc",
    title: "SPC",
    line: "ASU,LBA,Size,Opcode,Timestamp (512-byte sectors, bytes, R or W, seconds)",
    parser: || Table::boxed(None, parse),
};

fn parse(line: &str) -> Result<Record, String> {
    // Fields after the fifth are specific to the recorder.
    let fields: Vec<_> = line.split(',').map(str::trim).collect();
    let [asu, lba, size, op, at, ..] = fields[..] else {
        return Err(format!("{} columns, not 5 or more", fields.len()));
    };
    let (asu, offset) = (number("ASU", asu)?, bytes("LBA", lba, SECTOR)?);
    record(
        seconds("timestamp", at)?,
        letter(op)?,
        asu,
        offset,
        number("size", size)?,
    )
}
