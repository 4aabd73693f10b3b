//! Seals: slots whose records an unclean open need not read.
//!
//! Terms: a slot is *complete* when the last page of its block is programmed, the part programs
//! pages once and in order, and no page has a health mark. Its records then change no more until
//! the slot is used again, except by injected faults. A *seal* is the bit in the file that marks a
//! slot as complete and synced.
//!
//! Invariants:
//! - a seal is written only after a sync that covers the operation that completed the slot, in a
//!   sector that names a synced number at least as high;
//! - records or header of a slot are written only when its seal is cleared on the disk. So an erase
//!   clears the seal of the slot that it frees. The file gets this no later than the header that
//!   records the erase as synced. Only the block's facts in the header of a sealed slot may change.
//!
//! If the host fails, each sector of the map has its old or its new state. Both are correct: they
//! differ in slots that are complete and synced, or not used again yet. docs/FORMAT.md has the
//! proof. Each store of a file with several has a map of its own.

use crate::image::{Layout, SEAL_SECTOR_BYTES, SealSector};
use std::collections::HashMap;
use std::ops::Range;

/// The seal map, and the complete slots that no sync has covered yet.
#[derive(Debug, Default)]
pub(super) struct Seals {
    sectors: Vec<SealSector>,
    /// Sectors that differ from the file, and those between them.
    dirty: Range<usize>,
    /// Operation that completed each slot that waits for its seal.
    waiting: HashMap<u32, u64>,
}

impl Seals {
    /// The map in which these slots are sealed; no sector of it is in the file.
    pub(super) fn new(layout: &Layout, sealed: impl Iterator<Item = u32>) -> Seals {
        let mut sectors = vec![SealSector::default(); layout.seal_sectors()];
        for slot in sealed {
            sectors[SealSector::of(slot)].set(slot, true);
        }
        let dirty = 0..sectors.len();
        Seals {
            sectors,
            dirty,
            waiting: HashMap::new(),
        }
    }

    /// Seals a slot as soon as operation `seq`, which completed it, is synced.
    pub(super) fn seal_when_synced(&mut self, slot: u32, seq: u64) {
        self.waiting.insert(slot, seq);
    }

    /// Clears a slot's seal; returns whether the file may still contain it.
    pub(super) fn clear(&mut self, slot: u32) -> bool {
        self.waiting.remove(&slot);
        self.change(slot, false)
    }

    fn change(&mut self, slot: u32, value: bool) -> bool {
        let number = SealSector::of(slot);
        let changed = self.sectors[number].set(slot, value);
        if changed {
            self.add_dirty(number..number + 1);
        }
        changed
    }

    /// Whether a slot is sealed or waits for that.
    pub(super) fn holds(&self, slot: u32) -> bool {
        self.waiting.contains_key(&slot) || self.sectors[SealSector::of(slot)].is_set(slot)
    }

    /// Sets the seal again that [`Seals::clear`] has cleared.
    pub(super) fn restore(&mut self, slot: u32) {
        self.change(slot, true);
    }

    /// Notes sectors that differ from the file.
    pub(super) fn add_dirty(&mut self, numbers: Range<usize>) {
        self.dirty = if self.dirty.is_empty() {
            numbers
        } else {
            self.dirty.start.min(numbers.start)..self.dirty.end.max(numbers.end)
        };
    }

    /// Seals the slots that a sync up to `synced_seq` has covered. Takes the sectors that differ
    /// from the file, with their bytes; the caller writes them, or notes them as dirty again.
    pub(super) fn take_dirty(&mut self, synced_seq: u64) -> Option<(Range<usize>, Vec<u8>)> {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain(|slot, seq| {
            let is_covered = *seq <= synced_seq;
            if is_covered {
                self.change(*slot, true);
            }
            !is_covered
        });
        self.waiting = waiting;
        if self.dirty.is_empty() {
            return None;
        }
        let numbers = std::mem::take(&mut self.dirty);
        let sectors = numbers.clone().zip(&self.sectors[numbers.clone()]);
        let bytes = sectors.flat_map(|(number, sector)| sector.encode(number, synced_seq));
        Some((numbers, bytes.collect()))
    }
}

/// The seal map as an open finds it.
#[derive(Default)]
pub(super) struct FoundSeals {
    sectors: Vec<SealSector>,
    /// Everything up to this operation is on the disk.
    pub(super) synced_seq: u64,
}

impl FoundSeals {
    /// Decodes the map. A sector that fails its check seals nothing.
    pub(super) fn decode(bytes: &[u8]) -> FoundSeals {
        let mut found = FoundSeals::default();
        for (number, bytes) in bytes.chunks_exact(SEAL_SECTOR_BYTES).enumerate() {
            let (sector, synced_seq) = SealSector::decode(number, bytes).unwrap_or_default();
            found.sectors.push(sector);
            found.synced_seq = found.synced_seq.max(synced_seq);
        }
        found
    }

    pub(super) fn is_sealed(&self, slot: u32) -> bool {
        self.sectors[SealSector::of(slot)].is_set(slot)
    }
}
