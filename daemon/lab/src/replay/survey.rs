//! Survey of a whole trace before the run: signs of a wrong unit.

use ftld_kit::convert::to_f64;
use ftld_traces::{BYTES, Op, Record, SECTORS, Units};

/// A sector of 512 bytes, read as bytes, is this number of bytes; numbers of bytes are multiples of
/// a sector, so as sectors they are multiples of this.
const GRAIN: u64 = SECTOR * SECTOR;
const SECTOR: u64 = 512;
/// A year; published traces are of weeks.
const YEAR_NS: u64 = 365 * 86_400 * 1_000_000_000;
/// Shortest mean time between requests that is no sign of a wrong unit.
const GAP_MIN_NS: f64 = 100.0;
/// Least requests for which the mean time between them is checked.
const GAP_REQUESTS: u64 = 1000;

/// Properties of the requests of a trace that address bytes.
pub(super) struct Survey {
    device_bytes: Option<u64>,
    requests: u64,
    beyond: u64,
    last_ns: u64,
    /// Requests with an earlier time than one before them.
    behind: u64,
    /// Requests shorter than a sector.
    short: u64,
    /// Every offset, and every length, is a multiple of [`GRAIN`].
    coarse_offsets: bool,
    coarse_lengths: bool,
    any_offset: bool,
}

impl Survey {
    /// Begins; with the size of the device, if addresses are folded to it.
    pub(super) fn new(device_bytes: Option<u64>) -> Survey {
        Survey {
            device_bytes,
            requests: 0,
            beyond: 0,
            last_ns: 0,
            behind: 0,
            short: 0,
            coarse_offsets: true,
            coarse_lengths: true,
            any_offset: false,
        }
    }

    /// Notes a request; with `is_early`, it is earlier than the first one.
    pub(super) fn note(&mut self, record: &Record, is_early: bool) {
        self.behind += u64::from(is_early || record.time_ns < self.last_ns);
        if record.op == Op::Flush {
            return;
        }
        let (offset, length) = (record.offset_bytes, record.length_bytes);
        self.requests += 1;
        self.last_ns = self.last_ns.max(record.time_ns);
        self.coarse_offsets &= offset.is_multiple_of(GRAIN);
        self.coarse_lengths &= length.is_multiple_of(GRAIN);
        self.any_offset |= offset > 0;
        self.short += u64::from(length < SECTOR);
        let beyond = |size| offset + length > size;
        self.beyond += u64::from(self.device_bytes.is_some_and(beyond));
    }

    /// Returns the time of the last request, ns.
    pub(super) fn last_ns(&self) -> u64 {
        self.last_ns
    }

    /// Returns how many requests are not in the order of their times, if any are not.
    pub(super) fn disorder(&self) -> Option<String> {
        (self.behind > 0).then(|| {
            format!(
                "{} requests have an earlier time than one before them, and begin with that one",
                self.behind
            )
        })
    }

    /// Returns a line for each sign of another unit.
    pub(super) fn signs(&self, units: &Units) -> Vec<String> {
        let mut signs = Vec::new();
        let coarse = |unit: &str, is: bool| unit == SECTORS && is && self.requests > 0;
        let numbers = match (
            coarse(units.offset, self.coarse_offsets && self.any_offset),
            coarse(units.length, self.coarse_lengths),
        ) {
            (true, true) => Some("offset and length is"),
            (true, false) => Some("offset is"),
            (false, true) => Some("length is"),
            (false, false) => None,
        };
        if let Some(numbers) = numbers {
            signs.push(format!(
                "every {numbers} a multiple of 512 sectors, as numbers of bytes are"
            ));
        }
        if units.length == BYTES && self.short > self.requests / 2 {
            signs.push(format!(
                "{} of {} requests are shorter than a sector of 512 bytes, as numbers of sectors are",
                self.short, self.requests
            ));
        }
        if self.last_ns > YEAR_NS {
            let years = to_f64(self.last_ns) / to_f64(YEAR_NS);
            signs.push(format!(
                "the last request is {years:.1} years after the first"
            ));
        }
        let gap_ns = to_f64(self.last_ns) / to_f64(self.requests.max(1));
        if self.requests >= GAP_REQUESTS && self.last_ns > 0 && gap_ns < GAP_MIN_NS {
            signs.push(format!("a request every {gap_ns:.1} ns, on average"));
        }
        if self.beyond > self.requests / 2 {
            signs.push(format!(
                "{} of {} requests reach beyond the device",
                self.beyond, self.requests
            ));
        }
        signs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftld_traces::TraceFormat;

    fn signs(format: &str, size: Option<u64>, requests: &[(u64, u64, u64)]) -> String {
        let mut survey = Survey::new(size);
        for &(time_ns, offset_bytes, length_bytes) in requests {
            let (op, device) = (Op::Write, 0);
            let record = Record {
                time_ns,
                op,
                device,
                offset_bytes,
                length_bytes,
            };
            survey.note(&record, false);
        }
        survey
            .signs(&TraceFormat::find(format).unwrap().units)
            .join("; ")
    }

    #[test]
    fn every_sign_of_a_wrong_unit_is_named() {
        let bytes = "every offset and length is a multiple of 512 sectors";
        assert!(signs("disksim", None, &[(0, GRAIN, 8 * GRAIN)]).contains(bytes));
        // One request in sectors is enough; a trace of the first sector alone shows no unit.
        assert_eq!(
            signs("disksim", None, &[(0, GRAIN, GRAIN), (0, 512, 512)]),
            ""
        );
        assert!(signs("spc", None, &[(0, GRAIN, 4096)]).starts_with("every offset is"));
        assert_eq!(signs("spc", None, &[(0, 0, 4096)]), "");
        assert_eq!(TraceFormat::find("plain").unwrap().units.offset, BYTES);
        assert_eq!(signs("plain", None, &[(0, GRAIN, GRAIN)]), "");
        let short = "2 of 3 requests are shorter than a sector";
        let sectors = [(0, 8, 8), (0, 16, 32), (0, 64, 512)];
        assert!(signs("plain", None, &sectors).starts_with(short));
        assert_eq!(signs("plain", None, &sectors[1..]), "");
        let years = signs("plain", None, &[(0, 0, 512), (5 * YEAR_NS / 2, 0, 512)]);
        assert_eq!(years, "the last request is 2.5 years after the first");
        let fast: Vec<_> = (0..2000).map(|at| (at, 0, 512)).collect();
        assert_eq!(
            signs("mqsim", None, &fast),
            "a request every 1.0 ns, on average"
        );
        let none: Vec<_> = (0..2000).map(|_| (0, 0, 512)).collect();
        assert_eq!(signs("fio", None, &none), "", "a trace without times");
        let far = [(0, 0, 512), (1, 2048, 512), (2, 4096, 512)];
        let beyond = signs("plain", Some(1024), &far);
        assert_eq!(beyond, "2 of 3 requests reach beyond the device");
    }
}
