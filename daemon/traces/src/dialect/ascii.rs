//! ASCII formats of two simulators, which differ only in the unit of time. DiskSim (Bucy et al.,
//! CMU-PDL-08-101) uses milliseconds with a fraction, MQSim (Tavakkol et al., FAST 2018) whole
//! nanoseconds. A first line without a decimal point in its time is taken as MQSim's.

use super::{Parse, TraceFormat};
use crate::fields::{SECTOR, bytes, digit, number, record, shown, time, words};
use crate::record::{Op, Record};

pub(super) const DISKSIM: TraceFormat = TraceFormat {
    name: "disksim",
    title: "DiskSim ASCII",
    line: "time device sector sectors flags (milliseconds, 512-byte sectors, hexadecimal flags with 1 for a read)",
    parser: || Box::new(DiskSim),
};

pub(super) const MQSIM: TraceFormat = TraceFormat {
    name: "mqsim",
    title: "MQSim ASCII",
    line: "time device sector sectors op (nanoseconds, 512-byte sectors, 0 write or 1 read)",
    parser: || Box::new(MqSim),
};

struct DiskSim;
struct MqSim;

impl Parse for DiskSim {
    fn line(&mut self, line: &str) -> Result<Option<Record>, String> {
        let [at, device, sector, sectors, flags] = words(line)?;
        let wrong = |_| format!("flags {:?} are not hexadecimal", shown(flags));
        let flags = u32::from_str_radix(flags.trim_start_matches("0x"), 16).map_err(wrong)?;
        let op = if flags & 1 == 1 { Op::Read } else { Op::Write };
        extent(time("time", at, 1_000_000)?, op, device, sector, sectors)
    }

    fn begins(&mut self, line: &str) -> bool {
        line.split_ascii_whitespace()
            .next()
            .is_some_and(|at| at.contains('.'))
            && self.line(line).is_ok()
    }
}

impl Parse for MqSim {
    fn line(&mut self, line: &str) -> Result<Option<Record>, String> {
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
) -> Result<Option<Record>, String> {
    let (device, offset) = (number("device", device)?, bytes("sector", sector, SECTOR)?);
    record(at, op, device, offset, bytes("sectors", sectors, SECTOR)?).map(Some)
}
