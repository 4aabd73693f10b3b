//! Buffer blocks: blocks, open or full, that may contain pages missing from the map on flash.

use crate::format::UNMAPPED;
use crate::ram::{vec_bytes, vec_most};
use nand_model::{Geometry, PageSplit, Pbn, Ppn};
use std::collections::VecDeque;

/// A block, open or full, that may contain pages missing from the map on flash.
#[derive(Clone, Debug)]
pub(crate) struct BufferBlock {
    pub(crate) epoch: u64,
    /// By page, the logical page whose entry names it; or [`UNMAPPED`].
    lpns: Vec<u32>,
    /// One bit per page: whether that entry is dirty.
    dirty: Vec<u64>,
    /// Distinct mapping pages of the dirty entries: the programs of its conversion. `None` until
    /// they are counted, which needs the block to be full.
    cost: Option<u32>,
    /// Number of the last walk that visited the block.
    visited: u64,
}

impl BufferBlock {
    fn new(pages: usize) -> Self {
        BufferBlock {
            epoch: 0,
            lpns: vec![UNMAPPED; pages],
            dirty: vec![0; pages.div_ceil(64)],
            cost: None,
            visited: 0,
        }
    }

    /// Returns the programs of the block's conversion. The cost is counted already.
    pub(crate) fn cost(&self) -> u32 {
        self.cost.expect("the cost of the block is counted")
    }

    pub(super) fn known_cost(&self) -> Option<u32> {
        self.cost
    }

    /// Returns the number of dirty entries that point into the block.
    pub(super) fn dirty(&self) -> u32 {
        self.dirty.iter().map(|word| word.count_ones()).sum()
    }

    /// Iterates over the logical pages of the entries that point into the block.
    pub(super) fn lpns(&self) -> impl Iterator<Item = u32> {
        let lpns = self.lpns.iter().copied();
        lpns.filter(|lpn| *lpn != UNMAPPED)
    }

    /// Iterates over the logical pages of the dirty entries that point into the block.
    pub(super) fn dirty_lpns(&self) -> impl Iterator<Item = u32> {
        let lpns = (0..).zip(&self.lpns);
        let is_dirty = |at: usize| self.dirty[at / 64] >> (at % 64) & 1 == 1;
        lpns.filter(move |(at, _)| is_dirty(*at)).map(|(_, l)| *l)
    }

    pub(super) fn lpn_at(&self, offset: u32) -> Option<u32> {
        Some(self.lpns[offset as usize]).filter(|lpn| *lpn != UNMAPPED)
    }

    #[inline]
    fn visit(&mut self, walk: u64) -> bool {
        std::mem::replace(&mut self.visited, walk) != walk
    }
}

const NONE: u32 = u32::MAX;

/// All buffer blocks.
pub(super) struct Blocks {
    /// By block, its position in `known`; [`NONE`] for others.
    positions: Vec<u32>,
    /// Buffer blocks, and unused ones, which keep their memory.
    known: Vec<BufferBlock>,
    unused: Vec<u32>,
    /// Epoch and block, ascending. Blocks are added as they are opened, and most leave from the
    /// front.
    by_epoch: VecDeque<(u64, u32)>,
}

impl Blocks {
    pub(super) fn new(geometry: &Geometry) -> Self {
        Blocks {
            positions: vec![NONE; geometry.block_slots()],
            known: Vec::new(),
            unused: Vec::new(),
            by_epoch: VecDeque::new(),
        }
    }

    #[inline]
    pub(super) fn get(&self, block: Pbn) -> Option<&BufferBlock> {
        let position = *self.positions.get(block.index())?;
        self.known.get(position as usize)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Pbn, &BufferBlock)> {
        let blocks = self.by_epoch.iter().map(|(_, block)| Pbn::new(*block));
        blocks.map(|block| (block, self.get(block).expect("a listed block is known")))
    }

    pub(super) fn oldest(&self) -> Option<(Pbn, u64)> {
        let oldest = self.by_epoch.front();
        oldest.map(|(epoch, block)| (Pbn::new(*block), *epoch))
    }

    pub(super) fn len(&self) -> u32 {
        self.by_epoch.len() as u32
    }

    pub(super) fn add(&mut self, block: Pbn, epoch: u64, pages: u32) {
        assert!(
            self.get(block).is_none(),
            "block {block} is already a buffer block"
        );
        let position = match self.unused.pop() {
            Some(position) => position,
            None => {
                self.known.push(BufferBlock::new(pages as usize));
                self.known.len() as u32 - 1
            }
        };
        let buffer = &mut self.known[position as usize];
        buffer.epoch = epoch;
        buffer.cost = None;
        self.positions[block.index()] = position;
        let entry = (epoch, block.raw());
        let at = self.by_epoch.partition_point(|other| *other < entry);
        self.by_epoch.insert(at, entry);
    }

    /// Removes a block without dirty entries.
    pub(super) fn remove(&mut self, block: Pbn) {
        let position = std::mem::replace(&mut self.positions[block.index()], NONE);
        let buffer = &mut self.known[position as usize];
        debug_assert_eq!(buffer.dirty(), 0, "dirty entries of block {block}");
        buffer.lpns.fill(UNMAPPED);
        self.unused.push(position);
        let by_epoch = (buffer.epoch, block.raw());
        let at = self.by_epoch.partition_point(|other| *other < by_epoch);
        let removed = self.by_epoch.remove(at);
        assert_eq!(
            removed,
            Some(by_epoch),
            "block {block} is not listed by epoch"
        );
    }

    /// Records that the dirty entry of a logical page names this page of a buffer block.
    #[inline]
    pub(super) fn note(&mut self, ppn: Ppn, lpn: u32, split: PageSplit) {
        let (buffer, at) = self.page(ppn, split);
        buffer.lpns[at] = lpn;
        buffer.dirty[at / 64] |= 1 << (at % 64);
        // The block is open, or this is a mount.
        buffer.cost = None;
    }

    /// Records that no entry names this page any more. For an entry that was dirty, `is_last`
    /// returns whether no other one of its mapping page points into the block.
    #[inline]
    pub(super) fn forget(
        &mut self,
        ppn: Ppn,
        is_last: Option<impl FnOnce() -> bool>,
        split: PageSplit,
    ) {
        let (buffer, at) = self.page(ppn, split);
        buffer.lpns[at] = UNMAPPED;
        if let Some(is_last) = is_last {
            buffer.dirty[at / 64] &= !(1 << (at % 64));
            if let Some(cost) = &mut buffer.cost {
                *cost -= u32::from(is_last());
            }
        }
    }

    /// Records that the entry that names this page was written in this walk. `stays`: it is
    /// pending nevertheless.
    #[inline]
    pub(super) fn clean(&mut self, ppn: Ppn, walk: u64, stays: bool, split: PageSplit) {
        let (buffer, at) = self.page(ppn, split);
        buffer.dirty[at / 64] &= !(1 << (at % 64));
        if !stays {
            buffer.lpns[at] = UNMAPPED;
        }
        if let Some(cost) = buffer.cost {
            buffer.cost = Some(cost - u32::from(buffer.visit(walk)));
        }
    }

    #[inline]
    fn page(&mut self, ppn: Ppn, split: PageSplit) -> (&mut BufferBlock, usize) {
        let position = self.positions[split.block_of(ppn).index()];
        let buffer =
            (self.known.get_mut(position as usize)).expect("pending pages are in buffer blocks");
        (buffer, split.offset_of(ppn) as usize)
    }

    /// Marks the block as visited by this walk.
    pub(super) fn visit(&mut self, block: Pbn, walk: u64) {
        let position = self.positions[block.index()];
        self.known[position as usize].visit(walk);
    }

    /// Counts the unknown costs of the wanted blocks. `count` returns the number of mapping pages
    /// of these logical pages.
    pub(super) fn count_costs(
        &mut self,
        wanted: impl Fn(Pbn) -> bool,
        mut count: impl FnMut(&mut dyn Iterator<Item = u32>) -> u32,
    ) {
        for (_, block) in &self.by_epoch {
            let position = self.positions[Pbn::new(*block).index()];
            let buffer = &mut self.known[position as usize];
            if buffer.cost.is_none() && wanted(Pbn::new(*block)) {
                let cost = count(&mut buffer.dirty_lpns());
                buffer.cost = Some(cost);
            }
        }
    }

    /// Returns the allocated bytes.
    pub(super) fn bytes(&self) -> u64 {
        let of_pages = |block: &BufferBlock| {
            vec_bytes::<u32>(block.lpns.capacity()) + vec_bytes::<u64>(block.dirty.capacity())
        };
        vec_bytes::<u32>(self.positions.capacity())
            + vec_bytes::<BufferBlock>(self.known.capacity())
            + vec_bytes::<u32>(self.unused.capacity())
            + vec_bytes::<(u64, u32)>(self.by_epoch.capacity())
            + self.known.iter().map(of_pages).sum::<u64>()
    }

    /// Returns the upper bound of the bytes for this many buffer blocks.
    pub(super) fn bytes_most(&self, blocks: u64, pages: u32) -> u64 {
        vec_bytes::<u32>(self.positions.capacity())
            + vec_most::<BufferBlock>(blocks)
            + vec_most::<u32>(blocks)
            + vec_most::<(u64, u32)>(blocks)
            + blocks * (u64::from(pages) * 4 + u64::from(pages.div_ceil(64)) * 8)
    }
}
