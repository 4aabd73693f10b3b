//! Preconditioning: brings a device to the state in which it is measured.

use super::job::Method;
use super::sim::{Extent, Sim};
use crate::convert::{index, narrow, to_f64, whole};
use crate::method::Precondition;
use ftl_core::{FtlError, Lpn};
use ftld_traces::Op;
use nand_model::SplitMix;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Rule of the steady state: the write amplification of `windows` windows in a row differs by at
/// most a share of `tolerance`. It is not reached if random pages for `limit_drive_writes` do not
/// suffice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteadyRule {
    /// Windows compared.
    pub windows: u32,
    /// Length of a window, in drive writes.
    pub window_drive_writes: f64,
    /// Share by which they may differ.
    pub tolerance: f64,
    /// Drive writes, after the sequential fill, at which the search ends.
    pub limit_drive_writes: f64,
}

impl Default for SteadyRule {
    fn default() -> Self {
        STEADY
    }
}

/// The rule of `--precondition steady`.
const STEADY: SteadyRule = SteadyRule {
    windows: 3,
    window_drive_writes: 0.25,
    tolerance: 0.02,
    limit_drive_writes: 12.0,
};

/// Result of preconditioning.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conditioned {
    /// Drive writes, with the sequential fill.
    pub drive_writes: f64,
    /// Write amplification of the last window of random overwrites, if there was one.
    pub write_amplification: Option<f64>,
    /// Whether the steady state was reached; `None` if it was not requested.
    pub steady: Option<bool>,
    /// Its rule; `None` if it was not requested.
    pub rule: Option<SteadyRule>,
}

impl Sim {
    /// Fills and overwrites as requested; `touched` are the pages of [`Precondition::Footprint`],
    /// ascending. `tick` receives the share done.
    pub(super) fn precondition(
        &mut self,
        method: &Method,
        touched: &[Range<u32>],
        seed: u64,
        tick: &mut dyn FnMut(f64),
    ) -> Result<Conditioned, FtlError> {
        let pages = self.ftl().logical_pages();
        let what = method.precondition();
        let limit = match what {
            Precondition::None | Precondition::Footprint => {
                assert!(
                    touched.is_sorted_by(|one, next| one.end <= next.start),
                    "the {} touched runs of pages overlap",
                    touched.len()
                );
                assert!(
                    touched.last().is_none_or(|run| run.end <= pages),
                    "touched pages {:?} of {pages}",
                    touched.last()
                );
                for run in touched {
                    self.fill(run.clone(), &mut |_| ())?;
                }
                let written: u32 = touched.iter().map(|run| run.end - run.start).sum();
                let drive_writes = f64::from(written) / f64::from(pages);
                return Ok(Conditioned {
                    drive_writes,
                    write_amplification: None,
                    steady: None,
                    rule: None,
                });
            }
            Precondition::Fill => method.age.unwrap_or(0.0),
            Precondition::Steady => STEADY.limit_drive_writes,
        };
        let limit = whole(limit * f64::from(pages));
        let total = to_f64(limit + u64::from(pages));
        self.fill(0..pages, &mut |done| tick(f64::from(done) / total))?;
        let mut rng = SplitMix::new(seed);
        let window = whole(f64::from(pages) * STEADY.window_drive_writes).max(1);
        let (mut written, mut last, mut steady) = (0, Vec::new(), false);
        while written < limit && !steady {
            let count = window.min(limit - written);
            assert!(
                count > 0,
                "a window of no pages, after {written} of {limit}"
            );
            let before = self.programs();
            for _ in 0..count {
                self.write_page(Lpn::new(narrow(rng.below(u64::from(pages)))))?;
            }
            written += count;
            last.push(to_f64(self.programs() - before) / to_f64(count));
            steady = what == Precondition::Steady && is_settled(&last);
            tick(to_f64(u64::from(pages) + written) / total);
        }
        assert!(
            steady || written == limit,
            "{written} of {limit} pages were overwritten"
        );
        Ok(Conditioned {
            drive_writes: 1.0 + to_f64(written) / f64::from(pages),
            write_amplification: last.last().copied(),
            steady: (what == Precondition::Steady).then_some(steady),
            rule: (what == Precondition::Steady).then_some(STEADY),
        })
    }

    /// Writes these pages in order, a block at a time.
    fn fill(&mut self, pages: Range<u32>, tick: &mut dyn FnMut(u32)) -> Result<(), FtlError> {
        let geometry = *self.ftl().chip().geometry();
        let (block, page) = (geometry.pages_per_block, u64::from(geometry.page_bytes));
        let mut first = pages.start;
        while first < pages.end {
            let next = ((first / block + 1) * block).min(pages.end);
            assert!(
                next > first && next - first <= block,
                "pages {first} to {next} of blocks of {block}"
            );
            let extent = Extent {
                offset: u64::from(first) * page,
                len: u64::from(next - first) * page,
            };
            self.now = self.whole(self.now, Op::Write, extent)?;
            tick(next);
            first = next;
        }
        Ok(())
    }

    fn programs(&self) -> u64 {
        self.ftl().chip().counters().total().programs
    }
}

fn is_settled(windows: &[f64]) -> bool {
    let count = index(STEADY.windows);
    let Some(last) = windows.len().checked_sub(count).map(|at| &windows[at..]) else {
        return false;
    };
    let most = last.iter().copied().fold(0.0, f64::max);
    let least = last.iter().copied().fold(f64::INFINITY, f64::min);
    most <= least * (1.0 + STEADY.tolerance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_like_windows_in_a_row_are_settled() {
        assert!(!is_settled(&[5.0, 5.0]));
        assert!(!is_settled(&[5.0, 5.0, 5.2]));
        assert!(!is_settled(&[1.0, 3.0, 5.0, 5.0]));
        assert!(is_settled(&[1.0, 3.0, 5.0, 5.05, 4.99]));
    }
}
