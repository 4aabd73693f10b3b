//! The pass over all slots, and the cut: the last operation of the longest unbroken sequence in the
//! file.
//!
//! Invariants: operations at or below the synced number are not searched for, because they are on
//! the disk. The records of a slot whose life has ended are read all the same: a host crash can
//! undo the header of its next life and keep records of that. This module only reads, so after an
//! interrupted open the next one finds the same cut.

use super::ahead::{Ahead, read_in_threads};
use super::found::{BlockPages, Found};
use super::holes::Holes;
use super::opener::{Opener, Records};
use crate::convert::{index, to_u32, to_u64, to_usize};
use crate::image::{CORE_BYTES, ImageError, SlotHeader};
use crate::store::file::seals::FoundSeals;
use crc32c::crc32c;
use std::ops::Range;

/// Result of the pass over all slots.
pub(super) struct Pass {
    /// The last operation that stays.
    pub(super) cut: u64,
    /// The last operation of which the file has a trace.
    pub(super) newest: u64,
    /// By slot: whether it has records beyond the synced number.
    pub(super) late: Vec<bool>,
    /// Slots that were skipped because of their seals.
    pub(super) sealed: u32,
    /// By slot: whether the pages of its block are collected.
    pub(super) collected: Vec<bool>,
}

/// What is known when the records are read.
struct Reading<'a> {
    synced_seq: u64,
    heads: &'a [Option<SlotHeader>],
    seals: &'a FoundSeals,
    trust_synced_only: bool,
    is_certain: Vec<bool>,
}

/// What the records of a slot tell.
struct SlotRead {
    slot: u32,
    /// The highest number of a record; 0 if there is none.
    newest: u64,
    /// The numbers beyond the synced one whose record and data are complete.
    whole: Vec<u64>,
    /// The pages of its block, if no cut can change them.
    pages: Option<BlockPages>,
}

impl Opener<'_> {
    /// Reads the records of every slot without a seal, once. Finds the cut, and collects the pages
    /// of blocks that no cut can change. After a failed sync only synced operations count
    /// (`trust_synced_only`).
    pub(super) fn read_slots(
        &self,
        synced_seq: u64,
        heads: &[Option<SlotHeader>],
        seals: &FoundSeals,
        trust_synced_only: bool,
        found: &mut Found,
    ) -> Result<Pass, ImageError> {
        // Every operation beyond the synced number has its own place in the file, so the number of
        // places bounds their count.
        let places = u64::from(self.layout.slots) * to_u64(self.layout.pages() + 1);
        let mut seen = Seen {
            from: synced_seq + 1,
            bits: vec![0; to_usize(places / 64 + 1)],
        };
        let mut pass = Pass {
            cut: synced_seq,
            newest: synced_seq,
            late: vec![false; heads.len()],
            sealed: 0,
            collected: vec![false; heads.len()],
        };
        for (slot, head) in (0..).zip(heads) {
            if seals.is_sealed(slot) {
                // All its operations are synced, whether it belongs to a block or not.
                pass.sealed += 1;
            } else if let Some(head) = head {
                seen.insert(head.erase_seq);
                pass.newest = pass.newest.max(head.erase_seq);
            }
        }
        let reading = Reading {
            synced_seq,
            heads,
            seals,
            trust_synced_only,
            is_certain: self.certain_slots(synced_seq, heads),
        };
        for read in read_in_threads(self.layout.slots, |slots| self.read_range(slots, &reading))? {
            pass.newest = pass.newest.max(read.newest);
            pass.late[index(read.slot)] = read.newest > synced_seq;
            read.whole.iter().for_each(|seq| seen.insert(*seq));
            if let Some(pages) = read.pages {
                found.adopt(pages);
                pass.collected[index(read.slot)] = true;
            }
        }
        if !trust_synced_only {
            pass.cut = seen.unbroken();
        }
        Ok(pass)
    }

    /// Reads the records of those slots of the range that have no seal.
    fn read_range(
        &self,
        slots: Range<u32>,
        reading: &Reading<'_>,
    ) -> Result<Vec<SlotRead>, ImageError> {
        let synced_seq = reading.synced_seq;
        let bytes_of_slot = to_u64(self.layout.records_bytes());
        let is_wanted = |slot| !reading.seals.is_sealed(slot);
        let (mut holes, mut ahead) = (Holes::new(self.disk), Ahead::new(slots.clone()));
        let (mut records, mut data) = (Records::default(), Vec::new());
        let mut found = Vec::new();
        for slot in slots.filter(|slot| is_wanted(*slot)) {
            let is_certain = reading.is_certain[index(slot)];
            let head_of_block = reading.heads[index(slot)].filter(|_| is_certain);
            if holes.is_hole(self.layout.records_at(slot), bytes_of_slot) {
                // Without a record, the pages of a block are blank.
                found.extend(head_of_block.map(|head| SlotRead {
                    slot,
                    newest: 0,
                    whole: Vec::new(),
                    pages: Some(BlockPages::blank(index(head.block), self.layout.pages())),
                }));
                continue;
            }
            let read = |bytes: &mut [u8]| ahead.read(self, slot, bytes, is_wanted);
            self.read_records_with(slot, &mut records, read)?;
            let numbers = records.cores.iter().flatten().map(|core| core.seq);
            let mut read = SlotRead {
                slot,
                newest: numbers.max().unwrap_or(0),
                whole: Vec::new(),
                pages: None,
            };
            if read.newest > synced_seq {
                if !reading.trust_synced_only {
                    for pages in records.late_runs(synced_seq) {
                        self.note_whole(pages, &records, &mut data, &mut read.whole)?;
                    }
                }
            } else if let Some(head) = head_of_block {
                let block = index(head.block);
                read.pages = Some(self.collect(block, head.erase_seq, synced_seq, &records));
            }
            found.push(read);
        }
        Ok(found)
    }

    /// By slot: whether it is the slot of its block wherever the cut is. That is so if its life is
    /// the block's newest one and began at or below the synced number.
    fn certain_slots(&self, synced_seq: u64, heads: &[Option<SlotHeader>]) -> Vec<bool> {
        let mut newest = vec![(0, None); self.layout.geometry.block_slots()];
        for (slot, head) in heads.iter().enumerate() {
            if let Some(head) = head {
                let of_block = &mut newest[index(head.block)];
                *of_block = (*of_block).max((head.erase_seq, Some(slot)));
            }
        }
        let mut certain = vec![false; heads.len()];
        for (erase_seq, slot) in newest {
            if let Some(slot) = slot.filter(|_| erase_seq <= synced_seq) {
                certain[slot] = true;
            }
        }
        certain
    }

    /// Records the operations of those pages that are complete in the file.
    fn note_whole(
        &self,
        pages: Range<usize>,
        records: &Records,
        data: &mut Vec<u8>,
        whole: &mut Vec<u64>,
    ) -> Result<(), ImageError> {
        let geometry = self.layout.geometry;
        debug_assert!(pages.end <= self.layout.pages(), "pages beyond their block");
        data.resize(pages.len() * geometry.page_len(), 0);
        let at = self.layout.data_at(records.slot, to_u32(pages.start));
        self.read(at, data)?;
        for (page, data) in pages.zip(data.chunks_exact(geometry.page_len())) {
            let record = self.layout.record_in(&records.bytes, page);
            let oob = &record[CORE_BYTES..][..geometry.oob_len()];
            if let Some(core) = records.cores[page]
                && crc32c(oob) == core.oob_check
                && crc32c(data) == core.data_check
            {
                whole.push(core.seq);
            }
        }
        Ok(())
    }
}

/// A range of numbers, and which of them have occurred.
struct Seen {
    from: u64,
    bits: Vec<u64>,
}

impl Seen {
    fn insert(&mut self, seq: u64) {
        if let Some(i) = seq.checked_sub(self.from)
            && let Some(word) = self.bits.get_mut(to_usize(i / 64))
        {
            *word |= 1 << (i % 64);
        }
    }

    /// The last number before the first missing one.
    fn unbroken(&self) -> u64 {
        let full = self
            .bits
            .iter()
            .take_while(|&&word| word == u64::MAX)
            .count();
        let rest = self.bits.get(full).map_or(0, |word| word.trailing_ones());
        self.from + to_u64(full) * 64 + u64::from(rest) - 1
    }
}
