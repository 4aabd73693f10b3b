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
        assert!(count > 0, "a program of no page");
        assert_eq!(
            data.len(),
            index(count) * self.layout.geometry.page_len(),
            "a program writes whole pages"
        );
        let block = self.layout.geometry.block_of(first).index();
        let page = self.layout.geometry.offset_of(first);
        if self.counts.may_hold(block, page, count) {
            self.begin_change()?;
            return self.program_over(first, count, data, oobs, health);
        }
        self.usable()?;
        if health != Health::Good {
            self.write_batch()?;
        } else if self.joins_batch(first, data.len())? {
            let slot = self.slot_of(block)?;
            self.keep_pages(slot, (first, count), data, oobs);
            self.note_programmed(slot, first, count);
            return Ok(());
        }
        self.write_pages(first, count, data, oobs, (health, None))?;
        self.note_written_alone(first, count);
        self.seal_if_complete(block);
        Ok(())
    }

    /// Returns the slot of a block, which gets one if it was never used.
    #[inline]
    fn slot_of(&mut self, block: usize) -> io::Result<u32> {
        match self.blocks[block].slot {
            Some(slot) => Ok(slot),
            None => self.take_slot(block, self.blocks[block].facts),
        }
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
        let slot = self.slot_of(block)?;
        let mut records = std::mem::take(&mut self.scratch);
        records.clear();
        let run = (first, count, self.sync.last_seq() + 1);
        self.encode_records(slot, run, data, oobs, marks, &mut records);
        let written = self.write_run(slot, page, data, &records);
        self.scratch = records;
        written?;
        self.note_programmed(slot, first, count);
        if marks.0 != Health::Good {
            self.unhealthy
                .extend((first.raw()..first.raw() + count).map(|ppn| (ppn, marks.0.into())));
        }
        self.sync.publish(self.sync.last_seq() + u64::from(count));
        Ok(())
    }

    /// Writes the data and the records of a run.
    #[inline]
    pub(super) fn write_run(
        &self,
        slot: u32,
        page: u32,
        data: &[u8],
        records: &[u8],
    ) -> io::Result<()> {
        self.disk.write_at(self.layout.data_at(slot, page), data)?;
        let at = self.layout.record_at(slot, page);
        if let Err(failed) = self.disk.write_at(at, records) {
            if failed.done > 0 {
                self.restore_bytes(at, &vec![0; failed.done]);
            }
            return Err(failed.error);
        }
        Ok(())
    }

    /// Records in RAM that pages are programmed and good.
    #[inline]
    fn note_programmed(&mut self, slot: u32, first: Ppn, count: u32) {
        let geometry = self.layout.geometry;
        self.slots.roomy[index(slot)] = true;
        let block = geometry.block_of(first).index();
        self.counts
            .note_programs(block, geometry.offset_of(first), count);
        if !self.unhealthy.is_empty() {
            self.unhealthy
                .retain(|&ppn, _| !(first.raw()..first.raw() + count).contains(&ppn));
        }
    }

    /// Seals the slot of a full block, once its pages are synced.
    #[inline]
    pub(super) fn seal_if_complete(&self, block: usize) {
        if let Some(slot) = self.blocks[block].slot.filter(|_| self.is_complete(block)) {
            self.sync.seal_when_synced(slot, self.sync.last_seq());
        }
    }

    /// Appends the records of a run, whose first operation has this number, to `records`.
    #[inline]
    pub(super) fn encode_records(
        &self,
        slot: u32,
        (first, count, first_seq): (Ppn, u32, u64),
        data: &[u8],
        oobs: &[u8],
        (health, tag): (Health, Option<u32>),
        records: &mut Vec<u8>,
    ) {
        let geometry = self.layout.geometry;
        let (page_bytes, part) = (geometry.page_len(), oobs.len() / index(count));
        debug_assert!(
            part <= geometry.oob_len(),
            "a program of {part} OOB bytes, a page has {}",
            geometry.oob_bytes
        );
        let life = self.blocks[geometry.block_of(first).index()].erase_seq;
        let page = geometry.offset_of(first);
        debug_assert!(
            life < first_seq,
            "a life begins before what is programmed in it"
        );
        let begin = records.len();
        records.resize(begin + index(count) * self.layout.record_bytes, 0);
        let own = records[begin..].chunks_exact_mut(self.layout.record_bytes);
        for (i, record) in (0u32..).zip(own) {
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
        self.begin_change()?;
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
