//! The image file as a [`Store`].
//!
//! Terms: an *operation* is a program of one page, an erase, or the first assignment of a slot to a
//! block; each gets the next *store sequence number*. A *slot* is space for one block in the file;
//! there are more slots than blocks. A slot's *life* begins with the operation that assigned it to
//! a block.
//!
//! Invariants:
//! - data is written before the record that makes it a programmed page; a number is published after
//!   all its writes;
//! - an erase moves the block to another slot at once. The old slot is written again only when a
//!   header on the disk itself records the erase as synced;
//! - nor is the old slot written while a reader outside the store's lock holds a [`Pin`] from
//!   before the erase;
//! - a record belongs to its slot's current life if and only if its number is above the first
//!   number of that life. So a reused slot needs no clearing.
//!
//! If the process dies, everything is in the page cache but pages that a batch keeps, which nobody
//! acknowledged (`batch.rs`). If the host fails, the disk has any subset of the writes since the
//! last sync. [`FileStore::open`] keeps the longest unbroken sequence of operations and undoes the
//! rest. The result is that of a power cut at an earlier operation. docs/FORMAT.md has the proof.

mod batch;
mod cache_area;
mod counts;
mod disk;
mod file_disk;
mod file_store;
mod marks;
mod open;
mod overlay;
mod pins;
mod program;
mod read;
mod reader;
mod scan;
mod seals;
mod slice;
mod slots;
mod sync;
mod table;
#[cfg(test)]
mod tests;

pub use cache_area::CacheArea;
pub use disk::{Disk, WriteError};
pub use file_store::FileStore;
pub use open::{Access, OpenReport, peek};
pub use pins::Pin;
pub use reader::{PageReader, PlacedRun, Verify};
pub use sync::{SyncError, SyncHandle, SyncStats};

use super::contents::{Bad, BlockFacts, Cells, Health, TAG_NONE, tag_of};
use super::interface::Store;
use crate::addr::{Pbn, Ppn};
use crate::convert::{to_u16, to_u32, to_u64};
use crate::image::{CORE_BYTES, HINT_HEAD_BYTES, Hint, Layout};
use read::{GAP_PAGES, NEAR_PAGES};
use std::io;

/// Places that tell whether a file is in the page cache.
const PROBES: usize = 64;

impl Store for FileStore {
    fn load(&mut self, each: &mut dyn FnMut(Pbn, BlockFacts, &[u8])) -> io::Result<()> {
        let mut counts = vec![0; self.layout.pages()];
        for block in self.layout.geometry.all_blocks() {
            self.counts.of(block.index(), &mut counts);
            each(block, self.blocks[block.index()].facts, &counts);
        }
        Ok(())
    }

    fn read(
        &mut self,
        first: Ppn,
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> io::Result<()> {
        if self.is_unwritten(first, to_u32(health.len())) && self.write_batch().is_err() {
            let pages = first.run(to_u32(health.len()));
            return self.read_unwritten(pages, data, oobs, health);
        }
        let mut records = std::mem::take(&mut self.scratch);
        let result = self.read_run(first, &mut records, data, oobs, health);
        self.scratch = records;
        result
    }

    fn read_pages(
        &mut self,
        pages: &[Ppn],
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> io::Result<()> {
        assert_eq!(health.len(), pages.len(), "a health for each page");
        let span = pages[pages.len() - 1].raw() - pages[0].raw() + 1;
        if self.is_unwritten(pages[0], span) && self.write_batch().is_err() {
            return self.read_unwritten(pages.iter().copied(), data, oobs, health);
        }
        let (page, part) = (data.len() / pages.len(), oobs.len() / pages.len());
        let mut records = std::mem::take(&mut self.scratch);
        let mut near = pages
            .chunk_by(|a, b| b.raw() - a.raw() <= GAP_PAGES + 1)
            .flat_map(|near| near.chunks(NEAR_PAGES));
        let mut done = 0;
        let result = near.try_for_each(|near| {
            let range = done..done + near.len();
            done = range.end;
            let of = |size: usize| range.start * size..range.end * size;
            self.read_near(
                near,
                &mut records,
                &mut data[of(page)],
                &mut oobs[of(part)],
                &mut health[of(1)],
            )
        });
        self.scratch = records;
        result
    }

    #[inline]
    fn program(&mut self, first: Ppn, count: u32, data: &[u8], oobs: &[u8]) -> io::Result<()> {
        self.program_run(first, count, data, oobs, Health::Good)
    }

    #[inline]
    fn begin_batch(&mut self) {
        self.begin_batch_of_programs();
    }

    #[inline]
    fn end_batch(&mut self) -> io::Result<()> {
        self.end_batch_of_programs()
    }

    fn program_as(&mut self, ppn: Ppn, data: &[u8], oob: &[u8], health: Health) -> io::Result<()> {
        self.program_run(ppn, 1, data, oob, health)
    }

    /// Maps a file that is in the host's page cache. Another one is read by calls: a page fault
    /// reads megabytes around the place from the disk, and the scan needs a small part of them.
    fn expect_scan(&self) {
        // Opening has read the beginning of a slot's records, if any.
        let last = self.layout.geometry.pages_per_block - 1;
        let blocks = (0..self.blocks.len()).step_by(self.blocks.len().div_ceil(PROBES));
        let mut slots = blocks
            .filter(|&block| self.counts.is_full(block))
            .filter_map(|block| self.blocks[block].slot);
        if slots.all(|slot| self.disk.is_cached(self.layout.record_at(slot, last))) {
            self.map_file();
        }
    }

    fn reader(&self) -> Option<PageReader> {
        self.map_file();
        Some(self.page_reader())
    }

    #[inline]
    fn pin(&self) -> Option<Pin> {
        Some(self.slots.pins.pin())
    }

    #[inline]
    fn place(&self, first: Ppn, count: u32) -> Option<PlacedRun> {
        if self.is_unwritten(first, count) {
            return None;
        }
        self.place_run(first, count)
    }

    fn spoil(&mut self, by: Ppn, pages: &[(Ppn, Health)]) -> io::Result<()> {
        self.begin_change()?;
        let geometry = self.layout.geometry;
        debug_assert!(
            pages
                .iter()
                .all(|(page, _)| geometry.block_of(*page) == geometry.block_of(by)),
            "a program spoils pages of its own block"
        );
        let cause = geometry.offset_of(by);
        pages
            .iter()
            .try_for_each(|(page, health)| self.mark(*page, *health, Some(to_u16(cause))))
    }

    fn and_oob(&mut self, ppn: Ppn, oob: &[u8]) -> io::Result<()> {
        self.begin_change()?;
        assert!(
            self.layout.hints,
            "a program of OOB alone on a part that allows one program"
        );
        let mut record = std::mem::take(&mut self.scratch);
        let result = self.read_record(ppn, &mut record).and_then(|found| {
            let Some((slot, page, core)) = found else {
                return Ok(());
            };
            let oob_bytes = self.layout.geometry.oob_len();
            let hint = Hint::decode(core.seq, &record, oob_bytes);
            let (programs, mut mask) =
                hint.map_or((1, vec![0xFF; oob_bytes]), |(n, mask)| (n, mask.to_vec()));
            mask.iter_mut()
                .zip(oob)
                .for_each(|(have, new)| *have &= new);
            let programs = programs.saturating_add(1);
            let at = Hint::at(oob_bytes);
            Hint::encode(core.seq, programs, &mask, &mut record[at..]);
            let end = at + HINT_HEAD_BYTES + oob_bytes;
            self.disk.write_at(
                self.layout.record_at(slot, page) + to_u64(at),
                &record[at..end],
            )?;
            let block = self.layout.geometry.block_of(ppn).index();
            self.counts.set_programs(block, page, programs);
            Ok(())
        });
        self.scratch = record;
        result
    }

    fn set_health(&mut self, ppn: Ppn, health: Health) -> io::Result<()> {
        self.begin_change()?;
        self.mark(ppn, health, None)
    }

    fn erase(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        self.begin_change()?;
        let bad = self.blocks[block.index()].facts.bad;
        debug_assert_eq!(bad, None, "erase of the bad block {block}");
        self.take_slot(block.index(), BlockFacts { bad, ..facts })?;
        self.counts.clear(block.index());
        if !self.unhealthy.is_empty() {
            self.unhealthy
                .retain(|&ppn, _| self.layout.geometry.block_of(Ppn::new(ppn)) != block);
        }
        Ok(())
    }

    fn set_facts(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        self.begin_change()?;
        let was_bad = self.blocks[block.index()].facts.bad;
        let written = self.write_facts(block, facts);
        let bad = self.blocks[block.index()].facts.bad;
        // The mark of a failed program commits pages of a mount, so it is synced before any later
        // erase, even if the other facts of the block could not be written. That of a failed erase
        // is synced so that no restart uses the block again.
        if matches!(bad, Some(Bad::FailedProgram | Bad::FailedErase)) && bad != was_bad {
            self.sync.force()?;
        }
        written
    }

    fn tag(&self, ppn: Ppn) -> Option<u32> {
        Some(tag_of(
            ppn,
            self.blocks[self.layout.geometry.block_of(ppn).index()].erase_seq,
        ))
    }

    fn cells(&mut self, ppn: Ppn) -> io::Result<Option<Cells>> {
        self.write_batch()?;
        let mut record = Vec::new();
        let Some((slot, page, core)) = self.read_record(ppn, &mut record)? else {
            return Ok(None);
        };
        let Layout {
            hints, geometry, ..
        } = self.layout;
        let oob_bytes = geometry.oob_len();
        let mut oob = record[CORE_BYTES..][..oob_bytes].to_vec();
        if hints && let Some((_, mask)) = Hint::decode(core.seq, &record, oob_bytes) {
            oob.iter_mut()
                .zip(mask)
                .for_each(|(have, keep)| *have &= keep);
        }
        let mut data = vec![0; geometry.page_len()];
        self.disk
            .read_at(self.layout.data_at(slot, page), &mut data)?;
        let is_lost = self
            .unhealthy
            .get(&ppn.raw())
            .is_some_and(|mark| mark.health == Health::Lost);
        Ok(Some(Cells {
            data,
            oob,
            tag: if is_lost { TAG_NONE } else { core.tag },
        }))
    }

    fn put_cells(&mut self, ppn: Ppn, cells: &Cells) -> io::Result<()> {
        self.put(ppn, cells, Health::Good)
    }

    fn hour(&self) -> u32 {
        self.sync.hour()
    }

    fn set_hour(&mut self, hour: u32) {
        self.sync.set_hour(hour);
    }

    fn erase_credit(&self) -> u32 {
        to_u32(self.slots.ready(self.sync.durable_seq()))
    }

    fn erase_credit_full(&self) -> u32 {
        self.layout.slots - self.layout.geometry.blocks
    }

    fn trim_free_slots(&mut self, max: usize) -> io::Result<usize> {
        self.release_slots(max)
    }
}
