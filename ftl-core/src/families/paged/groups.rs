//! Groups of consecutive logical pages, each with blocks of its own, and their rewriting in the
//! order of addresses (LearnedFTL's group-based allocation).
//!
//! Writes and copies of a group go to one stream (`gc.placement=groups`). When one group has enough
//! invalid pages, it is rewritten: all its pages are copied in the order of their addresses, a part
//! each time the host needs a block, so that no write waits for a whole group. Blocks of the last
//! rewriting have this order already: each part empties its own, and the last part those that the
//! host has filled since. So rewriting takes hardly more free blocks than it gives back at once.
//!
//! Rewriting frees space besides GC, which still selects the emptiest block whenever blocks are
//! short. Nothing relies on a block having pages of one group only. A mount begins without
//! knowledge of groups.

use super::policy::Policy;
use super::state::{MAP, PagedFtl};
use crate::block_table::{BlockTable, State};
use crate::error::FtlError;
use crate::gc::GarbageCollect;
use crate::gc::policy::{self, HostWrite, PageCopy};
use crate::int::low_u8;
use crate::ram::{vec_bytes, vec_most};
use nand_model::{Cause, Geometry, Pbn, Ppn};
use std::ops::Range;

/// Rewriting a group frees, per copied page, at least what GC of the emptiest block would, divided
/// by this. Groups in turn free twice as much as all at once, so the first one may free less.
const WORTH: u64 = 4;

/// Returns the logical pages of a group: whole mapping pages.
pub(crate) fn pages_of_group(geometry: &Geometry, logical_pages: u32, groups: u32) -> u32 {
    let per_page = geometry.page_bytes / 4;
    logical_pages.div_ceil(per_page).div_ceil(groups).max(1) * per_page
}

/// The placement: a stream for each group, of its writes and copies. With one group, copies are
/// apart.
pub(crate) struct Placement {
    /// Logical pages of a group.
    pages: u32,
    groups: u32,
}

impl Placement {
    pub(crate) fn new(geometry: &Geometry, logical_pages: u32, groups: u32) -> Self {
        let pages = pages_of_group(geometry, logical_pages, groups.max(1));
        let groups = logical_pages.div_ceil(pages).max(1);
        Placement { pages, groups }
    }
}

impl policy::Policy for Placement {
    fn streams(&self) -> (u32, u32) {
        match self.groups {
            1 => (1, 1),
            groups => (groups, 0),
        }
    }

    fn stream_of_write(&mut self, write: &HostWrite) -> u32 {
        match self.groups {
            1 => 0,
            _ => write.lpn.raw() / self.pages,
        }
    }

    fn stream_of_copy(&mut self, copy: &PageCopy) -> u32 {
        match (self.groups, copy.lpn) {
            (1, _) => 1,
            (_, Some(lpn)) => lpn.raw() / self.pages,
            (_, None) => copy.stream,
        }
    }

    fn needs_every_page(&self) -> bool {
        false
    }

    fn needs_age(&self) -> bool {
        false
    }

    fn needs_replaced(&self) -> bool {
        false
    }
}

/// The groups of a device, and the one that is being rewritten.
#[derive(Default)]
pub(crate) struct Groups {
    /// Logical pages of a group; 0 without groups.
    pages: u32,
    /// Logical pages that remain to be rewritten.
    rest: Range<u32>,
    /// Parts that are rewritten when the host needs a block.
    parts_at_once: u32,
    /// The pages of a part.
    list: Vec<Ppn>,
}

impl Groups {
    /// Creates the state of this many groups; fewer than 2 switch them off.
    pub(super) fn new(geometry: &Geometry, logical_pages: u32, groups: u32) -> Self {
        if groups < 2 {
            return Groups::default();
        }
        Groups {
            pages: pages_of_group(geometry, logical_pages, groups),
            ..Groups::default()
        }
    }

    /// Returns whether there are groups.
    pub(super) fn are_on(&self) -> bool {
        self.pages > 0
    }

    /// Records that a page of this block was programmed: the block is now of the page's group.
    #[inline]
    pub(super) fn note(&self, table: &mut BlockTable, block: Pbn, lpn: u32) {
        if let Some(group) = lpn.checked_div(self.pages) {
            table.set_group(block, low_u8(group.into()));
        }
    }

    /// Returns how many of `count` pages from `lpn` on are in its group; 1 without groups.
    pub(super) fn run_of_write(&self, lpn: u32, count: u32) -> u32 {
        match lpn.checked_rem(self.pages) {
            None => 1,
            Some(at) => count.min(self.pages - at),
        }
    }

    /// Returns the bytes of the list: now, and at most.
    pub(super) fn bytes(&self, pages_per_block: u32) -> (u64, u64) {
        let most = match self.pages {
            0 => 0,
            _ => vec_most::<Ppn>(pages_per_block.into()),
        };
        (vec_bytes::<Ppn>(self.list.capacity()), most)
    }
}

impl<P: Policy> PagedFtl<P> {
    /// Rewrites parts of a group before the host gets a block, if a group is worth it.
    pub(super) fn rewrite_groups(&mut self) -> Result<(), FtlError> {
        let is_off = !self.map.groups.are_on();
        if is_off || self.space.is_mounting() || self.space.failing_block().is_some() {
            return Ok(());
        }
        if self.map.groups.rest.is_empty() {
            self.choose_group();
        }
        for _ in 0..self.map.groups.parts_at_once {
            if !self.rewrite_part()? {
                break;
            }
        }
        Ok(())
    }

    /// Chooses the group with the most invalid pages, when about as many blocks are free as it
    /// would free. The host gets these while the group is rewritten.
    fn choose_group(&mut self) {
        let Some(emptiest) = self.space.table.greedy_victim() else {
            return;
        };
        let (space, pages) = (&self.space, u64::from(self.space.pages_per_block()));
        let valid = u64::from(space.table.valid_count(emptiest));
        let all = (0..).zip(space.table.invalid_by_group().iter().copied());
        let Some((group, invalid)) = all.max_by_key(|(group, invalid)| (*invalid, !*group)) else {
            return;
        };
        let (of_group, gained) = (u64::from(self.map.groups.pages), invalid / pages);
        let free = u64::from(space.free_besides_kept() + space.released_blocks());
        let is_due = free <= u64::from(self.gc.threshold) + gained;
        if is_due && gained > 0 && WORTH * invalid * valid >= of_group * (pages - valid) {
            let first = group * self.map.groups.pages;
            self.map.groups.rest = first..(first + self.map.groups.pages).min(self.logical_pages);
            self.map.groups.parts_at_once = of_group.div_ceil(pages * gained) as u32;
        }
    }

    /// Copies the next part of the group: at most a block of pages of one mapping page. A part that
    /// is stored in order is not copied. Returns false if the group is done, or blocks are short.
    fn rewrite_part(&mut self) -> Result<bool, FtlError> {
        let Range { start, end } = self.map.groups.rest.clone();
        if start >= end {
            return Ok(false);
        }
        let pages = self.map.pages_of(start / self.map.per_page());
        let part = start..end.min(pages.end).min(start + self.space.pages_per_block());
        // The copies may open two blocks, each after a conversion, which may open another.
        let needed = 4 + self.space.blocks_for(MAP, 1);
        if self.space.free_blocks() <= self.gc.reserve + needed {
            return Ok(false);
        }
        self.map.groups.rest.start = part.end;
        let mut list = std::mem::take(&mut self.map.groups.list);
        let outcome = self.stalled_by(Cause::Gc, |ftl| {
            ftl.list_places(part, &mut list)?;
            ftl.copy_in_order(&list)
        });
        self.map.groups.list = list;
        match outcome {
            // The mapping page is lost. No request asked for it.
            Err(FtlError::MediaLost(_)) => {
                self.map.groups.rest = 0..0;
                Ok(false)
            }
            other => other.map(|()| true),
        }
    }

    /// Lists the locations of the mapped pages among these, in their order.
    fn list_places(&mut self, part: Range<u32>, list: &mut Vec<Ppn>) -> Result<(), FtlError> {
        list.clear();
        let mut is_loaded = false;
        for lpn in part {
            if !self.map.mapped.has(lpn) {
                continue;
            }
            let pending = self.map.pending.get(lpn).map(|entry| entry.ppn());
            let place = match pending.or_else(|| self.map.policy.peek(lpn)) {
                Some(known) => known,
                None => {
                    let (map, space) = (&mut self.map, &mut self.space);
                    let (vtpn, index) = (lpn / map.per_page(), lpn % map.per_page());
                    if !is_loaded {
                        map.load_map_page(space, vtpn, false, Cause::GcTranslation)?;
                        is_loaded = true;
                    }
                    map.loaded_entry(space, index)
                }
            };
            list.extend(place);
        }
        Ok(())
    }

    /// Copies these pages, unless they lie in order, and releases the blocks that become empty.
    fn copy_in_order(&mut self, list: &[Ppn]) -> Result<(), FtlError> {
        let geometry = self.space.geometry();
        let follows =
            |pair: &[Ppn]| pair[1].raw() == pair[0].raw() + 1 || geometry.offset_of(pair[1]) == 0;
        let Some(first) = list.first().filter(|_| !list.windows(2).all(follows)) else {
            return Ok(());
        };
        let first = geometry.block_of(*first);
        let pages = &mut self.gc.pages;
        pages.load_pages(&mut self.space, list, Cause::Gc)?;
        let moved = self.move_data_pages(first, Cause::Gc)?;
        self.gc.note_run(u64::from(moved));
        for ppn in list {
            let block = geometry.block_of(*ppn);
            let table = &self.space.table;
            if table.state(block) == State::Full && table.valid_count(block) == 0 {
                self.release_block(block);
            }
        }
        self.space.erase_released(Cause::Gc).map(|_| ())
    }
}
