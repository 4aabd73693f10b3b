//! Instants at which requests begin: when another one completes (closed loop), or when they
//! arrive, whether or not the device is free (open loop).
//!
//! Invariants: arrivals depend on the job alone, not on the device; so at another rate, equal
//! requests arrive. The rounds of a trace follow each other without a gap.

use super::job::{Arrival, Job};
use super::source::{LATEST, Source};
use ftld_kit::convert::{to_f64, whole};
use ftld_kit::failure::Failure;
use ftld_traces::workload::Gaps;
use nand_model::Nanos;

/// Highest rate, one request per ns.
const RATE_MAX: f64 = 1e9;

/// Rule by which requests begin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ArrivalRule {
    /// When another one completes.
    Closed,
    /// At their times, multiplied by `stretch`.
    Times { stretch: f64 },
    /// At random: this number per second on average.
    Poisson { rate: f64 },
    /// One by one: this number per second.
    Constant { rate: f64 },
}

impl ArrivalRule {
    /// Returns the rule of a job. Reads the trace if it is stretched to a rate.
    ///
    /// # Errors
    /// The trace cannot be read, or has no times that can be stretched.
    pub(super) fn of(job: &Job, source: &Source) -> Result<ArrivalRule, Failure> {
        let rate = || job.rate.expect("checked with the method");
        Ok(match job.method.arrival {
            Arrival::Closed => ArrivalRule::Closed,
            Arrival::Poisson => ArrivalRule::Poisson { rate: rate() },
            Arrival::Constant => ArrivalRule::Constant { rate: rate() },
            Arrival::Trace => match job.rate {
                None => ArrivalRule::Times { stretch: 1.0 },
                Some(rate) => {
                    let own = source.mean_rate()?.ok_or_else(|| {
                        Failure::usage(format!(
                            "{}: all its requests have one time, which --rate {rate} cannot \
                             stretch; add --arrival poisson or constant",
                            job.workload
                        ))
                    })?;
                    ArrivalRule::Times {
                        stretch: own / rate,
                    }
                }
            },
        })
    }

    /// Returns the arrivals from `begin` on; `None` in a closed loop.
    pub(super) fn begin(self, begin: Nanos, seed: u64) -> Option<Arrivals> {
        let times = match self {
            ArrivalRule::Closed => return None,
            ArrivalRule::Times { stretch } => Times::Stretched(stretch),
            ArrivalRule::Constant { rate } => Times::Constant(1e9 / rate),
            ArrivalRule::Poisson { rate } => {
                Times::Random(Gaps::new(rate, seed).expect("a checked rate is positive"))
            }
        };
        Some(Arrivals {
            times,
            begin,
            latest: begin,
            after_ns: 0.0,
        })
    }
}

/// Arrivals of the requests of some rounds.
pub(super) struct Arrivals {
    times: Times,
    /// Start of the round, or of the first one if arrivals do not depend on the trace.
    begin: Nanos,
    latest: Nanos,
    /// Time from `begin` to the next arrival that does not depend on the trace.
    after_ns: f64,
}

enum Times {
    Stretched(f64),
    Constant(f64),
    Random(Gaps),
}

impl Arrivals {
    /// Returns the arrival of the next request, which has this time in the trace, and whether it is
    /// earlier than one before it; then it is that one's.
    pub(super) fn next(&mut self, time_ns: Nanos) -> Result<(Nanos, bool), &'static str> {
        let after = match &mut self.times {
            Times::Stretched(stretch) if *stretch == 1.0 => time_ns,
            Times::Stretched(stretch) => whole(to_f64(time_ns) * *stretch),
            Times::Constant(gap_ns) => {
                let after = self.after_ns;
                self.after_ns += *gap_ns;
                whole(after)
            }
            Times::Random(gaps) => {
                self.after_ns += gaps.next().unwrap_or(0.0);
                whole(self.after_ns)
            }
        };
        let at = self.begin.checked_add(after).filter(|at| *at <= LATEST);
        let at = at.ok_or(
            "more than 292 years of emulated time; check the unit of its times (--format), or its \
             rate and --loops",
        )?;
        let is_late = at < self.latest;
        self.latest = self.latest.max(at);
        Ok((self.latest, is_late))
    }

    /// Begins another round at the last arrival.
    pub(super) fn next_round(&mut self) {
        if matches!(self.times, Times::Stretched(_)) {
            self.begin = self.latest;
        }
    }
}

/// Checks a rate.
///
/// # Errors
/// It is not positive, or too high.
pub(super) fn check_rate(rate: f64) -> Result<f64, Failure> {
    if rate > 0.0 && rate <= RATE_MAX {
        return Ok(rate);
    }
    Err(Failure::usage(format!(
        "--rate {rate}: need requests per second, above 0, at most 1e9"
    )))
}

/// Parses requests per second: `250`, `0.5`, `20K` or `1.5M`.
///
/// # Errors
/// The text is no such number.
pub(crate) fn rate(text: &str) -> Result<f64, Failure> {
    let text = text.trim();
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => match text.strip_suffix(['m', 'M']) {
            Some(number) => (number, 1e6),
            None => (text, 1.0),
        },
    };
    let number = number.parse::<f64>().ok().map(|number| number * unit);
    let wrong = || {
        Failure::usage(format!(
            "{text:?} is no number of requests per second; write for example 250, 20K or 1.5M"
        ))
    };
    check_rate(number.ok_or_else(wrong)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(rule: ArrivalRule, times: &[Nanos]) -> Vec<Nanos> {
        let mut arrivals = rule.begin(1_000, 7).unwrap();
        times
            .iter()
            .map(|time| arrivals.next(*time).unwrap().0)
            .collect()
    }

    #[test]
    fn times_of_a_trace_are_kept_or_stretched() {
        let times = [0, 10, 5, 40];
        assert_eq!(
            arrivals(ArrivalRule::Times { stretch: 1.0 }, &times),
            [1_000, 1_010, 1_010, 1_040]
        );
        assert_eq!(
            arrivals(ArrivalRule::Times { stretch: 0.5 }, &times),
            [1_000, 1_005, 1_005, 1_020]
        );
        assert_eq!(
            arrivals(ArrivalRule::Constant { rate: 1e8 }, &times),
            [1_000, 1_010, 1_020, 1_030]
        );
    }

    #[test]
    fn rounds_follow_each_other() {
        let mut arrivals = ArrivalRule::Times { stretch: 1.0 }.begin(0, 1).unwrap();
        assert_eq!(arrivals.next(30), Ok((30, false)));
        assert_eq!(arrivals.next(20), Ok((30, true)));
        arrivals.next_round();
        assert_eq!(arrivals.next(5), Ok((35, false)));
        assert!(arrivals.next(u64::MAX).is_err());
    }

    #[test]
    fn random_arrivals_have_the_rate_and_the_spread_of_a_poisson_process() {
        let times = vec![0; 100_000];
        let at = arrivals(ArrivalRule::Poisson { rate: 1e4 }, &times);
        let gaps: Vec<f64> = at.windows(2).map(|two| (two[1] - two[0]) as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let spread = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean / 1e5 - 1.0).abs() < 0.01, "{mean}");
        assert!((spread.sqrt() / mean - 1.0).abs() < 0.02, "{spread}");
        assert_eq!(at, arrivals(ArrivalRule::Poisson { rate: 1e4 }, &times));
    }

    #[test]
    fn rates_are_read_as_people_write_them() {
        assert_eq!(
            ["250", "0.5", "20K", "1.5m"].map(|text| rate(text).unwrap()),
            [250.0, 0.5, 20e3, 1.5e6]
        );
        for wrong in ["", "0", "-1", "fast", "nan", "inf", "1e10", "2G"] {
            assert_eq!(
                rate(wrong).unwrap_err().exit,
                ftld_kit::failure::Exit::Usage
            );
        }
    }
}
