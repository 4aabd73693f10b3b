//! Readers outside the store's lock. A slot that an erase freed is not written again while a reader
//! may still copy from it.
//!
//! Time is divided into *epochs*. A reader pins the epoch in which it begins. The epoch advances
//! when the one before it has no reader left, so readers are in two epochs at most, and one counter
//! for each parity is enough. A slot that was freed in epoch e has no reader two epochs later.
//!
//! Invariants: only the store's owner pins and advances; a reader unpins from any thread, and takes
//! no lock meanwhile. Pins are in RAM: the death of the process ends them all.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Epochs until no reader can use a freed slot.
const GRACE: u64 = 2;

/// The store's side of the pins.
#[derive(Debug, Default)]
pub(super) struct Pins {
    epoch: u64,
    active: Arc<[Active; 2]>,
}

/// Number of readers in the even or in the odd epochs. It has its own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Active(AtomicU64);

/// A reader's hold on the slots of its epoch, until it is dropped.
#[derive(Debug)]
pub struct Pin {
    active: Arc<[Active; 2]>,
    parity: usize,
}

impl Pins {
    /// Pins the present epoch.
    #[inline]
    pub(super) fn pin(&self) -> Pin {
        let parity = parity(self.epoch);
        self.active[parity].0.fetch_add(1, Ordering::Relaxed);
        Pin {
            active: self.active.clone(),
            parity,
        }
    }

    /// The present epoch, for slots freed now.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Advances as far as the readers allow. Returns an epoch: no reader copies from a slot that
    /// was freed before it.
    #[inline]
    pub(super) fn settled(&mut self) -> u64 {
        for _ in 0..GRACE {
            // Acquire: every copy by a reader ends before its slot is written again.
            if self.active[parity(self.epoch + 1)]
                .0
                .load(Ordering::Acquire)
                > 0
            {
                break;
            }
            self.epoch += 1;
        }
        self.epoch.saturating_sub(GRACE - 1)
    }
}

impl Drop for Pin {
    #[inline]
    fn drop(&mut self) {
        let before = self.active[self.parity].0.fetch_sub(1, Ordering::Release);
        debug_assert!(before > 0, "a pin that was not counted");
    }
}

fn parity(epoch: u64) -> usize {
    usize::from(epoch % 2 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether slots freed in `epoch` may be written again.
    fn is_free(pins: &mut Pins, epoch: u64) -> bool {
        epoch < pins.settled()
    }

    #[test]
    fn without_readers_everything_is_free_at_once() {
        let mut pins = Pins::default();
        for _ in 0..5 {
            let freed = pins.epoch();
            assert!(is_free(&mut pins, freed));
        }
    }

    #[test]
    fn what_was_freed_under_a_reader_is_free_when_it_has_ended() {
        let mut pins = Pins::default();
        let reader = pins.pin();
        let freed = pins.epoch();
        for _ in 0..5 {
            assert!(!is_free(&mut pins, freed));
        }
        drop(reader);
        assert!(is_free(&mut pins, freed));
    }

    #[test]
    fn a_later_reader_does_not_hold_what_was_freed_before_it() {
        let mut pins = Pins::default();
        let old = pins.pin();
        let freed = pins.epoch();
        pins.settled();
        let new = pins.pin();
        assert_ne!(old.parity, new.parity, "the epoch has advanced once");
        drop(old);
        // The epoch of `new` is the one after: one more advance is possible, and enough.
        assert!(is_free(&mut pins, freed));
        let freed = pins.epoch();
        assert!(!is_free(&mut pins, freed), "`new` began before this");
        drop(new);
        assert!(is_free(&mut pins, freed));
    }

    #[test]
    fn readers_that_always_overlap_do_not_hold_slots_forever() {
        let mut pins = Pins::default();
        let freed = pins.epoch();
        let mut last = pins.pin();
        let mut rounds = 0;
        while !is_free(&mut pins, freed) {
            let next = pins.pin();
            drop(std::mem::replace(&mut last, next));
            rounds += 1;
            assert!(rounds < 4, "held by readers that began later");
        }
    }
}
