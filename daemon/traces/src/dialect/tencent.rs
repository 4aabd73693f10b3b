//! Tencent's cloud block storage (Zhang et al., USENIX ATC 2020; SNIA IOTTA 27917): times in whole
//! seconds, one address space per volume.

use super::{SECTORS, Table, TraceFormat, Units, ValueError, readings};
use crate::fields::{SECTOR, bytes, columns, digit, number, record, seconds};
use crate::record::Record;

pub(super) const DIALECT: TraceFormat = TraceFormat {
    name: "tencent",
    title: "Tencent CSV",
    line: "Timestamp,Offset,Size,IOType,VolumeID (seconds, 512-byte sectors, 0 read or 1 write)",
    units: Units::new("s", SECTORS, SECTORS),
    parser: || Table::boxed(Some("Timestamp,Offset,Size,IOType,VolumeID"), parse),
    other_reading,
};

fn parse(line: &str) -> Result<Record, ValueError> {
    let [at, offset, size, op, volume] = columns(line)?;
    let (at, volume) = (seconds("timestamp", at)?, number("volume", volume)?);
    record(
        at,
        digit(op, "0", "1")?,
        volume,
        bytes("offset", offset, SECTOR)?,
        bytes("size", size, SECTOR)?,
    )
}

fn other_reading(lines: &[&str]) -> Option<String> {
    let readings = readings::sectors_or_bytes(&DIALECT, lines)?;
    Some(format!(
        "{readings}; add --format tencent for sectors, or convert it to plain, with times in us and bytes"
    ))
}
