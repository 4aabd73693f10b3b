//! Physical space: streams that append pages, blocks that are opened, filled, released and erased.
//!
//! Schemes choose what to write and which block to give up; this part opens blocks, obeys page
//! order and pairing, deals with failed programs and erases, and decides *when* a released block
//! may be erased.
//!
//! What always holds: nothing is given up for a page that can still be lost. An LSB page whose MSB
//! partner is not programmed yet can be destroyed by the cut that interrupts the partner's program;
//! until then it is *unsafe*. A block is released with the sequence number of the last program so
//! far, and is erased only when every page programmed up to that number is safe. So whatever
//! replaced its pages cannot be lost any more. If power fails between release and erase, mount
//! finds a block without live pages and erases it.
//!
//! Where a unit's pages are replaced by its own alone, its blocks need not wait for the others':
//! see [`Space::release_within`].
//!
//! A block that a mount finds partly filled is never continued, so its LSB pages are safe for good.
//! (After a clean stop it may be: what was at risk then was made safe.)
//!
//! A mount may be cut like anything else, and what it leaves must not add up. So what it programs
//! is *provisional*, which is one more way to be unsafe: it counts from the moment that filler
//! follows in its block. Until then nothing it replaces is erased, and the next mount passes over
//! it ([`crate::recovery`]): it finds what this one found, and the blocks that this one took are
//! free again.

mod append;
mod pool;
mod release;
mod streams;

pub(crate) use streams::{StreamId, StreamSpec};

use crate::block_table::{BlockTable, State};
use crate::convert::{index, to_u32, to_u64};
use crate::error::FtlError;
use crate::events::{Event, EventKind, EventLog};
use crate::flash::Flash;
use crate::format::{COUNTER_FOUND_MAX, Flags, Role};
use crate::recovery::provisional;
use crate::stats::{BlockUse, BlockView};
use nand_model::{Geometry, Nanos, Pbn, Store};
use pool::FreePool;
use release::Released;
use std::collections::VecDeque;
use streams::{AtRisk, NEVER, OpenBlock, RECENT, Stream};

/// Everything between a scheme's tables and the chip.
pub(crate) struct Space<S> {
    pub(crate) flash: Flash<S>,
    pub(crate) table: BlockTable,
    pub(crate) events: EventLog,
    pool: FreePool,
    streams: Vec<Stream>,
    /// How many of them there were from the beginning.
    fixed: StreamId,
    at_risk: AtRisk,
    /// By block: the stream that fills it, while it is open.
    filled_by: Vec<u32>,
    /// In the order of their release.
    released: VecDeque<Released>,
    /// Full blocks that went bad while they hold live pages.
    failing: Vec<Pbn>,
    next_epoch: u64,
    pair_protection: bool,
    /// Whether a mount after a cut is under way.
    mounting: bool,
    /// Whether what is programmed may be at risk at first: where pages are paired, and while a
    /// mount runs.
    risky: bool,
    /// Pages at the end of a block that take nothing but filler: none, but while a mount runs.
    kept_back: u32,
}

const NO_BLOCK: FtlError = FtlError::ReadOnly("no erased block is left");

impl<S: Store> Space<S> {
    /// A space over an unmounted chip: good blocks are not yet in the pool.
    pub(crate) fn new(flash: Flash<S>, streams: &[StreamSpec]) -> Self {
        let geometry = *flash.geometry();
        assert!(
            index(flash.chip().pairs().span()) <= RECENT,
            "a pairing that reaches further than is remembered"
        );
        let mut space = Space {
            table: BlockTable::new(geometry),
            flash,
            events: EventLog::default(),
            pool: FreePool::new(geometry),
            streams: streams.iter().map(|spec| Stream::new(*spec)).collect(),
            fixed: streams.len(),
            at_risk: AtRisk::default(),
            filled_by: vec![0; geometry.block_slots()],
            released: VecDeque::new(),
            failing: Vec::new(),
            next_epoch: 1,
            pair_protection: true,
            mounting: false,
            risky: false,
            kept_back: 0,
        };
        space.set_pair_protection(true);
        for block in geometry.all_blocks() {
            if space.flash.chip().bad(block) == Some(nand_model::Bad::Factory) {
                space.table.set_state(block, State::Bad);
            }
        }
        space
    }

    /// Adds so many streams for units that have an open block each, and returns the first. A block
    /// whose pages are replaced only by those of its unit goes by [`Space::release_within`].
    pub(crate) fn add_streams(&mut self, spec: StreamSpec, count: usize) -> StreamId {
        let first = self.streams.len();
        self.streams.resize(first + count, Stream::new(spec));
        first
    }

    /// Adds so many streams to those that the space was made with, before any of a unit, and returns
    /// the first.
    pub(crate) fn add_fixed_streams(&mut self, spec: StreamSpec, count: usize) -> StreamId {
        assert_eq!(self.fixed, self.streams.len(), "streams of units come last");
        let first = self.add_streams(spec, count);
        self.fixed = self.streams.len();
        first
    }

    /// Puts every good block into the pool: the device is new.
    pub(crate) fn format(&mut self) {
        for block in self.geometry().all_blocks() {
            if self.table.state(block) == State::Free {
                self.add_free(block, true);
            }
        }
    }

    /// Switches the protection of paired pages off, to show what it is for (docs/DURABILITY.md).
    /// Never on a real device.
    pub(crate) fn set_pair_protection(&mut self, on: bool) {
        self.pair_protection = on;
        self.risky = on && self.flash.chip().pairs().span() > 0;
    }

    /// A mount begins: what is programmed from now on is provisional. (Blocks of a few pages have
    /// no room for that; there a mount is like anything else.)
    pub(crate) fn begin_mount(&mut self) {
        assert!(!self.mounting, "a mount in a mount");
        self.mounting = true;
        let pages = self.geometry().pages_per_block;
        let kept_back = provisional::filler_of_full_block(self.flash.chip().pairs(), pages);
        if pages > 2 * kept_back {
            self.kept_back = kept_back;
            self.risky = true;
            self.flash.set_mark(Flags::PROVISIONAL);
        }
    }

    /// Whether the device can count on from what a mount found: its own records must stay among
    /// those that are accepted.
    pub(crate) fn check_counters(&self, next_ver: u64) -> Result<(), FtlError> {
        let most = self.flash.pseq().max(self.next_epoch).max(next_ver);
        if most > COUNTER_FOUND_MAX / 2 {
            return Err(FtlError::Corrupt("it counts as no device does".into()));
        }
        Ok(())
    }

    /// The mount ends: what it programmed counts.
    pub(crate) fn end_mount(&mut self) -> Result<(), FtlError> {
        assert!(self.mounting, "no mount is under way");
        self.make_safe()?;
        self.mounting = false;
        self.kept_back = 0;
        self.set_pair_protection(self.pair_protection);
        self.flash.set_mark(Flags::NONE);
        Ok(())
    }

    /// Whether a mount after a cut is under way.
    #[inline]
    pub(crate) fn is_mounting(&self) -> bool {
        self.mounting
    }

    #[inline]
    pub(crate) fn geometry(&self) -> Geometry {
        *self.flash.geometry()
    }

    /// Erased blocks that can be taken now.
    #[inline]
    pub(crate) fn free_blocks(&self) -> u32 {
        to_u32(self.pool.len())
    }

    /// Those of one die.
    pub(crate) fn free_blocks_on(&self, die: u32) -> u32 {
        to_u32(self.pool.on_die(die))
    }

    /// The blocks that this stream opens from now on are of this die, as long as it has any.
    pub(crate) fn prefer_die(&mut self, stream: StreamId, die: u32) {
        assert!(die < self.geometry().dies(), "no die {die}");
        self.streams[stream].die = Some(die);
    }

    /// Collected blocks that wait for their erase.
    #[inline]
    pub(crate) fn released_blocks(&self) -> u32 {
        to_u32(self.released.len())
    }

    /// The allocation number that the next block will get.
    pub(crate) fn next_epoch(&self) -> u64 {
        self.next_epoch
    }

    /// Pages written since the block with this allocation number was opened, roughly.
    pub(crate) fn written_since(&self, epoch: u64) -> u64 {
        (self.next_epoch - epoch) * self.geometry().pages_per_block as u64
    }

    /// Mount found a block with this allocation number.
    pub(crate) fn saw_epoch(&mut self, epoch: u64) {
        self.next_epoch = self.next_epoch.max(epoch + 1);
    }

    /// A block that holds nothing goes to the pool; `confirmed` tells that its last erase is known
    /// to have ended. A block with pages is erased again all the same: its part may have lost that
    /// erase.
    pub(crate) fn add_free(&mut self, block: Pbn, confirmed: bool) {
        assert!(
            !self.table.is_in_use(block),
            "block {block} is freed without its release"
        );
        if self.flash.chip().bad(block).is_some() {
            self.table.set_state(block, State::Bad);
            return;
        }
        self.table.set_state(block, State::Free);
        let blank = self.flash.chip().frontier(block) == 0;
        self.pool.put(
            block,
            self.flash.chip().erase_count(block),
            confirmed && blank,
        );
    }

    /// Numbers of the free blocks whose last erase is known to have ended.
    pub(crate) fn confirmed_free(&self) -> Vec<u32> {
        self.pool.confirmed().map(Pbn::raw).collect()
    }

    /// Mount found a block that holds pages; it takes no more programs.
    pub(crate) fn adopt_full(&mut self, block: Pbn, role: Role, epoch: u64) {
        self.table.set_open(block, role, epoch);
        self.table.set_state(block, State::Full);
        if self.flash.chip().bad(block).is_some() {
            self.failing.push(block);
        }
    }

    /// Mount found a full block as a clean stop left it: the stream goes on filling it. Nothing in
    /// it is at risk.
    pub(crate) fn resume(&mut self, stream: StreamId, block: Pbn) {
        assert!(
            self.streams[stream].open.is_none(),
            "stream {stream} has a block"
        );
        assert_eq!(
            self.table.state(block),
            State::Full,
            "block {block} is not one to fill on"
        );
        let (role, epoch) = (self.streams[stream].spec.role, self.table.epoch(block));
        assert!(
            epoch < self.next_epoch,
            "block {block} is of a life to come"
        );
        self.table.set_open(block, role, epoch);
        self.filled_by[block.index()] = to_u32(stream);
        self.streams[stream].open = Some(OpenBlock::new(
            block,
            epoch,
            self.flash.chip().programmed(block),
        ));
    }

    /// A full block without live pages that has room left is filled on by a stream that has none,
    /// in the gaps between its pages if the part takes them in any order.
    pub(crate) fn reopen(&mut self, stream: StreamId, block: Pbn) {
        assert_eq!(
            self.table.valid(block),
            0,
            "block {block} is used again with live pages"
        );
        let chip = self.flash.chip();
        let gaps = chip.frontier(block) != chip.programmed(block);
        self.resume(stream, block);
        self.streams[stream]
            .open
            .as_mut()
            .expect("just opened")
            .gaps = gaps;
    }

    /// Whether the stream can fill this block on: where it appends, all pages that are programmed
    /// have to be at the beginning.
    pub(crate) fn can_resume(&self, stream: StreamId, block: Pbn) -> bool {
        let chip = self.flash.chip();
        self.streams[stream].spec.in_place || chip.programmed(block) == chip.frontier(block)
    }

    /// How many streams there are.
    pub(crate) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// A block, for whoever looks on.
    pub(crate) fn look_at(&self, block: Pbn) -> BlockView {
        let used = match (self.table.state(block), self.table.role(block)) {
            (State::Free, _) => BlockUse::Free,
            (State::Open, _) => BlockUse::Open,
            (State::Released, _) => BlockUse::Released,
            (State::Bad, _) => BlockUse::Bad,
            (State::Full, Role::Data) => BlockUse::Data,
            (State::Full, Role::Update) => BlockUse::Update,
            (State::Full, Role::Cold) => BlockUse::Cold,
            (State::Full, Role::Log) => BlockUse::Log,
            (State::Full, Role::Journal) => BlockUse::Journal,
            (State::Full, Role::Map) => BlockUse::Map,
            (State::Full, Role::Checkpoint) => BlockUse::Checkpoint,
            (State::Full, Role::Trim | Role::Pad) => BlockUse::Other,
        };
        let age = if self.table.is_in_use(block) {
            self.next_epoch.saturating_sub(self.table.epoch(block))
        } else {
            0
        };
        BlockView {
            used,
            valid: self.table.valid(block),
            age,
        }
    }

    /// Something was done that began at this instant.
    pub(crate) fn note_event(
        &mut self,
        kind: EventKind,
        block: Option<Pbn>,
        pages: u32,
        began: Nanos,
    ) {
        let took = self.flash.now().saturating_sub(began);
        self.events.note(Event {
            kind,
            block,
            pages,
            at: began,
            took,
        });
    }

    /// A block that could not be erased is used no more.
    fn set_bad(&mut self, block: Pbn) {
        self.table.set_state(block, State::Bad);
        self.note_bad(block);
    }

    fn note_bad(&mut self, block: Pbn) {
        self.note_event(EventKind::BadBlock, Some(block), 0, self.flash.now());
    }

    /// The block a stream is filling and how many of its pages are programmed.
    pub(crate) fn open_block(&self, stream: StreamId) -> Option<(Pbn, u32)> {
        self.streams[stream]
            .open
            .as_ref()
            .map(|open| (open.block, open.next))
    }

    /// Pages that the stream can take before it needs another block.
    pub(crate) fn room(&self, stream: StreamId) -> u32 {
        let pages = self.flash.geometry().pages_per_block;
        self.open_block(stream)
            .map_or(0, |(_, next)| pages.saturating_sub(next + self.kept_back))
    }

    /// Pages that a block takes.
    #[inline]
    pub(crate) fn pages_per_block(&self) -> u32 {
        self.flash.geometry().pages_per_block - self.kept_back
    }

    /// Blocks that the stream opens for so many pages more.
    pub(crate) fn blocks_for(&self, stream: StreamId, pages: u32) -> u32 {
        pages
            .saturating_sub(self.room(stream))
            .div_ceil(self.pages_per_block())
    }

    /// Whether a unit's stream fills this block. It may stay as it is for as long as any full one.
    pub(crate) fn is_open_for_unit(&self, block: Pbn) -> bool {
        self.table.state(block) == State::Open && index(self.filled_by[block.index()]) >= self.fixed
    }

    /// Bytes really allocated for pool and streams.
    pub(crate) fn pool_bytes(&self) -> u64 {
        let streams = self.streams.len() * size_of::<Stream>() + 4 * self.filled_by.len();
        to_u64(self.pool.len() * 16 + streams)
    }
}
