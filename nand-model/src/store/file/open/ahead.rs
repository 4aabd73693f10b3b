//! Reads of many slots: shared by threads, and announced to the host where its disk is slow.
//!
//! Invariants: the result is that of reading one slot after the other. This module only reads.

use super::opener::Opener;
use crate::convert::{index, to_u32, to_u64};
use crate::image::ImageError;
use crate::store::file::disk::SLOW;
use std::ops::Range;
use std::panic::resume_unwind;
use std::thread::{self, Builder};
use std::time::Instant;

/// Starting a thread for fewer slots takes longer than reading them.
const SLOTS_PER_THREAD: u32 = 1 << 10;
const THREADS_MAX: usize = 4;
/// Bytes that a disk reads at once, in as many places.
const AHEAD_BYTES: usize = 4 << 20;
const AHEAD_PLACES: usize = 256;

/// Calls `read` for ranges of slots, in several threads if there are many slots. Returns the
/// results in the order of the slots, or the first error.
pub(super) fn read_in_threads<T: Send>(
    slots: u32,
    read: impl Fn(Range<u32>) -> Result<Vec<T>, ImageError> + Sync,
) -> Result<Vec<T>, ImageError> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = to_u32(processors.min(THREADS_MAX)).min(slots / SLOTS_PER_THREAD);
    if threads <= 1 {
        return read(0..slots);
    }
    let share = slots.div_ceil(threads);
    let ranges = (0..threads).map(|i| i * share..slots.min((i + 1) * share));
    let read = &read;
    thread::scope(|scope| {
        let start = |range: Range<u32>| {
            let own = range.clone();
            (range, Builder::new().spawn_scoped(scope, move || read(own)))
        };
        let started: Vec<_> = ranges.map(start).collect();
        let mut all = Vec::new();
        for (range, thread) in started {
            // Without another thread, this one reads.
            let part = thread.map_or_else(
                |_| read(range),
                |thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            );
            all.extend(part?);
        }
        Ok(all)
    })
}

/// Reads the records of slots in ascending order. If the disk is slow, it gets several places to
/// read at once.
pub(super) struct Ahead {
    slots: Range<u32>,
    /// Slots below are announced.
    announced: u32,
}

impl Ahead {
    pub(super) fn new(slots: Range<u32>) -> Ahead {
        let announced = slots.start;
        Ahead { slots, announced }
    }

    /// Fills `bytes` from the first record of a slot on. `is_wanted` tells which slots will be
    /// read, too.
    pub(super) fn read(
        &mut self,
        opener: &Opener<'_>,
        slot: u32,
        bytes: &mut [u8],
        is_wanted: impl Fn(u32) -> bool,
    ) -> Result<(), ImageError> {
        let begun = Instant::now();
        opener.read(opener.layout.records_at(slot), bytes)?;
        if begun.elapsed() >= SLOW {
            let places = (AHEAD_BYTES / bytes.len()).clamp(1, AHEAD_PLACES);
            let next = self.announced.max(slot + 1)..self.slots.end.max(slot + 1);
            // Not further than that, even if few of the slots are wanted.
            for slot in next
                .take(index(SLOTS_PER_THREAD))
                .filter(|slot| is_wanted(*slot))
                .take(places)
            {
                let at = opener.layout.records_at(slot);
                opener.disk.will_read(at, to_u64(bytes.len()));
                self.announced = slot + 1;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_return_the_slots_in_their_order_and_the_first_error() {
        let slots = 3 * SLOTS_PER_THREAD + 5;
        let all = read_in_threads(slots, |range| Ok(range.collect())).unwrap();
        assert_eq!(all, (0..slots).collect::<Vec<_>>());
        let failing = |range: Range<u32>| -> Result<Vec<u32>, ImageError> {
            Err(ImageError::NotAnImage(range.start.to_string().into()))
        };
        let error = read_in_threads(slots, failing).unwrap_err();
        assert!(matches!(&error, ImageError::NotAnImage(path) if path.as_os_str() == "0"));
        assert_eq!(
            read_in_threads(0, |range| Ok(range.collect())).unwrap(),
            [0u32; 0]
        );
    }
}
