//! Output of `blkparse` for a `blktrace` recording, in the default layout. Of a request's events,
//! only the queue event (`Q`) counts: it is the host's request, before merging and scheduling.
//! Flushes and empty requests contain no bytes and are skipped; the lines after the events are a
//! summary.

use super::{Parse, SECTORS, TraceFormat, Units, ValueError, no_other_reading};
use crate::fields::{SECTOR, bytes, number, record, seconds};
use crate::record::{Op, Record};

pub(super) const DIALECT: TraceFormat = TraceFormat {
    name: "blkparse",
    title: "blkparse text",
    line: "major,minor cpu sequence seconds pid Q RWBS sector + sectors [process] (512-byte sectors; only events Q count)",
    units: Units::new("s", SECTORS, SECTORS),
    parser: || {
        Box::new(BlkParse {
            summary: false,
            dispatched: false,
        })
    },
    other_reading: no_other_reading,
};

struct BlkParse {
    summary: bool,
    /// An event `D` was seen: a request that was issued to the driver.
    dispatched: bool,
}

impl Parse for BlkParse {
    fn line(&mut self, line: &str) -> Result<Option<Record>, ValueError> {
        self.summary |= line.starts_with("CPU") || line.starts_with("Total (");
        if self.summary {
            return Ok(None);
        }
        let mut words = line.split_ascii_whitespace();
        let mut word = |name| words.next().ok_or(ValueError::Missing(name));
        let device = device(word("device")?)?;
        number("CPU", word("CPU")?)?;
        number("sequence number", word("sequence number")?)?;
        let at = seconds("time", word("time")?)?;
        number("process", word("process")?)?;
        let (action, kind) = (word("action")?, word("RWBS")?);
        self.dispatched |= action == "D";
        let Some(op) = operation(action, kind)? else {
            return Ok(None);
        };
        let (sector, plus) = match (words.next(), words.next()) {
            (Some(sector), Some("+")) => (sector, words.next()),
            // A flush without data has no sector.
            _ if kind.starts_with('F') => return Ok(None),
            _ => {
                let text = "no \"sector + sectors\" after the operation";
                return Err(ValueError::Misfit(text.into()));
            }
        };
        let sectors = bytes("sectors", plus.unwrap_or(""), SECTOR)?;
        if kind.starts_with('F') && sectors == 0 {
            return Ok(None);
        }
        record(at, op, device, bytes("sector", sector, SECTOR)?, sectors).map(Some)
    }

    fn begins(&mut self, line: &str) -> bool {
        line.trim()
            .split_once(',')
            .is_some_and(|(major, _)| number("major", major).is_ok())
            && line
                .split_ascii_whitespace()
                .nth(3)
                .is_some_and(|time| time.contains('.'))
            && self.line(line).is_ok()
    }

    fn without_request(&self) -> Option<String> {
        self.dispatched.then(|| {
            "events D and none Q, so it has what reached the drive, not what the host asked for; record Q \
             (blktrace -a queue), or replay the events D: awk '$6 == \"D\" { $6 = \"Q\" } 1'"
                .into()
        })
    }
}

fn device(text: &str) -> Result<u64, ValueError> {
    let (major, minor) = text
        .split_once(',')
        .ok_or_else(|| ValueError::column("device", text, "is not MAJOR,MINOR"))?;
    let (major, minor) = (number("major", major)?, number("minor", minor)?);
    major
        .checked_mul(1 << 20)
        .and_then(|base| base.checked_add(minor))
        .ok_or_else(|| ValueError::too_large("device", text))
}

/// Returns the operation of a queued request; `None` for other events and those without data.
fn operation(action: &str, kind: &str) -> Result<Option<Op>, ValueError> {
    if action != "Q" {
        return Ok(None);
    }
    // A leading F means a flush before the data, a D means a discard; other letters may follow W or
    // R.
    match kind.trim_start_matches('F').chars().next() {
        Some('W') => Ok(Some(Op::Write)),
        Some('R') => Ok(Some(Op::Read)),
        Some('D') => Ok(Some(Op::Trim)),
        Some('N') | None => Ok(None),
        Some(_) => Err(ValueError::column("RWBS", kind, "is not an operation")),
    }
}
