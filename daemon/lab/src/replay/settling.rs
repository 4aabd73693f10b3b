//! Whether a write amplification has settled: over passes of a trace, or over one measurement. It
//! has not while fewer pages were programmed than the flash has: until then nothing need be
//! reclaimed.

use super::sim::Sim;
use ftld_kit::convert::to_f64;
use serde::{Deserialize, Serialize};

/// Share by which settled figures may differ.
const TOLERANCE: f64 = 0.02;
/// Passes in a row that are compared.
const PASSES: usize = 3;
/// Passes after which a form ends unsettled.
pub(super) const PASSES_MAX: u32 = 24;
/// Largest number of samples of a measurement.
const SAMPLES: usize = 128;

/// Whether the write amplification had settled: its last figures differ by at most 2 %, and the
/// flash was used once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settling {
    /// Compared figures.
    pub(crate) over: Over,
    /// Whether as many pages as the flash has were programmed since the device is new.
    pub(crate) is_used: bool,
    /// Whether it was, and the last figures are equal within the tolerance.
    pub(crate) is_settled: bool,
    /// The write amplification of each, in order.
    pub(crate) write_amplification: Vec<f64>,
}

impl Settling {
    /// Returns a word or two for a reader.
    pub(crate) const fn verdict(&self) -> &'static str {
        match (self.is_settled, self.is_used) {
            (true, _) => "settled",
            (false, true) => "NOT settled",
            (false, false) => "NOT settled: the flash was not used once",
        }
    }
}

/// Compared parts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Over {
    /// The passes before the measurement: three in a row.
    Passes,
    /// The two halves of the measurement, by pages written.
    Halves,
}

impl Over {
    /// Returns the noun.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Over::Passes => "passes",
            Over::Halves => "halves",
        }
    }
}

fn is_settled(figures: &[f64]) -> bool {
    let most = figures.iter().copied().fold(0.0, f64::max);
    let least = figures.iter().copied().fold(f64::INFINITY, f64::min);
    most <= least * (1.0 + TOLERANCE)
}

/// The write amplification of one pass after another.
#[derive(Default)]
pub(super) struct Passes {
    figures: Vec<f64>,
    /// Whether every page of the flash could have been programmed since the device is new.
    is_used: bool,
}

impl Passes {
    /// Adds a pass. Returns whether more are needed; none are if the pass wrote nothing.
    pub(super) fn add(&mut self, written: u64, programs: u64, is_used: bool) -> bool {
        if written == 0 {
            return false;
        }
        self.figures.push(to_f64(programs) / to_f64(written));
        self.is_used = is_used;
        !self.has_settled()
    }

    fn has_settled(&self) -> bool {
        let last = self.figures.len().checked_sub(PASSES);
        self.is_used && last.is_some_and(|first| is_settled(&self.figures[first..]))
    }

    /// Returns the result; `None` without pages written.
    pub(super) fn settling(self) -> Option<Settling> {
        (!self.figures.is_empty()).then(|| Settling {
            over: Over::Passes,
            is_used: self.is_used,
            is_settled: self.has_settled(),
            write_amplification: self.figures,
        })
    }
}

/// Samples of the pages written and programmed, at most [`SAMPLES`] of a measurement.
pub(super) struct Halves {
    began: u64,
    stride: u64,
    samples: Vec<(u64, u64)>,
}

impl Halves {
    pub(super) fn begin(sim: &Sim) -> Halves {
        Halves {
            began: programs(sim),
            stride: 1,
            samples: vec![(0, 0)],
        }
    }

    /// Notes the counters after a request.
    #[inline]
    pub(super) fn note(&mut self, sim: &Sim) {
        if sim.pages.written >= self.samples[self.samples.len() - 1].0 + self.stride {
            self.add(sim.pages.written, programs(sim) - self.began);
        }
    }

    fn add(&mut self, written: u64, programs: u64) {
        if self.samples.len() == SAMPLES {
            let mut number = 0;
            self.samples.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.stride *= 2;
        }
        self.samples.push((written, programs));
    }

    /// Returns the result; `None` if too few pages were written for two halves.
    pub(super) fn settling(&self, sim: &Sim) -> Option<Settling> {
        let programs = programs(sim) - self.began;
        self.of(sim.pages.written, programs, is_used(sim))
    }

    fn of(&self, written: u64, programs: u64, is_used: bool) -> Option<Settling> {
        let middle = |sample: &&(u64, u64)| sample.0.abs_diff(written / 2);
        let &(first, at_first) = self.samples.iter().min_by_key(middle)?;
        let ratio = |programs: u64, of: u64| (of > 0).then(|| to_f64(programs) / to_f64(of));
        let halves = [
            ratio(at_first, first)?,
            ratio(programs - at_first, written - first)?,
        ];
        Some(Settling {
            over: Over::Halves,
            is_used,
            is_settled: is_used && is_settled(&halves),
            write_amplification: halves.to_vec(),
        })
    }
}

/// Returns whether at least as many pages were programmed since the device was new as the flash
/// has.
pub(super) fn is_used(sim: &Sim) -> bool {
    programs(sim) >= sim.ftl().chip().geometry().pages()
}

/// Returns the pages programmed since the device is new.
pub(super) fn programs(sim: &Sim) -> u64 {
    sim.ftl().chip().counters().total().programs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_settle_when_three_in_a_row_are_alike() {
        let mut passes = Passes::default();
        for (programs, more) in [
            (400, true),
            (200, true),
            (101, true),
            (100, true),
            (102, false),
        ] {
            assert_eq!(passes.add(100, programs, true), more, "{programs}");
        }
        let settling = passes.settling().unwrap();
        assert!(settling.is_settled);
        assert_eq!(settling.write_amplification, [4.0, 2.0, 1.01, 1.0, 1.02]);
        let mut readers = Passes::default();
        assert!(!readers.add(0, 0, true));
        assert_eq!(readers.settling(), None);
        let mut unused = Passes::default();
        assert!(
            [100; 5]
                .iter()
                .all(|programs| unused.add(100, *programs, false))
        );
        assert!(!unused.settling().unwrap().is_settled);
    }

    #[test]
    fn halves_are_found_among_many_pages() {
        let halves = |programs: fn(u64) -> u64| {
            let mut halves = Halves {
                began: 0,
                stride: 1,
                samples: vec![(0, 0)],
            };
            for written in 1..=100_000 {
                if written >= halves.samples.last().unwrap().0 + halves.stride {
                    halves.add(written, programs(written));
                }
            }
            assert!(halves.samples.len() <= SAMPLES);
            halves.of(100_000, programs(100_000), true).unwrap()
        };
        let grows = halves(|written| written.max((3 * written).saturating_sub(100_000)));
        let [first, second] = grows.write_amplification[..] else {
            panic!("{grows:?}")
        };
        assert!(
            !grows.is_settled && first < 1.05 && second > 2.9,
            "{grows:?}"
        );
        assert!(halves(|written| 2 * written).is_settled);
    }
}
