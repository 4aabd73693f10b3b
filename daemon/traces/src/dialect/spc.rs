//! Storage Performance Council (SPC trace file format 1.0.1; UMass Financial and WebSearch): one
//! address space per ASU.

use super::{BYTES, SECTORS, Table, TraceFormat, Units, ValueError, readings};
use crate::fields::{SECTOR, bytes, letter, number, record, seconds};
use crate::record::Record;

pub(super) const DIALECT: TraceFormat = TraceFormat {
    name: "spc",
    title: "SPC",
    line: "ASU,LBA,Size,Opcode,Timestamp (512-byte sectors, bytes, R or W, seconds)",
    units: Units::new("s", SECTORS, BYTES),
    parser: || Table::boxed(None, parse),
    other_reading,
};

fn parse(line: &str) -> Result<Record, ValueError> {
    // Fields after the fifth are specific to the recorder.
    let fields: Vec<_> = line.split(',').map(str::trim).collect();
    let [asu, lba, size, op, at, ..] = fields[..] else {
        let text = format!("{} columns, not 5 or more", fields.len());
        return Err(ValueError::Misfit(text));
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

/// Times with a point are seconds; without one, the first column may be the time.
fn other_reading(lines: &[&str]) -> Option<String> {
    let has_point = |line: &&str| line.split(',').nth(4).is_some_and(|at| at.contains('.'));
    if lines.iter().any(has_point) {
        return None;
    }
    let (asu, at) = readings::swapped(lines, 4)?;
    Some(format!(
        "as spc, {asu} is a disk (ASU) and {at} its time in s; or {asu} is the time and {at} the disk; \
         add --format spc, or convert it to plain, with times in us and bytes: \
         awk -F, -v OFS=, '{{ print $1, $4, $2, $3 }}'"
    ))
}
