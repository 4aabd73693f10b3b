//! Cleaning in slices: full blocks with enough invalid pages wait in a queue. Each request runs a
//! bounded slice of GC, so that no request waits for a whole GC run. A slice is one erase, or at
//! most [`Slicing::pages`] copies or padding pages. While a unit's block is being cleaned, or while
//! it is full, the unit's writes go to the common blocks.
//!
//! Invariants: the queue and the block in progress are hints in RAM. A slice relocates pages as any
//! GC run does, and an unfinished GC run leaves a victim with fewer valid pages. So another GC run
//! may take over the block. If power fails, mount finds copies of equal version and a block worth
//! cleaning.

use super::policy::Policy;
use super::state::{COMMON, UnitFtl, Units, stream_of};
use crate::error::FtlError;
use crate::gc::GarbageCollect;
use crate::int::{index, to_u64};
use crate::ram::{vec_bytes, vec_most};
use crate::space::{Space, StreamId};
use nand_model::{Cause, Nanos, Pbn};
use std::collections::VecDeque;

/// Released blocks that may wait for their erase before slices program the padding that they need.
const MAX_WAITING: u32 = 2;

/// Free blocks beyond the threshold that GC frees when slices could not keep up, so that slices can
/// start again.
pub(super) const HEADROOM: u32 = 2;

/// Limits of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slicing {
    /// Copies or padding pages of one slice.
    pub(crate) pages: u32,
    /// Upper bound of the duration of a slice.
    pub(crate) slot_ns: Nanos,
    /// Whether every request waits for the end of its slot, even if no work was due.
    pub(crate) always: bool,
}

/// Blocks to clean in slices.
pub(super) struct Slices {
    pub(super) how: Slicing,
    /// In the order in which they became worth cleaning. Blocks without [`Slices::queued`] are
    /// skipped.
    queue: VecDeque<Pbn>,
    /// By block: whether it is queued.
    queued: Vec<bool>,
    /// A block to relocate for another reason than GC, ahead of the queue.
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
        if !self.is_in_progress(block) && !std::mem::replace(&mut self.queued[block.index()], true)
        {
            self.queue.push_back(block);
        }
    }

    /// Removes a released block.
    pub(super) fn remove(&mut self, block: Pbn) {
        self.queued[block.index()] = false;
        self.urgent = self.urgent.filter(|(urgent, _)| *urgent != block);
        self.under_way = self.under_way.filter(|(under_way, _)| *under_way != block);
    }

    fn is_in_progress(&self, block: Pbn) -> bool {
        self.under_way
            .is_some_and(|(under_way, _)| under_way == block)
    }

    /// Starts the next block: the urgent one, else the first of the queue.
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

    /// Returns the bytes of the queue: now, and at most. Of a block's places in it, the last is
    /// current, and another may be outdated.
    pub(super) fn ram(&self) -> (u64, u64) {
        let queued = vec_bytes::<bool>(self.queued.capacity());
        (
            queued + vec_bytes::<Pbn>(self.queue.capacity()),
            queued + vec_most::<Pbn>(2 * to_u64(self.queued.len())),
        )
    }
}

impl<P: Policy> Units<P> {
    /// Returns whether this block can be the next one to relocate in slices: it is not in progress,
    /// and no other block is urgent.
    pub(super) fn may_move_in_slices(&self, block: Pbn) -> bool {
        self.slices
            .as_ref()
            .is_some_and(|slices| slices.urgent.is_none() && !slices.is_in_progress(block))
    }

    /// Makes this block the next one to relocate in slices. Returns 0, the pages relocated so far.
    pub(super) fn move_in_slices(&mut self, block: Pbn, cause: Cause) -> u32 {
        assert!(
            self.may_move_in_slices(block),
            "block {block} is being relocated in slices, or another block is urgent"
        );
        if let Some(slices) = &mut self.slices {
            slices.urgent = Some((block, cause));
        }
        0
    }

    /// Returns whether cleaning a block frees more pages than the padding that it may cost.
    fn is_worth_cleaning(&self, space: &Space, block: Pbn) -> bool {
        let table = &space.table;
        table.is_collectable(block)
            && table.valid_count(block) + space.most_padding() < space.geometry().pages_per_block
    }

    /// Queues the block if it has become worth cleaning. To be called when the block is full or has
    /// one valid page less.
    #[inline]
    pub(super) fn note_block(&mut self, space: &Space, block: Pbn) {
        let worth_it = self.slices.is_some() && self.is_worth_cleaning(space, block);
        if let Some(slices) = self.slices.as_mut().filter(|_| worth_it) {
            slices.add(block);
        }
    }

    /// Queues all blocks that are worth cleaning.
    pub(super) fn note_all_blocks(&mut self, space: &Space) {
        if self.slices.is_some() {
            let mut blocks: Vec<Pbn> = space.geometry().all_blocks().collect();
            blocks.sort_by_key(|block| space.table.epoch(*block));
            blocks
                .into_iter()
                .for_each(|block| self.note_block(space, block));
        }
    }

    /// Returns whether this block is being cleaned in slices.
    pub(super) fn is_under_way(&self, block: Pbn) -> bool {
        self.slices
            .as_ref()
            .is_some_and(|slices| slices.is_in_progress(block))
    }
}

impl<P: Policy> UnitFtl<P> {
    /// Runs the slice of a request, before the request is served.
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
            self.stalled_by(Cause::Gc, Self::clean_a_slice)
        };
        if always {
            let now = self.space.flash.now();
            self.space.flash.begin(now.max(end));
        }
        outcome.map(drop)
    }

    /// Executes a slice before a read. The read is served even if the slice fails, because any
    /// error that stops cleaning stops writes, too. Only a power loss fails the read.
    #[inline]
    pub(super) fn take_slice_of_read(&mut self) -> Result<(), FtlError> {
        match self.take_slice() {
            Err(FtlError::PowerLost) => Err(FtlError::PowerLost),
            _ => Ok(()),
        }
    }

    /// Runs one slice of cleaning. Returns the number of relocated pages, or `None` if there is no
    /// work.
    pub(super) fn clean_a_slice(&mut self) -> Result<Option<u32>, FtlError> {
        let Some(Slicing { pages, .. }) = self.map.slices.as_ref().map(|slices| slices.how) else {
            return Ok(None);
        };
        let victim = self.victim_of_slice()?;
        let waiting = self.space.released_blocks();
        if waiting > 0 && self.space.erase_one_released(Cause::Gc)? {
            return Ok(Some(0));
        }
        if waiting > MAX_WAITING && self.space.pad_oldest_released(pages)? > 0 {
            return Ok(Some(0));
        }
        let Some((victim, cause)) = victim else {
            return Ok(None);
        };
        // The copies may open a free block, which comes back only with the erase of the victim.
        if self.blocks_to_move(victim) > 0 && self.space.free_blocks() <= self.gc.threshold {
            return Ok(None);
        }
        match self.copy_valid(victim, pages, cause) {
            Ok(moved) => {
                self.gc.note_relocated(victim, moved, cause);
                Ok(Some(moved))
            }
            Err(error) => {
                self.map.cached_unit.forget();
                Err(error)
            }
        }
    }

    /// Returns the block whose valid pages the slice relocates, and the cause. Releases blocks in
    /// progress that have no valid pages left.
    fn victim_of_slice(&mut self) -> Result<Option<(Pbn, Cause)>, FtlError> {
        while let Some((block, cause)) = self.block_under_way()? {
            let collectable = self.space.table.is_collectable(block);
            if collectable && self.space.table.valid_count(block) == 0 {
                if cause == Cause::Gc {
                    self.collect(block)?
                } else {
                    self.evacuate(block, cause)?
                };
            } else if collectable
                && (cause != Cause::Gc || self.map.is_worth_cleaning(&self.space, block))
            {
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
            self.use_worn_block(block)?;
        }
        Ok(next)
    }

    /// Returns the stream for a host write to this unit: the unit's own. While its block is full or
    /// being cleaned, the common stream.
    pub(super) fn stream_of_write(&mut self, unit: u32) -> StreamId {
        let home = stream_of(unit);
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
        blocks
            .into_iter()
            .for_each(|block| self.map.note_block(&self.space, block));
        COMMON
    }
}
