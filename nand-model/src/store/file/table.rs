//! The block table: written in full at a clean close, and entry by entry when a block turns bad.
//!
//! Invariants: while an image is in use, only the bad marks in its table are current, with the
//! number of the erase before them. A block that turns bad in use is synced at once, under the
//! caller's lock: a mark has no operation number of its own, and a host crash that loses one must
//! not keep what was done because of it. An entry is smaller than a sector, so a host crash leaves
//! its old or its new bytes; a partially written entry is written again.

use super::file_store::{Block, FileStore};
use super::open::ERASES_MAX;
use crate::addr::{Pbn, Ppn};
use crate::convert::to_u32;
use crate::image::{SlotHeader, TABLE_ENTRY_BYTES, TableEntry};
use crate::store::contents::BlockFacts;
use crate::store::interface::Store;
use crc32c::crc32c;
use std::io;

impl FileStore {
    pub(super) fn entry(&self, block: usize, counts_check: u32, marked: bool) -> TableEntry {
        let Block {
            slot,
            facts,
            erase_seq,
        } = self.blocks[block];
        TableEntry {
            slot,
            facts,
            erase_seq,
            marked,
            counts_check,
        }
    }

    /// Raises the erase counts of good blocks to those that `erases` returns; none falls. For an
    /// image that nobody uses yet: if power fails meanwhile, the image is damaged.
    ///
    /// # Errors
    ///
    /// The host refuses a write.
    pub fn wear(&mut self, mut erases: impl FnMut(Pbn) -> u32) -> io::Result<()> {
        self.usable()?;
        for number in 0..to_u32(self.blocks.len()) {
            let block = Pbn::new(number);
            let facts = self.blocks[block.index()].facts;
            if facts.bad.is_none() {
                let erase_count = facts.erase_count.max(erases(block).min(ERASES_MAX));
                // A block that was never used gets a slot: its wear is in a slot's header.
                self.set_facts(
                    block,
                    BlockFacts {
                        erase_count,
                        ..facts
                    },
                )?;
            }
        }
        Ok(())
    }

    /// Writes the facts of a block that changed.
    pub(super) fn write_facts(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        let index = block.index();
        let Block {
            slot,
            facts: old,
            erase_seq,
        } = self.blocks[index];
        if facts.bad != old.bad {
            self.blocks[index].facts.bad = facts.bad;
            let entry = self.entry(index, 0, false).encode(index);
            self.blocks[index].facts.bad = old.bad;
            self.write_entries(index, &entry, &self.entry(index, 0, false).encode(index))?;
            self.blocks[index].facts.bad = facts.bad;
        }
        if facts
            == (BlockFacts {
                bad: facts.bad,
                ..old
            })
        {
            return Ok(());
        }
        let Some(slot) = slot else {
            // The block has no programmed page, so recording facts equals erasing it.
            return self.take_slot(index, facts).map(drop);
        };
        let [before, after] =
            [old, facts].map(|facts| SlotHeader::new(block.raw(), erase_seq, facts));
        self.write_slot_header(slot, &after, Some(before))?;
        self.blocks[index].facts = facts;
        Ok(())
    }

    pub(super) fn write_table(&mut self) -> io::Result<()> {
        self.usable()?;
        let pages = self.layout.pages();
        let mut marked = vec![false; self.blocks.len()];
        for &ppn in self.unhealthy.keys() {
            marked[self.layout.geometry.block_of(Ppn::new(ppn)).index()] = true;
        }
        assert!(
            pages <= 1 << 20,
            "the counts of a block of {pages} pages fit one write"
        );
        let blocks_per_write = (1 << 20) / pages;
        let mut counts = vec![0; blocks_per_write * pages];
        let mut entries = Vec::with_capacity(blocks_per_write * TABLE_ENTRY_BYTES);
        for first in (0..self.blocks.len()).step_by(blocks_per_write) {
            let last = self.blocks.len().min(first + blocks_per_write);
            entries.clear();
            for block in first..last {
                let own = &mut counts[(block - first) * pages..][..pages];
                self.counts.of(block, own);
                entries.extend_from_slice(
                    &self.entry(block, crc32c(own), marked[block]).encode(block),
                );
            }
            self.disk.write_at(
                self.layout.counts_at(first),
                &counts[..(last - first) * pages],
            )?;
            self.write_entries(first, &entries, &entries)?;
        }
        Ok(())
    }

    /// Writes table entries from block `first` on. A failed write may leave a torn entry, which the
    /// next opening would report as damage. So that entry is written again, as in `instead`.
    pub(super) fn write_entries(
        &self,
        first: usize,
        entries: &[u8],
        instead: &[u8],
    ) -> io::Result<()> {
        assert_eq!(
            entries.len(),
            instead.len(),
            "an entry for each that may arrive in part"
        );
        debug_assert!(
            entries.len().is_multiple_of(TABLE_ENTRY_BYTES),
            "{} bytes of table entries",
            entries.len()
        );
        let Err(failed) = self.disk.write_at(self.layout.entry_at(first), entries) else {
            return Ok(());
        };
        let torn = failed.done / TABLE_ENTRY_BYTES;
        if !failed.done.is_multiple_of(TABLE_ENTRY_BYTES) {
            self.restore_bytes(
                self.layout.entry_at(first + torn),
                &instead[torn * TABLE_ENTRY_BYTES..][..TABLE_ENTRY_BYTES],
            );
        }
        Err(failed.error)
    }
}
