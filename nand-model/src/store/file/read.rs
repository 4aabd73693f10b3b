//! Reads: the records and the data of pages, and what tag, checks and marks leave readable of them.
//!
//! What always holds: every element of a read's health is set; a record counts only if its number
//! is above the one that its slot's life began with. A read writes at most a mark, so a host crash
//! here loses nothing but that.

use super::FileStore;
use crate::addr::Ppn;
use crate::convert::{index, to_u32};
use crate::image::{CORE_BYTES, Core, Hint, Layout};
use crate::store::{Health, tag_of};
use crc32c::crc32c;
use std::io::{self, IoSliceMut};

/// Reading so many pages for nothing costs less than another system call.
pub(super) const GAP_PAGES: u32 = 3;
/// Most pages that are read at once; keeps what is read for nothing in the processor's cache.
pub(super) const NEAR_PAGES: usize = 64;

impl FileStore {
    /// One read for the records, one for the data.
    #[inline]
    pub(super) fn read_run(
        &mut self,
        first: Ppn,
        records: &mut Vec<u8>,
        data: &mut [u8],
        oobs: &mut [u8],
        health: &mut [Health],
    ) -> io::Result<()> {
        let Some((_, slot, page)) = self.locate(first) else {
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
        self.disk
            .read_at(self.layout.record_at(slot, page), records)?;
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
            *health = self.examine(ppn, slot, record, data, oob)?;
        }
        Ok(())
    }

    /// Pages close to each other: their records in one read and their data in another, with what
    /// lies between them.
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
        if !data.is_empty() {
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
        }
        for (i, (ppn, health)) in pages.iter().zip(health).enumerate() {
            let record =
                &records[index(ppn.raw() - pages[0].raw()) * record_bytes..][..record_bytes];
            let (data, oob) = (
                &data[i * page_bytes..][..page_bytes],
                &mut oobs[i * part..][..part],
            );
            *health = self.examine(*ppn, slot, record, data, oob)?;
        }
        Ok(())
    }

    /// Takes the OOB out of a page's record and says what of the page is good.
    #[inline]
    fn examine(
        &mut self,
        ppn: Ppn,
        slot: u32,
        record: &[u8],
        data: &[u8],
        oob: &mut [u8],
    ) -> io::Result<Health> {
        let Layout {
            hints, geometry, ..
        } = self.layout;
        let erase_seq = self.blocks[geometry.block_of(ppn).index()].erase_seq;
        debug_assert_eq!(
            record.len(),
            self.layout.record_bytes,
            "the record of page {ppn}"
        );
        let core =
            Core::decode(slot, geometry.offset_of(ppn), record).filter(|core| core.seq > erase_seq);
        let oob_bytes = geometry.oob_len();
        let kept = &record[CORE_BYTES..][..oob_bytes];
        debug_assert!(
            oob.len() <= oob_bytes,
            "a read of {} OOB bytes, a page has {oob_bytes}",
            oob.len()
        );
        oob.copy_from_slice(&kept[..oob.len()]);
        let hint = core
            .filter(|_| hints)
            .and_then(|core| Hint::decode(core.seq, record, oob_bytes));
        if let Some((_, mask)) = hint {
            oob.iter_mut()
                .zip(mask)
                .for_each(|(have, keep)| *have &= keep);
        }
        let oob_good = core.is_some_and(|core| oob.is_empty() || crc32c(kept) == core.oob_check);
        self.judge(ppn, core, tag_of(ppn, erase_seq), oob_good, data)
    }

    /// What tag, checks and marks of one page leave readable.
    #[inline]
    fn judge(
        &mut self,
        ppn: Ppn,
        core: Option<Core>,
        tag: u32,
        oob_good: bool,
        data: &[u8],
    ) -> io::Result<Health> {
        let Some(core) = core.filter(|core| core.tag == tag) else {
            return Ok(Health::Lost);
        };
        let data_good = data.is_empty() || crc32c(data) == core.data_check;
        let marked = if self.sick.is_empty() {
            Health::Good
        } else {
            self.use_mark(ppn, core.seq)?
        };
        if data_good && oob_good {
            return Ok(marked);
        }
        Ok(
            match (data_good && marked.data_ok(), oob_good && marked.oob_ok()) {
                (false, false) => Health::Lost,
                (false, true) => Health::DataLost,
                (true, _) => Health::OobLost,
            },
        )
    }

    /// Reads a page's record of the present life into `record`; `None` if it has none.
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
