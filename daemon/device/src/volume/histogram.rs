//! A latency histogram with fixed buckets; threads add samples without a lock.

use ftld_kit::convert::to_f64;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Upper bounds of the buckets in nanoseconds: 25 us to 10 s.
pub const BOUNDS_NS: [u64; 16] = [
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
    2_500_000_000,
    10_000_000_000,
];

/// Counts per bucket; the last one counts samples above every bound.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
}

/// Content of a [`Histogram`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistogramView {
    /// Samples per bucket, not cumulative; the last one counts samples above every bound of
    /// [`BOUNDS_NS`].
    pub counts: [u64; BOUNDS_NS.len() + 1],
    /// Sum of all samples, ns.
    pub sum_ns: u64,
}

impl Histogram {
    /// Adds one sample.
    #[inline]
    pub(crate) fn record(&self, ns: u64) {
        self.counts[bucket(ns)].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns, Relaxed);
    }

    /// Returns the current counts. A sample recorded meanwhile may be in the sum and not in a
    /// bucket, or the other way round.
    pub(crate) fn view(&self) -> HistogramView {
        let mut view = HistogramView {
            sum_ns: self.sum_ns.load(Relaxed),
            ..HistogramView::default()
        };
        view.counts
            .iter_mut()
            .zip(&self.counts)
            .for_each(|(to, from)| *to = from.load(Relaxed));
        view
    }
}

impl HistogramView {
    /// Adds one sample.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.sum_ns += ns;
    }

    /// Adds the samples of another one.
    pub fn add(&mut self, other: &HistogramView) {
        let counts = self.counts.iter_mut().zip(other.counts);
        counts.for_each(|(sum, count)| *sum += count);
        self.sum_ns += other.sum_ns;
    }

    /// Returns the samples since an earlier view of the same histogram.
    pub fn since(&self, before: &HistogramView) -> HistogramView {
        let mut since = *self;
        let counts = since.counts.iter_mut().zip(before.counts);
        counts.for_each(|(count, before)| *count = count.saturating_sub(before));
        since.sum_ns = self.sum_ns.saturating_sub(before.sum_ns);
        since
    }

    /// Returns the number of samples.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the time below which this share of the samples lies, as if a bucket were filled
    /// evenly, ns; above the last bound, the last bound. `None` without samples.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let count = self.count();
        let mut left = share * to_f64(count);
        let mut low = 0.0;
        for (count, high) in self.counts.iter().zip(BOUNDS_NS) {
            let (count, high) = (to_f64(*count), to_f64(high));
            if left <= count {
                low += (high - low) * left / count.max(1.0);
                break;
            }
            (left, low) = (left - count, high);
        }
        (count > 0).then_some(low)
    }
}

/// Returns the bucket of a sample.
#[inline]
fn bucket(ns: u64) -> usize {
    let bounds = BOUNDS_NS.iter();
    let bucket = bounds.take_while(|&&bound| ns > bound).count();
    debug_assert!(
        bucket <= BOUNDS_NS.len(),
        "a bucket of each bound and one for the rest"
    );
    bucket
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_on_a_bound_belongs_to_that_bucket_and_longer_ones_overflow() {
        let histogram = Histogram::default();
        for ns in [0, 25_000, 25_001, 10_000_000_000, 10_000_000_001] {
            histogram.record(ns);
        }
        let view = histogram.view();
        assert_eq!(
            (
                view.counts[0],
                view.counts[1],
                view.counts[15],
                view.counts[16]
            ),
            (2, 1, 1, 1)
        );
        assert_eq!(
            (view.counts.iter().sum::<u64>(), view.sum_ns),
            (5, 20_000_050_002)
        );
        assert!(BOUNDS_NS.is_sorted());
    }

    #[test]
    fn a_quantile_is_within_its_bucket_or_the_last_bound() {
        let mut view = HistogramView::default();
        assert_eq!(view.quantile(0.5), None);
        (0..4).for_each(|_| view.record(10));
        assert_eq!(view.quantile(0.5), Some(12_500.0));
        let before = view;
        (0..5).for_each(|_| view.record(u64::MAX >> 8));
        assert_eq!(view.since(&before).quantile(0.5), Some(1e10));
        let mut sum = before;
        sum.add(&view.since(&before));
        assert_eq!((sum, sum.count()), (view, 9));
    }
}
