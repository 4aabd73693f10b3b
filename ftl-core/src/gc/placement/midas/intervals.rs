//! Update interval distribution (UID): how long versions of pages live, measured over an epoch.
//!
//! An epoch is four drive writes. Of a sample of the pages RAM has the time of the last write, in
//! units of a block's worth of writes; each further write counts the interval in a histogram.
//! Longer intervals fit into an epoch less often, and are weighted for it. A page that was written
//! once counts as one of the longest interval.

use crate::addr::Lpn;
use crate::int::{index, to_u32};

/// Drive writes in an epoch.
const EPOCH: u64 = 4;
/// Largest number of intervals in the histogram.
const BINS: u64 = 8_192;
/// One page in `RATE` is sampled, but no fewer than [`SAMPLE_LEAST`] pages.
const RATE: u32 = 100;
const SAMPLE_LEAST: u32 = 1 << 14;

pub(super) struct Intervals {
    rate: u32,
    /// Writes in a unit.
    unit: u64,
    /// By sampled page: the unit of its last write, plus one, doubled; odd after its first one.
    last: Vec<u32>,
    counts: Vec<u32>,
    writes: u64,
}

impl Intervals {
    pub(super) fn new(logical_pages: u32, pages_per_block: u32) -> Self {
        let epoch = EPOCH * u64::from(logical_pages.max(1));
        let blocks = epoch.div_ceil(u64::from(pages_per_block));
        let unit = u64::from(pages_per_block) * blocks.div_ceil(BINS);
        let rate = (logical_pages / SAMPLE_LEAST).clamp(1, RATE);
        Intervals {
            rate,
            unit,
            last: vec![0; index(logical_pages.div_ceil(rate))],
            counts: vec![0; (epoch / unit).max(2) as usize],
            writes: 0,
        }
    }

    /// Counts a write. Returns whether it is the last one of the epoch.
    #[inline]
    pub(super) fn record(&mut self, lpn: Lpn) -> bool {
        let now = to_u32((self.writes / self.unit) as usize);
        self.writes += 1;
        if lpn.raw().is_multiple_of(self.rate)
            && let Some(last) = self.last.get_mut(index(lpn.raw() / self.rate))
        {
            match *last / 2 {
                0 => *last = 2 * (now + 1) + 1,
                before => {
                    let interval = index(now + 1 - before).min(self.counts.len() - 1);
                    self.counts[interval] += 1;
                    *last = 2 * (now + 1);
                }
            }
        }
        self.writes >= self.unit * self.counts.len() as u64
    }

    /// Returns the distribution of the epoch, and begins the next one. `None` if no page was
    /// written twice.
    pub(super) fn finish(&mut self, pages_per_block: u32) -> Option<Distribution> {
        let epoch = self.counts.len();
        let weighted = (0..)
            .zip(&self.counts)
            .map(|(interval, count)| match interval {
                0 => f64::from(*count),
                i => {
                    // Of intervals i, epoch / i fit after a page's first write, but for a rest that
                    // ends later: half an interval, and what the epoch is no multiple of.
                    let lost = (epoch % i) as f64 + i as f64 / 2.0;
                    f64::from(*count) * (1.0 + lost / epoch as f64)
                }
            });
        let mut weights: Vec<f64> = weighted.collect();
        let once = self.last.iter().filter(|last| **last % 2 == 1).count();
        let found = self.counts.iter().any(|count| *count > 0);
        weights[epoch - 1] += once as f64;
        self.last.fill(0);
        self.counts.fill(0);
        self.writes = 0;
        let unit = self.unit as f64 / f64::from(pages_per_block);
        found.then(|| Distribution::new(&weights, unit))
    }

    /// Returns the bytes as a device would have them: 4 B per sampled page and per interval.
    pub(super) fn bytes(&self) -> u64 {
        4 * (self.last.len() + self.counts.len()) as u64
    }
}

/// A distribution of update intervals. Times are in blocks' worth of host writes.
///
/// Interval `i` of the histogram is spread over `i - 1/2` to `i + 1/2` units, the first over half a
/// unit.
pub(super) struct Distribution {
    unit: f64,
    /// Before each interval: share of the updates, that times its interval, and the integral of
    /// the survival function, in units.
    updates: Vec<f64>,
    moments: Vec<f64>,
    survived: Vec<f64>,
}

impl Distribution {
    pub(super) fn new(weights: &[f64], unit: f64) -> Self {
        let total: f64 = weights.iter().sum();
        let (mut updates, mut moments, mut survived) = (vec![0.0], vec![0.0], vec![0.0]);
        let (mut share, mut moment, mut area) = (0.0, 0.0, 0.0);
        for (i, weight) in weights.iter().enumerate() {
            let part = weight / total;
            let (width, mean) = if i == 0 { (0.5, 0.25) } else { (1.0, i as f64) };
            area += width * (1.0 - share - part / 2.0);
            share += part;
            moment += part * mean;
            updates.push(share);
            moments.push(moment);
            survived.push(area);
        }
        Distribution {
            unit,
            updates,
            moments,
            survived,
        }
    }

    /// Returns the end of the measured intervals.
    pub(super) fn horizon(&self) -> f64 {
        (self.updates.len() as f64 - 1.5) * self.unit
    }

    /// Returns the interval that a time is in, and the share of it before that time.
    fn place(&self, time: f64) -> (usize, f64) {
        let place = (time / self.unit + 0.5).max(0.5);
        let i = (place as usize).min(self.updates.len() - 2);
        let within = (place - i as f64).min(1.0);
        (i, if i == 0 { 2.0 * within - 1.0 } else { within })
    }

    fn at(&self, sums: &[f64], time: f64) -> f64 {
        let (i, within) = self.place(time);
        sums[i] + within * (sums[i + 1] - sums[i])
    }

    /// Returns the share of versions that live for this time.
    pub(super) fn survival(&self, time: f64) -> f64 {
        1.0 - self.at(&self.updates, time)
    }

    /// Returns the blocks' worth of versions that are valid and younger than this time: the
    /// integral of the survival function.
    pub(super) fn valid_before(&self, time: f64) -> f64 {
        let (i, within) = self.place(time);
        let width = if i == 0 { 0.5 } else { 1.0 };
        let begin = 1.0 - self.updates[i];
        let end = begin - within * (self.updates[i + 1] - self.updates[i]);
        (self.survived[i] + within * width * (begin + end) / 2.0) * self.unit
    }

    /// For a HOT group of `size` blocks, returns the longest interval of its pages, and the share
    /// of the writes with at most that interval: `size = time x share`.
    pub(super) fn time_of_hot(&self, size: f64) -> Option<(f64, f64)> {
        let filled = |i: usize| (i as f64 + 0.5) * self.unit * self.updates[i + 1];
        let i = (0..self.updates.len() - 1).find(|i| filled(*i) >= size)?;
        Some(((i as f64 + 0.5) * self.unit, self.updates[i + 1]))
    }

    /// Of the updates with intervals above `time`: the share of those shorter than their mean, and
    /// the share of the pages that these update. An interval of `i` has pages in proportion to `i`.
    pub(super) fn hot_above(&self, time: f64) -> (f64, f64) {
        let (updates, moments) = (self.at(&self.updates, time), self.at(&self.moments, time));
        let (all, all_moments) = (
            1.0 - updates,
            self.moments[self.moments.len() - 1] - moments,
        );
        if all <= 0.0 || all_moments <= 0.0 {
            return (1.0, 1.0);
        }
        let mean = all_moments / all * self.unit;
        let hot = (self.at(&self.updates, mean) - updates).max(0.0);
        let pages = (self.at(&self.moments, mean) - moments).max(0.0);
        (hot / all, pages / all_moments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two thirds of the updates after 1 unit, a third after 4.
    fn distribution() -> Distribution {
        Distribution::new(&[0.0, 2.0, 0.0, 0.0, 1.0, 0.0], 1.0)
    }

    fn is(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
    }

    #[test]
    fn versions_survive_until_their_interval() {
        let uid = distribution();
        for (time, expected) in [
            (0.0, 1.0),
            (0.5, 1.0),
            (1.0, 2.0 / 3.0),
            (1.5, 1.0 / 3.0),
            (3.5, 1.0 / 3.0),
            (4.5, 0.0),
        ] {
            is(uid.survival(time), expected);
        }
        // 0.5 at 1, 1 at 2/3 in the mean, 2 at 1/3, 1 at 1/6.
        is(uid.valid_before(1.5), 0.5 + 2.0 / 3.0);
        is(uid.valid_before(4.5), 2.0);
        is(uid.horizon(), 5.5);
    }

    #[test]
    fn hot_versions_fill_their_group_in_their_time() {
        // 1.5 units x 2/3 = 1 block.
        let (time, share) = distribution().time_of_hot(1.0).unwrap();
        is(time, 1.5);
        is(share, 2.0 / 3.0);
        assert_eq!(distribution().time_of_hot(6.0), None);
    }

    /// The mean is (2 x 1 + 1 x 4) / 3 = 2: two thirds of the updates are shorter, of pages in the
    /// proportion 2 x 1 to 1 x 4.
    #[test]
    fn hot_updates_are_those_below_the_mean_interval() {
        let (hot, pages) = distribution().hot_above(0.0);
        is(hot, 2.0 / 3.0);
        is(pages, 1.0 / 3.0);
        // Above 1.5 all have one interval, half of whose spread is below the mean.
        let (hot, pages) = distribution().hot_above(1.5);
        is(hot, 0.5);
        is(pages, 0.5);
    }

    /// Four pages are written every second unit, page 4 once.
    #[test]
    fn intervals_are_counted_in_units_and_weighted() {
        let mut intervals = Intervals::new(8, 2);
        assert_eq!(
            (intervals.rate, intervals.unit, intervals.counts.len()),
            (1, 2, 16)
        );
        let mut ends = 0;
        for write in 0..32u32 {
            let lpn = if write == 30 { 4 } else { write % 4 };
            ends += u32::from(intervals.record(Lpn::new(lpn)));
        }
        assert_eq!(ends, 1);
        // Pages 0, 1, 3 have 7 intervals of 2 units, page 2 has 6.
        assert_eq!(intervals.counts[2], 27);
        let uid = intervals.finish(2).unwrap();
        // 27 x (1 + (0 + 1) / 16) = 28.6875, and page 4 once.
        is(uid.survival(3.0), 1.0 / 29.6875);
        assert!(intervals.finish(2).is_none());
        assert_eq!(intervals.bytes(), 4 * (8 + 16));
    }
}
