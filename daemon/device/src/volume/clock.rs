//! Emulated time of a live device.
//!
//! With `--latency emulate`, wall clock and emulated clock run in parallel: a request starts on the
//! flash when it arrives, and is due when the flash has finished it. Otherwise the daemon completes
//! a request at once, so the host issues the next ones before the emulated flash has finished it.
//! Starts by the wall clock would build up a queue that no real host has; [`Completions`] has the
//! rule instead.

use ftld_kit::convert::{nanos, to_u64, to_usize};
use nand_model::Nanos;
use std::time::{Duration, Instant};

/// Number of latest completions that a clock keeps, latest first.
const KEPT: usize = 64;

/// Latest completions of a chip, latest first.
///
/// With d requests in flight, a request starts on the flash when it arrives, or at the d-th newest
/// completion, whichever is later.
#[derive(Clone, Debug)]
pub struct Completions(Vec<Nanos>);

impl Default for Completions {
    fn default() -> Self {
        Completions(Vec::with_capacity(KEPT + 1))
    }
}

impl Completions {
    /// Returns when a request that arrives now may start with `depth` requests in flight, itself
    /// included.
    #[inline]
    pub fn start(&self, now: Nanos, depth: u64) -> Nanos {
        debug_assert!(
            self.0.len() <= KEPT,
            "{} latest completions, limited to {KEPT}",
            self.0.len()
        );
        let behind = (to_usize(depth.max(1)) - 1).min(KEPT - 1);
        now.max(self.0.get(behind).copied().unwrap_or(0))
    }

    /// Records when a request completed.
    #[inline]
    pub fn done(&mut self, at: Nanos) {
        let place = self.0.iter().position(|&earlier| at >= earlier);
        let place = place.unwrap_or(self.0.len());
        self.0.insert(place, at);
        self.0.truncate(KEPT);
        debug_assert!(
            self.0.is_sorted_by(|later, earlier| later >= earlier),
            "the latest completions come first"
        );
    }
}

/// Mapping from wall time to emulated time, of one chip. The chips of a device have one origin and
/// one base.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    origin: Instant,
    /// Emulated time at the origin.
    base: Nanos,
    emulate: bool,
    /// Chips that share the host's queue.
    chips: u64,
    latest: Completions,
}

impl Clock {
    /// Creates a clock that starts at `base`, of one of this many chips.
    pub(super) fn new(base: Nanos, emulate: bool, chips: usize) -> Self {
        Clock {
            origin: Instant::now(),
            base,
            emulate,
            chips: to_u64(chips),
            latest: Completions::default(),
        }
    }

    /// Returns when a request may start on the flash with `depth` requests in flight, itself
    /// included. Each chip has its share of them.
    #[inline]
    pub(super) fn start(&self, depth: u64) -> Nanos {
        let now = self.now();
        if self.emulate {
            return now;
        }
        self.latest.start(now, depth.div_ceil(self.chips))
    }

    /// Records when a request completed; with `--latency emulate`, returns that instant by the wall
    /// clock.
    #[inline]
    pub(super) fn done(&mut self, at: Nanos) -> Option<Instant> {
        debug_assert!(
            at >= self.base,
            "a request ended at {at} ns, before the clock began at {} ns",
            self.base
        );
        if self.emulate {
            return Some(self.origin + Duration::from_nanos(at.saturating_sub(self.base)));
        }
        self.latest.done(at);
        None
    }

    /// Returns how long background work has to wait for `at`. `None` without `--latency emulate`:
    /// then nothing waits for the flash.
    pub(super) fn until(&self, at: Nanos) -> Option<Duration> {
        let left = at.saturating_sub(self.now());
        (self.emulate && left > 0).then(|| Duration::from_nanos(left))
    }

    /// Returns the emulated time: that of the wall clock, or the instant at which the flash is done
    /// with all operations so far, whichever is later.
    pub(super) fn reached(&self, busy_until: Nanos) -> Nanos {
        self.now().max(busy_until)
    }

    #[inline]
    fn now(&self) -> Nanos {
        self.base + nanos(self.origin.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_as_many_as_the_queue_is_short_of() {
        let mut clock = Clock::new(0, false, 1);
        let far = 1 << 60;
        for done in [far, far + 30, far + 10] {
            assert_eq!(clock.done(done), None);
        }
        assert_eq!(
            [1, 2, 3].map(|depth| clock.start(depth)),
            [far + 30, far + 10, far]
        );
        assert!(clock.start(4) < far, "the queue had room all along");
        let shared = Clock {
            chips: 3,
            ..clock.clone()
        };
        let starts = [1, 3, 4, 6, 7].map(|depth| shared.start(depth));
        assert_eq!(starts, [1, 1, 2, 2, 3].map(|depth| clock.start(depth)));
        assert_eq!(
            clock.reached(far),
            far,
            "the flash is behind the wall clock"
        );
        assert!((1..far).contains(&clock.reached(0)), "the flash is idle");
        (0..2 * KEPT as u64).for_each(|i| assert_eq!(clock.done(far + 100 + i), None));
        assert_eq!(clock.start(1), far + 99 + 2 * KEPT as u64);
    }

    #[test]
    fn emulating_a_request_starts_when_it_comes_and_is_due_when_the_flash_is_done() {
        let mut clock = Clock::new(5_000_000, true, 1);
        let due = clock.done(65_000_000_000).unwrap();
        assert_eq!(
            due - clock.origin,
            Duration::from_nanos(65_000_000_000 - 5_000_000)
        );
        for depth in [1, 9] {
            assert!(
                (5_000_000..65_000_000_000).contains(&clock.start(depth)),
                "whatever came before"
            );
        }
        assert!(
            clock
                .until(65_000_000_000)
                .is_some_and(|left| left < Duration::from_secs(65))
        );
        assert_eq!(clock.until(5_000_000), None);
        assert_eq!(Clock::new(0, false, 1).until(u64::MAX), None);
    }
}
