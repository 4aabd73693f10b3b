//! Tencent's cloud block storage (Zhang et al., USENIX ATC 2020; SNIA IOTTA 27917): times in whole
//! seconds, one address space per volume.

use super::{Table, TraceFormat};
use crate::fields::{SECTOR, bytes, columns, digit, number, record, seconds};
use crate::record::Record;

pub(super) const DIALECT: TraceFormat = TraceFormat {
    name: "tencent",
    title: "Tencent CSV",
    line: "Timestamp,Offset,Size,IOType,VolumeID (seconds, 512-byte sectors, 0 read or 1 write)",
    parser: || Table::boxed(Some("Timestamp,Offset,Size,IOType,VolumeID"), parse),
};

fn parse(line: &str) -> Result<Record, String> {
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
