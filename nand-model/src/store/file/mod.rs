//! The image file as a [`Store`].
//!
//! Terms: an *operation* is a program of one page, an erase, or the first taking of a slot by a
//! block; each gets the next *store sequence number*. A *slot* is room for one block in the file;
//! there are more slots than blocks. A slot's *life* begins with the operation that gave it to a
//! block.
//!
//! What always holds:
//! - data is written before the record that makes it a programmed page; a number is published when
//!   all its writes are in the file;
//! - an erase moves the block to another slot at once. The slot it left is written again only when
//!   a header on the disk itself says that the erase is synced;
//! - a record belongs to its slot's present life if and only if its number is above the one the
//!   life began with, so nothing needs rewriting when a slot is taken again.
//!
//! If the process dies, everything is in the page cache and nothing is lost. If the host fails, the
//! disk holds any subset of the writes since the last sync; [`FileStore::open`] keeps the longest
//! unbroken sequence of operations and undoes the rest, which is exactly a power cut at an earlier
//! operation. docs/FORMAT.md has the argument.

mod disk;
#[cfg(test)]
mod host_faults;
mod open;
#[cfg(any(test, feature = "sim"))]
mod sim;
mod sync;
#[cfg(test)]
mod tests;

pub use open::{Access, OpenReport, peek};
#[cfg(any(test, feature = "sim"))]
pub use sim::{Crash, End, Freeze, ReadFault, SimDisk, SyncFault, WriteFault};
pub use sync::{SyncError, SyncHandle, SyncStats};

use super::{BlockFacts, Cells, Health, NOBODY, Store, tag_of};
use crate::addr::{Pbn, Ppn};
use crate::image::{
    CORE_BYTES, Core, HINT_HEAD_BYTES, Hint, ImageError, ImageInfo, Layout, Mark, PAGE,
    SLOT_HEADER_BYTES, SlotHeader, TABLE_ENTRY_BYTES, TableEntry, is_zero,
};
use crate::profile::PageOrder;
use crc32c::crc32c;
use disk::Disk;
use std::collections::{HashMap, VecDeque};
use std::io::{self, IoSliceMut};
use std::path::PathBuf;
use std::sync::Arc;

/// A store in an image file.
pub struct FileStore {
    disk: Arc<dyn Disk>,
    sync: SyncHandle,
    path: PathBuf,
    info: ImageInfo,
    layout: Layout,
    read_only: bool,
    blocks: Vec<Block>,
    counts: Counts,
    /// Pages that are not [`Health::Good`].
    sick: HashMap<u32, Mark>,
    slots: Slots,
    /// Blocks that were erased and nothing else since before this operation had their slot's room
    /// checked already.
    trimmed_seq: u64,
    scratch: Vec<u8>,
    /// Takes what lies between the pages that are read.
    unwanted: Vec<u8>,
}

/// Reading so many pages for nothing costs less than another system call.
const GAP_PAGES: u32 = 3;
/// Most pages that are read at once; keeps what is read for nothing in the processor's cache.
const NEAR_PAGES: usize = 64;

/// One block as the store sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Block {
    /// `None`: never used, all facts but a bad mark are the initial ones.
    slot: Option<u32>,
    facts: BlockFacts,
    /// Operation that began the life of `slot`.
    erase_seq: u64,
}

/// How often each page was programmed, in the smallest form the page order allows.
#[derive(Debug)]
struct Counts {
    pages: usize,
    /// Programmed pages per block, where pages are programmed once and in order.
    frontier: Vec<u16>,
    /// Programs per page, elsewhere.
    programs: Vec<u8>,
}

impl Counts {
    fn new(info: &ImageInfo) -> Self {
        let geometry = info.profile.geometry;
        let (blocks, pages) = (geometry.blocks as usize, geometry.pages_per_block as usize);
        if info.profile.order == PageOrder::Consecutive && info.profile.nop == 1 {
            return Counts {
                pages,
                frontier: vec![0; blocks],
                programs: Vec::new(),
            };
        }
        Counts {
            pages,
            frontier: Vec::new(),
            programs: vec![0; blocks * pages],
        }
    }

    fn of(&self, block: usize, out: &mut [u8]) {
        if self.programs.is_empty() {
            let frontier = self.frontier[block] as usize;
            out[..frontier].fill(1);
            out[frontier..].fill(0);
        } else {
            out.copy_from_slice(&self.programs[block * self.pages..][..self.pages]);
        }
    }

    fn set(&mut self, block: usize, counts: &[u8]) {
        if self.programs.is_empty() {
            self.frontier[block] = counts
                .iter()
                .rposition(|&n| n > 0)
                .map_or(0, |last| last as u16 + 1);
        } else {
            self.programs[block * self.pages..][..self.pages].copy_from_slice(counts);
        }
    }

    #[inline]
    fn note_programs(&mut self, block: usize, first: u32, count: u32) {
        if self.programs.is_empty() {
            let frontier = &mut self.frontier[block];
            *frontier = (*frontier).max((first + count) as u16);
        } else {
            self.programs[block * self.pages + first as usize..][..count as usize].fill(1);
        }
    }

    /// Whether some of these pages may hold something already. Never, but for injected faults.
    #[inline]
    fn may_hold(&self, block: usize, first: u32, count: u32) -> bool {
        if self.programs.is_empty() {
            return self.frontier[block] as u32 > first;
        }
        !is_zero(&self.programs[block * self.pages + first as usize..][..count as usize])
    }

    fn clear(&mut self, block: usize) {
        if self.programs.is_empty() {
            self.frontier[block] = 0;
        } else {
            self.programs[block * self.pages..][..self.pages].fill(0);
        }
    }

    fn is_blank(&self, block: usize) -> bool {
        if self.programs.is_empty() {
            return self.frontier[block] == 0;
        }
        is_zero(&self.programs[block * self.pages..][..self.pages])
    }
}

/// Slots no block lives in.
#[derive(Debug, Default)]
struct Slots {
    /// Free, the host keeps no room for them; the next one is at the end.
    blank: Vec<u32>,
    /// Free; the one freed last is at the end, so room is reused while it is still cached.
    used: VecDeque<u32>,
    /// Left by an erase that may not be durable yet, ascending by erase.
    pending: VecDeque<(u32, u64)>,
    /// Per slot: whether the host may keep room for it.
    roomy: Vec<bool>,
}

impl Slots {
    fn ready(&self, durable_seq: u64) -> usize {
        let settled = self
            .pending
            .partition_point(|&(_, erase_seq)| erase_seq <= durable_seq);
        self.blank.len() + self.used.len() + settled
    }

    fn release(&mut self, durable_seq: u64) {
        while let Some((slot, _)) = self
            .pending
            .front()
            .copied()
            .filter(|&(_, erase_seq)| erase_seq <= durable_seq)
        {
            self.pending.pop_front();
            self.used.push_back(slot);
        }
    }

    /// The slot [`Slots::drop_next`] takes away.
    fn next(&self) -> Option<u32> {
        self.used.back().or(self.blank.last()).copied()
    }

    fn drop_next(&mut self) {
        if self.used.pop_back().is_none() {
            self.blank.pop();
        }
    }
}

impl FileStore {
    /// What the image says about itself; `clean` and `sync_failed` as found when it was opened.
    pub fn info(&self) -> &ImageInfo {
        &self.info
    }

    /// Waits for operations to reach the disk; to be had before the store moves into a chip.
    pub fn sync_handle(&self) -> SyncHandle {
        self.sync.clone()
    }

    /// Whether changes stay in memory.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Marks the image as closed in order, so that the next open needs no scan. A store dropped
    /// without this is unclean; nothing is lost by that.
    pub fn close(mut self) -> Result<(), ImageError> {
        if self.read_only {
            return Ok(());
        }
        self.write_table()
            .map_err(|error| self.trouble("write its block table", error))?;
        self.sync
            .write_clean(true)
            .map_err(|error| self.trouble("sync it", error.into()))?;
        Ok(())
    }

    /// Gives room of the host's file system back, for at most `max` slots: free slots and erased
    /// blocks beyond the latest ones, which the next erases and programs will want. For idle time;
    /// returns how many slots gave room back.
    pub fn trim_free_slots(&mut self, max: usize) -> io::Result<usize> {
        if self.read_only {
            return Ok(0);
        }
        self.usable()?;
        let reserve = (self.layout.slots - self.layout.geometry.blocks) as usize / 2;
        let durable = self.sync.durable_seq();
        self.slots.release(durable);
        let mut done = 0;
        while done < max && self.slots.used.len() > reserve {
            let slot = self.slots.used[0];
            self.disk
                .punch(self.layout.slot_at(slot), self.layout.slot_bytes())?;
            self.slots.used.pop_front();
            self.slots.blank.push(slot);
            self.slots.roomy[slot as usize] = false;
            done += 1;
        }
        done += self.trim_erased_blocks(max - done, reserve, durable)?;
        Ok(done)
    }

    /// The slot of an erased block still has the room of its former life: everything behind the
    /// slot header's page may go. Blocks erased since the last complete pass are left alone: they
    /// are likely to be written soon.
    fn trim_erased_blocks(
        &mut self,
        max: usize,
        reserve: usize,
        durable: u64,
    ) -> io::Result<usize> {
        let limit = durable.min(self.trimmed_seq);
        let mut idle: Vec<(u64, u32)> = Vec::new();
        for (index, block) in self.blocks.iter().enumerate() {
            let roomy = block.slot.filter(|&slot| self.slots.roomy[slot as usize]);
            if let Some(slot) = roomy.filter(|_| self.counts.is_blank(index)) {
                idle.push((block.erase_seq, slot));
            }
        }
        idle.sort_unstable();
        idle.truncate(idle.len().saturating_sub(reserve));
        idle.retain(|&(erase_seq, _)| erase_seq <= limit);
        for &(_, slot) in idle.iter().take(max) {
            let at = self.layout.slot_at(slot);
            self.disk
                .punch(at + PAGE, self.layout.slot_bytes() - PAGE)?;
            self.slots.roomy[slot as usize] = false;
        }
        if idle.len() <= max {
            self.trimmed_seq = self.sync.last_seq();
        }
        Ok(idle.len().min(max))
    }

    fn trouble(&self, action: &'static str, source: io::Error) -> ImageError {
        ImageError::Io {
            path: self.path.clone(),
            action,
            source,
        }
    }

    /// After a failed sync the file is not to be changed any more.
    #[inline]
    fn usable(&self) -> io::Result<()> {
        match self.sync.failure() {
            None => Ok(()),
            Some(_) => Err(SyncError::Closed.into()),
        }
    }

    /// Restores the bytes before a write that failed half way, and syncs them. The next operation
    /// gets the number of the refused one; a host crash must not leave both. The caller's lock is
    /// held across this sync: it happens only after an error of the host.
    fn take_back(&self, at: u64, before: &[u8]) {
        let done = self
            .disk
            .write_at(at, before)
            .map_err(io::Error::from)
            .and_then(|()| Ok(self.sync.force()?));
        if let Err(error) = done {
            self.sync.fail(&error);
        }
    }

    /// Moves a block into a free slot: one operation.
    fn take_slot(&mut self, block: usize, facts: BlockFacts) -> io::Result<u32> {
        self.slots.release(self.sync.durable_seq());
        if self.slots.next().is_none() {
            // Last resort: whoever looks at `erase_credit` never comes here.
            let &(_, erase_seq) = self.slots.pending.front().expect("more slots than blocks");
            self.sync.settle(erase_seq)?;
            self.slots.release(self.sync.durable_seq());
        }
        let slot = self.slots.next().expect("released above");
        let erase_seq = self.sync.last_seq() + 1;
        let header = SlotHeader::new(block as u32, erase_seq, facts);
        self.write_slot_header(slot, &header, None)?;
        self.slots.drop_next();
        let old = std::mem::replace(
            &mut self.blocks[block],
            Block {
                slot: Some(slot),
                facts,
                erase_seq,
            },
        );
        if let Some(left) = old.slot {
            self.slots.pending.push_back((left, erase_seq));
        }
        self.sync.publish(erase_seq);
        Ok(slot)
    }

    fn write_slot_header(
        &self,
        slot: u32,
        header: &SlotHeader,
        old: Option<SlotHeader>,
    ) -> io::Result<()> {
        let at = self.layout.slot_at(slot);
        let Err(failed) = self.disk.write_at(at, &header.encode(slot)) else {
            return Ok(());
        };
        // Half a header would be taken for damage.
        if failed.done > 0 {
            self.take_back(
                at,
                &old.map_or([0; SLOT_HEADER_BYTES], |old| old.encode(slot)),
            );
        }
        Err(failed.error)
    }

    fn entry(&self, block: usize, counts_check: u32, marked: bool) -> TableEntry {
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

    fn write_table(&mut self) -> io::Result<()> {
        self.usable()?;
        let pages = self.layout.pages();
        let mut marked = vec![false; self.blocks.len()];
        for &ppn in self.sick.keys() {
            marked[self.layout.geometry.block_of(Ppn::new(ppn)).index()] = true;
        }
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

    /// Writes table entries from block `first` on. If that fails half way, the entry that arrived
    /// in part is written again as in `instead`: half an entry would be taken for damage.
    fn write_entries(&self, first: usize, entries: &[u8], instead: &[u8]) -> io::Result<()> {
        let Err(failed) = self.disk.write_at(self.layout.entry_at(first), entries) else {
            return Ok(());
        };
        let torn = failed.done / TABLE_ENTRY_BYTES;
        if !failed.done.is_multiple_of(TABLE_ENTRY_BYTES) {
            self.take_back(
                self.layout.entry_at(first + torn),
                &instead[torn * TABLE_ENTRY_BYTES..][..TABLE_ENTRY_BYTES],
            );
        }
        Err(failed.error)
    }

    /// Where a page lies: block, slot and offset; `None` if its block was never used.
    #[inline]
    fn locate(&self, ppn: Ppn) -> Option<(usize, u32, u32)> {
        let block = self.layout.geometry.block_of(ppn).index();
        let page = self.layout.geometry.offset_of(ppn);
        self.blocks[block].slot.map(|slot| (block, slot, page))
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

    /// The page's mark; reading a page that is unstable or flickers changes it.
    fn use_mark(&mut self, ppn: Ppn, seq: u64) -> io::Result<Health> {
        let Mark { health, cause } = self.sick.get(&ppn.raw()).copied().unwrap_or_default();
        if let Some(after) = health.after_read() {
            let next = Mark {
                health: after,
                cause,
            };
            self.write_mark(ppn, seq, next)?;
            self.sick.insert(ppn.raw(), next);
        }
        Ok(health)
    }

    fn write_mark(&self, ppn: Ppn, seq: u64, mark: Mark) -> io::Result<()> {
        let (_, slot, page) = self.locate(ppn).expect("a page with a number has a place");
        Ok(self.disk.write_at(
            self.layout.record_at(slot, page) + Mark::AT as u64,
            &mark.encode(seq),
        )?)
    }

    /// Marks a programmed page. `cause` is the page whose interrupted program does that, if there
    /// is one.
    fn mark(&mut self, ppn: Ppn, health: Health, cause: Option<u16>) -> io::Result<()> {
        let mut record = std::mem::take(&mut self.scratch);
        let found = self.read_record(ppn, &mut record);
        self.scratch = record;
        let Some((_, _, core)) = found? else {
            return Ok(());
        };
        // Without the cause the page would be good again, which a page that was marked before must
        // not be.
        let cause = cause.filter(|_| !self.sick.contains_key(&ppn.raw()));
        let mark = Mark { health, cause };
        self.write_mark(ppn, core.seq, mark)?;
        if health == Health::Good {
            self.sick.remove(&ppn.raw());
        } else {
            self.sick.insert(ppn.raw(), mark);
        }
        Ok(())
    }

    /// One read for the records, one for the data.
    #[inline]
    fn read_run(
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
        let record_bytes = self.layout.record_bytes;
        records.resize(health.len() * record_bytes, 0);
        self.disk
            .read_at(self.layout.record_at(slot, page), records)?;
        if !data.is_empty() {
            self.disk.read_at(self.layout.data_at(slot, page), data)?;
        }
        for (i, (health, record)) in health
            .iter_mut()
            .zip(records.chunks_exact(record_bytes))
            .enumerate()
        {
            let (data, oob) = (
                &data[i * page_bytes..][..page_bytes],
                &mut oobs[i * part..][..part],
            );
            *health = self.examine(Ppn::new(first.raw() + i as u32), slot, record, data, oob)?;
        }
        Ok(())
    }

    /// Pages close to each other: their records in one read and their data in another, with what
    /// lies between them.
    fn read_near(
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
        let record_bytes = self.layout.record_bytes;
        let span = (pages[pages.len() - 1].raw() - pages[0].raw() + 1) as usize;
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
                        .split_off_mut(..gap as usize * page_bytes)
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
                &records[(ppn.raw() - pages[0].raw()) as usize * record_bytes..][..record_bytes];
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
        let core =
            Core::decode(slot, geometry.offset_of(ppn), record).filter(|core| core.seq > erase_seq);
        let oob_bytes = geometry.oob_bytes as usize;
        let kept = &record[CORE_BYTES..][..oob_bytes];
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

    /// Reads a page's record of the present life into `record`; `None` if it has none.
    fn read_record(&self, ppn: Ppn, record: &mut Vec<u8>) -> io::Result<Option<(u32, u32, Core)>> {
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

    /// Writes the records of a run into `scratch`.
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
        let (page_bytes, part) = (geometry.page_bytes as usize, oobs.len() / count as usize);
        let life = self.blocks[geometry.block_of(first).index()].erase_seq;
        let (first_seq, page) = (self.sync.last_seq() + 1, geometry.offset_of(first));
        scratch.clear();
        scratch.resize(count as usize * self.layout.record_bytes, 0);
        for (i, record) in (0u32..).zip(scratch.chunks_exact_mut(self.layout.record_bytes)) {
            let (data, oob) = (
                &data[i as usize * page_bytes..][..page_bytes],
                &oobs[i as usize * part..][..part],
            );
            let seq = first_seq + i as u64;
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
        let own = &mut record[CORE_BYTES..][..self.layout.geometry.oob_bytes as usize];
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

    /// Programs a run. All its pages get this health mark, each in the write of its record.
    fn program_run(
        &mut self,
        first: Ppn,
        count: u32,
        data: &[u8],
        oobs: &[u8],
        health: Health,
    ) -> io::Result<()> {
        self.usable()?;
        assert_eq!(
            data.len(),
            count as usize * self.layout.geometry.page_bytes as usize,
            "a program writes whole pages"
        );
        let block = self.layout.geometry.block_of(first).index();
        let page = self.layout.geometry.offset_of(first);
        if self.counts.may_hold(block, page, count) {
            return self.program_over(first, count, data, oobs, health);
        }
        self.write_pages(first, count, data, oobs, (health, None))
    }

    /// Writes pages into blank cells. `marks` are the health of each page and its tag if it was
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
                self.take_back(at, &vec![0; failed.done]);
            }
            return Err(failed.error);
        }
        self.slots.roomy[slot as usize] = true;
        self.counts.note_programs(block, page, count);
        if !self.sick.is_empty() {
            self.sick
                .retain(|&ppn, _| !(first.raw()..first.raw() + count).contains(&ppn));
        }
        if marks.0 != Health::Good {
            self.sick
                .extend((first.raw()..first.raw() + count).map(|ppn| (ppn, marks.0.into())));
        }
        self.sync.publish(self.sync.last_seq() + count as u64);
        Ok(())
    }

    /// Programs cells with a tag of any origin; a page that was blank gets this health. A page that
    /// is programmed already keeps core, OOB and data, because its operation must stay whole: only
    /// its mark says that it is lost.
    fn put(&mut self, ppn: Ppn, cells: &Cells, health: Health) -> io::Result<()> {
        self.usable()?;
        assert_eq!(
            cells.oob.len(),
            self.layout.geometry.oob_bytes as usize,
            "cells have the whole OOB"
        );
        if self.read_record(ppn, &mut Vec::new())?.is_some() {
            return self.mark(ppn, Health::Lost, None);
        }
        self.write_pages(ppn, 1, &cells.data, &cells.oob, (health, Some(cells.tag)))
    }

    /// A program of cells of which some may hold something already, page by page.
    #[cold]
    fn program_over(
        &mut self,
        first: Ppn,
        count: u32,
        data: &[u8],
        oobs: &[u8],
        health: Health,
    ) -> io::Result<()> {
        let (page_bytes, part) = (data.len() / count as usize, oobs.len() / count as usize);
        for i in 0..count {
            let ppn = Ppn::new(first.raw() + i);
            let mut oob = oobs[i as usize * part..][..part].to_vec();
            oob.resize(self.layout.geometry.oob_bytes as usize, 0xFF);
            let data = data[i as usize * page_bytes..][..page_bytes].to_vec();
            let tag = tag_of(
                ppn,
                self.blocks[self.layout.geometry.block_of(ppn).index()].erase_seq,
            );
            self.put(ppn, &Cells { data, oob, tag }, health)?;
        }
        Ok(())
    }
}

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

    fn program_as(&mut self, ppn: Ppn, data: &[u8], oob: &[u8], health: Health) -> io::Result<()> {
        self.program_run(ppn, 1, data, oob, health)
    }

    fn spoil(&mut self, by: Ppn, pages: &[(Ppn, Health)]) -> io::Result<()> {
        self.usable()?;
        let cause = self.layout.geometry.offset_of(by) as u16;
        pages
            .iter()
            .try_for_each(|(page, health)| self.mark(*page, *health, Some(cause)))
    }

    fn and_oob(&mut self, ppn: Ppn, oob: &[u8]) -> io::Result<()> {
        self.usable()?;
        assert!(
            self.layout.hints,
            "a program of OOB alone on a part that allows one program"
        );
        let mut record = std::mem::take(&mut self.scratch);
        let result = self.read_record(ppn, &mut record).and_then(|found| {
            let Some((slot, page, core)) = found else {
                return Ok(());
            };
            let oob_bytes = self.layout.geometry.oob_bytes as usize;
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
                self.layout.record_at(slot, page) + at as u64,
                &record[at..end],
            )?;
            let block = self.layout.geometry.block_of(ppn).index();
            self.counts.programs[block * self.counts.pages + page as usize] = programs;
            Ok(())
        });
        self.scratch = record;
        result
    }

    fn set_health(&mut self, ppn: Ppn, health: Health) -> io::Result<()> {
        self.usable()?;
        self.mark(ppn, health, None)
    }

    fn erase(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        self.usable()?;
        let bad = self.blocks[block.index()].facts.bad;
        self.take_slot(block.index(), BlockFacts { bad, ..facts })?;
        self.counts.clear(block.index());
        if !self.sick.is_empty() {
            self.sick
                .retain(|&ppn, _| self.layout.geometry.block_of(Ppn::new(ppn)) != block);
        }
        Ok(())
    }

    fn set_facts(&mut self, block: Pbn, facts: BlockFacts) -> io::Result<()> {
        self.usable()?;
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
            // Nothing is programmed in it, so to record facts is to erase it.
            return self.take_slot(index, facts).map(drop);
        };
        let [before, after] =
            [old, facts].map(|facts| SlotHeader::new(index as u32, erase_seq, facts));
        self.write_slot_header(slot, &after, Some(before))?;
        self.blocks[index].facts = facts;
        Ok(())
    }

    fn tag(&self, ppn: Ppn) -> Option<u32> {
        Some(tag_of(
            ppn,
            self.blocks[self.layout.geometry.block_of(ppn).index()].erase_seq,
        ))
    }

    fn cells(&mut self, ppn: Ppn) -> io::Result<Option<Cells>> {
        let mut record = Vec::new();
        let Some((slot, page, core)) = self.read_record(ppn, &mut record)? else {
            return Ok(None);
        };
        let Layout {
            hints, geometry, ..
        } = self.layout;
        let oob_bytes = geometry.oob_bytes as usize;
        let mut oob = record[CORE_BYTES..][..oob_bytes].to_vec();
        if hints && let Some((_, mask)) = Hint::decode(core.seq, &record, oob_bytes) {
            oob.iter_mut()
                .zip(mask)
                .for_each(|(have, keep)| *have &= keep);
        }
        let mut data = vec![0; geometry.page_bytes as usize];
        self.disk
            .read_at(self.layout.data_at(slot, page), &mut data)?;
        let is_lost = self
            .sick
            .get(&ppn.raw())
            .is_some_and(|mark| mark.health == Health::Lost);
        Ok(Some(Cells {
            data,
            oob,
            tag: if is_lost { NOBODY } else { core.tag },
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
        self.slots.ready(self.sync.durable_seq()) as u32
    }

    fn erase_credit_full(&self) -> u32 {
        self.layout.slots - self.layout.geometry.blocks
    }
}

impl Drop for FileStore {
    fn drop(&mut self) {
        // Handles may outlive the store; a sync of theirs must not write the header of an image
        // that somebody else has opened.
        self.sync.stop();
        self.disk.unlock();
    }
}

impl std::fmt::Debug for FileStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileStore")
            .field("path", &self.path)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}
