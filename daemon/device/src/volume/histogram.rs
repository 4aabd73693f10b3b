//! A latency histogram with fixed buckets; threads add samples without a lock.

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
        let bucket = BOUNDS_NS
            .iter()
            .position(|&bound| ns <= bound)
            .unwrap_or(BOUNDS_NS.len());
        debug_assert!(
            bucket < self.counts.len(),
            "a bucket of each bound and one for the rest"
        );
        self.counts[bucket].fetch_add(1, Relaxed);
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
}
