//! Programs: one write for the data of a run, one for its records.
//!
//! Invariants: data is written before the record that makes it a programmed page; the run's numbers
//! are published after both writes. If either write fails, no page of the run counts as programmed
//! and its numbers are reused. If the host fails, recovery keeps each page whole or not at all.

use super::file_store::FileStore;
use crate::addr::Ppn;
use crate::convert::index;
use crate::image::{CORE_BYTES, Core, Mark};
use crate::store::contents::{Cells, Health, tag_of};
use crc32c::crc32c;
use std::io;

impl FileStore {
    /// Programs a run; every page gets this health mark in the write of its record.
    pub(super) fn program_run(
        &mut self,
        first: Ppn,
        count: u32,
        data: &[u8],
        oobs: &[u8],
        health: Health,
    ) -> io::Result<()> {
        self.usable()?;
        assert!(count > 0, "a program of no page");
        assert_eq!(
            data.len(),
            index(count) * self.layout.geometry.page_len(),
            "a program writes whole pages"
        );
        let block = self.layout.geometry.block_of(first).index();
        let page = self.layout.geometry.offset_of(first);
        if self.counts.may_hold(block, page, count) {
            return self.program_over(first, count, data, oobs, health);
        }
        self.write_pages(first, count, data, oobs, (health, None))?;
        if let Some(slot) = self.blocks[block].slot.filter(|_| self.is_complete(block)) {
            self.sync.seal_when_synced(slot, self.sync.last_seq());
        }
        Ok(())
    }

    /// Writes pages into blank cells. `marks` contains each page's health, and its tag if it was
    /// meant for another page.
    #[inline]
    fn write_pages(
        &mut self,
        first: Ppn,
        count: u32,
        data: &[u8],
        oobs: &[u8],
        marks: (Health, Option<u32>),
    ) -> io::Result<()> {
        let block = self.layout.geometry.block_of(first).index();
        let page = self.layout.geometry.offset_of(first);
        let slot = match self.blocks[block].slot {
            Some(slot) => slot,
            None => self.take_slot(block, self.blocks[block].facts)?,
        };
        self.disk.write_at(self.layout.data_at(slot, page), data)?;
        let mut scratch = std::mem::take(&mut self.scratch);
        self.encode_records(slot, first, count, data, oobs, marks, &mut scratch);
        let at = self.layout.record_at(slot, page);
        let written = self.disk.write_at(at, &scratch);
        self.scratch = scratch;
        if let Err(failed) = written {
            if failed.done > 0 {
                self.restore_bytes(at, &vec![0; failed.done]);
            }
            return Err(failed.error);
        }
        self.slots.roomy[index(slot)] = true;
        self.counts.note_programs(block, page, count);
        if !self.unhealthy.is_empty() {
            self.unhealthy
                .retain(|&ppn, _| !(first.raw()..first.raw() + count).contains(&ppn));
        }
        if marks.0 != Health::Good {
            self.unhealthy
                .extend((first.raw()..first.raw() + count).map(|ppn| (ppn, marks.0.into())));
        }
        self.sync.publish(self.sync.last_seq() + u64::from(count));
        Ok(())
    }

    /// Encodes the records of a run into `scratch`.
    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of the verb, and where its pages are stored"
    )]
    fn encode_records(
        &self,
        slot: u32,
        first: Ppn,
        count: u32,
        data: &[u8],
        oobs: &[u8],
        (health, tag): (Health, Option<u32>),
        scratch: &mut Vec<u8>,
    ) {
        let geometry = self.layout.geometry;
        let (page_bytes, part) = (geometry.page_len(), oobs.len() / index(count));
        debug_assert!(
            part <= geometry.oob_len(),
            "a program of {part} OOB bytes, a page has {}",
            geometry.oob_bytes
        );
        let life = self.blocks[geometry.block_of(first).index()].erase_seq;
        let (first_seq, page) = (self.sync.last_seq() + 1, geometry.offset_of(first));
        debug_assert!(
            life < first_seq,
            "a life begins before what is programmed in it"
        );
        scratch.clear();
        scratch.resize(index(count) * self.layout.record_bytes, 0);
        for (i, record) in (0u32..).zip(scratch.chunks_exact_mut(self.layout.record_bytes)) {
            let (data, oob) = (
                &data[index(i) * page_bytes..][..page_bytes],
                &oobs[index(i) * part..][..part],
            );
            let seq = first_seq + u64::from(i);
            let tag = tag.unwrap_or_else(|| tag_of(Ppn::new(first.raw() + i), life));
            self.encode_record(slot, page + i, seq, tag, data, oob, record);
            if health != Health::Good {
                let mark = Mark::from(health).encode(seq);
                record[Mark::AT..][..mark.len()].copy_from_slice(&mark);
            }
        }
    }

    #[inline]
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of a record, and where it lies"
    )]
    fn encode_record(
        &self,
        slot: u32,
        page: u32,
        seq: u64,
        tag: u32,
        data: &[u8],
        oob: &[u8],
        record: &mut [u8],
    ) {
        let own = &mut record[CORE_BYTES..][..self.layout.geometry.oob_len()];
        own[..oob.len()].copy_from_slice(oob);
        own[oob.len()..].fill(0xFF);
        let oob_check = crc32c(own);
        Core {
            seq,
            data_check: crc32c(data),
            oob_check,
            tag,
        }
        .encode(slot, page, record);
    }

    /// Programs cells with any tag; a blank page gets this health. A page that is programmed
    /// already keeps core, OOB and data, because its operation must stay complete: only its mark is
    /// set to lost.
    pub(super) fn put(&mut self, ppn: Ppn, cells: &Cells, health: Health) -> io::Result<()> {
        self.usable()?;
        assert_eq!(
            cells.oob.len(),
            self.layout.geometry.oob_len(),
            "cells have the whole OOB"
        );
        assert_eq!(
            cells.data.len(),
            self.layout.geometry.page_len(),
            "cells have the whole page"
        );
        if self.read_record(ppn, &mut Vec::new())?.is_some() {
            return self.mark(ppn, Health::Lost, None);
        }
        if let Some((_, slot, _)) = self.locate(ppn) {
            self.sync.unseal(slot)?;
        }
        self.write_pages(ppn, 1, &cells.data, &cells.oob, (health, Some(cells.tag)))
    }

    /// Programs cells page by page, because some may be programmed already.
    #[cold]
    fn program_over(
        &mut self,
        first: Ppn,
        count: u32,
        data: &[u8],
        oobs: &[u8],
        health: Health,
    ) -> io::Result<()> {
        let (page_bytes, part) = (data.len() / index(count), oobs.len() / index(count));
        for i in 0..count {
            let ppn = Ppn::new(first.raw() + i);
            let mut oob = oobs[index(i) * part..][..part].to_vec();
            oob.resize(self.layout.geometry.oob_len(), 0xFF);
            let data = data[index(i) * page_bytes..][..page_bytes].to_vec();
            let tag = tag_of(
                ppn,
                self.blocks[self.layout.geometry.block_of(ppn).index()].erase_seq,
            );
            self.put(ppn, &Cells { data, oob, tag }, health)?;
        }
        Ok(())
    }
}
