//! State under the request lock: the scheme, its clock and the wear scan.
//!
//! Invariants: the owner of a `Core` reference holds the lock. If power fails, the scheme's own
//! rules apply.

use super::EXTENT_PAGES;
use super::clock::Clock;
use super::snapshot::{LastWrite, Wear, WearScan};
use super::write_cache::{CacheView, WriteCache};
use crate::device::Extent;
use crate::pages::PageIo;
use ftl_core::{DeferredRead, Ftl, FtlError, Lpn};
use ftld_kit::convert::{narrow, to_u32, to_u64};
use nand_model::{Nanos, Store};

pub(super) struct Core {
    pub(super) ftl: Box<dyn Ftl>,
    /// Buffer of one page, for requests that cover a part of a page.
    pub(super) scratch: Vec<u8>,
    pub(super) clock: Clock,
    pub(super) scan: WearScan,
    pub(super) wear: Wear,
    /// Newest extent that the host wrote.
    pub(super) last_write: Option<LastWrite>,
    pub(super) cache: Option<Box<WriteCache>>,
    /// Counters of a cache that has ended.
    pub(super) last_cache: CacheView,
}

impl Core {
    /// Returns the erases that the store accepts before it needs a sync.
    pub(super) fn erases_left(&self) -> u32 {
        self.ftl.chip().store().erase_credit()
    }

    /// Scans the next slice of blocks; returns whether the scan has completed a round.
    pub(super) fn look_at_wear(&mut self) -> bool {
        match self.scan.slice(&*self.ftl) {
            Some(wear) => {
                self.wear = wear;
                true
            }
            None => false,
        }
    }

    pub(super) fn page_bytes(&self) -> u32 {
        to_u32(self.scratch.len())
    }

    pub(super) fn paged(&mut self) -> PageIo<'_> {
        PageIo {
            ftl: &mut *self.ftl,
            scratch: &mut self.scratch,
        }
    }

    /// Returns the cache, if there is one, and the scheme below it.
    pub(super) fn cached(&mut self) -> Option<(&mut WriteCache, PageIo<'_>)> {
        let io = PageIo {
            ftl: &mut *self.ftl,
            scratch: &mut self.scratch,
        };
        self.cache.as_deref_mut().map(|cache| (cache, io))
    }

    /// Records the newest extent that the host wrote, from byte `offset` of the device on.
    pub(super) fn note_write(&mut self, at: Nanos, offset: u64, data: &[u8]) {
        self.last_write = Some(LastWrite {
            at,
            offset,
            bytes: to_u64(data.len()),
        });
    }

    /// Reads an extent.
    pub(super) fn read(
        &mut self,
        at: Nanos,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Nanos, FtlError> {
        match self.cached() {
            None => self.paged().read(at, offset, buf),
            Some((cache, mut io)) => cache.read(&mut io, at, offset, buf),
        }
    }

    /// Reads an extent of a volume without a cache, but may leave whole pages of `buf` to
    /// [`DeferredRead::finish`], which needs no lock.
    pub(super) fn read_deferred(
        &mut self,
        at: Nanos,
        offset: u64,
        buf: &mut [u8],
        deferred: &mut DeferredRead,
    ) -> Result<Nanos, FtlError> {
        let read = self.paged().read_deferred(at, offset, buf, deferred);
        // Last: a read may collect garbage, for the mapping pages that leave a cache.
        let pin = self.ftl.chip().store().pin();
        deferred.hold(pin.filter(|_| read.is_ok()));
        read
    }

    /// Makes everything on the flash safe.
    pub(super) fn flush(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
        let done = self.ftl.flush(at)?;
        if let Some(cache) = &mut self.cache {
            cache.note_flushed();
        }
        Ok(done)
    }

    /// Decides what of the cache survives a power cut, once.
    pub(super) fn lose_power(&mut self) {
        let cache = self.cache.as_deref_mut();
        if let Some(counts) = cache.and_then(WriteCache::lose_power) {
            tracing::warn!(
                "write cache at the power cut: {} dirty units: {}",
                counts.units(),
                counts.text()
            );
        }
    }

    /// Returns at most `max` runs of equal state in `offset..end`, from a bounded number of pages.
    pub(super) fn extents(
        &mut self,
        mut offset: u64,
        end: u64,
        max: usize,
    ) -> Result<Vec<Extent>, FtlError> {
        let page = u64::from(self.page_bytes());
        let begin = offset;
        let mut extents: Vec<Extent> = Vec::new();
        assert!(
            offset <= end,
            "extents of a range that ends before it begins"
        );
        assert!(max > 0, "no extents wanted");
        for _ in 0..EXTENT_PAGES {
            if offset == end {
                break;
            }
            let next = end.min((offset / page + 1) * page);
            let first = offset / page * page;
            let cache = self.cache.as_deref();
            let mapped = cache.is_some_and(|cache| cache.covers_any(first, first + page))
                || self.ftl.is_mapped(Lpn::new(narrow(offset / page)))?;
            let stretches = extents.len();
            match extents.last_mut() {
                Some(last) if last.mapped == mapped => last.len += next - offset,
                _ if stretches == max => break,
                _ => extents.push(Extent {
                    len: next - offset,
                    mapped,
                }),
            }
            offset = next;
        }
        assert!(extents.len() <= max, "more extents than were wanted");
        assert!(
            offset > begin || begin == end,
            "no extent of bytes {begin} to {end}"
        );
        debug_assert_eq!(
            extents.iter().map(|extent| extent.len).sum::<u64>(),
            offset - begin,
            "the lengths of the extents from byte {begin} to {offset}"
        );
        Ok(extents)
    }
}
