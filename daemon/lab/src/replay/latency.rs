//! Response times in bounded memory: mean and maximum are exact, percentiles have 3 significant
//! digits.

use ftld_kit::convert::{sum_to_f64, to_f64};
use ftld_traces::Op;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Response times of one kind of request.
#[derive(Clone, Debug)]
pub(super) struct Latency {
    histogram: Histogram<u64>,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram = Histogram::new(3).expect("three digits are allowed");
        Latency {
            histogram,
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
        }
    }
}

impl Latency {
    #[inline]
    pub(super) fn note(&mut self, ns: u64) {
        self.histogram.record(ns).expect("grows as it needs to");
        self.sum_ns += u128::from(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    fn clear(&mut self) {
        self.histogram.reset();
        (self.sum_ns, self.min_ns, self.max_ns) = (0, u64::MAX, 0);
    }

    fn add(&mut self, other: &Latency) {
        let count = self.histogram.len() + other.histogram.len();
        self.histogram
            .add(&other.histogram)
            .expect("grows as it needs to");
        assert_eq!(self.histogram.len(), count, "the responses of two kinds");
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Returns the statistics; `None` if there was no request.
    pub(super) fn view(&self) -> Option<Response> {
        let count = self.histogram.len();
        assert!(
            count == 0 || self.min_ns <= self.max_ns,
            "the shortest response is no longer than the longest"
        );
        assert!(
            self.sum_ns <= u128::from(self.max_ns) * u128::from(count),
            "{count} responses of at most {} ns took {} ns",
            self.max_ns,
            self.sum_ns
        );
        // The histogram stores values to 3 significant digits only.
        let at = |percent: f64| {
            self.histogram
                .value_at_percentile(percent)
                .clamp(self.min_ns, self.max_ns)
        };
        let response = (count > 0).then(|| Response {
            count,
            mean: sum_to_f64(self.sum_ns) / to_f64(count),
            sum: sum_to_f64(self.sum_ns),
            p50: at(50.0),
            p90: at(90.0),
            p99: at(99.0),
            p999: at(99.9),
            max: self.max_ns,
            quantiles: QUANTILES
                .iter()
                .map(|&share| (share, at(share * 100.0)))
                .collect(),
        });
        assert!(
            response.as_ref().is_none_or(|response| {
                [
                    response.p50,
                    response.p90,
                    response.p99,
                    response.p999,
                    response.max,
                ]
                .is_sorted()
            }),
            "a larger share of the requests took no longer: {response:?}"
        );
        response
    }
}

/// Reported points of the distribution, as shares of the requests.
const QUANTILES: [f64; 20] = [
    0.0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.995, 0.998, 0.999,
    0.9995, 0.9999, 1.0,
];

/// Response times in nanoseconds of emulated time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Response {
    /// Number of requests.
    pub(crate) count: u64,
    /// Mean.
    pub(crate) mean: f64,
    /// Sum; exact up to 2⁵³.
    pub(crate) sum: f64,
    /// Median.
    pub(crate) p50: u64,
    /// Longest of the fastest 90 %.
    pub(crate) p90: u64,
    /// Longest of the fastest 99 %.
    pub(crate) p99: u64,
    /// Longest of the fastest 99.9 %.
    pub(crate) p999: u64,
    /// Longest.
    pub(crate) max: u64,
    /// The distribution: shares of the requests, and the longest response of each share.
    pub(crate) quantiles: Vec<(f64, u64)>,
}

/// Response times by operation.
#[derive(Clone, Debug, Default)]
pub(super) struct Latencies {
    reads: Latency,
    writes: Latency,
    trims: Latency,
    flushes: Latency,
}

/// [`Response`]s by operation; `None` for an operation without requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Responses {
    /// All operations.
    pub(crate) all: Option<Response>,
    /// Reads.
    pub(crate) read: Option<Response>,
    /// Writes.
    pub(crate) write: Option<Response>,
    /// Trims.
    pub(crate) trim: Option<Response>,
    /// FLUSHes; only recordings have some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) flush: Option<Response>,
}

impl Latencies {
    #[inline]
    pub(super) fn of(&mut self, op: Op) -> &mut Latency {
        match op {
            Op::Read => &mut self.reads,
            Op::Write => &mut self.writes,
            Op::Trim => &mut self.trims,
            Op::Flush => &mut self.flushes,
        }
    }

    /// Forgets all response times; keeps the memory.
    pub(super) fn clear(&mut self) {
        self.reads.clear();
        self.writes.clear();
        self.trims.clear();
        self.flushes.clear();
    }

    pub(super) fn view(&self) -> Responses {
        let mut all = self.reads.clone();
        all.add(&self.writes);
        all.add(&self.trims);
        all.add(&self.flushes);
        assert_eq!(
            all.sum_ns,
            self.reads.sum_ns + self.writes.sum_ns + self.trims.sum_ns + self.flushes.sum_ns,
            "each response is of one operation"
        );
        Responses {
            all: all.view(),
            read: self.reads.view(),
            write: self.writes.view(),
            trim: self.trims.view(),
            flush: self.flushes.view(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_maximum_are_exact_and_percentiles_close() {
        let mut sides = Latencies::default();
        (1..=10_000u64).for_each(|i| {
            sides
                .of(if i % 2 == 0 { Op::Read } else { Op::Write })
                .note(i * 1_001)
        });
        let view = sides.view();
        let all = view.all.unwrap();
        assert_eq!(
            (all.count, all.max, all.mean),
            (10_000, 10_010_000, 5_005_500.5)
        );
        assert!(
            (all.p99 as f64 / 9_909_900.0 - 1.0).abs() < 2e-3
                && (all.p50 as f64 / 5_005_000.0 - 1.0).abs() < 2e-3
        );
        assert_eq!(
            (all.quantiles[0], all.quantiles[19]),
            ((0.0, 1_001), (1.0, 10_010_000))
        );
        assert_eq!((view.read.unwrap().count, view.trim), (5_000, None));
    }
}
