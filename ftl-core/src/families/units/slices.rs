//! Cleaning in slices: a full block that holds a page which is not valid waits in a queue, and each
//! request does a bounded piece of its collection, so that none has to wait for a whole one. A
//! slice is one erase, or a few copies, or as many pages of filler. While a unit's block is being
//! cleaned, or as long as it is full, the unit's writes go to the common blocks.
//!
//! What always holds: the queue and the block under way are hints in RAM. A slice moves pages as
//! any collection does, and a collection that was left is the victim with fewer live pages. So
//! another one may take the block over, and if power fails, mount finds copies of equal version and
//! a block that is worth collecting.

use super::{COMMON, Policy, UnitFtl};
use crate::convert::{index, to_u64};
use crate::error::FtlError;
use crate::gc::Collect;
use crate::space::StreamId;
use nand_model::{Cause, Nanos, Pbn, Store};
use std::collections::VecDeque;

/// Released blocks that may wait for their erase before slices program the filler that they wait
/// for.
const MAX_WAITING: u32 = 2;

/// Free blocks beyond the threshold that are made when slices could not keep up: then they have
/// room to begin again.
pub(super) const HEADROOM: u32 = 2;

/// How long a slice may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slicing {
    /// Pages that it copies, or programs as filler.
    pub(crate) pages: u32,
    /// What no slice exceeds.
    pub(crate) slot_ns: Nanos,
    /// Whether every request waits for the end of its slot, whatever there was to do.
    pub(crate) always: bool,
}

/// Blocks to clean in slices.
pub(super) struct Slices {
    pub(super) how: Slicing,
    /// In the order in which they became worth it; those that are [`Slices::queued`] no more are
    /// passed over.
    queue: VecDeque<Pbn>,
    /// By block.
    queued: Vec<bool>,
    /// A block to move for another reason, before all others.
    urgent: Option<(Pbn, Cause)>,
    under_way: Option<(Pbn, Cause)>,
}

impl Slices {
    pub(super) fn new(how: Slicing, blocks: u32) -> Self {
        Slices {
            how,
            queue: VecDeque::new(),
            queued: vec![false; index(blocks)],
            urgent: None,
            under_way: None,
        }
    }

    fn add(&mut self, block: Pbn) {
        if !self.is_under_way(block) && !std::mem::replace(&mut self.queued[block.index()], true) {
            self.queue.push_back(block);
        }
    }

    /// The block was given up.
    pub(super) fn remove(&mut self, block: Pbn) {
        self.queued[block.index()] = false;
        self.urgent = self.urgent.filter(|(urgent, _)| *urgent != block);
        self.under_way = self.under_way.filter(|(under_way, _)| *under_way != block);
    }

    fn is_under_way(&self, block: Pbn) -> bool {
        self.under_way
            .is_some_and(|(under_way, _)| under_way == block)
    }

    /// The block to begin with: the urgent one, else the first of the queue.
    fn begin_next(&mut self) -> Option<(Pbn, Cause)> {
        while self.urgent.is_none() {
            let block = self.queue.pop_front()?;
            if std::mem::take(&mut self.queued[block.index()]) {
                self.urgent = Some((block, Cause::Gc));
            }
        }
        self.under_way = self.urgent.take();
        self.under_way
    }

    /// Bytes really allocated.
    pub(super) fn bytes(&self) -> u64 {
        to_u64(self.queued.len() + 4 * self.queue.capacity())
    }
}

impl<S: Store, P: Policy> UnitFtl<S, P> {
    /// The slice of one request, before it is served.
    #[inline]
    pub(super) fn take_slice(&mut self) -> Result<(), FtlError> {
        let Some(Slicing {
            slot_ns, always, ..
        }) = self.map.slices.as_ref().map(|slices| slices.how)
        else {
            return Ok(());
        };
        let end = self.space.flash.now() + slot_ns;
        let outcome = if self.gc.is_read_only() {
            Ok(None)
        } else {
            self.clean_a_slice()
        };
        if always {
            let now = self.space.flash.now();
            self.space.flash.begin(now.max(end));
        }
        outcome.map(drop)
    }

    /// The same before a read, which is served whatever becomes of the slice: what keeps cleaning
    /// from going on keeps writes from it, too.
    #[inline]
    pub(super) fn take_slice_of_read(&mut self) -> Result<(), FtlError> {
        match self.take_slice() {
            Err(FtlError::PowerLost) => Err(FtlError::PowerLost),
            _ => Ok(()),
        }
    }

    /// Does one slice of cleaning. Returns how many pages it moved, or `None` if there is nothing
    /// to do.
    pub(super) fn clean_a_slice(&mut self) -> Result<Option<u32>, FtlError> {
        let Some(Slicing { pages, .. }) = self.map.slices.as_ref().map(|slices| slices.how) else {
            return Ok(None);
        };
        let victim = self.victim_of_slice()?;
        let waiting = self.space.released_blocks();
        if waiting > 0 && self.space.reclaim_one(Cause::Gc)? {
            return Ok(Some(0));
        }
        if waiting > MAX_WAITING && self.space.hurry_oldest(pages)? > 0 {
            return Ok(Some(0));
        }
        let Some((victim, cause)) = victim else {
            return Ok(None);
        };
        // What a new home takes from the free blocks comes back with the old one.
        if self.blocks_to_move(victim) > 0 && self.space.free_blocks() <= self.gc.threshold {
            return Ok(None);
        }
        let mut buffer = std::mem::take(&mut self.gc.pages);
        let moved = self.copy_live_pages(victim, &mut buffer, pages, cause);
        self.gc.pages = buffer;
        match moved {
            Ok(moved) => {
                self.gc.note_moved(victim, moved, cause);
                Ok(Some(moved))
            }
            Err(error) => {
                self.map.at_hand.forget();
                Err(error)
            }
        }
    }

    /// The block whose live pages the slice moves, and why. Those that have none any more go.
    fn victim_of_slice(&mut self) -> Result<Option<(Pbn, Cause)>, FtlError> {
        while let Some((block, cause)) = self.block_under_way()? {
            let collectable = self.space.table.is_collectable(block);
            if collectable && self.space.table.valid(block) == 0 {
                if cause == Cause::Gc {
                    self.collect(block)?
                } else {
                    self.evacuate(block, cause)?
                };
            } else if collectable && (cause != Cause::Gc || self.is_worth_cleaning(block)) {
                return Ok(Some((block, cause)));
            } else if let Some(slices) = &mut self.map.slices {
                slices.under_way = None;
            }
        }
        Ok(None)
    }

    fn block_under_way(&mut self) -> Result<Option<(Pbn, Cause)>, FtlError> {
        let Some(slices) = &mut self.map.slices else {
            return Ok(None);
        };
        if slices.under_way.is_some() {
            return Ok(slices.under_way);
        }
        let next = slices.begin_next();
        if let Some((block, Cause::Wear)) = next {
            self.set_cold_apart(block)?;
        }
        Ok(next)
    }

    /// Whether this block can be the next one to move in slices: it is not yet, and no other one
    /// waits for that.
    pub(super) fn may_move_in_slices(&self, block: Pbn) -> bool {
        self.map
            .slices
            .as_ref()
            .is_some_and(|slices| slices.urgent.is_none() && !slices.is_under_way(block))
    }

    /// Moves this block next, in slices. Returns how many pages were moved so far.
    pub(super) fn move_in_slices(&mut self, block: Pbn, cause: Cause) -> u32 {
        assert!(
            self.may_move_in_slices(block),
            "another block waits before {block}"
        );
        if let Some(slices) = &mut self.map.slices {
            slices.urgent = Some((block, cause));
        }
        0
    }

    /// Whether cleaning a block gives back more than the filler that it may cost.
    fn is_worth_cleaning(&self, block: Pbn) -> bool {
        let table = &self.space.table;
        table.is_collectable(block)
            && table.valid(block) + self.space.most_filler() < self.space.geometry().pages_per_block
    }

    /// A page of the block is valid no more, or it was filled: it may have become worth cleaning.
    #[inline]
    pub(super) fn note_block(&mut self, block: Pbn) {
        let worth_it = self.map.slices.is_some() && self.is_worth_cleaning(block);
        if let Some(slices) = self.map.slices.as_mut().filter(|_| worth_it) {
            slices.add(block);
        }
    }

    /// Finds out what there is to clean.
    pub(super) fn note_all_blocks(&mut self) {
        if self.map.slices.is_some() {
            let mut blocks: Vec<Pbn> = self.space.geometry().all_blocks().collect();
            blocks.sort_by_key(|block| self.space.table.epoch(*block));
            blocks.into_iter().for_each(|block| self.note_block(block));
        }
    }

    /// Whether this block is being cleaned in slices.
    pub(super) fn is_under_way(&self, block: Pbn) -> bool {
        self.map
            .slices
            .as_ref()
            .is_some_and(|slices| slices.is_under_way(block))
    }

    /// Where a page of this unit goes that the host writes: home, or while that is full or being
    /// cleaned, to the common blocks.
    pub(super) fn stream_of_write(&mut self, unit: u32) -> StreamId {
        let home = self.stream_of(unit);
        let Some(slices) = &self.map.slices else {
            return home;
        };
        if slices
            .under_way
            .is_some_and(|(block, _)| self.map.lists.owner(block) == Some(unit))
        {
            return COMMON;
        }
        if self.space.room(home) > 0 {
            return home;
        }
        if self.map.lists.length(unit) == 0 && self.space.free_blocks() > self.gc.threshold {
            return home;
        }
        let blocks: Vec<Pbn> = self.map.lists.blocks(unit).collect();
        blocks.into_iter().for_each(|block| self.note_block(block));
        COMMON
    }
}
