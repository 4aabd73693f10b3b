//! Reads of host pages without the store: the store says where they are, the reader copies and
//! checks them.
//!
//! Invariants: a page that a reader returns as good has the record, checks and tag of its address
//! and of the life that its block had when the store named the place. The store never writes that
//! place again while the [`Pin`] is held. Everything else (a page that is not good, a mark, a fault
//! plan, an error of the host) is left to the store itself, which the caller asks again. Nothing is
//! written here.

use super::disk::Disk;
use super::file_store::FileStore;
use super::pins::Pin;
use super::read::PageCheck;
use crate::addr::Ppn;
use crate::convert::{index, to_u32};
use crate::image::{CORE_BYTES, Layout};
use crc32c::crc32c;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

    /// Pages of a store in memory, at the place of their address.
    pub(in crate::store) fn in_memory(first: Ppn, count: u32, life: u64) -> PlacedRun {
        PlacedRun {
            first,
            count,
            slot: 0,
            life,
        }
    }

    pub(in crate::store) fn first(&self) -> Ppn {
        self.first
    }

    pub(in crate::store) fn life(&self) -> u64 {
        self.life
    }
}

/// When a reader outside the store's lock computes the check of a page's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verify {
    /// At every read.
    #[default]
    Always,
    /// At the first read since the page was programmed or the image was opened. Later corruption in
    /// the image is not detected.
    Once,
}

/// Reads placed pages, from any thread, while the store continues.
#[derive(Clone)]
pub struct PageReader {
    disk: Arc<dyn Disk>,
    layout: Layout,
    verified: Option<Arc<Verified>>,
}

/// One bit for each page of every slot: whether its data has passed its check.
#[derive(Debug)]
pub(super) struct Verified {
    words_per_slot: usize,
    words: Vec<AtomicU64>,
}

impl Verified {
    fn new(layout: &Layout) -> Self {
        let words_per_slot = layout.pages().div_ceil(64);
        let words = words_per_slot * index(layout.slots);
        Verified {
            words_per_slot,
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    #[inline]
    fn word(&self, slot: u32, page: u32) -> (&AtomicU64, u64) {
        let word = index(slot) * self.words_per_slot + index(page / 64);
        (&self.words[word], 1 << (page % 64))
    }

    #[inline]
    fn has(&self, slot: u32, page: u32) -> bool {
        let (word, bit) = self.word(slot, page);
        word.load(Ordering::Relaxed) & bit != 0
    }

    #[inline]
    fn set(&self, slot: u32, page: u32) {
        let (word, bit) = self.word(slot, page);
        word.fetch_or(bit, Ordering::Relaxed);
    }

    /// Clears the bits of a slot before its next life. No reader has a pin on it.
    pub(super) fn clear(&self, slot: u32) {
        let first = index(slot) * self.words_per_slot;
        self.words[first..first + self.words_per_slot]
            .iter()
            .for_each(|word| word.store(0, Ordering::Relaxed));
    }
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
        let (slot, disk) = (run.slot, &self.disk);
        let is_mapped = disk.is_mapped();
        let mut read = disk.read_at(self.layout.record_at(slot, page), records);
        if !is_mapped {
            read = read.and_then(|()| disk.read_at(self.layout.data_at(slot, page), data));
        }
        if read.is_err() {
            return false;
        }
        let pages = run.first.run(run.count);
        let parts = records
            .chunks_exact(record_bytes)
            .zip(data.chunks_exact_mut(geometry.page_len()));
        pages.zip(parts).zip(0..).all(|((ppn, (record, data)), i)| {
            let (oob, page) = (&record[CORE_BYTES..][..geometry.oob_len()], page + i);
            let verified = self.verified.as_ref();
            let known = verified.is_some_and(|verified| verified.has(slot, page));
            let at = self.layout.data_at(slot, page);
            if is_mapped && i + 1 < run.count {
                disk.prefetch(self.layout.data_at(slot, page + 1));
            }
            let found = match (is_mapped, known) {
                (true, false) => disk
                    .read_mapped(at, data)
                    // The map may have lost a page.
                    .or_else(|| disk.read_at(at, data).ok().map(|()| crc32c(data))),
                (true, true) => disk.read_at(at, data).ok().map(|()| 0),
                (false, false) => Some(crc32c(data)),
                (false, true) => Some(0),
            };
            if found.is_none() {
                return false;
            }
            let found = found.filter(|_| !known);
            let check = PageCheck::of(&self.layout, ppn, (slot, run.life), record, found);
            if !check.data_good || !check.oob_good {
                return false;
            }
            if let Some(verified) = verified.filter(|_| !known) {
                verified.set(slot, page);
            }
            is_wanted(i, oob)
        })
    }

    /// Announces that a run is read next.
    #[inline]
    pub fn prefetch(&self, run: &PlacedRun) {
        let page = self.layout.geometry.offset_of(run.first);
        self.disk.prefetch(self.layout.record_at(run.slot, page));
        self.disk.prefetch(self.layout.data_at(run.slot, page));
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
            verified: self.verified.clone(),
        }
    }

    /// Sets when readers outside the lock check data; call it before they are made.
    pub fn set_verify(&mut self, verify: Verify) {
        self.verified = match verify {
            Verify::Always => None,
            Verify::Once => Some(Arc::new(Verified::new(&self.layout))),
        };
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
