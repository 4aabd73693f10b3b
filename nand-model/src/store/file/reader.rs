//! Reads of host pages without the store: the store says where they are, the reader copies and
//! checks them.
//!
//! Invariants: a page that a reader returns as good has the record, checks and tag of its address
//! and of the life that its block had when the store named the place. The store never writes that
//! place again while the [`Pin`] is held. Everything else (a page that is not good, a mark, a fault
//! plan, an error of the host) is left to the store itself, which the caller asks again. Nothing is
//! written here.

use super::FileStore;
use super::disk::Disk;
use super::pins::Pin;
use super::read::PageCheck;
use crate::addr::Ppn;
use crate::convert::{index, to_u32};
use crate::image::{CORE_BYTES, Layout};
use std::sync::Arc;

/// Where the store keeps a run of pages of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedRun {
    first: Ppn,
    count: u32,
    slot: u32,
    /// First number of the block's life.
    life: u64,
}

impl PlacedRun {
    /// Number of pages.
    pub fn count(&self) -> u32 {
        self.count
    }
}

/// Reads placed pages, from any thread, while the store continues.
#[derive(Clone)]
pub struct PageReader {
    disk: Arc<dyn Disk>,
    layout: Layout,
}

impl PageReader {
    /// Copies the data of a run into `data`, and passes the page's number in the run and its OOB to
    /// `is_wanted`. Returns whether all pages are good and wanted; otherwise, the content of `data`
    /// is undefined, and the store has to read the run.
    ///
    /// `records` is scratch space. The pin has to be one of the run's store, taken before the store
    /// named the place.
    ///
    /// # Panics
    ///
    /// If `data` is not as long as the run.
    #[inline]
    pub fn read(
        &self,
        _pin: &Pin,
        run: &PlacedRun,
        records: &mut Vec<u8>,
        data: &mut [u8],
        mut is_wanted: impl FnMut(u32, &[u8]) -> bool,
    ) -> bool {
        let Layout {
            geometry,
            record_bytes,
            ..
        } = self.layout;
        let (page, count) = (geometry.offset_of(run.first), index(run.count));
        assert_eq!(
            data.len(),
            count * geometry.page_len(),
            "a buffer for a run of {count} pages"
        );
        records.resize(count * record_bytes, 0);
        let copied = self
            .disk
            .read_at(self.layout.record_at(run.slot, page), records)
            .and_then(|()| self.disk.read_at(self.layout.data_at(run.slot, page), data));
        if copied.is_err() {
            return false;
        }
        let pages = run.first.run(run.count);
        let parts = records
            .chunks_exact(record_bytes)
            .zip(data.chunks_exact(geometry.page_len()));
        pages.zip(parts).zip(0..).all(|((ppn, (record, data)), i)| {
            let oob = &record[CORE_BYTES..][..geometry.oob_len()];
            let check = PageCheck::of(&self.layout, ppn, (run.slot, run.life), record, data);
            check.data_good && check.oob_good && is_wanted(i, oob)
        })
    }
}

impl std::fmt::Debug for PageReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PageReader").finish_non_exhaustive()
    }
}

impl FileStore {
    /// Returns the reader of this store's pages; take it before the store moves into a chip.
    pub(super) fn page_reader(&self) -> PageReader {
        PageReader {
            disk: self.disk.clone(),
            layout: self.layout,
        }
    }

    /// Returns where a run is stored; `None` if a page may be marked, so that reading it may change
    /// the mark.
    #[inline]
    pub(super) fn place_run(&self, first: Ppn, count: u32) -> Option<PlacedRun> {
        if !self.unhealthy.is_empty() || self.read_only {
            return None;
        }
        let (block, slot, page) = self.locate(first)?;
        debug_assert!(
            page + count <= to_u32(self.layout.pages()),
            "a run leaves its block"
        );
        Some(PlacedRun {
            first,
            count,
            slot,
            life: self.blocks[block].erase_seq,
        })
    }
}
