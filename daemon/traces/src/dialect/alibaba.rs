//! Alibaba Cloud's elastic block storage (Li et al., IISWC 2020): one address space per volume.

use super::{BYTES, Table, TraceFormat, Units, ValueError, readings};
use crate::fields::{columns, letter, number, record, time};
use crate::record::Record;

pub(super) const DIALECT: TraceFormat = TraceFormat {
    name: "alibaba",
    title: "Alibaba CSV",
    line: "device_id,opcode,offset,length,timestamp (R or W, bytes, microseconds)",
    units: Units::new("us", BYTES, BYTES),
    parser: || Table::boxed(Some("device_id,opcode,offset,length,timestamp"), parse),
    other_reading,
};

fn parse(line: &str) -> Result<Record, ValueError> {
    let [device, op, offset, length, at] = columns(line)?;
    let (at, device) = (time("timestamp", at, 1_000)?, number("device", device)?);
    record(
        at,
        letter(op)?,
        device,
        number("offset", offset)?,
        number("length", length)?,
    )
}

/// Times of the published trace: microseconds since 1970.
const EPOCH_US: u64 = 100_000_000_000_000;

/// Times since 1970 are recognised; others may be disks, with the times in the first column.
fn other_reading(lines: &[&str]) -> Option<String> {
    let since_1970 = |line: &&str| {
        let at = line.split(',').nth(4).and_then(|at| at.trim().parse().ok());
        at.is_some_and(|at: u64| at >= EPOCH_US)
    };
    if lines.iter().any(since_1970) {
        return None;
    }
    let (disk, at) = readings::swapped(lines, 4)?;
    Some(format!(
        "as alibaba, {disk} is a disk and {at} its time in us; or {disk} is the time and {at} the disk; \
         add --format alibaba, or convert it to plain, with times in us: \
         awk -F, -v OFS=, '{{ print $1, $2, $3, $4 }}'"
    ))
}
