//! Reads of records and data, and the health that follows from tag, checks and marks.
//!
//! Invariants: a read sets every element of `health`; a record is valid only if its number is above
//! the first number of its slot's life. A read writes at most a mark, so a host crash loses nothing
//! else.

use super::file_store::FileStore;
use crate::addr::Ppn;
use crate::convert::{index, to_u32};
use crate::image::{CORE_BYTES, Core, Hint, Layout, PAGE_LEN};
use crate::store::contents::{Health, tag_of};
use crc32c::crc32c;
use std::io::{self, IoSliceMut};

/// Reading this many unwanted pages costs less than another system call.
pub(super) const GAP_PAGES: u32 = 3;
/// Maximum number of pages per read; keeps the unwanted bytes in the processor's cache.
pub(super) const NEAR_PAGES: usize = 64;

/// Which parts of a page pass their checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageCheck {
    /// The record's core, if it belongs to this page and its block's life.
    pub(super) core: Option<Core>,
    /// Whether the data is whole; true for a read without data.
    pub(super) data_good: bool,
    pub(super) oob_good: bool,
}

impl PageCheck {
    /// Checks a page of the block in `slot`, whose life began with this number; `data` is the
    /// CRC32C of its data, if that was read.
    #[inline]
    pub(super) fn of(
        layout: &Layout,
        ppn: Ppn,
        (slot, life): (u32, u64),
        record: &[u8],
        data: Option<u32>,
    ) -> PageCheck {
        debug_assert_eq!(
            record.len(),
            layout.record_bytes,
            "the record of page {ppn}"
        );
        let geometry = &layout.geometry;
        let core = Core::decode(slot, geometry.offset_of(ppn), record)
            .filter(|core| core.seq > life && core.tag == tag_of(ppn, life));
        let oob = &record[CORE_BYTES..][..geometry.oob_len()];
        PageCheck {
            core,
            data_good: core.is_some_and(|core| data.is_none_or(|found| found == core.data_check)),
            oob_good: core.is_some_and(|core| crc32c(oob) == core.oob_check),
        }
    }
}

impl FileStore {
    /// Reads a run: one system call for the records, one for the data.
    #[inline]
    pub(super) fn read_run(
        &mut self,
        first: Ppn,
        records: &mut Vec<u8>,
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> io::Result<()> {
        let Some((block, slot, page)) = self.locate(first) else {
            health.fill(Health::Lost);
            return Ok(());
        };
        let (page_bytes, part) = (data.len() / health.len(), oobs.len() / health.len());
        debug_assert!(
            page_bytes == 0 || page_bytes == self.layout.geometry.page_len(),
            "a read of {page_bytes} data bytes per page"
        );
        let record_bytes = self.layout.record_bytes;
        records.resize(health.len() * record_bytes, 0);
        let at = self.layout.record_at(slot, page);
        if data.is_empty() && records.len() >= PAGE_LEN {
            self.read_scanned(block, at, records)?;
        } else {
            self.disk.read_at(at, records)?;
        }
        if !data.is_empty() {
            self.disk.read_at(self.layout.data_at(slot, page), data)?;
        }
        let pages = first.run(to_u32(health.len()));
        for (i, (ppn, (health, record))) in pages
            .zip(health.iter_mut().zip(records.chunks_exact(record_bytes)))
            .enumerate()
        {
            let (data, oob) = (
                &data[i * page_bytes..][..page_bytes],
                &mut oobs[i * part..][..part],
            );
            let data = (!data.is_empty()).then(|| crc32c(data));
            *health = self.examine(ppn, slot, record, data, oob)?;
        }
        Ok(())
    }

    /// Reads pages close to each other: one read of the records and, unless the data is mapped, one
    /// system call for it, including the bytes between the pages.
    pub(super) fn read_near(
        &mut self,
        pages: &[Ppn],
        records: &mut Vec<u8>,
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> io::Result<()> {
        let Some((_, slot, first)) = self.locate(pages[0]) else {
            health.fill(Health::Lost);
            return Ok(());
        };
        let (page_bytes, part) = (data.len() / pages.len(), oobs.len() / pages.len());
        debug_assert!(
            pages.len() <= NEAR_PAGES && pages.is_sorted_by(|a, b| a < b),
            "pages that are read at once are few and ascend"
        );
        let record_bytes = self.layout.record_bytes;
        let span = index(pages[pages.len() - 1].raw() - pages[0].raw() + 1);
        records.resize(span * record_bytes, 0);
        self.disk
            .read_at(self.layout.record_at(slot, first), records)?;
        let at = |page: Ppn| {
            let offset = page.raw() - pages[0].raw();
            self.layout.data_at(slot, first + offset)
        };
        let mut checks = std::mem::take(&mut self.checks);
        checks.clear();
        if page_bytes > 0 && self.disk.is_mapped() {
            let mut next = pages.iter().skip(1);
            let parts = data.chunks_exact_mut(page_bytes).zip(pages);
            checks.extend(parts.map_while(|(data, page)| {
                if let Some(next) = next.next() {
                    self.disk.prefetch(at(*next));
                }
                self.disk.read_mapped(at(*page), data)
            }));
        }
        if checks.len() < pages.len() && page_bytes > 0 {
            self.unwanted.resize((span - pages.len()) * page_bytes, 0);
            let mut unwanted = &mut self.unwanted[..];
            let mut bufs = Vec::with_capacity(2 * pages.len());
            let gaps = std::iter::once(0).chain(
                pages
                    .windows(2)
                    .map(|pair| pair[1].raw() - pair[0].raw() - 1),
            );
            for (gap, page) in gaps.zip(data.chunks_exact_mut(page_bytes)) {
                if gap > 0 {
                    let between = unwanted
                        .split_off_mut(..index(gap) * page_bytes)
                        .expect("as long as all gaps");
                    bufs.push(IoSliceMut::new(between));
                }
                bufs.push(IoSliceMut::new(page));
            }
            self.disk
                .read_vectored_at(self.layout.data_at(slot, first), &mut bufs)?;
            checks.clear();
            checks.extend(data.chunks_exact(page_bytes).map(crc32c));
        }
        for (i, (ppn, health)) in pages.iter().zip(health).enumerate() {
            let record =
                &records[index(ppn.raw() - pages[0].raw()) * record_bytes..][..record_bytes];
            let oob = &mut oobs[i * part..][..part];
            *health = self.examine(*ppn, slot, record, checks.get(i).copied(), oob)?;
        }
        self.checks = checks;
        Ok(())
    }

    /// Copies the OOB out of a page's record and returns the page's health.
    #[inline]
    fn examine(
        &mut self,
        ppn: Ppn,
        slot: u32,
        record: &[u8],
        data: Option<u32>,
        oob: &mut [u8],
    ) -> io::Result<Health> {
        let Layout {
            hints, geometry, ..
        } = self.layout;
        let life = self.blocks[geometry.block_of(ppn).index()].erase_seq;
        let oob_bytes = geometry.oob_len();
        debug_assert!(
            oob.len() <= oob_bytes,
            "a read of {} OOB bytes, a page has {oob_bytes}",
            oob.len()
        );
        let check = PageCheck::of(&self.layout, ppn, (slot, life), record, data);
        oob.copy_from_slice(&record[CORE_BYTES..][..oob.len()]);
        let Some(core) = check.core else {
            return Ok(Health::Lost);
        };
        if hints && let Some((_, mask)) = Hint::decode(core.seq, record, oob_bytes) {
            oob.iter_mut()
                .zip(mask)
                .for_each(|(have, keep)| *have &= keep);
        }
        let marked = if self.unhealthy.is_empty() {
            Health::Good
        } else {
            self.use_mark(ppn, core.seq)?
        };
        let oob_good = oob.is_empty() || check.oob_good;
        if check.data_good && oob_good {
            return Ok(marked);
        }
        Ok(
            match (
                check.data_good && marked.data_ok(),
                oob_good && marked.oob_ok(),
            ) {
                (false, false) => Health::Lost,
                (false, true) => Health::DataLost,
                (true, _) => Health::OobLost,
            },
        )
    }

    /// Reads a page's record of the current life into `record`; `None` if it has none.
    pub(super) fn read_record(
        &self,
        ppn: Ppn,
        record: &mut Vec<u8>,
    ) -> io::Result<Option<(u32, u32, Core)>> {
        let Some((block, slot, page)) = self.locate(ppn) else {
            return Ok(None);
        };
        record.resize(self.layout.record_bytes, 0);
        self.disk
            .read_at(self.layout.record_at(slot, page), record)?;
        let core =
            Core::decode(slot, page, record).filter(|core| core.seq > self.blocks[block].erase_seq);
        Ok(core.map(|core| (slot, page, core)))
    }
}
