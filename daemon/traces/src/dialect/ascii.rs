//! ASCII formats with the same columns and other units. DiskSim (Bucy et al., CMU-PDL-08-101) uses
//! milliseconds with a fraction, MQSim (Tavakkol et al., FAST 2018) whole nanoseconds, both
//! sectors. A first line without a decimal point in its time is taken as MQSim's. The replayers of
//! IODA (Li et al., SOSP 2021) and Heimdall use milliseconds and bytes.

use super::{BYTES, Parse, SECTORS, TraceFormat, Units, ValueError, no_other_reading, readings};
use crate::fields::{SECTOR, bytes, digit, number, record, time, words};
use crate::record::{Op, Record};

pub(super) const DISKSIM: TraceFormat = TraceFormat {
    name: "disksim",
    title: "DiskSim ASCII",
    line: "time device sector sectors flags (milliseconds, 512-byte sectors, hexadecimal flags with 1 for a read)",
    units: Units::new("ms", SECTORS, SECTORS),
    parser: || Box::new(DiskSim),
    other_reading: |lines| {
        // Other flags are DiskSim's alone.
        let of_both =
            |line: &&str| words(line).is_ok_and(|[.., op]: [&str; 5]| matches!(op, "0" | "1"));
        lines
            .iter()
            .all(of_both)
            .then(|| in_bytes(&DISKSIM, lines))?
    },
};

pub(super) const DISKSIM_BYTES: TraceFormat = TraceFormat {
    name: "disksim-bytes",
    title: "IODA and Heimdall",
    line: "time device offset length op (milliseconds, bytes in whole sectors, 0 write or 1 read)",
    units: Units::new("ms", BYTES, BYTES),
    parser: || Box::new(DiskSimBytes),
    other_reading: no_other_reading,
};

pub(super) const MQSIM: TraceFormat = TraceFormat {
    name: "mqsim",
    title: "MQSim ASCII",
    line: "time device sector sectors op (nanoseconds, 512-byte sectors, 0 write or 1 read)",
    units: Units::new("ns", SECTORS, SECTORS),
    parser: || Box::new(MqSim),
    other_reading: |lines| in_bytes(&MQSIM, lines),
};

/// Returns the other reading of lines in sectors, and the way out.
fn in_bytes(format: &TraceFormat, lines: &[&str]) -> Option<String> {
    let readings = readings::sectors_or_bytes(format, lines)?;
    let (name, time) = (format.name, format.units.time);
    Some(format!(
        "{readings}; add --format {name} (times in {time}, sectors) or --format disksim-bytes (times in ms, bytes)"
    ))
}

struct DiskSim;
struct DiskSimBytes;
struct MqSim;

impl Parse for DiskSim {
    fn line(&mut self, line: &str) -> Result<Option<Record>, ValueError> {
        let [at, device, sector, sectors, flags] = words(line)?;
        let wrong = |_| ValueError::column("flags", flags, "are not hexadecimal");
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).map_err(wrong)?;
        let op = if flags & 1 == 1 { Op::Read } else { Op::Write };
        extent(time("time", at, 1_000_000)?, op, device, sector, sectors)
    }

    fn begins(&mut self, line: &str) -> bool {
        has_point(line) && self.line(line).is_ok()
    }
}

impl Parse for DiskSimBytes {
    fn line(&mut self, line: &str) -> Result<Option<Record>, ValueError> {
        let [at, device, offset, length, op] = words(line)?;
        let (at, op) = (time("time", at, 1_000_000)?, digit(op, "1", "0")?);
        let (offset, length) = (
            whole_sectors("offset", offset)?,
            whole_sectors("length", length)?,
        );
        record(at, op, number("device", device)?, offset, length).map(Some)
    }

    fn begins(&mut self, line: &str) -> bool {
        has_point(line) && self.line(line).is_ok()
    }
}

/// Returns whether the time of a line has a decimal point.
fn has_point(line: &str) -> bool {
    let at = line.split_ascii_whitespace().next();
    at.is_some_and(|at| at.contains('.'))
}

/// Parses bytes. A disk has whole sectors, so other numbers are not bytes.
fn whole_sectors(name: &'static str, text: &str) -> Result<u64, ValueError> {
    let bytes = number(name, text)?;
    let fault = "not a multiple of 512 bytes";
    match bytes.is_multiple_of(SECTOR) {
        true => Ok(bytes),
        false => Err(ValueError::Number(name, bytes.to_string(), fault)),
    }
}

impl Parse for MqSim {
    fn line(&mut self, line: &str) -> Result<Option<Record>, ValueError> {
        let [at, device, sector, sectors, op] = words(line)?;
        extent(
            number("time", at)?,
            digit(op, "1", "0")?,
            device,
            sector,
            sectors,
        )
    }
}

fn extent(
    at: u64,
    op: Op,
    device: &str,
    sector: &str,
    sectors: &str,
) -> Result<Option<Record>, ValueError> {
    let (device, offset) = (number("device", device)?, bytes("sector", sector, SECTOR)?);
    record(at, op, device, offset, bytes("sectors", sectors, SECTOR)?).map(Some)
}
