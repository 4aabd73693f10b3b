//! The table of pending entries.

use super::blocks::{Blocks, BufferBlock};
use super::list::{Change, Entry, List, MOST_ENTRIES};
use crate::format::UNMAPPED;
use crate::ram::vec_bytes;
use nand_model::{Geometry, PageSplit, Pbn, Ppn};

/// Pending entries with their reverse index.
pub(crate) struct Pending {
    pub(super) split: PageSplit,
    pub(super) pages_per_block: u32,
    /// Entries per mapping page.
    pub(super) per_page: u32,
    /// Whether an entry stays after its write-back, until its block is converted.
    pub(super) keeps_clean: bool,
    /// Entries by mapping page.
    pub(super) lists: Vec<List>,
    /// One bit per logical page: whether it has an entry. Most lookups find none.
    pub(super) present: Vec<u64>,
    pub(super) blocks: Blocks,
    pub(super) entries: u32,
    pub(super) tombstones: u32,
    /// Number of the last walk. A walk visits lists or blocks, and counts each of them once.
    pub(super) walks: u64,
}

impl Pending {
    /// Creates an empty table for this many mapping pages.
    pub(crate) fn new(geometry: Geometry, map_pages: u32, keeps_clean: bool) -> Self {
        let per_page = geometry.page_bytes / 4;
        assert!(
            per_page <= MOST_ENTRIES,
            "mapping pages have {per_page} entries, at most {MOST_ENTRIES} can be pending"
        );
        Pending {
            split: geometry.split(),
            pages_per_block: geometry.pages_per_block,
            per_page,
            keeps_clean,
            lists: (0..map_pages).map(|_| List::default()).collect(),
            present: vec![0; (map_pages as usize * per_page as usize).div_ceil(64)],
            blocks: Blocks::new(&geometry),
            entries: 0,
            tombstones: 0,
            walks: 0,
        }
    }

    /// Returns mapping page and index in it of a logical page.
    #[inline]
    fn place(&self, lpn: u32) -> (usize, u16) {
        let vtpn = lpn / self.per_page;
        (vtpn as usize, (lpn - vtpn * self.per_page) as u16)
    }

    /// Returns whether a logical page has an entry.
    #[inline]
    pub(crate) fn has(&self, lpn: u32) -> bool {
        self.present[lpn as usize / 64] >> (lpn % 64) & 1 == 1
    }

    #[inline]
    pub(crate) fn get(&self, lpn: u32) -> Option<Entry> {
        if !self.has(lpn) {
            return None;
        }
        let (vtpn, index) = self.place(lpn);
        self.lists[vtpn].get(index)
    }

    /// Iterates over all entries, by mapping page.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u32, Entry)> {
        (0..).zip(&self.lists).flat_map(|(vtpn, list)| {
            let first = vtpn * self.per_page;
            let entries = list.entries();
            entries.map(move |(index, entry)| (first + u32::from(index), entry))
        })
    }

    pub(crate) fn len(&self) -> u32 {
        self.entries
    }

    pub(crate) fn tombstones(&self) -> u32 {
        self.tombstones
    }

    /// Returns the number of dirty entries of a mapping page.
    #[inline]
    pub(crate) fn dirty(&self, vtpn: u32) -> u32 {
        self.lists[vtpn as usize].dirty()
    }

    /// Returns a program before which the mapping page on flash contains all changes. The mapping
    /// page has dirty entries.
    pub(crate) fn dirty_since(&self, vtpn: u32) -> u64 {
        self.lists[vtpn as usize].since()
    }

    /// Iterates over the dirty entries of a mapping page, in an order that lasts until the next
    /// addition or removal.
    pub(crate) fn changes(&self, vtpn: u32) -> impl Iterator<Item = Change> {
        self.lists[vtpn as usize].changes()
    }

    /// Iterates over the mapping pages with dirty entries, ascending.
    fn dirty_lists(&self) -> impl Iterator<Item = (u32, u32)> {
        let dirty = (0..).zip(&self.lists).map(|(vtpn, l)| (vtpn, l.dirty()));
        dirty.filter(|(_, dirty)| *dirty > 0)
    }

    /// Returns the mapping pages with dirty entries, ascending.
    pub(crate) fn dirty_pages(&self) -> Vec<u32> {
        self.dirty_lists().map(|(vtpn, _)| vtpn).collect()
    }

    /// Returns the mapping page with the most dirty entries.
    pub(crate) fn dirtiest(&self) -> Option<u32> {
        self.dirty_lists()
            .max_by_key(|(vtpn, dirty)| (*dirty, *vtpn))
            .map(|(vtpn, _)| vtpn)
    }

    /// Iterates over the blocks that may contain pages missing from the map on flash, by ascending
    /// epoch.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = (Pbn, &BufferBlock)> {
        self.blocks.iter()
    }

    /// Returns the block with the lowest epoch, and that epoch.
    pub(crate) fn oldest_block(&self) -> Option<(Pbn, u64)> {
        self.blocks.oldest()
    }

    #[inline]
    pub(crate) fn holds(&self, block: Pbn) -> bool {
        self.blocks.get(block).is_some()
    }

    pub(crate) fn block_count(&self) -> u32 {
        self.blocks.len()
    }

    /// Adds a block with pages missing from the map on flash.
    pub(crate) fn add_block(&mut self, block: Pbn, epoch: u64) {
        self.blocks.add(block, epoch, self.pages_per_block);
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
        let (vtpn, index) = self.place(lpn);
        let (list, ppn) = (&mut self.lists[vtpn], to.map_or(UNMAPPED, Ppn::raw));
        let (word, bit) = (&mut self.present[lpn as usize / 64], 1 << (lpn % 64));
        let old = if *word & bit == 0 {
            *word |= bit;
            self.entries += 1;
            list.add(index, ppn, fresh, seq);
            None
        } else {
            let (at, old) = list.replace(index, ppn, seq);
            match old.ppn() {
                None => self.tombstones -= 1,
                Some(ppn) => {
                    let (block, split) = (self.split.block_of(ppn), self.split);
                    let is_last = || !list.has_other_in(at, block, split);
                    self.blocks
                        .forget(ppn, old.update.then_some(is_last), split);
                }
            }
            Some(old)
        };
        match to {
            None => self.tombstones += 1,
            Some(ppn) => self.blocks.note(ppn, lpn, self.split),
        }
        old
    }

    /// Clears the invalidate flag: the page that the map on flash names is already invalid.
    pub(crate) fn clear_invalidate(&mut self, lpn: u32) {
        let (vtpn, index) = self.place(lpn);
        self.lists[vtpn].clear_invalidate(index);
    }

    /// Marks the dirty entries of a mapping page as written, except those at the indexes `left`, in
    /// the order of [`Self::changes`]: the mapping page on flash does not contain these.
    pub(crate) fn clean(&mut self, vtpn: u32, left: &[u16]) {
        self.walks += 1;
        let (number, split) = (self.walks, self.split);
        let first = vtpn * self.per_page;
        let (list, blocks) = (&mut self.lists[vtpn as usize], &mut self.blocks);
        // A block with an entry that is left keeps the mapping page in its cost.
        for index in left {
            let entry = list.get(*index).expect("an entry that is left is pending");
            if let Some(ppn) = entry.ppn() {
                blocks.visit(split.block_of(ppn), number);
            }
        }
        let (tombstones, present) = (&mut self.tombstones, &mut self.present);
        let keeps_clean = self.keeps_clean;
        let removed = list.clean(left, |index, ppn| {
            match ppn {
                Some(ppn) => blocks.clean(ppn, number, keeps_clean, split),
                None => *tombstones -= 1,
            }
            let stays = keeps_clean && ppn.is_some();
            if !stays {
                clear(present, first + u32::from(index));
            }
            stays
        });
        self.entries -= removed;
    }

    /// Removes all entries of a mapping page that was trimmed as a whole.
    pub(crate) fn forget_page(&mut self, vtpn: u32) {
        self.clean(vtpn, &[]);
        let first = vtpn * self.per_page;
        let (blocks, present, split) = (&mut self.blocks, &mut self.present, self.split);
        let removed = self.lists[vtpn as usize].remove_clean(|index, ppn| {
            clear(present, first + u32::from(index));
            blocks.forget(ppn, None::<fn() -> bool>, split);
            true
        });
        self.entries -= removed;
    }

    /// Replaces `pages` by the mapping pages to write before this block can be converted,
    /// ascending.
    pub(crate) fn list_pages_to_write(&self, block: Pbn, pages: &mut Vec<u32>) {
        let buffer = (self.blocks.get(block)).expect("the block is a buffer block");
        pages.clear();
        pages.extend(buffer.dirty_lpns().map(|lpn| lpn / self.per_page));
        pages.sort_unstable();
        pages.dedup();
        debug_assert!(
            buffer
                .known_cost()
                .is_none_or(|cost| cost as usize == pages.len()),
            "block {block}: mapping pages to write"
        );
    }

    /// Counts the conversion costs of these blocks, as far as they are not known. Such a block gets
    /// no more pages.
    pub(crate) fn count_costs(&mut self, wanted: impl Fn(Pbn) -> bool) {
        let (per_page, lists, number) = (self.per_page, &mut self.lists, &mut self.walks);
        self.blocks.count_costs(wanted, |lpns| {
            *number += 1;
            let is_new = |lpn: &u32| lists[(lpn / per_page) as usize].visit(*number);
            lpns.filter(is_new).count() as u32
        });
    }

    /// Removes a block: the map on flash contains all its entries. Those are still pending only if
    /// clean entries are kept.
    pub(crate) fn remove_block(&mut self, block: Pbn) {
        self.walks += 1;
        let (per_page, split, number) = (self.per_page, self.split, self.walks);
        let (lists, present) = (&mut self.lists, &mut self.present);
        let mut removed = 0;
        let buffer = (self.blocks.get(block)).expect("the block is a buffer block");
        assert_eq!(
            buffer.dirty(),
            0,
            "block {block} is removed, but has dirty entries"
        );
        for lpn in buffer.lpns() {
            let vtpn = lpn / per_page;
            let list = &mut lists[vtpn as usize];
            if list.is_short() {
                removed += list.remove_one((lpn - vtpn * per_page) as u16);
                clear(present, lpn);
            } else if list.visit(number) {
                removed += list.remove_clean(|index, ppn| {
                    let is_here = split.block_of(ppn) == block;
                    if is_here {
                        clear(present, vtpn * per_page + u32::from(index));
                    }
                    is_here
                });
            }
        }
        self.entries -= removed;
        self.blocks.remove(block);
    }

    /// Returns the logical page whose entry names this page.
    pub(crate) fn lpn_at(&self, ppn: Ppn) -> Option<u32> {
        let buffer = self.blocks.get(self.split.block_of(ppn))?;
        buffer.lpn_at(self.split.offset_of(ppn))
    }

    /// Returns the allocated bytes of the lists and of the reverse index.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let lists: u64 = self.lists.iter().map(List::bytes).sum();
        (self.fixed_bytes() + lists, self.blocks.bytes())
    }

    /// Returns the maximum that [`Self::bytes`] may return, with this many entries and blocks with
    /// pending pages.
    pub(crate) fn bytes_most(&self, entries: u64, blocks: u64) -> (u64, u64) {
        let lists = self.lists.len() as u64;
        (
            self.fixed_bytes() + List::bytes_most(entries, lists),
            self.blocks.bytes_most(blocks, self.pages_per_block),
        )
    }

    fn fixed_bytes(&self) -> u64 {
        vec_bytes::<List>(self.lists.capacity()) + vec_bytes::<u64>(self.present.capacity())
    }
}

#[inline]
fn clear(bits: &mut [u64], lpn: u32) {
    bits[lpn as usize / 64] &= !(1 << (lpn % 64));
}
