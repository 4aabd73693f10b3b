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

mod pool;
mod streams;

pub(crate) use streams::{StreamId, StreamSpec};

use crate::block_table::{BlockTable, State};
use crate::error::FtlError;
use crate::events::{Event, EventKind, EventLog};
use crate::flash::Flash;
use crate::format::{COUNTER_FOUND_MAX, Flags, OOB_SLOT, PageTag, Role};
use crate::recovery::provisional;
use crate::stats::{BlockUse, BlockView};
use nand_model::{Cause, Geometry, NandError, Nanos, Pbn, Ppn, RunError, Store};
use pool::FreePool;
use std::collections::VecDeque;
use streams::{AtRisk, NEVER, OpenBlock, RECENT, Stream};

/// Released blocks that may wait for their turn before filler hurries them.
const MAX_WAITING: u32 = 2;

/// Where the pages lie that replaced those of a released block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heirs {
    Anywhere,
    /// In this stream, or in one of the fixed ones.
    Stream(StreamId),
}

/// A block that holds nothing live and waits for its erase.
#[derive(Clone, Copy, Debug)]
struct Released {
    block: Pbn,
    /// The last program before its release.
    seq: u64,
    heirs: Heirs,
}

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
            flash.chip().pairs().span() as usize <= RECENT,
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
            filled_by: vec![0; geometry.blocks as usize],
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
        self.pool.len() as u32
    }

    /// Those of one die.
    pub(crate) fn free_blocks_on(&self, die: u32) -> u32 {
        self.pool.on_die(die) as u32
    }

    /// The blocks that this stream opens from now on are of this die, as long as it has any.
    pub(crate) fn prefer_die(&mut self, stream: StreamId, die: u32) {
        self.streams[stream].die = Some(die);
    }

    /// Collected blocks that wait for their erase.
    #[inline]
    pub(crate) fn released_blocks(&self) -> u32 {
        self.released.len() as u32
    }

    /// The allocation number that the next block will get.
    pub(crate) fn next_epoch(&self) -> u64 {
        self.next_epoch
    }

    /// Mount found a block with this allocation number.
    pub(crate) fn saw_epoch(&mut self, epoch: u64) {
        self.next_epoch = self.next_epoch.max(epoch + 1);
    }

    /// A block that holds nothing goes to the pool; `confirmed` tells that its last erase is known
    /// to have ended. A block with pages is erased again all the same: its part may have lost that
    /// erase.
    pub(crate) fn add_free(&mut self, block: Pbn, confirmed: bool) {
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
        let (role, epoch) = (self.streams[stream].spec.role, self.table.epoch(block));
        self.table.set_open(block, role, epoch);
        self.filled_by[block.index()] = stream as u32;
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

    /// Appends as many of the pages as fit into the stream's open block, at least one, and marks
    /// them live. Returns the first and how many. A failed program is survived: the rest goes to
    /// another block and the failing one is put on [`Space::failing_block`].
    pub(crate) fn append(
        &mut self,
        stream: StreamId,
        tags: &[PageTag],
        data: &[u8],
        cause: Cause,
    ) -> Result<(Ppn, u32), FtlError> {
        self.append_with(stream, tags.len(), |flash, first, epoch, count| {
            let tags = &tags[..count];
            let bytes = count * flash.geometry().page_bytes as usize;
            flash.program(first, epoch, tags, &data[..bytes], cause)
        })
    }

    /// [`Space::append`] of one page, compiled for one page.
    #[inline(always)]
    pub(crate) fn append_page(
        &mut self,
        stream: StreamId,
        tag: PageTag,
        data: &[u8],
        cause: Cause,
    ) -> Result<Ppn, FtlError> {
        let appended = self.append_with(stream, 1, |flash, first, epoch, _| {
            flash.program(first, epoch, &[tag], data, cause)
        });
        appended.map(|(ppn, _)| ppn)
    }

    /// [`Space::append`] of copies, whose records are as read and get renewed here.
    pub(crate) fn append_copies(
        &mut self,
        stream: StreamId,
        records: &mut [[u8; OOB_SLOT]],
        data: &[u8],
        cause: Cause,
    ) -> Result<(Ppn, u32), FtlError> {
        self.append_with(stream, records.len(), |flash, first, epoch, count| {
            let bytes = count * flash.geometry().page_bytes as usize;
            flash.program_copies(first, epoch, &mut records[..count], &data[..bytes], cause)
        })
    }

    /// Appends one page with a scheme part in its spare bytes, which `fill` writes for the place
    /// that it is told; more than once if a program fails.
    pub(crate) fn append_with_spare(
        &mut self,
        stream: StreamId,
        tag: PageTag,
        data: &[u8],
        cause: Cause,
        mut fill: impl FnMut(Ppn, &mut [u8]),
    ) -> Result<Ppn, FtlError> {
        let appended = self.append_with(stream, 1, |flash, ppn, epoch, _| {
            flash.program_with_spare(ppn, epoch, tag, |spare| fill(ppn, spare), data, cause)
        });
        appended.map(|(ppn, _)| ppn)
    }

    /// Appends a copy of logical page `lpn`, stored at `from`, without a transfer over the bus.
    /// `fill` is as above. `None` if the page is unreadable or belongs to another address, or if a
    /// program failed and the stream's next block is in another plane.
    pub(crate) fn append_copyback(
        &mut self,
        stream: StreamId,
        lpn: u32,
        from: Ppn,
        cause: Cause,
        mut fill: impl FnMut(Ppn, &mut [u8]),
    ) -> Result<Option<Ppn>, FtlError> {
        let mut impossible = false;
        let appended = self.append_with(stream, 1, |flash, to, epoch, _| {
            let copied = flash.copy_back(lpn, from, to, epoch, |spare| fill(to, spare), cause);
            impossible = copied
                .as_ref()
                .is_err_and(|run| matches!(run.error, NandError::Uncorrectable { .. }));
            copied
        });
        if impossible {
            Ok(None)
        } else {
            appended.map(|(ppn, _)| Some(ppn))
        }
    }

    /// Where the stream's next page goes; opens a block if need be.
    pub(crate) fn next_page(&mut self, stream: StreamId) -> Result<Ppn, FtlError> {
        self.frontier(stream).map(|(ppn, ..)| ppn)
    }

    /// Calls `program` with first page, epoch and count of pages until some were programmed.
    #[inline(always)]
    fn append_with(
        &mut self,
        stream: StreamId,
        wanted: usize,
        program: impl FnMut(&mut Flash<S>, Ppn, u64, usize) -> Result<(), RunError>,
    ) -> Result<(Ppn, u32), FtlError> {
        self.program_where(stream, wanted, |_, next| next, program)
    }

    /// Programs pages upwards from this offset of the stream's open block, where none of them is
    /// programmed; if a program fails, at the same offsets of another block. Only on parts that
    /// take pages in any order and share nothing between them, and never in a mount.
    pub(crate) fn program_at(
        &mut self,
        stream: StreamId,
        offset: u32,
        tags: &[PageTag],
        data: &[u8],
        cause: Cause,
    ) -> Result<(Ppn, u32), FtlError> {
        assert!(
            !self.risky,
            "pages that may be at risk go one after the other"
        );
        let at_offset =
            |geometry: &Geometry, next: Ppn| geometry.page(geometry.block_of(next), offset);
        self.program_where(
            stream,
            tags.len(),
            at_offset,
            |flash, first, epoch, count| {
                let bytes = count * flash.geometry().page_bytes as usize;
                flash.program(first, epoch, &tags[..count], &data[..bytes], cause)
            },
        )
    }

    /// Calls `program` with first page, epoch and count of pages until some were programmed;
    /// `place` says where in the open block, which is full up to the page that it is given.
    #[inline(always)]
    fn program_where(
        &mut self,
        stream: StreamId,
        wanted: usize,
        place: impl Fn(&Geometry, Ppn) -> Ppn,
        mut program: impl FnMut(&mut Flash<S>, Ppn, u64, usize) -> Result<(), RunError>,
    ) -> Result<(Ppn, u32), FtlError> {
        loop {
            let (next, room, epoch) = self.frontier(stream)?;
            let first = place(self.flash.geometry(), next);
            // An open block has room for one page: the compiler is told, so that it can drop the
            // loops over one.
            let count = if wanted == 1 {
                1
            } else {
                wanted.min(room as usize)
            };
            let seq = self.flash.pseq();
            let outcome = program(&mut self.flash, first, epoch, count);
            let done = outcome
                .as_ref()
                .map_or_else(|run| run.done, |()| count as u32);
            self.note_programmed(stream, first, done, seq);
            match outcome {
                Ok(()) => {}
                Err(run) if matches!(run.error, NandError::ProgramFailed(_)) => {
                    self.abandon_failing(stream)
                }
                Err(run) if done == 0 => return Err(run.error.into()),
                Err(_) => {}
            }
            if done > 0 {
                return Ok((first, done));
            }
        }
    }

    #[inline(always)]
    fn note_programmed(&mut self, stream: StreamId, first: Ppn, done: u32, seq: u64) {
        let pages = self.flash.geometry().pages_per_block;
        let Stream { open, listed, .. } = &mut self.streams[stream];
        let open = open.as_mut().expect("a block is open");
        if self.kept_back > 0 && done > 0 {
            open.note_provisional(open.next, seq + 1);
        }
        if done == 1 {
            open.note(1, seq + 1);
            self.table.set_live(first);
        } else {
            open.note(done, seq + done as u64);
            self.table.set_live_run(first, done);
        }
        let filled = open.next == pages;
        if self.risky && !*listed {
            *listed = true;
            self.at_risk.put(seq + 1, stream);
        }
        if filled {
            self.close(stream);
        }
    }

    /// Closes the stream's block, if one is open; its remaining pages stay unused.
    pub(crate) fn seal(&mut self, stream: StreamId) -> Result<(), FtlError> {
        if self.streams[stream]
            .open
            .as_ref()
            .is_some_and(OpenBlock::is_provisional)
        {
            self.make_stream_safe(stream)?;
        }
        self.close(stream);
        Ok(())
    }

    /// Whether a unit's stream fills this block. It may stay as it is for as long as any full one.
    pub(crate) fn is_open_for_unit(&self, block: Pbn) -> bool {
        self.table.state(block) == State::Open
            && self.filled_by[block.index()] as usize >= self.fixed
    }

    /// Closes this block, if a stream is filling it.
    pub(crate) fn seal_block(&mut self, block: Pbn) -> Result<(), FtlError> {
        match self.table.state(block) {
            State::Open => self.seal(self.filled_by[block.index()] as usize),
            _ => Ok(()),
        }
    }

    /// The block that one stream is filling is filled by another one from now on, which has none.
    pub(crate) fn hand_over(&mut self, from: StreamId, to: StreamId) {
        assert!(self.streams[to].open.is_none(), "stream {to} has a block");
        let open = self.streams[from].open.take().expect("a block is open");
        self.filled_by[open.block.index()] = to as u32;
        let pairs = self.pair_protection.then(|| self.flash.chip().pairs());
        let oldest = open.oldest_unsafe(pairs);
        self.streams[to].open = Some(open);
        if self.risky && oldest < NEVER {
            self.streams[to].listed = true;
            self.at_risk.put(oldest, to);
        }
    }

    /// Cold data is about to come: it gets a worn block of its own.
    pub(crate) fn set_cold_apart(&mut self, stream: StreamId) -> Result<(), FtlError> {
        self.streams[stream].for_cold = true;
        self.seal(stream)
    }

    fn close(&mut self, stream: StreamId) {
        if let Some(open) = self.streams[stream].open.take() {
            assert!(
                !open.is_provisional(),
                "block {} is closed before its pages count",
                open.block
            );
            self.table.set_state(open.block, State::Full);
            if self.streams[stream].spec.collectable {
                self.table.set_collectable(open.block);
            }
        }
    }

    fn abandon_failing(&mut self, stream: StreamId) {
        if let Some(open) = self.streams[stream].open.take() {
            self.table.set_state(open.block, State::Full);
            self.failing.push(open.block);
            self.note_bad(open.block);
        }
    }

    /// Where the stream's next pages go, for how many there is room, and the block's allocation
    /// number; opens a block if need be.
    #[inline(always)]
    fn frontier(&mut self, stream: StreamId) -> Result<(Ppn, u32, u64), FtlError> {
        let (geometry, pages) = (self.flash.geometry(), self.pages_per_block());
        match &self.streams[stream].open {
            Some(open) if open.next < pages && !open.gaps => Ok((
                geometry.page(open.block, open.next),
                pages - open.next,
                open.epoch,
            )),
            _ => self.new_frontier(stream),
        }
    }

    /// The same when there is no room yet, or only between pages.
    #[cold]
    fn new_frontier(&mut self, stream: StreamId) -> Result<(Ppn, u32, u64), FtlError> {
        if self.room(stream) == 0 {
            self.open_new(stream)?;
        }
        let open = self.streams[stream].open.as_ref().expect("just opened");
        if open.gaps {
            let (next, room) = self.first_gap(open.block);
            return Ok((next, room, open.epoch));
        }
        let next = self.flash.geometry().page(open.block, open.next);
        Ok((next, self.room(stream), open.epoch))
    }

    /// The first page of a block that is not programmed, and how many there are together.
    #[cold]
    fn first_gap(&self, block: Pbn) -> (Ppn, u32) {
        let geometry = self.geometry();
        let free = |offset: &u32| {
            !self
                .flash
                .chip()
                .is_programmed(geometry.page(block, *offset))
        };
        let first = (0..geometry.pages_per_block)
            .find(free)
            .expect("an open block has room");
        (
            geometry.page(block, first),
            (first..geometry.pages_per_block).take_while(free).count() as u32,
        )
    }

    fn open_new(&mut self, stream: StreamId) -> Result<(), FtlError> {
        self.seal(stream)?;
        let spec = self.streams[stream].spec;
        let worn = std::mem::take(&mut self.streams[stream].for_cold);
        let block = self.take_free(worn, self.streams[stream].die)?;
        let epoch = self.next_epoch;
        self.next_epoch += 1;
        self.table.set_open(block, spec.role, epoch);
        self.filled_by[block.index()] = stream as u32;
        self.streams[stream].open = Some(OpenBlock::new(block, epoch, 0));
        Ok(())
    }

    fn take_free(&mut self, worn: bool, die: Option<u32>) -> Result<Pbn, FtlError> {
        loop {
            let Some((block, confirmed)) = self.pool.take(worn, die) else {
                self.refill_pool()?;
                continue;
            };
            if confirmed {
                return Ok(block);
            }
            match self.flash.erase(block, Cause::Recovery) {
                Ok(()) => return Ok(block),
                Err(NandError::EraseFailed(_)) => self.set_bad(block),
                Err(other) => {
                    self.pool
                        .put(block, self.flash.chip().erase_count(block), false);
                    return Err(other.into());
                }
            }
        }
    }

    /// Erases released blocks when failed erases have emptied the pool: the caller had made sure of
    /// the blocks that it takes, but not of these failures.
    #[cold]
    fn refill_pool(&mut self) -> Result<(), FtlError> {
        self.hurry()?;
        if self.reclaim(Cause::Gc)? > 0 {
            Ok(())
        } else {
            Err(NO_BLOCK)
        }
    }

    /// A full bad block that still holds live pages, to be collected before any other.
    pub(crate) fn failing_block(&self) -> Option<Pbn> {
        self.failing.last().copied()
    }

    /// Gives up a full block without live pages. It is erased once nothing that replaced its pages
    /// can be lost.
    pub(crate) fn release(&mut self, block: Pbn) {
        self.release_to(block, Heirs::Anywhere);
    }

    /// The same with a block whose pages were replaced by pages of this stream or of the fixed
    /// ones: no others need be safe.
    pub(crate) fn release_within(&mut self, block: Pbn, stream: StreamId) {
        self.release_to(block, Heirs::Stream(stream));
    }

    fn release_to(&mut self, block: Pbn, heirs: Heirs) {
        self.failing.retain(|b| *b != block);
        if self.flash.chip().bad(block).is_some() {
            self.table.set_state(block, State::Bad);
            return;
        }
        self.table.set_state(block, State::Released);
        self.released.push_back(Released {
            block,
            seq: self.flash.pseq(),
            heirs,
        });
    }

    /// Whether released blocks are to be hurried along by filler, when a collector wants so many
    /// free blocks, keeps a reserve, and will take `needs` blocks for the next victim. A mount
    /// waits as long as it can, and so does a `patient` collector: the filler between two
    /// collections would take more than they give.
    pub(crate) fn should_hurry(
        &self,
        wanted: u32,
        reserve: u32,
        needs: u32,
        patient: bool,
    ) -> bool {
        let (free, waiting) = (self.free_blocks(), self.released_blocks());
        let due = if patient || self.kept_back > 0 {
            free + waiting >= wanted || free < needs
        } else {
            waiting > MAX_WAITING || free < reserve
        };
        waiting > 0 && due
    }

    /// Programs the filler that released blocks wait for.
    pub(crate) fn hurry(&mut self) -> Result<(), FtlError> {
        if self
            .released
            .iter()
            .any(|released| released.heirs == Heirs::Anywhere)
        {
            return self.make_safe();
        }
        for at in 0..self.released.len() {
            if let Heirs::Stream(stream) = self.released[at].heirs {
                self.make_stream_safe(stream)?;
            }
        }
        (0..self.fixed).try_for_each(|stream| self.make_stream_safe(stream))
    }

    /// Programs at most so many pages of the filler that the oldest released block waits for.
    /// Returns how many.
    pub(crate) fn hurry_oldest(&mut self, most: u32) -> Result<u32, FtlError> {
        let Some(&oldest) = self.released.front() else {
            return Ok(0);
        };
        let blank = vec![0; self.geometry().page_bytes as usize];
        let mut done = 0;
        while done < most
            && let Some(stream) = self.waits_for(oldest)
        {
            self.pad(stream, &blank)?;
            done += 1;
        }
        Ok(done)
    }

    /// Pages of filler that a stream needs at most until none of its pages can be lost.
    pub(crate) fn most_filler(&self) -> u32 {
        if self.pair_protection {
            self.flash.chip().pairs().span()
        } else {
            0
        }
    }

    /// Erases the released blocks that nothing depends on any more. Returns how many blocks became
    /// free.
    pub(crate) fn reclaim(&mut self, cause: Cause) -> Result<u32, FtlError> {
        let before = self.free_blocks();
        while self.reclaim_one(cause)? {}
        Ok(self.free_blocks() - before)
    }

    /// Erases the first of them. False if there is none.
    pub(crate) fn reclaim_one(&mut self, cause: Cause) -> Result<bool, FtlError> {
        let Some(at) =
            (0..self.released.len()).find(|at| self.waits_for(self.released[*at]).is_none())
        else {
            return Ok(false);
        };
        let block = self.released[at].block;
        match self.flash.erase(block, cause) {
            Ok(()) => self.add_free(block, true),
            Err(NandError::EraseFailed(_)) => self.set_bad(block),
            Err(other) => return Err(other.into()),
        }
        self.released.remove(at);
        Ok(true)
    }

    /// A stream with a page at risk that the erase of this block has to wait for.
    fn waits_for(&mut self, Released { seq, heirs, .. }: Released) -> Option<StreamId> {
        match heirs {
            Heirs::Anywhere => self
                .oldest_at_risk()
                .filter(|(oldest, _)| *oldest <= seq)
                .map(|(_, stream)| stream),
            Heirs::Stream(stream) => (0..self.fixed)
                .chain([stream])
                .find(|stream| self.oldest_unsafe(*stream) <= seq),
        }
    }

    /// Sequence number of the oldest page that the next program may destroy; all before it are
    /// safe. `u64::MAX` if none.
    pub(crate) fn safe_floor(&mut self) -> u64 {
        self.oldest_at_risk().map_or(NEVER, |(seq, _)| seq)
    }

    /// The oldest page that can be lost, and its stream.
    fn oldest_at_risk(&mut self) -> Option<(u64, StreamId)> {
        let pairs = self.pair_protection.then(|| self.flash.chip().pairs());
        let oldest_of = |stream: &Stream| {
            stream
                .open
                .as_ref()
                .map_or(NEVER, |open| open.oldest_unsafe(pairs))
        };
        self.at_risk.oldest(&mut self.streams, oldest_of)
    }

    fn oldest_unsafe(&self, stream: StreamId) -> u64 {
        let pairs = self.pair_protection.then(|| self.flash.chip().pairs());
        self.streams[stream]
            .open
            .as_ref()
            .map_or(NEVER, |open| open.oldest_unsafe(pairs))
    }

    /// Whether this page can no longer be destroyed by a later program.
    pub(crate) fn is_safe(&self, ppn: Ppn) -> bool {
        let geometry = self.geometry();
        let (block, offset) = (geometry.block_of(ppn), geometry.offset_of(ppn));
        if self.table.state(block) != State::Open {
            return true;
        }
        let open = self.streams[self.filled_by[block.index()] as usize]
            .open
            .as_ref()
            .expect("it fills the block");
        !open.at_risk(
            self.pair_protection.then(|| self.flash.chip().pairs()),
            offset,
        )
    }

    /// Programs filler until no page of any stream can be lost.
    pub(crate) fn make_safe(&mut self) -> Result<(), FtlError> {
        while let Some((_, stream)) = self.oldest_at_risk() {
            self.make_stream_safe(stream)?;
        }
        Ok(())
    }

    /// Programs filler until no page of this stream can be lost.
    pub(crate) fn make_stream_safe(&mut self, stream: StreamId) -> Result<(), FtlError> {
        if self.oldest_unsafe(stream) == NEVER {
            return Ok(());
        }
        let blank = vec![0; self.geometry().page_bytes as usize];
        while self.oldest_unsafe(stream) < NEVER {
            self.pad(stream, &blank)?;
        }
        Ok(())
    }

    /// Programs one page of filler into the stream's open block.
    fn pad(&mut self, stream: StreamId, blank: &[u8]) -> Result<(), FtlError> {
        let geometry = self.geometry();
        let open = self.streams[stream]
            .open
            .as_mut()
            .expect("only pages of an open block are unsafe");
        let ppn = geometry.page(open.block, open.next);
        match self.flash.program_filler(ppn, open.epoch, blank) {
            Ok(()) => {}
            Err(NandError::ProgramFailed(_)) => {
                self.abandon_failing(stream);
                return Ok(());
            }
            Err(other) => return Err(other.into()),
        }
        open.note_filler(self.flash.chip().pairs());
        if open.next == geometry.pages_per_block {
            self.close(stream);
        }
        Ok(())
    }

    /// Bytes really allocated for pool and streams.
    pub(crate) fn pool_bytes(&self) -> u64 {
        let streams = self.streams.len() * size_of::<Stream>() + 4 * self.filled_by.len();
        self.pool.len() as u64 * 16 + streams as u64
    }
}
