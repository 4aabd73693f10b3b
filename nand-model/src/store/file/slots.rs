//! Slots: the free ones, their assignment to blocks, and the release of their space to the host.
//!
//! Invariants: a slot is in one of the lists of [`Slots`] or belongs to one block; a slot that an
//! erase freed is written again only when that erase is durable, and so its seal is cleared on the
//! disk, and when no reader outside the store's lock may still copy from it ([`Pins`]).
//!
//! If the host fails between the write of a slot header and the sync that covers it, the block is
//! in its old slot, which was not written since.

use super::file_store::{Block, FileStore};
use super::pins::Pins;
use crate::convert::{index, to_u32, to_u64};
use crate::image::{SLOT_HEADER_BYTES, SlotHeader};
use crate::store::contents::BlockFacts;
use std::collections::VecDeque;
use std::io;

/// Slots without a block.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Free slots without allocated space; the next one is at the end.
    pub(super) blank: Vec<u32>,
    /// Free slots with allocated space; the most recently freed one is at the end, so space is
    /// reused while it is cached.
    pub(super) used: VecDeque<u32>,
    /// Slots freed by an erase that may not be durable yet, or that readers may still use, in the
    /// order of the erases.
    pub(super) pending: VecDeque<Freed>,
    pub(super) pins: Pins,
    /// Per slot: whether the host may have allocated space for it.
    pub(super) roomy: Vec<bool>,
}

/// A slot freed by an erase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Freed {
    slot: u32,
    /// Number of the erase.
    seq: u64,
    /// Epoch of the erase.
    epoch: u64,
}

impl Slots {
    /// Returns the slots that are free once the readers of the others have ended.
    pub(super) fn ready(&self, durable_seq: u64) -> usize {
        let settled = self
            .pending
            .partition_point(|freed| freed.seq <= durable_seq);
        self.blank.len() + self.used.len() + settled
    }

    pub(super) fn release(&mut self, durable_seq: u64) {
        if self.pending.is_empty() {
            return;
        }
        let read_until = self.pins.settled();
        while let Some(freed) = self.pending.front().copied()
            && freed.seq <= durable_seq
            && freed.epoch < read_until
        {
            self.pending.pop_front();
            self.used.push_back(freed.slot);
        }
    }

    /// The slot that [`Slots::drop_next`] removes.
    pub(super) fn next(&self) -> Option<u32> {
        self.used.back().or(self.blank.last()).copied()
    }

    pub(super) fn drop_next(&mut self) {
        if self.used.pop_back().is_none() {
            let slot = self.blank.pop();
            debug_assert!(slot.is_some(), "no free slot to take");
        }
    }
}

impl FileStore {
    /// Releases space of at most `max` slots: see [`Store::trim_free_slots`](crate::Store).
    pub(super) fn release_slots(&mut self, max: usize) -> io::Result<usize> {
        if self.read_only {
            return Ok(0);
        }
        self.usable()?;
        let reserve = index(self.layout.slots - self.layout.geometry.blocks) / 2;
        let durable = self.sync.durable_seq();
        self.slots.release(durable);
        let mut done = 0;
        while done < max && self.slots.used.len() > reserve {
            let slot = self.slots.used[0];
            self.punch_slot(slot)?;
            self.slots.used.pop_front();
            self.slots.blank.push(slot);
            self.slots.roomy[index(slot)] = false;
            done += 1;
        }
        done += self.trim_erased_blocks(max - done, reserve, durable)?;
        debug_assert!(
            done <= max,
            "{done} slots gave room back, {max} were asked for"
        );
        Ok(done)
    }

    /// Releases the space of slots of erased blocks, which have it from their former lives. Skips
    /// blocks erased since the last complete pass, because they are likely to be written soon.
    fn trim_erased_blocks(
        &mut self,
        max: usize,
        reserve: usize,
        durable: u64,
    ) -> io::Result<usize> {
        debug_assert!(
            durable <= self.sync.last_seq(),
            "erase {durable} is durable and was not done"
        );
        let limit = durable.min(self.trimmed_seq);
        let mut idle: Vec<(u64, u32)> = Vec::new();
        for (number, block) in self.blocks.iter().enumerate() {
            let roomy = block.slot.filter(|&slot| self.slots.roomy[index(slot)]);
            if let Some(slot) = roomy.filter(|_| self.counts.is_blank(number)) {
                idle.push((block.erase_seq, slot));
            }
        }
        idle.sort_unstable();
        idle.truncate(idle.len().saturating_sub(reserve));
        idle.retain(|&(erase_seq, _)| erase_seq <= limit);
        for &(_, slot) in idle.iter().take(max) {
            self.punch_slot(slot)?;
            self.slots.roomy[index(slot)] = false;
        }
        if idle.len() <= max {
            self.trimmed_seq = self.sync.last_seq();
        }
        Ok(idle.len().min(max))
    }

    /// Releases the space of a slot's records and data.
    fn punch_slot(&self, slot: u32) -> io::Result<()> {
        let layout = &self.layout;
        let records_bytes = to_u64(layout.records_bytes());
        self.disk.punch(layout.records_at(slot), records_bytes)?;
        self.disk
            .punch(layout.data_at(slot, 0), layout.data_bytes())
    }

    /// Moves a block into a free slot: one operation.
    pub(super) fn take_slot(&mut self, block: usize, facts: BlockFacts) -> io::Result<u32> {
        self.slots.release(self.sync.durable_seq());
        if self.slots.next().is_none() {
            // Last resort: a caller that checks `erase_credit` never waits for a sync here.
            let oldest = *self.slots.pending.front().expect("more slots than blocks");
            self.sync.settle(oldest.seq)?;
            self.slots.release(self.sync.durable_seq());
            while self.slots.next().is_none() {
                // Readers copy, without any lock, and end.
                std::thread::yield_now();
                self.slots.release(self.sync.durable_seq());
            }
        }
        let slot = self.slots.next().expect("released above");
        let erase_seq = self.sync.last_seq() + 1;
        let header = SlotHeader::new(to_u32(block), erase_seq, facts);
        self.write_slot_header(slot, &header, None)?;
        self.slots.drop_next();
        if let Some(verified) = &self.verified {
            verified.clear(slot);
        }
        debug_assert_eq!(
            self.slots.next().filter(|&next| next == slot),
            None,
            "slot {slot} is free and taken"
        );
        let old = std::mem::replace(
            &mut self.blocks[block],
            Block {
                slot: Some(slot),
                facts,
                erase_seq,
            },
        );
        if let Some(left) = old.slot {
            assert_ne!(left, slot, "an erase moves the block to another slot");
            let newest = self.slots.pending.back().map_or(0, |freed| freed.seq);
            assert!(newest < erase_seq, "erase {erase_seq} after erase {newest}");
            self.sync.clear_seal(left);
            self.slots.pending.push_back(Freed {
                slot: left,
                seq: erase_seq,
                epoch: self.slots.pins.epoch(),
            });
        }
        self.sync.publish(erase_seq);
        Ok(slot)
    }

    pub(super) fn write_slot_header(
        &self,
        slot: u32,
        header: &SlotHeader,
        old: Option<SlotHeader>,
    ) -> io::Result<()> {
        let at = self.layout.slot_header_at(slot);
        let Err(failed) = self.disk.write_at(at, &header.encode(slot)) else {
            return Ok(());
        };
        // A partial header would be reported as damage.
        if failed.done > 0 {
            self.restore_bytes(
                at,
                &old.map_or([0; SLOT_HEADER_BYTES], |old| old.encode(slot)),
            );
        }
        Err(failed.error)
    }
}
