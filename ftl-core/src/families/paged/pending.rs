//! Changes of the map that its pages on flash do not contain yet.
//!
//! An entry is *dirty* while its update flag is set: the map on flash does not contain it. Dirty
//! entries are also listed per mapping page, so that a write-back finds all of them without a
//! search. They are counted per block and mapping page, which gives the conversion cost of every
//! block.

use crate::format::UNMAPPED;
use crate::ram::{hash_bytes, hash_most, vec_bytes, vec_most};
use nand_model::{Geometry, Pbn, Ppn};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Pending entry of a logical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    ppn: u32,
    /// The map on flash does not contain the entry yet.
    pub(crate) update: bool,
    /// The page that the map on flash names is still counted as valid.
    pub(crate) invalidate: bool,
}

impl Entry {
    /// Returns the location of the page; `None` for a tombstone.
    #[inline]
    pub(crate) fn ppn(&self) -> Option<Ppn> {
        (self.ppn != UNMAPPED).then(|| Ppn::new(self.ppn))
    }
}

/// A block, open or full, that may contain pages missing from the map on flash.
#[derive(Clone, Debug)]
pub(crate) struct BufferBlock {
    pub(crate) epoch: u64,
    /// Logical page by programmed page.
    lpns: Vec<u32>,
    /// Distinct mapping pages of its dirty entries: the programs of its conversion.
    pub(crate) cost: u32,
}

/// Dirty entries of one mapping page.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dirty {
    pub(crate) lpns: Vec<u32>,
    /// The mapping page on flash contains all changes before this program.
    pub(crate) since: u64,
}

/// Pending entries with their reverse indexes.
pub(crate) struct Pending {
    geometry: Geometry,
    /// Entries per mapping page.
    per_page: u32,
    /// Whether an entry stays after its write-back, until its block is converted.
    keeps_clean: bool,
    entries: FxHashMap<u32, Entry>,
    dirty: FxHashMap<u32, Dirty>,
    /// Dirty entries by block and mapping page.
    counts: FxHashMap<(u32, u32), u32>,
    blocks: FxHashMap<u32, BufferBlock>,
    /// The same blocks by ascending epoch. Blocks are added as they are opened, and most leave from
    /// the front.
    by_epoch: VecDeque<(u64, u32)>,
    tombstones: u32,
}

impl Pending {
    pub(crate) fn new(geometry: Geometry, keeps_clean: bool) -> Self {
        Pending {
            geometry,
            keeps_clean,
            per_page: geometry.page_bytes / 4,
            entries: FxHashMap::default(),
            dirty: FxHashMap::default(),
            counts: FxHashMap::default(),
            blocks: FxHashMap::default(),
            by_epoch: VecDeque::new(),
            tombstones: 0,
        }
    }

    #[inline]
    pub(crate) fn get(&self, lpn: u32) -> Option<Entry> {
        self.entries.get(&lpn).copied()
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = (u32, Entry)> {
        self.entries.iter().map(|(lpn, entry)| (*lpn, *entry))
    }

    pub(crate) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(crate) fn tombstones(&self) -> u32 {
        self.tombstones
    }

    pub(crate) fn dirty(&self, vtpn: u32) -> Option<&Dirty> {
        self.dirty.get(&vtpn)
    }

    /// Returns the mapping pages with dirty entries, ascending.
    pub(crate) fn dirty_pages(&self) -> Vec<u32> {
        let mut pages: Vec<u32> = self.dirty.keys().copied().collect();
        pages.sort_unstable();
        pages
    }

    /// Returns the mapping page with the most dirty entries.
    pub(crate) fn dirtiest(&self) -> Option<u32> {
        self.dirty
            .iter()
            .max_by_key(|(vtpn, dirty)| (dirty.lpns.len(), **vtpn))
            .map(|(vtpn, _)| *vtpn)
    }

    pub(crate) fn blocks(&self) -> impl Iterator<Item = (Pbn, &BufferBlock)> {
        self.blocks
            .iter()
            .map(|(block, buffer)| (Pbn::new(*block), buffer))
    }

    /// Returns the block with the lowest epoch, and that epoch.
    pub(crate) fn oldest_block(&self) -> Option<(Pbn, u64)> {
        self.by_epoch
            .front()
            .map(|(epoch, block)| (Pbn::new(*block), *epoch))
    }

    pub(crate) fn holds(&self, block: Pbn) -> bool {
        self.blocks.contains_key(&block.raw())
    }

    pub(crate) fn block_count(&self) -> u32 {
        self.blocks.len() as u32
    }

    /// Adds a block with pages missing from the map on flash.
    pub(crate) fn add_block(&mut self, block: Pbn, epoch: u64) {
        let lpns = Vec::with_capacity(self.geometry.pages_per_block as usize);
        let known = self.blocks.insert(
            block.raw(),
            BufferBlock {
                epoch,
                lpns,
                cost: 0,
            },
        );
        assert!(known.is_none(), "block {block} is already a buffer block");
        let entry = (epoch, block.raw());
        let at = self.by_epoch.partition_point(|other| *other < entry);
        self.by_epoch.insert(at, entry);
    }

    /// Points a logical page at its new location, or at none, and returns the old entry. Sets the
    /// update flag. The invalidate flag is inherited, or else `fresh`. `seq` is not larger than the
    /// number of the program behind the change.
    pub(crate) fn update_entry(
        &mut self,
        lpn: u32,
        to: Option<Ppn>,
        fresh: bool,
        seq: u64,
    ) -> Option<Entry> {
        let vtpn = lpn / self.per_page;
        let old = self.get(lpn);
        let entry = Entry {
            ppn: to.map_or(UNMAPPED, Ppn::raw),
            update: true,
            invalidate: old.map_or(fresh, |old| old.invalidate),
        };
        self.entries.insert(lpn, entry);
        if let Some(old) = old {
            self.uncount(old, vtpn);
        }
        if !old.is_some_and(|old| old.update) {
            self.dirty
                .entry(vtpn)
                .or_insert(Dirty {
                    lpns: Vec::new(),
                    since: seq,
                })
                .lpns
                .push(lpn);
        }
        match to {
            Some(ppn) => self.count(ppn, lpn, vtpn),
            None => self.tombstones += 1,
        }
        old
    }

    fn count(&mut self, ppn: Ppn, lpn: u32, vtpn: u32) {
        let (block, offset) = (
            self.geometry.block_of(ppn).raw(),
            self.geometry.offset_of(ppn) as usize,
        );
        let buffer = self
            .blocks
            .get_mut(&block)
            .expect("a new page is in a buffer block");
        if buffer.lpns.len() <= offset {
            buffer.lpns.resize(offset + 1, UNMAPPED);
        }
        buffer.lpns[offset] = lpn;
        let count = self.counts.entry((block, vtpn)).or_insert(0);
        *count += 1;
        buffer.cost += (*count == 1) as u32;
    }

    /// Updates the counts for an entry that is no longer dirty, or no longer exists.
    fn uncount(&mut self, old: Entry, vtpn: u32) {
        let Some(ppn) = old.ppn() else {
            self.tombstones -= 1;
            return;
        };
        if !old.update {
            return;
        }
        let block = self.geometry.block_of(ppn).raw();
        let count = self
            .counts
            .get_mut(&(block, vtpn))
            .expect("dirty entries are counted by block and mapping page");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&(block, vtpn));
            self.blocks
                .get_mut(&block)
                .expect("dirty pages are in buffer blocks")
                .cost -= 1;
        }
    }

    /// Clears the invalidate flag: the page that the map on flash names is already invalid.
    pub(crate) fn clear_invalidate(&mut self, lpn: u32) {
        self.entries
            .get_mut(&lpn)
            .expect("a superseded page has a pending entry")
            .invalidate = false;
    }

    /// Marks the written changes of a mapping page as clean; `left` are still missing on flash.
    pub(crate) fn clean(&mut self, vtpn: u32, written: &[u32], left: Vec<u32>) {
        for &lpn in written {
            let old = self.get(lpn).expect("dirty entries are pending");
            self.uncount(old, vtpn);
            match old.ppn() {
                Some(_) if self.keeps_clean => self.entries.insert(
                    lpn,
                    Entry {
                        update: false,
                        invalidate: false,
                        ..old
                    },
                ),
                _ => self.entries.remove(&lpn),
            };
        }
        if left.is_empty() {
            self.dirty.remove(&vtpn);
        } else {
            self.dirty
                .get_mut(&vtpn)
                .expect("a mapping page with dirty entries is listed")
                .lpns = left;
        }
    }

    /// Removes an entry of a mapping page that was trimmed as a whole. [`Pending::forget_dirty`]
    /// then removes the list of dirty entries.
    pub(crate) fn forget(&mut self, lpn: u32) -> Option<Entry> {
        let old = self.entries.remove(&lpn)?;
        self.uncount(old, lpn / self.per_page);
        Some(old)
    }

    /// Removes the list of dirty entries of a mapping page. See [`Pending::forget`].
    pub(crate) fn forget_dirty(&mut self, vtpn: u32) {
        self.dirty.remove(&vtpn);
    }

    /// Returns the mapping pages to write before this block can be converted, ascending.
    pub(crate) fn pages_to_write(&self, block: Pbn) -> Vec<u32> {
        let buffer = self.buffer(block);
        let mut pages = Vec::new();
        if buffer.cost > 0 {
            let dirty = self
                .tracked(block, buffer)
                .filter(|(_, entry)| entry.update);
            pages.extend(dirty.map(|(lpn, _)| lpn / self.per_page));
            pages.sort_unstable();
            pages.dedup();
        }
        debug_assert_eq!(
            pages.len(),
            buffer.cost as usize,
            "block {block}: mapping pages to write"
        );
        pages
    }

    fn buffer(&self, block: Pbn) -> &BufferBlock {
        (self.blocks.get(&block.raw())).expect("the block is a buffer block")
    }

    /// Returns the entries that point into a block.
    fn tracked(&self, block: Pbn, buffer: &BufferBlock) -> impl Iterator<Item = (u32, Entry)> {
        let first = self.geometry.page(block, 0);
        (buffer.lpns.iter().zip(first.raw()..)).filter_map(|(&lpn, here)| {
            self.get(lpn)
                .filter(|entry| entry.ppn == here)
                .map(|entry| (lpn, entry))
        })
    }

    /// Removes a block: the map on flash contains all its entries. Those are still pending only if
    /// clean entries are kept.
    pub(crate) fn remove_block(&mut self, block: Pbn) {
        let buffer = self.buffer(block);
        assert_eq!(
            buffer.cost, 0,
            "block {block} is removed, but has dirty entries"
        );
        let by_epoch = (buffer.epoch, block.raw());
        if self.keeps_clean {
            let clean: Vec<(u32, Entry)> = self.tracked(block, buffer).collect();
            for (lpn, entry) in clean {
                assert!(
                    !entry.update,
                    "block {block} is removed, but the entry of logical page {lpn} is dirty"
                );
                self.entries.remove(&lpn);
            }
        }
        self.blocks.remove(&block.raw());
        let at = self.by_epoch.partition_point(|other| *other < by_epoch);
        let removed = self.by_epoch.remove(at);
        assert_eq!(
            removed,
            Some(by_epoch),
            "block {block} is not listed by epoch"
        );
    }

    /// Returns the logical page that was written here, if the block is not converted yet.
    pub(crate) fn lpn_at(&self, ppn: Ppn) -> Option<u32> {
        let buffer = self.blocks.get(&self.geometry.block_of(ppn).raw())?;
        buffer
            .lpns
            .get(self.geometry.offset_of(ppn) as usize)
            .copied()
            .filter(|lpn| *lpn != UNMAPPED)
    }

    /// Compares the indexes with the entries. Returns one line per difference.
    pub(crate) fn audit(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut counts: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        let mut dirty: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        let mut tombstones = 0;
        for (lpn, entry) in self.entries() {
            let vtpn = lpn / self.per_page;
            tombstones += entry.ppn().is_none() as u32;
            if entry.update {
                dirty.entry(vtpn).or_default().push(lpn);
                if let Some(ppn) = entry.ppn() {
                    *counts
                        .entry((self.geometry.block_of(ppn).raw(), vtpn))
                        .or_default() += 1;
                }
            }
            if entry.ppn().is_none() && !entry.update {
                wrong.push(format!("tombstone of logical page {lpn} is not dirty"));
            }
        }
        if counts != self.counts || tombstones != self.tombstones {
            wrong.push(format!(
                "the counts of dirty entries by block and mapping page differ, or {tombstones} tombstones exist and {} are counted",
                self.tombstones
            ));
        }
        let mut blocks: Vec<_> = (self.blocks())
            .map(|(block, buffer)| (buffer.epoch, block.raw()))
            .collect();
        blocks.sort_unstable();
        if !self.by_epoch.iter().eq(&blocks) {
            wrong.push(format!(
                "blocks are {blocks:?}, listed by epoch are {:?}",
                self.by_epoch
            ));
        }
        for (block, buffer) in self.blocks() {
            let cost = counts.keys().filter(|(b, _)| *b == block.raw()).count() as u32;
            if cost != buffer.cost {
                wrong.push(format!(
                    "block {block}: conversion cost is {cost}, but {} is counted",
                    buffer.cost
                ));
            }
        }
        if dirty.len() != self.dirty.len() {
            wrong.push(format!(
                "{} mapping pages are dirty, {} are listed",
                dirty.len(),
                self.dirty.len()
            ));
        }
        for (vtpn, mut lpns) in dirty {
            let mut listed = self.dirty.get(&vtpn).map_or(Vec::new(), |d| d.lpns.clone());
            lpns.sort_unstable();
            listed.sort_unstable();
            if lpns != listed {
                wrong.push(format!(
                    "mapping page {vtpn}: dirty entries are {lpns:?}, listed are {listed:?}"
                ));
            }
        }
        wrong
    }

    /// Returns the allocated bytes of the table and of its indexes.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let list = |lpns: &Vec<u32>| vec_bytes::<u32>(lpns.capacity());
        let lists: u64 = self.dirty.values().map(|dirty| list(&dirty.lpns)).sum();
        let reverse: u64 = self.blocks.values().map(|block| list(&block.lpns)).sum();
        let indexes = hash_bytes::<u32, Dirty>(self.dirty.capacity())
            + hash_bytes::<(u32, u32), u32>(self.counts.capacity())
            + hash_bytes::<u32, BufferBlock>(self.blocks.capacity())
            + vec_bytes::<(u64, u32)>(self.by_epoch.capacity());
        let table = hash_bytes::<u32, Entry>(self.entries.capacity());
        (table, indexes + lists + reverse)
    }

    /// Returns the same at most, with this many entries, blocks with pending pages, and mapping
    /// pages of the device.
    pub(crate) fn bytes_most(&self, entries: u64, blocks: u64, map_pages: u64) -> (u64, u64) {
        let dirty = map_pages.min(entries);
        let pages = self.geometry.pages_per_block as u64;
        // A list is at least 4 entries long, and grows to twice its length.
        let lists = vec_most::<u32>(entries) + dirty * 16;
        let indexes = hash_most::<u32, Dirty>(dirty)
            + hash_most::<(u32, u32), u32>(entries)
            + hash_most::<u32, BufferBlock>(blocks)
            + vec_most::<(u64, u32)>(blocks)
            + blocks * pages * 4;
        (hash_most::<u32, Entry>(entries), indexes + lists)
    }
}
