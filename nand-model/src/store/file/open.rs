//! Making and opening images, and what opening does after an unclean stop.
//!
//! Steps of an unclean open: read the slot headers; collect the numbers of all operations after the
//! last synced one whose record and data hold; *cut* where the first number is missing; undo
//! everything after the cut; give each block the slot whose life began last; sync, then say in the
//! header that the cut is synced, then sync again. Nothing at or below the cut changes, and an
//! operation missing once stays missing, so an interrupted open is followed by one that finds the
//! same cut.
//!
//! After a failed sync the page cache may show what the disk does not have, and the header that
//! should say so may have failed too. So an unclean open writes again what it keeps beyond the
//! synced number: the host then has to bring it to the disk. What an earlier open undid may still
//! be on the disk: the header says so before anything is undone. If it does, or if it tells of a
//! failed sync, the table, all slot headers and all records are written again, as the cut leaves
//! them. For the same reason every open writes the newest header copy again, and touches the other
//! one only when a sync has covered that.

use super::disk::{Disk, FileDisk, Mode, Overlay};
use super::sync::SyncHandle;
use super::{Block, Counts, FileStore, Slots};
use crate::image::{
    COPY_BYTES, CORE_BYTES, Core, FORMAT_VERSION, Header, HeaderFault, Hint, ImageError, ImageInfo,
    ImageSpec, Layout, Mark, NAME_BYTES_MAX, PARAMS_BYTES_MAX, SEQ_MAX, SLOT_HEADER_BYTES,
    SlotHeader, TABLE_ENTRY_BYTES, TableEntry, choose_header, is_zero,
};
use crate::store::{BlockFacts, Health};
use crc32c::crc32c;
use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// More erases than any block sees; what counts on from there must not overflow.
const ERASES_MAX: u32 = 1 << 31;

/// How an image is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// By one process alone.
    ReadWrite,
    /// Beside other readers; every change stays in memory.
    ReadOnly,
}

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Whether the image had been closed in order.
    pub was_clean: bool,
    /// Whether a sync had failed before.
    pub sync_failed: bool,
    /// Operations after the last synced one that were all there.
    pub ops_kept: u64,
    /// Operations that were undone because one before them was missing.
    pub ops_dropped: u64,
    /// How long it took.
    pub took: Duration,
}

/// What an image's header says, without locking it: it may be in use.
pub fn peek(path: impl AsRef<Path>) -> Result<ImageInfo, ImageError> {
    let path = path.as_ref();
    let disk = FileDisk::open(path, Mode::Peek)?;
    let (length, _) = disk.sizes().map_err(|e| io_error(path, "look at it", e))?;
    Ok(read_header(path, &disk, length)?.0.info)
}

impl FileStore {
    /// Makes a new image. The file must not exist; if this fails, it does not afterwards.
    pub fn create(path: impl AsRef<Path>, spec: &ImageSpec) -> Result<FileStore, ImageError> {
        let path = path.as_ref();
        let header = new_header(path, spec)?;
        let disk = FileDisk::open(path, Mode::Create)?;
        let made = layout_of(path, &header).and_then(|layout| {
            disk.set_len(layout.file_bytes)
                .map_err(|e| io_error(path, "give it its size", e))?;
            let store = FileStore::create_on(path, Arc::new(disk), header)?;
            sync_folder(path).map_err(|e| io_error(path, "sync its folder", e))?;
            Ok(store)
        });
        if made.is_err() {
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Opens an image. Read-only, nothing is written even after a crash: recovery happens in
    /// memory.
    pub fn open(
        path: impl AsRef<Path>,
        access: Access,
    ) -> Result<(FileStore, OpenReport), ImageError> {
        let path = path.as_ref();
        let mode = if access == Access::ReadOnly {
            Mode::ReadOnly
        } else {
            Mode::ReadWrite
        };
        let disk = FileDisk::open(path, mode)?;
        let (length, kept) = disk.sizes().map_err(|e| io_error(path, "look at it", e))?;
        // The table is written whole at creation. A file that keeps much less than that (some file
        // systems compress) is a sparse forgery, and no reason to allocate.
        let (header, _) = read_header(path, &disk, length)?;
        let table_bytes = layout_of(path, &header)?.table_bytes() as u64;
        if table_bytes > 1 << 20 && kept.saturating_mul(16) < table_bytes {
            return Err(damaged(path, "it keeps less than its block table".into()));
        }
        FileStore::open_on(path, Arc::new(disk), length, access)
    }

    /// Writes a new image on a disk of zeros.
    pub(super) fn create_on(
        path: &Path,
        disk: Arc<dyn Disk>,
        header: Header,
    ) -> Result<FileStore, ImageError> {
        let layout = layout_of(path, &header)?;
        let entry = TableEntry {
            slot: None,
            facts: BlockFacts::default(),
            erase_seq: 0,
            marked: false,
            counts_check: crc32c(&vec![0; layout.pages()]),
        };
        let blocks = layout.geometry.blocks as usize;
        let all: Vec<usize> = (0..blocks).collect();
        for some in all.chunks(1 << 15) {
            let bytes: Vec<u8> = some.iter().flat_map(|&block| entry.encode(block)).collect();
            disk.write_at(layout.entry_at(some[0]), &bytes)
                .map_err(|e| io_error(path, "write its block table", e.into()))?;
        }
        disk.sync().map_err(|e| io_error(path, "sync it", e))?;
        disk.write_at(layout.copy_at(0), &header.encode())
            .map_err(|e| io_error(path, "write its header", e.into()))?;
        let found = Found::new(layout, &header.info);
        FileStore::begin(path, disk, layout, header, 0, 0, found, false)
    }

    /// Opens what is on a disk of `length` bytes.
    pub(super) fn open_on(
        path: &Path,
        disk: Arc<dyn Disk>,
        length: u64,
        access: Access,
    ) -> Result<(FileStore, OpenReport), ImageError> {
        let begun = Instant::now();
        let read_only = access == Access::ReadOnly;
        let disk: Arc<dyn Disk> = if read_only {
            Arc::new(Overlay::new(disk))
        } else {
            disk
        };
        let (mut header, copy) = read_header(path, &*disk, length)?;
        let layout = layout_of(path, &header)?;
        if length < layout.file_bytes {
            return Err(ImageError::TooShort {
                path: path.into(),
                real_bytes: length,
                wanted_bytes: layout.file_bytes,
            });
        }
        let opener = Opener {
            path,
            disk: &*disk,
            layout,
            info: &header.info.clone(),
            read_only,
        };
        opener.rewrite_header(copy)?;
        let mut report = OpenReport {
            was_clean: header.info.clean,
            sync_failed: header.info.sync_failed,
            ..OpenReport::default()
        };
        let synced_seq = header.synced_seq;
        let found = if header.info.clean {
            opener.read_table(header.synced_seq)?
        } else {
            let rewrites_all = header.info.sync_failed || header.undoing;
            opener.recover(&mut header, copy, rewrites_all, &mut report)?
        };
        // The copy in the file names fewer operations than the cut keeps.
        let last_seq = std::mem::replace(&mut header.synced_seq, synced_seq);
        let store = FileStore::begin(path, disk, layout, header, copy, last_seq, found, read_only)?;
        report.took = begun.elapsed();
        Ok((store, report))
    }

    /// From here on the image is in use: the header says so, on the disk, before the first request.
    /// `last_seq` is the last operation in the file; `header` says what of that is synced.
    #[expect(
        clippy::too_many_arguments,
        reason = "the parts of a store, as creation and opening find them"
    )]
    fn begin(
        path: &Path,
        disk: Arc<dyn Disk>,
        layout: Layout,
        mut header: Header,
        copy: usize,
        last_seq: u64,
        found: Found,
        read_only: bool,
    ) -> Result<FileStore, ImageError> {
        let info = header.info.clone();
        (header.info.sync_failed, header.undoing) = (false, false);
        // If this fails, nobody knows which header copy is on the disk, so neither may change.
        disk.sync().map_err(|e| io_error(path, "sync it", e))?;
        let sync = SyncHandle::new(disk.clone(), layout, header, copy, last_seq);
        sync.say_clean(false)
            .map_err(|e| io_error(path, "sync it", e.into()))?;
        let Found {
            blocks,
            counts,
            sick,
            slots,
        } = found;
        let path = path.to_path_buf();
        let (trimmed_seq, scratch) = (0, Vec::new());
        Ok(FileStore {
            disk,
            sync,
            path,
            info,
            layout,
            read_only,
            blocks,
            counts,
            sick,
            slots,
            trimmed_seq,
            scratch,
            unwanted: Vec::new(),
        })
    }
}

/// What an image holds, as kept in memory.
struct Found {
    blocks: Vec<Block>,
    counts: Counts,
    sick: HashMap<u32, Mark>,
    slots: Slots,
}

impl Found {
    /// Nothing ever programmed.
    fn new(layout: Layout, info: &ImageInfo) -> Self {
        let slots = Slots {
            blank: (0..layout.slots).rev().collect(),
            roomy: vec![false; layout.slots as usize],
            ..Slots::default()
        };
        let blocks = vec![Block::default(); layout.geometry.blocks as usize];
        Found {
            blocks,
            counts: Counts::new(info),
            sick: HashMap::new(),
            slots,
        }
    }
}

/// Reads an image that is not in use yet.
struct Opener<'a> {
    path: &'a Path,
    disk: &'a dyn Disk,
    layout: Layout,
    info: &'a ImageInfo,
    /// Whether nothing reaches the file.
    read_only: bool,
}

impl Opener<'_> {
    /// A clean image: the table says everything.
    fn read_table(&self, synced_seq: u64) -> Result<Found, ImageError> {
        let mut found = Found::new(self.layout, self.info);
        let mut counts = vec![0; self.layout.pages()];
        for (block, entry) in self.read_entries()?.into_iter().enumerate() {
            self.read(self.layout.counts_at(block), &mut counts)?;
            let bad_count = counts.iter().any(|&n| n > self.info.profile.nop);
            if bad_count || crc32c(&counts) != entry.counts_check {
                return Err(damaged(
                    self.path,
                    format!("program counts of block {block} fail their check"),
                ));
            }
            found.counts.set(block, &counts);
            let no_slot = entry.slot.is_some_and(|slot| slot >= self.layout.slots);
            let pages_nowhere = entry.slot.is_none() && !is_zero(&counts);
            if no_slot
                || pages_nowhere
                || entry.erase_seq > synced_seq
                || entry.facts.erase_count > ERASES_MAX
            {
                return Err(damaged(
                    self.path,
                    format!("table entry of block {block} contradicts the header"),
                ));
            }
            found.blocks[block] = Block {
                slot: entry.slot,
                facts: entry.facts,
                erase_seq: entry.erase_seq,
            };
            if let Some(slot) = entry.slot.filter(|_| entry.marked) {
                let meta = self.read_meta(slot)?;
                self.collect(block, slot, entry.erase_seq, synced_seq, &meta, &mut found)?;
            }
        }
        self.sort_slots(&mut found)?;
        Ok(found)
    }

    /// Says in the header that operations are being undone; nothing beyond `synced_seq` is synced
    /// yet. `copy` is its newest copy, which has to be on the disk before the other one is
    /// overwritten.
    fn say_undoing(
        &self,
        header: &mut Header,
        copy: usize,
        synced_seq: u64,
    ) -> Result<(), ImageError> {
        if self.read_only {
            return Ok(());
        }
        self.disk
            .sync()
            .map_err(|e| io_error(self.path, "sync it", e))?;
        header.undoing = true;
        header.generation += 1;
        let said = Header {
            synced_seq,
            ..header.clone()
        };
        self.write(self.layout.copy_at(1 - copy), &said.encode())
    }

    /// After an unclean stop: see the module's header. Leaves `header` with the cut as synced
    /// number; the caller syncs and writes it. `copy` is its newest copy.
    fn recover(
        &self,
        header: &mut Header,
        copy: usize,
        rewrites_all: bool,
        report: &mut OpenReport,
    ) -> Result<Found, ImageError> {
        let heads = self.read_heads()?;
        let synced_seq = header.synced_seq;
        let mut late = vec![false; heads.len()];
        let cut = self.find_cut(synced_seq, &heads, &mut late, header.info.sync_failed)?;
        header.synced_seq = cut;
        report.ops_kept = cut - synced_seq;

        let mut found = Found::new(self.layout, self.info);
        for (block, entry) in self.read_entries()?.into_iter().enumerate() {
            found.blocks[block].facts.bad = entry.facts.bad;
        }
        for (slot, head) in (0..).zip(&heads) {
            let Some(head) = head.filter(|head| head.erase_seq <= cut) else {
                continue;
            };
            let block = &mut found.blocks[head.block as usize];
            if block.slot.is_none() || head.erase_seq > block.erase_seq {
                *block = Block {
                    slot: Some(slot),
                    facts: head.facts(block.facts.bad),
                    erase_seq: head.erase_seq,
                };
                // A block that was programmed in an hour says that the device has come so far.
                header.hour = header.hour.max(head.since);
            }
        }
        let undone = self.beyond(cut, &heads, &late)?;
        report.ops_dropped = undone.len() as u64;
        if !undone.is_empty() {
            self.say_undoing(header, copy, synced_seq)?;
        }
        for (at, bytes) in undone {
            self.write(at, &[0; SLOT_HEADER_BYTES][..bytes])?;
        }
        if !self.read_only {
            if rewrites_all {
                self.rewrite_table()?;
            }
            for (slot, head) in (0..).zip(&heads) {
                if late[slot as usize] || head.is_some_and(|head| head.erase_seq > synced_seq) {
                    self.rewrite_late(slot, synced_seq)?;
                } else if rewrites_all {
                    self.rewrite_meta(slot)?;
                }
            }
        }
        for block in 0..found.blocks.len() {
            let Block {
                slot, erase_seq, ..
            } = found.blocks[block];
            if let Some(slot) = slot {
                let meta = self.read_meta(slot)?;
                self.collect(block, slot, erase_seq, cut, &meta, &mut found)?;
            }
        }
        self.sort_slots(&mut found)?;
        Ok(found)
    }

    fn read_heads(&self) -> Result<Vec<Option<SlotHeader>>, ImageError> {
        let mut heads = Vec::with_capacity(self.layout.slots as usize);
        let mut bytes = [0; SLOT_HEADER_BYTES];
        for slot in 0..self.layout.slots {
            self.read(self.layout.slot_at(slot), &mut bytes)?;
            let head =
                SlotHeader::decode(slot, &bytes).map_err(|reason| damaged(self.path, reason))?;
            if let Some(head) = head {
                let sane = head.block < self.layout.geometry.blocks
                    && head.erase_count <= ERASES_MAX
                    && (1..=SEQ_MAX).contains(&head.erase_seq);
                if !sane {
                    return Err(damaged(
                        self.path,
                        format!("header of slot {slot} says what cannot be"),
                    ));
                }
            }
            heads.push(head);
        }
        Ok(heads)
    }

    /// The last operation of the unbroken sequence. Fills in which slots have records beyond the
    /// synced number.
    fn find_cut(
        &self,
        synced_seq: u64,
        heads: &[Option<SlotHeader>],
        late: &mut [bool],
        trust_synced_only: bool,
    ) -> Result<u64, ImageError> {
        // Every operation beyond the synced number has a place of its own in the file, so there are
        // no more than places.
        let places = self.layout.slots as u64 * (self.layout.pages() as u64 + 1);
        let mut seen = Seen {
            from: synced_seq + 1,
            bits: vec![0; (places / 64 + 1) as usize],
        };
        let mut data = Vec::new();
        for (slot, head) in (0..).zip(heads) {
            if let Some(head) = head {
                seen.insert(head.erase_seq);
            }
            let meta = self.read_meta(slot)?;
            let core = |page| Core::decode(slot, page as u32, self.layout.record_in(&meta, page));
            let is_late = |&page: &usize| core(page).is_some_and(|core| core.seq > synced_seq);
            let mut page = 0;
            while let Some(first) = (page..self.layout.pages()).find(is_late) {
                late[slot as usize] = true;
                // Some at a time: one read for all, still small enough for the processor's cache.
                page = (first..self.layout.pages().min(first + 32))
                    .find(|page| !is_late(page))
                    .unwrap_or(first + 32);
                page = page.min(self.layout.pages());
                if !trust_synced_only {
                    self.note_whole(slot, first..page, &meta, &mut data, &mut seen)?;
                }
            }
        }
        Ok(if trust_synced_only {
            synced_seq
        } else {
            seen.unbroken()
        })
    }

    /// Notes the operations of these pages of which all is in the file.
    fn note_whole(
        &self,
        slot: u32,
        pages: Range<usize>,
        meta: &[u8],
        data: &mut Vec<u8>,
        seen: &mut Seen,
    ) -> Result<(), ImageError> {
        let geometry = self.layout.geometry;
        data.resize(pages.len() * geometry.page_bytes as usize, 0);
        self.read(self.layout.data_at(slot, pages.start as u32), data)?;
        for (page, data) in pages.zip(data.chunks_exact(geometry.page_bytes as usize)) {
            let record = self.layout.record_in(meta, page);
            let oob = &record[CORE_BYTES..][..geometry.oob_bytes as usize];
            let core = Core::decode(slot, page as u32, record);
            let whole =
                |core: &Core| crc32c(oob) == core.oob_check && crc32c(data) == core.data_check;
            if let Some(core) = core.filter(whole) {
                seen.insert(core.seq);
            }
        }
        Ok(())
    }

    /// Place and length of what says that an operation beyond the cut was: their numbers will be
    /// given again.
    fn beyond(
        &self,
        cut: u64,
        heads: &[Option<SlotHeader>],
        late: &[bool],
    ) -> Result<Vec<(u64, usize)>, ImageError> {
        let mut places = Vec::new();
        for ((slot, head), late) in (0..).zip(heads).zip(late) {
            if head.is_some_and(|head| head.erase_seq > cut) {
                places.push((self.layout.slot_at(slot), SLOT_HEADER_BYTES));
            }
            if *late {
                let meta = self.read_meta(slot)?;
                let core = |page: u32| {
                    Core::decode(slot, page, self.layout.record_in(&meta, page as usize))
                };
                let gone = (0..self.layout.pages() as u32)
                    .filter(|page| core(*page).is_some_and(|c| c.seq > cut));
                places.extend(gone.map(|page| (self.layout.record_at(slot, page), CORE_BYTES)));
            }
        }
        Ok(places)
    }

    /// Writes the newest header copy as it reads: after a failed sync the page cache may have it
    /// and the disk may not.
    fn rewrite_header(&self, copy: usize) -> Result<(), ImageError> {
        if self.read_only {
            return Ok(());
        }
        let mut bytes = vec![0; COPY_BYTES];
        self.read(self.layout.copy_at(copy), &mut bytes)?;
        self.write_again(self.layout.copy_at(copy), &bytes)
    }

    fn rewrite_table(&self) -> Result<(), ImageError> {
        let mut table = vec![0; self.layout.table_bytes()];
        self.read(self.layout.table_at(), &mut table)?;
        self.write_again(self.layout.table_at(), &table)
    }

    /// Writes a slot's header and records as they read. A hole is left alone: what a free slot held
    /// before it was punched belongs to lives that ended at or below the synced number.
    fn rewrite_meta(&self, slot: u32) -> Result<(), ImageError> {
        if !self.holds_data(slot, self.layout.meta_bytes() as u64) {
            return Ok(());
        }
        let meta = self.read_meta(slot)?;
        self.write_again(self.layout.slot_at(slot), &meta)
    }

    /// Writes the pages of operations beyond the synced number as they read, then header and
    /// records.
    fn rewrite_late(&self, slot: u32, synced_seq: u64) -> Result<(), ImageError> {
        let meta = self.read_meta(slot)?;
        let mut data = vec![0; self.layout.geometry.page_bytes as usize];
        for page in 0..self.layout.pages() {
            let core = Core::decode(slot, page as u32, self.layout.record_in(&meta, page));
            if core.is_some_and(|core| core.seq > synced_seq) {
                let at = self.layout.data_at(slot, page as u32);
                self.read(at, &mut data)?;
                self.write_again(at, &data)?;
            }
        }
        self.write_again(self.layout.slot_at(slot), &meta)
    }

    /// Notes what a block's slot says about its pages. Takes marks back whose cause was undone.
    fn collect(
        &self,
        block: usize,
        slot: u32,
        erase_seq: u64,
        cut: u64,
        meta: &[u8],
        found: &mut Found,
    ) -> Result<(), ImageError> {
        let mut marks = Vec::new();
        let mut counts = vec![0; self.layout.pages()];
        for (page, count) in counts.iter_mut().enumerate() {
            let record = self.layout.record_in(meta, page);
            let core = Core::decode(slot, page as u32, record)
                .filter(|core| core.seq > erase_seq && core.seq <= cut);
            let Some(core) = core else { continue };
            *count = 1;
            if self.layout.hints
                && let Some((programs, _)) =
                    Hint::decode(core.seq, record, self.layout.geometry.oob_bytes as usize)
            {
                *count = programs.min(self.info.profile.nop);
            }
            let mark = Mark::decode(core.seq, record);
            if mark.health != Health::Good {
                marks.push((page as u32, mark));
            }
        }
        for (page, mark) in marks {
            let stands = |cause: u16| counts.get(cause as usize).is_some_and(|count| *count > 0);
            if mark.cause.is_none_or(stands) {
                let ppn = self
                    .layout
                    .geometry
                    .page(crate::addr::Pbn::new(block as u32), page);
                found.sick.insert(ppn.raw(), mark);
            } else {
                // A later program of that page must not bring the mark back.
                self.write(self.layout.record_at(slot, page) + Mark::AT as u64, &[0; 8])?;
            }
        }
        found.counts.set(block, &counts);
        Ok(())
    }

    /// Splits the slots no block lives in by whether the host keeps room for them.
    fn sort_slots(&self, found: &mut Found) -> Result<(), ImageError> {
        let slots = &mut found.slots;
        slots.blank.clear();
        for block in found.blocks.iter() {
            let Some(slot) = block.slot else { continue };
            match slots.roomy.get_mut(slot as usize) {
                Some(taken) if !*taken => *taken = true,
                _ => {
                    return Err(damaged(
                        self.path,
                        format!("slot {slot} belongs to two blocks or is none"),
                    ));
                }
            }
        }
        for slot in (0..self.layout.slots)
            .rev()
            .filter(|&slot| !slots.roomy[slot as usize])
            .collect::<Vec<_>>()
        {
            if self.holds_data(slot, self.layout.slot_bytes()) {
                slots.roomy[slot as usize] = true;
                slots.used.push_back(slot);
            } else {
                slots.blank.push(slot);
            }
        }
        Ok(())
    }

    fn read_entries(&self) -> Result<Vec<TableEntry>, ImageError> {
        let mut bytes = vec![0; self.layout.table_bytes()];
        self.read(self.layout.table_at(), &mut bytes)?;
        let entries = bytes.chunks_exact(TABLE_ENTRY_BYTES).enumerate();
        let entries = entries.map(|(block, bytes)| TableEntry::decode(block, bytes));
        entries
            .collect::<Result<_, _>>()
            .map_err(|reason| damaged(self.path, reason))
    }

    /// Slot header and records; holes are not read.
    fn read_meta(&self, slot: u32) -> Result<Vec<u8>, ImageError> {
        let mut meta = vec![0; self.layout.meta_bytes()];
        if self.holds_data(slot, meta.len() as u64) {
            self.read(self.layout.slot_at(slot), &mut meta)?;
        }
        Ok(meta)
    }

    /// Whether the host keeps room for some of the first bytes of a slot.
    fn holds_data(&self, slot: u32, bytes: u64) -> bool {
        let at = self.layout.slot_at(slot);
        self.disk
            .next_data(at)
            .is_some_and(|data| data < at + bytes)
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), ImageError> {
        self.disk
            .read_at(at, bytes)
            .map_err(|e| io_error(self.path, "read it", e))
    }

    /// Writes, or leaves what was there: a part of a header would be taken for damage by the next
    /// open.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), ImageError> {
        let mut before = vec![0; bytes.len()];
        self.read(at, &mut before)?;
        let Err(failed) = self.disk.write_at(at, bytes) else {
            return Ok(());
        };
        if failed.done > 0 {
            // If that fails too, the first error says what is wrong with the disk.
            let _ = self.disk.write_at(at, &before[..failed.done]);
        }
        Err(io_error(self.path, "write it", failed.into()))
    }

    /// Writes what the file reads as already: a part of it changes nothing.
    fn write_again(&self, at: u64, bytes: &[u8]) -> Result<(), ImageError> {
        self.disk
            .write_at(at, bytes)
            .map_err(|failed| io_error(self.path, "write it", failed.into()))
    }
}

/// Which numbers of a range occurred.
struct Seen {
    from: u64,
    bits: Vec<u64>,
}

impl Seen {
    fn insert(&mut self, seq: u64) {
        if let Some(i) = seq.checked_sub(self.from)
            && let Some(word) = self.bits.get_mut((i / 64) as usize)
        {
            *word |= 1 << (i % 64);
        }
    }

    /// The last number before the first that is missing.
    fn unbroken(&self) -> u64 {
        let full = self
            .bits
            .iter()
            .take_while(|&&word| word == u64::MAX)
            .count();
        let rest = self.bits.get(full).map_or(0, |word| word.trailing_ones());
        self.from + full as u64 * 64 + rest as u64 - 1
    }
}

pub(super) fn new_header(path: &Path, spec: &ImageSpec) -> Result<Header, ImageError> {
    let bad = |reason: String| ImageError::BadSpec {
        path: path.into(),
        reason,
    };
    if spec.scheme.len() > NAME_BYTES_MAX || spec.profile.name.len() > NAME_BYTES_MAX {
        return Err(bad(format!("a name of more than {NAME_BYTES_MAX} bytes")));
    }
    if spec.params.len() > PARAMS_BYTES_MAX {
        return Err(bad(format!(
            "{} bytes of scheme parameters, at most {PARAMS_BYTES_MAX} fit",
            spec.params.len()
        )));
    }
    spec.profile.geometry.validate().map_err(bad)?;
    let mut uuid = [0; 16];
    let mut random = std::fs::File::open("/dev/urandom")
        .map_err(|e| io_error(path, "get random bytes for it", e))?;
    random
        .read_exact(&mut uuid)
        .map_err(|e| io_error(path, "get random bytes for it", e))?;
    let info = ImageInfo {
        uuid,
        profile: spec.profile,
        size: spec.size,
        scheme: spec.scheme.clone(),
        params: spec.params.clone(),
        version: FORMAT_VERSION,
        clean: false,
        sync_failed: false,
    };
    let spare_slots = Layout::spare_slots_for(&spec.profile.geometry);
    let header = Header {
        info,
        generation: 1,
        synced_seq: 0,
        spare_slots,
        hour: 0,
        undoing: false,
    };
    // What cannot be read back must not be written.
    match choose_header([&header.encode(), &[0; COPY_BYTES]]) {
        Ok(_) => Ok(header),
        Err(HeaderFault::Contradiction(reason)) => Err(bad(reason)),
        Err(fault) => Err(bad(format!("{fault:?}"))),
    }
}

fn read_header(path: &Path, disk: &dyn Disk, length: u64) -> Result<(Header, usize), ImageError> {
    let mut copies = vec![0; 2 * COPY_BYTES];
    let real = copies
        .len()
        .min(usize::try_from(length).unwrap_or(usize::MAX));
    disk.read_at(0, &mut copies[..real])
        .map_err(|e| io_error(path, "read its header", e))?;
    let (first, second) = copies.split_at(COPY_BYTES);
    choose_header([first, second]).map_err(|fault| match fault {
        HeaderFault::NotAnImage => ImageError::NotAnImage(path.into()),
        HeaderFault::Damaged => ImageError::HeaderDamaged(path.into()),
        HeaderFault::Version(found) => ImageError::UnknownVersion {
            path: path.into(),
            found,
            known: FORMAT_VERSION,
        },
        HeaderFault::Contradiction(reason) => ImageError::Contradiction {
            path: path.into(),
            reason,
        },
    })
}

fn layout_of(path: &Path, header: &Header) -> Result<Layout, ImageError> {
    let profile = &header.info.profile;
    let layout = Layout::new(profile.geometry, profile.nop, header.spare_slots);
    layout.map_err(|reason| ImageError::Contradiction {
        path: path.into(),
        reason,
    })
}

/// A new file survives a host crash only with its name.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    std::fs::File::open(folder)?.sync_all()
}

fn io_error(path: &Path, action: &'static str, source: io::Error) -> ImageError {
    ImageError::Io {
        path: path.into(),
        action,
        source,
    }
}

fn damaged(path: &Path, reason: String) -> ImageError {
    ImageError::Damaged {
        path: path.into(),
        reason,
    }
}
