//! Alibaba Cloud's elastic block storage (Li et al., IISWC 2020): one address space per volume.

use super::{Table, TraceFormat};
use crate::fields::{columns, letter, number, record, time};
use crate::record::Record;

pub(super) const DIALECT: TraceFormat = TraceFormat {
    name: "alibaba",
    title: "Alibaba CSV",
    line: "device_id,opcode,offset,length,timestamp (R or W, bytes, microseconds)",
    parser: || Table::boxed(Some("device_id,opcode,offset,length,timestamp"), parse),
};

fn parse(line: &str) -> Result<Record, String> {
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
