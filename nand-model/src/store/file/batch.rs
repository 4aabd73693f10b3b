//! Batches: consecutive programs of one block are kept in memory and written as one run.
//!
//! Invariants: the unwritten pages are one run of one block, the newest operations of the store;
//! their numbers are published when they are written. Every other operation writes them first, so
//! the file has a prefix of the operations at any instant. The outermost batch ends with no
//! unwritten page, or with the host's error: also a batch without a program, whose request may have
//! done nothing because of what is in memory alone. A run that the host has refused waits for the
//! next operation or batch.
//!
//! If the process dies in a batch, the unwritten pages are lost: no request of the batch was
//! acknowledged, and the blocks that its copies came from are not erased.

use super::file_store::FileStore;
use crate::addr::Ppn;
use crate::convert::index;
use crate::image::CORE_BYTES;
use crate::store::contents::Health;
use std::io;

/// A longer run is written by itself: it is not worth a copy.
const SHORT_BYTES: usize = 32 << 10;
/// Bytes of data that are kept, at most.
const RUN_BYTES: usize = 128 << 10;

/// The programs of a batch that are not written yet.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Batches that have begun and not ended.
    depth: u32,
    /// The page behind the last program of this batch that was written by itself.
    next: Option<u32>,
    first: u32,
    count: u32,
    data: Vec<u8>,
    records: Vec<u8>,
}

impl Batch {
    /// Returns the number of this page in the run.
    fn place_of(&self, ppn: Ppn) -> Option<usize> {
        let place = ppn.raw().wrapping_sub(self.first);
        (place < self.count).then(|| index(place))
    }

    fn has_any(&self, first: Ppn, count: u32) -> bool {
        let (end, own_end) = (first.raw() + count, self.first + self.count);
        first.raw() < own_end && self.first < end
    }
}

impl FileStore {
    /// Begins a batch, perhaps inside another one.
    #[inline]
    pub(super) fn begin_batch_of_programs(&mut self) {
        if self.batch.depth == 0 {
            self.batch.next = None;
        }
        self.batch.depth += 1;
    }

    /// Ends a batch; the outermost one writes what is kept.
    #[inline]
    pub(super) fn end_batch_of_programs(&mut self) -> io::Result<()> {
        debug_assert!(self.batch.depth > 0, "a batch ends that did not begin");
        self.batch.depth -= 1;
        match self.batch.depth {
            0 => self.write_batch(),
            _ => Ok(()),
        }
    }

    /// Returns whether a program of so many bytes joins the run of the current batch, which is
    /// written first if it ends elsewhere. The pages are blank.
    #[inline]
    pub(super) fn joins_batch(&mut self, first: Ppn, bytes: usize) -> io::Result<bool> {
        let Batch {
            depth,
            next,
            first: own,
            count,
            ..
        } = self.batch;
        if depth > 0 && bytes <= SHORT_BYTES {
            let geometry = &self.layout.geometry;
            let continues = count > 0
                && own + count == first.raw()
                && geometry.block_of(Ppn::new(own)) == geometry.block_of(first)
                && self.batch.data.len() + bytes <= RUN_BYTES;
            // In a batch of one request, most programs have no other behind them.
            if continues || depth > 1 || next == Some(first.raw()) {
                if !continues {
                    self.write_batch()?;
                }
                return Ok(true);
            }
        }
        self.write_batch()?;
        Ok(false)
    }

    /// Records that a run was written by itself.
    #[inline]
    pub(super) fn note_written_alone(&mut self, first: Ppn, count: u32) {
        self.batch.next = Some(first.raw() + count);
    }

    /// Adds pages to the run. Their slot is known.
    #[inline]
    pub(super) fn keep_pages(
        &mut self,
        slot: u32,
        (first, count): (Ppn, u32),
        data: &[u8],
        oobs: &[u8],
    ) {
        let mut batch = std::mem::take(&mut self.batch);
        if batch.count == 0 {
            batch.first = first.raw();
        }
        let seq = self.sync.last_seq() + 1 + u64::from(batch.count);
        batch.data.extend_from_slice(data);
        self.encode_records(
            slot,
            (first, count, seq),
            data,
            oobs,
            (Health::Good, None),
            &mut batch.records,
        );
        batch.count += count;
        self.batch = batch;
    }

    /// Writes the run, if there is one. If the host refuses, the run stays.
    #[inline]
    pub(super) fn write_batch(&mut self) -> io::Result<()> {
        match self.batch.count {
            0 => Ok(()),
            _ => self.write_kept_pages(),
        }
    }

    fn write_kept_pages(&mut self) -> io::Result<()> {
        self.usable()?;
        let (first, count) = (Ppn::new(self.batch.first), self.batch.count);
        let (block, slot, page) = self.locate(first).expect("a kept page has a slot");
        self.write_run(slot, page, &self.batch.data, &self.batch.records)?;
        self.batch.count = 0;
        self.batch.data.clear();
        self.batch.records.clear();
        self.sync.publish(self.sync.last_seq() + u64::from(count));
        self.seal_if_complete(block);
        Ok(())
    }

    /// Returns whether the store itself has to read some of these pages: they are not in the file.
    #[inline]
    pub(super) fn is_unwritten(&self, first: Ppn, count: u32) -> bool {
        self.batch.count > 0 && self.batch.has_any(first, count)
    }

    /// Reads pages of one block, some of which the host refused to write.
    #[cold]
    pub(super) fn read_unwritten(
        &mut self,
        pages: impl Iterator<Item = Ppn>,
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> io::Result<()> {
        let (page, part) = (data.len() / health.len(), oobs.len() / health.len());
        for (i, (ppn, health)) in pages.zip(health).enumerate() {
            let data = &mut data[i * page..][..page];
            let oob = &mut oobs[i * part..][..part];
            let Some(place) = self.batch.place_of(ppn) else {
                let mut records = Vec::new();
                self.read_run(ppn, &mut records, data, oob, std::slice::from_mut(health))?;
                continue;
            };
            let kept = self.layout.geometry.page_len();
            data.copy_from_slice(&self.batch.data[place * kept..][..page]);
            let record = &self.batch.records[place * self.layout.record_bytes..];
            oob.copy_from_slice(&record[CORE_BYTES..][..part]);
            *health = Health::Good;
        }
        Ok(())
    }
}
