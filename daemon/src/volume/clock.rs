//! Emulated instants for a live device.
//!
//! The host runs closed-loop: it issues a request when an earlier one is done. Since the daemon completes at once, the host is
//! ahead of the emulated flash; taking its wall-clock instants as they are would pile up a queue that no real host would have
//! built. So a request starts at the wall clock, or when the host's queue, as deep as it really is, would have had room.

use nand_model::Nanos;
use std::time::Instant;

/// The latest completions, latest first.
const KEPT: usize = 64;

/// Maps wall time to emulated time.
#[derive(Debug)]
pub(super) struct Clock {
    origin: Instant,
    latest: Vec<Nanos>,
}

impl Clock {
    pub(super) fn new() -> Self {
        Clock { origin: Instant::now(), latest: Vec::with_capacity(KEPT + 1) }
    }

    /// When a request may start on the flash, if `depth` requests are under way, itself included.
    #[inline]
    pub(super) fn start(&self, depth: u64) -> Nanos {
        let now = self.origin.elapsed().as_nanos() as Nanos;
        let behind = (depth.max(1) as usize - 1).min(KEPT - 1);
        now.max(self.latest.get(behind).copied().unwrap_or(0))
    }

    /// Notes when a request was done.
    #[inline]
    pub(super) fn done(&mut self, at: Nanos) {
        let place = self.latest.iter().position(|&earlier| at >= earlier).unwrap_or(self.latest.len());
        self.latest.insert(place, at);
        self.latest.truncate(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_as_many_as_the_queue_is_short_of() {
        let mut clock = Clock::new();
        let far = 1 << 60;
        for done in [far, far + 30, far + 10] {
            clock.done(done);
        }
        assert_eq!([1, 2, 3].map(|depth| clock.start(depth)), [far + 30, far + 10, far]);
        assert!(clock.start(4) < far, "the queue had room all along");
        (0..2 * KEPT as u64).for_each(|i| clock.done(far + 100 + i));
        assert_eq!(clock.start(1), far + 99 + 2 * KEPT as u64);
    }
}
