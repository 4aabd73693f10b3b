//! What a run writes besides its row, while it is measured.

use super::series::Series;
use super::sim::Sim;
use crate::failure::Failure;
use clap::Args;
use nand_model::Nanos;

/// Options of what is written besides the row.
#[derive(Args, Clone, Debug, Default)]
pub struct WatchArgs {
    /// Print a line of JSON per interval of emulated time, such as 100ms or 10s, before the row;
    /// implies --json
    #[arg(long, value_name = "TIME", value_parser = interval)]
    pub interval: Option<Nanos>,
}

impl WatchArgs {
    /// Refuses options that belong to a single run.
    ///
    /// # Errors
    /// One of them is set.
    pub fn refuse_seeds(&self) -> Result<(), Failure> {
        match self.interval {
            None => Ok(()),
            Some(_) => Err(Failure::usage(
                "--interval describes one run; leave out --seeds, and choose the run by --seed",
            )),
        }
    }
}

/// Parses a length of emulated time into ns.
fn interval(text: &str) -> Result<Nanos, String> {
    const UNITS: [(&str, u64); 6] = [
        ("ns", 1),
        ("us", 1_000),
        ("ms", 1_000_000),
        ("s", 1_000_000_000),
        ("min", 60_000_000_000),
        ("h", 3_600_000_000_000),
    ];
    let wrong = || "write a number and a unit: 500us, 100ms, 10s, 5min, 1h".to_owned();
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let (_, ns) = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(wrong)?;
    let number: u64 = number.trim().parse().map_err(|_| wrong())?;
    match number.checked_mul(*ns) {
        Some(0) => Err("an interval of no time; choose a longer one".into()),
        Some(length) => Ok(length),
        None => Err("longer than 584 years; choose a shorter one".into()),
    }
}

/// The open outputs of one run.
#[derive(Default)]
pub(super) struct Watch {
    series: Option<Series>,
}

impl Watch {
    /// Begins with the measurement.
    pub(super) fn begin(&mut self, args: &WatchArgs, sim: &mut Sim) {
        self.series = args.interval.map(|interval| Series::new(interval, sim));
    }

    /// Notes that a request starts at `at`.
    #[inline]
    pub(super) fn start(&mut self, at: Nanos, sim: &mut Sim) -> Result<(), Failure> {
        match &mut self.series {
            Some(series) => series.start(at, sim),
            None => Ok(()),
        }
    }

    /// Writes what remains when the measurement has ended.
    pub(super) fn finish(self, sim: &mut Sim) -> Result<(), Failure> {
        self.series.map_or(Ok(()), |series| series.finish(sim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_read_as_people_write_them() {
        assert_eq!(
            ["7ns", "500us", "100ms", "10 s", "5min", "1h"].map(|text| interval(text).unwrap()),
            [
                7,
                500_000,
                100_000_000,
                10_000_000_000,
                300_000_000_000,
                3_600_000_000_000
            ]
        );
        for (wrong, part) in [
            ("10", "a number and a unit"),
            ("s", "a number and a unit"),
            ("1.5s", "a number and a unit"),
            ("-1s", "a number and a unit"),
            ("3fortnights", "a number and a unit"),
            ("0ms", "of no time"),
            ("6000000h", "584 years"),
        ] {
            let error = interval(wrong).unwrap_err();
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }
}
