//! Reads the state of each block from block table, slots and records.
//!
//! Invariants: every value read from the file is checked before it is used as an index; each slot
//! belongs to at most one block. This module only reads, except that [`Opener::clear_void_marks`]
//! clears marks whose cause was undone: an interrupted open leaves them to the next one.

use super::found::{BlockPages, ERASES_MAX, Found};
use super::holes::Holes;
use super::opener::{Opener, Records, damaged};
use crate::addr::Pbn;
use crate::convert::{index, to_u32, to_u64};
use crate::image::{Hint, ImageError, Mark, TABLE_ENTRY_BYTES, TableEntry, is_zero};
use crate::store::contents::Health;
use crate::store::file::file_store::Block;
use crc32c::crc32c;

impl Opener<'_> {
    /// Reads a clean image from its table alone.
    pub(super) fn read_table(&self, synced_seq: u64) -> Result<Found, ImageError> {
        let mut found = Found::new(self.layout, self.info);
        let (mut counts, mut records) = (vec![0; self.layout.pages()], Records::default());
        for (block, entry) in self.read_entries()?.into_iter().enumerate() {
            self.read(self.layout.counts_at(block), &mut counts)?;
            let bad_count = counts.iter().any(|&n| n > self.info.profile.nop);
            if bad_count || crc32c(&counts) != entry.counts_check {
                return Err(damaged(
                    self.path,
                    format!("program counts of block {block} fail their check"),
                ));
            }
            found.counts.set(block, &counts);
            let no_slot = entry.slot.is_some_and(|slot| slot >= self.layout.slots);
            let pages_nowhere = entry.slot.is_none() && !is_zero(&counts);
            if no_slot
                || pages_nowhere
                || entry.erase_seq > synced_seq
                || entry.facts.erase_count > ERASES_MAX
            {
                return Err(damaged(
                    self.path,
                    format!("table entry of block {block} contradicts the header"),
                ));
            }
            found.blocks[block] = Block {
                slot: entry.slot,
                facts: entry.facts,
                erase_seq: entry.erase_seq,
            };
            if let Some(slot) = entry.slot.filter(|_| entry.marked) {
                self.read_records(slot, &mut records)?;
                found.adopt(self.collect(block, entry.erase_seq, synced_seq, &records));
            }
        }
        self.clear_void_marks(&found)?;
        self.sort_slots(&mut found)?;
        Ok(found)
    }

    pub(super) fn read_entries(&self) -> Result<Vec<TableEntry>, ImageError> {
        let mut bytes = vec![0; self.layout.table_bytes()];
        self.read(self.layout.table_at(), &mut bytes)?;
        let entries = bytes.chunks_exact(TABLE_ENTRY_BYTES).enumerate();
        let entries = entries.map(|(block, bytes)| TableEntry::decode(block, bytes));
        entries
            .collect::<Result<_, _>>()
            .map_err(|reason| damaged(self.path, reason))
    }

    /// Collects a block's pages from the records of its slot.
    pub(super) fn collect(
        &self,
        block: usize,
        erase_seq: u64,
        cut: u64,
        records: &Records,
    ) -> BlockPages {
        let mut marks = Vec::new();
        let mut found = BlockPages::blank(block, self.layout.pages());
        let counts = &mut found.counts;
        for ((page, core), count) in records.cores.iter().enumerate().zip(counts.iter_mut()) {
            let Some(core) = core.filter(|core| core.seq > erase_seq && core.seq <= cut) else {
                continue;
            };
            let record = self.layout.record_in(&records.bytes, page);
            *count = 1;
            if self.layout.hints
                && let Some((programs, _)) =
                    Hint::decode(core.seq, record, self.layout.geometry.oob_len())
            {
                *count = programs.min(self.info.profile.nop);
            }
            let mark = Mark::decode(core.seq, record);
            if mark.health != Health::Good {
                marks.push((to_u32(page), mark));
            }
        }
        for (page, mark) in marks {
            let stands = |cause: u16| {
                counts
                    .get(usize::from(cause))
                    .is_some_and(|count| *count > 0)
            };
            if mark.cause.is_none_or(stands) {
                let block = Pbn::new(to_u32(block));
                let ppn = self.layout.geometry.page(block, page);
                found.marks.push((ppn.raw(), mark));
            } else {
                let record_at = self.layout.record_at(records.slot, page);
                found.void_marks.push(record_at + to_u64(Mark::AT));
            }
        }
        found
    }

    /// Clears marks whose cause was undone: a later program of that page must not restore them.
    pub(super) fn clear_void_marks(&self, found: &Found) -> Result<(), ImageError> {
        found
            .void_marks
            .iter()
            .try_for_each(|at| self.write(*at, &[0; 8]))
    }

    /// Splits the slots without a block by whether the host has allocated space for them.
    pub(super) fn sort_slots(&self, found: &mut Found) -> Result<(), ImageError> {
        let slots = &mut found.slots;
        slots.blank.clear();
        for block in found.blocks.iter() {
            let Some(slot) = block.slot else { continue };
            match slots.roomy.get_mut(index(slot)) {
                Some(taken) if !*taken => *taken = true,
                _ => {
                    return Err(damaged(
                        self.path,
                        format!("slot {slot} belongs to two blocks or is none"),
                    ));
                }
            }
        }
        let (mut records, mut data) = (Holes::new(self.disk), Holes::new(self.disk));
        let layout = &self.layout;
        let (record_bytes, data_bytes) = (to_u64(layout.records_bytes()), layout.data_bytes());
        for slot in (0..layout.slots).filter(|&slot| !slots.roomy[index(slot)]) {
            if records.is_hole(layout.records_at(slot), record_bytes)
                && data.is_hole(layout.data_at(slot, 0), data_bytes)
            {
                slots.blank.push(slot);
            } else {
                slots.used.push_front(slot);
            }
        }
        slots.blank.reverse();
        slots
            .used
            .iter()
            .for_each(|&slot| slots.roomy[index(slot)] = true);
        let taken = found.blocks.iter().filter(|block| block.slot.is_some());
        assert_eq!(
            taken.count() + slots.used.len() + slots.blank.len(),
            index(self.layout.slots),
            "each slot is free or belongs to a block"
        );
        Ok(())
    }
}
