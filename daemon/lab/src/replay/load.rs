//! An open loop: the offered and the completed rate, and where the time of requests went.
//!
//! Invariants: every nanosecond of a response time has one cause. Memory is bounded: times are
//! summed by class of response time, each 3 % wide.

use super::row::{Load, Spent};
use super::sim::Sim;
use ftld_kit::convert::{sum_to_f64, to_f64, to_usize};
use nand_model::{Cause, Nanos, TimeSplit};
use std::collections::BTreeMap;

/// Classes per power of two, as a power of two.
const CLASS_BITS: u32 = 5;
/// Least requests for which an overload is reported; fewer are a burst.
const REQUESTS_MIN: u64 = 100;
/// Least completed rate of a sustained load, as a share of the offered one.
const SUSTAINED: f64 = 0.99;
/// Name of time without a cause, besides those of [`Cause`].
pub(crate) const OTHER: &str = "other";

/// Requests of one class, and the sums of their times.
#[derive(Clone, Debug, Default)]
struct Class {
    requests: u64,
    total_ns: u128,
    waited_ns: u128,
    other_ns: u128,
    by_cause_ns: [u128; Cause::COUNT],
}

impl Class {
    fn add(&mut self, ns: Nanos, split: Option<&TimeSplit>) {
        self.requests += 1;
        self.total_ns += u128::from(ns);
        let Some(split) = split else { return };
        self.waited_ns += u128::from(split.waited);
        self.other_ns += u128::from(split.other);
        let sums = self.by_cause_ns.iter_mut().zip(split.by_cause);
        sums.for_each(|(sum, ns)| *sum += u128::from(ns));
    }

    fn merge(&mut self, other: &Class) {
        self.requests += other.requests;
        self.total_ns += other.total_ns;
        self.waited_ns += other.waited_ns;
        self.other_ns += other.other_ns;
        let sums = self.by_cause_ns.iter_mut().zip(other.by_cause_ns);
        sums.for_each(|(sum, ns)| *sum += ns);
    }

    fn view(&self, is_explained: bool) -> Spent {
        let mean = |sum: u128| sum_to_f64(sum) / to_f64(self.requests.max(1));
        let causes = Cause::ALL.map(Cause::name).into_iter();
        let by_cause = causes.zip(self.by_cause_ns);
        let by_cause = by_cause.chain([(OTHER, self.other_ns)]);
        let by_cause = by_cause.filter(|(_, sum)| *sum > 0);
        let by_cause = by_cause.map(|(cause, sum)| (cause.to_owned(), mean(sum)));
        Spent {
            requests: self.requests,
            mean_ns: mean(self.total_ns),
            waited_ns: is_explained.then(|| mean(self.waited_ns)),
            by_cause_ns: if is_explained {
                by_cause.collect()
            } else {
                BTreeMap::new()
            },
        }
    }
}

/// Measures an open loop.
#[derive(Default)]
pub(super) struct LoadMeter {
    requests: u64,
    first: Nanos,
    latest: Nanos,
    /// End of the requests so far.
    done: Nanos,
    /// Number of the last request that found the device without another one.
    found_idle: u64,
    classes: Vec<Class>,
    slowest: Class,
    is_explained: bool,
}

/// Returns the class of a response time.
fn class(ns: Nanos) -> usize {
    let exponent = u64::BITS - ns.leading_zeros();
    let shift = exponent.saturating_sub(CLASS_BITS + 1);
    let class = (u64::from(shift) << CLASS_BITS) + (ns >> shift);
    to_usize(class)
}

impl LoadMeter {
    /// Begins with the measurement.
    pub(super) fn begin(sim: &mut Sim) -> LoadMeter {
        sim.chip_mut().keep_occupancy();
        LoadMeter::default()
    }

    /// Notes the arrival of a request, before it is issued.
    pub(super) fn arrive(&mut self, at: Nanos, sim: &mut Sim) {
        self.note_arrival(at);
        sim.chip_mut().begin_request(at);
    }

    fn note_arrival(&mut self, at: Nanos) {
        if self.requests == 0 {
            self.first = at;
        }
        if self.done <= at {
            self.found_idle = self.requests;
        }
        self.requests += 1;
        self.latest = at;
    }

    /// Notes the end of that request.
    pub(super) fn complete(&mut self, done: Nanos, sim: &mut Sim) {
        let split = sim.chip_mut().time_split(done);
        self.note_end(done, split);
    }

    fn note_end(&mut self, done: Nanos, split: Option<TimeSplit>) {
        let ns = done - self.latest;
        self.done = self.done.max(done);
        if let Some(split) = &split {
            let sum = split.by_cause.iter().sum::<u64>() + split.other;
            assert_eq!(sum, ns, "the time of a request of {ns} ns by cause");
        }
        self.is_explained |= split.is_some();
        let class = class(ns);
        if class >= self.classes.len() {
            self.classes.resize_with(class + 1, Class::default);
        }
        self.classes[class].add(ns, split.as_ref());
        if self.slowest.requests == 0 || u128::from(ns) > self.slowest.total_ns {
            self.slowest = Class::default();
            self.slowest.add(ns, split.as_ref());
        }
    }

    /// Returns the results.
    pub(super) fn view(&self) -> Load {
        let (mut all, mut tail) = (Class::default(), Class::default());
        for class in self.classes.iter().rev() {
            if tail.requests * 1000 < self.requests {
                tail.merge(class);
            }
            all.merge(class);
        }
        assert_eq!(all.requests, self.requests, "each request has a class");
        let per_second = |requests: u64, until: Nanos| {
            let ns = until - self.first;
            (ns > 0).then(|| to_f64(requests) * 1e9 / to_f64(ns))
        };
        let offered = per_second(self.requests.saturating_sub(1), self.latest);
        let completed = per_second(self.requests, self.done.max(self.first));
        let is_behind = offered.zip(completed);
        let is_behind =
            is_behind.is_some_and(|(offered, completed)| completed < SUSTAINED * offered);
        let is_busy = self.requests >= REQUESTS_MIN && self.found_idle < self.requests / 2;
        Load {
            offered_per_second: offered,
            completed_per_second: completed,
            backlog_ns: self.done.saturating_sub(self.latest),
            is_sustained: !(is_behind && is_busy),
            all: all.view(self.is_explained),
            slowest: tail.view(self.is_explained),
            maximum: self.slowest.view(self.is_explained),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_ascend_and_are_narrow() {
        let times =
            (0..60u32).flat_map(|bits| (0..50u64).map(move |i| (1 << bits) + (i << bits) / 50));
        let mut times: Vec<u64> = times.collect();
        times.sort_unstable();
        for two in times.windows(2) {
            assert!(class(two[0]) <= class(two[1]), "{two:?}");
            if class(two[0]) == class(two[1]) {
                assert!(two[1] - two[0] <= two[0] / 32, "{two:?}");
            }
        }
        assert!(class(u64::MAX) < 2048);
    }

    fn meter(arrivals_and_ends: impl Iterator<Item = (Nanos, Nanos)>) -> Load {
        let mut meter = LoadMeter::default();
        for (at, done) in arrivals_and_ends {
            meter.note_arrival(at);
            meter.note_end(done, None);
        }
        meter.view()
    }

    /// One request per `gap`, each served for 10.
    fn queue(gap: Nanos, requests: u64) -> Load {
        let mut free = 0;
        meter((0..requests).map(|number| {
            let at = number * gap;
            free = free.max(at) + 10;
            (at, free)
        }))
    }

    #[test]
    fn an_overload_is_a_queue_that_does_not_end() {
        for (gap, is_sustained) in [(100, true), (11, true), (10, true), (9, false), (1, false)] {
            let load = queue(gap, 10_000);
            assert_eq!(load.is_sustained, is_sustained, "{load:?}");
        }
        let over = queue(5, 10_000);
        assert_eq!(
            (over.offered_per_second, over.completed_per_second),
            (Some(2e8), Some(1e8))
        );
        assert_eq!(over.backlog_ns, 100_000 - 9_999 * 5);
        // A burst is none.
        assert!(queue(1, 50).is_sustained);
        let burst = (0..1_000u64)
            .map(|n| (n * 100, n * 100 + 10))
            .chain([(99_901, 140_000)]);
        assert!(meter(burst).is_sustained);
    }

    #[test]
    fn the_slowest_are_one_in_a_thousand() {
        let ends =
            (0..100_000u64).map(|n| (n * 1_000, n * 1_000 + if n % 1_000 == 7 { 900 } else { 10 }));
        let load = meter(ends);
        assert_eq!((load.all.requests, load.slowest.requests), (100_000, 100));
        assert_eq!((load.all.mean_ns, load.slowest.mean_ns), (10.89, 900.0));
    }
}
