//! The state of the space, its streams and their blocks.

use super::planes::Lane;
use super::pool::FreePool;
use super::release::Released;
use super::slc::SlcPool;
use super::streams::{OpenBlock, RECENT, Stream, StreamId, StreamSpec, UnsafeStreams};
use crate::block_table::{BlockTable, State};
use crate::error::FtlError;
use crate::events::{Event, EventKind, EventLog};
use crate::flash::Flash;
use crate::format::Role;
use crate::int::{index, to_u32};
use crate::ram::{vec_bytes, vec_most};
use crate::stalls::Stalls;
use crate::stats::{BlockUse, BlockView, StreamView};
use nand_model::{Cause, Geometry, Nanos, Pbn};
use std::collections::VecDeque;

/// Layer between a scheme's tables and the chip.
pub(crate) struct Space {
    pub(crate) flash: Flash,
    pub(crate) table: BlockTable,
    pub(crate) events: EventLog,
    pub(crate) stalls: Stalls,
    pub(super) pool: FreePool,
    /// Erased blocks of the region in SLC mode, if the device has one.
    pub(super) slc: Option<SlcPool>,
    pub(super) streams: Vec<Stream>,
    /// Programs by kind and number of the stream.
    pub(super) views: Vec<StreamView>,
    /// Lanes of superblocks, on chips with multi-plane commands.
    pub(super) lanes: Vec<Lane>,
    /// Number of streams added before those of units.
    pub(super) fixed: StreamId,
    pub(super) is_unsafe: UnsafeStreams,
    /// By block: the stream that fills it, while it is open.
    pub(super) stream_of_block: Vec<u32>,
    /// Released blocks, in order of release.
    pub(super) released: VecDeque<Released>,
    /// Full blocks that went bad and still have valid pages.
    pub(super) failing: Vec<Pbn>,
    pub(super) next_epoch: u64,
    pub(super) pair_protection: bool,
    /// Whether a mount programs its pages now.
    pub(super) mounting: bool,
    /// Whether new pages may be unsafe at first: with paired pages, and during a mount.
    pub(super) may_be_unsafe: bool,
    /// Pages at the end of a block reserved for padding; nonzero only during a mount.
    pub(super) reserved_pages: u32,
    /// Free blocks that only a mount may take.
    pub(super) kept_for_mount: u32,
    /// Whether the blocks kept for a mount may be taken: it rewrites pages that a cut may have left
    /// unstable, or its GC has no other free block.
    pub(super) takes_kept: bool,
    /// Whether GC may borrow them.
    pub(super) may_borrow: bool,
    /// Programs of the chip when the last checkpoint was complete.
    pub(super) programs_at_checkpoint: u64,
    /// Blocks that were filled or erased since the policies were told, if they want to know.
    pub(super) block_events: Option<Vec<BlockEvent>>,
}

/// A change of a block that policies may observe.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlockEvent {
    /// This stream filled a block, or abandoned it after a failed program. `lifetime`: pages
    /// written since it was opened.
    Sealed {
        block: Pbn,
        stream: StreamId,
        lifetime: u64,
    },
    /// The block was erased.
    Erased(Pbn),
}

pub(super) const NO_BLOCK: FtlError =
    FtlError::ReadOnly("no erased block is left besides those for the next mount");

impl Space {
    /// Creates a space over an unmounted chip: good blocks are not yet in the pool.
    pub(crate) fn new(flash: Flash, streams: &[StreamSpec]) -> Self {
        let geometry = *flash.geometry();
        assert!(
            index(flash.chip().pairs().span()) <= RECENT,
            "pairing span {} exceeds RECENT, {RECENT}",
            flash.chip().pairs().span()
        );
        let mut space = Space {
            table: BlockTable::new(geometry),
            slc: SlcPool::new(flash.chip()),
            flash,
            events: EventLog::default(),
            stalls: Stalls::default(),
            pool: FreePool::new(geometry),
            streams: Vec::new(),
            views: Vec::new(),
            lanes: Vec::new(),
            fixed: 0,
            is_unsafe: UnsafeStreams::default(),
            stream_of_block: vec![0; geometry.block_slots()],
            released: VecDeque::new(),
            failing: Vec::new(),
            next_epoch: 1,
            pair_protection: true,
            mounting: false,
            may_be_unsafe: false,
            reserved_pages: 0,
            kept_for_mount: 0,
            takes_kept: false,
            may_borrow: false,
            programs_at_checkpoint: 0,
            block_events: None,
        };
        let of_region = space.flash.chip().slc_blocks();
        space.table.set_slc_blocks(of_region);
        for spec in streams {
            space.add_fixed_streams(*spec, 1);
        }
        space.set_pair_protection(true);
        for block in geometry.all_blocks() {
            if space.flash.chip().bad(block) == Some(nand_model::Bad::Factory) {
                space.table.set_state(block, State::Bad);
            }
        }
        space
    }

    /// Records changes of blocks from now on, for [`Space::take_block_events`].
    pub(crate) fn log_blocks(&mut self) {
        self.block_events = Some(Vec::new());
    }

    /// Returns the changes of blocks since the last call, in order.
    pub(crate) fn take_block_events(&mut self) -> Vec<BlockEvent> {
        let events = self.block_events.as_mut();
        events.map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn note_sealed(&mut self, block: Pbn, stream: StreamId) {
        let lifetime = self.written_since(self.table.epoch(block));
        if let Some(events) = &mut self.block_events {
            events.push(BlockEvent::Sealed {
                block,
                stream,
                lifetime,
            });
        }
    }

    pub(super) fn note_erased(&mut self, block: Pbn) {
        if let Some(events) = &mut self.block_events {
            events.push(BlockEvent::Erased(block));
        }
    }

    /// Runs work of this cause. If a host write waits for it, the time counts as a stall.
    pub(crate) fn stalled_by<R>(&mut self, cause: Cause, work: impl FnOnce(&mut Self) -> R) -> R {
        let begun = self.stalls.begin(self.flash.now());
        let result = work(self);
        self.stalls.end(begun, self.flash.now(), cause);
        result
    }

    /// Adds `count` streams for units that have an open block each, and returns the first. If a
    /// block's pages are replaced only by pages of its unit, [`Space::release_in_stream`] releases
    /// it.
    pub(crate) fn add_streams(&mut self, spec: StreamSpec, count: usize) -> StreamId {
        let first = self.streams.len();
        let view = self.view_of(spec);
        self.streams.resize(first + count, Stream::new(spec, view));
        first
    }

    /// Adds `count` streams to those given at creation, before any of a unit, and returns the
    /// first.
    pub(crate) fn add_fixed_streams(&mut self, spec: StreamSpec, count: usize) -> StreamId {
        assert_eq!(
            self.fixed,
            self.streams.len(),
            "a fixed stream is added after a stream of a unit"
        );
        let first = self.add_streams(spec, count);
        self.fixed = self.streams.len();
        first
    }

    /// Puts every good block of a new device into the pool.
    pub(crate) fn format(&mut self) {
        for block in self.geometry().all_blocks() {
            if self.table.state(block) == State::Free {
                self.add_free(block, true);
            }
        }
    }

    /// Sets the protection against power cuts. `pair_protection` is off only to demonstrate its
    /// purpose (docs/DURABILITY.md), never on a real device. Only a mount may take the last
    /// `kept_for_mount` free blocks. Many failing programs in a row may use up all others and make
    /// the device read-only; the mount after a cut can still rewrite what the cut left unstable.
    pub(crate) fn protect(&mut self, pair_protection: bool, kept_for_mount: u32) {
        self.set_pair_protection(pair_protection);
        self.kept_for_mount = kept_for_mount;
    }

    pub(super) fn set_pair_protection(&mut self, on: bool) {
        self.pair_protection = on;
        self.may_be_unsafe = on && self.flash.chip().pairs().span() > 0;
    }

    #[inline]
    pub(crate) fn geometry(&self) -> Geometry {
        *self.flash.geometry()
    }

    /// Returns the number of erased blocks that may be taken now: without those kept for a mount,
    /// unless it rewrites pages or GC borrows them. Blocks in SLC mode are not counted, here and
    /// below.
    #[inline]
    pub(crate) fn free_blocks(&self) -> u32 {
        if self.takes_kept {
            to_u32(self.pool.len())
        } else {
            self.free_besides_kept()
        }
    }

    /// Returns the number of erased blocks besides those kept for a mount.
    #[inline]
    pub(crate) fn free_besides_kept(&self) -> u32 {
        to_u32(self.pool.len()).saturating_sub(self.kept_for_mount)
    }

    /// Returns the number of free blocks that only a mount may take.
    pub(crate) fn kept_for_mount(&self) -> u32 {
        self.kept_for_mount
    }

    /// Returns the number of erased blocks on one die, with those kept for a mount.
    pub(crate) fn free_blocks_on(&self, die: u32) -> u32 {
        to_u32(self.pool.on_die(die))
    }

    /// Makes the stream open blocks of this die from now on, as long as it has any.
    pub(crate) fn prefer_die(&mut self, stream: StreamId, die: u32) {
        assert!(die < self.geometry().dies(), "die {die} does not exist");
        self.streams[stream].die = Some(die);
    }

    /// Makes the stream open its blocks on dies that are `step` apart, beginning with the one at
    /// this position, as long as these have free blocks.
    pub(crate) fn stripe(&mut self, stream: StreamId, position: u32, step: u8) {
        let first = self.geometry().die_after(0, position);
        self.prefer_die(stream, first);
        self.streams[stream].die_step = step;
    }

    /// Returns the number of released blocks that wait for their erase.
    #[inline]
    pub(crate) fn released_blocks(&self) -> u32 {
        match self.slc {
            None => to_u32(self.released.len()),
            Some(_) => to_u32(self.released.len()) - self.released_slc_blocks(),
        }
    }

    /// Returns the allocation number of the next block.
    pub(crate) fn next_epoch(&self) -> u64 {
        self.next_epoch
    }

    /// Returns roughly the pages written since the block with this allocation number was opened.
    pub(crate) fn written_since(&self, epoch: u64) -> u64 {
        (self.next_epoch - epoch) * self.geometry().pages_per_block as u64
    }

    /// Records that a mount found a block with this allocation number.
    pub(crate) fn observe_epoch(&mut self, epoch: u64) {
        self.next_epoch = self.next_epoch.max(epoch + 1);
    }

    /// Puts a block without valid pages into the pool. `confirmed`: its last erase is known to have
    /// ended. A block with programmed pages is erased again in any case, because the chip may have
    /// lost that erase.
    pub(crate) fn add_free(&mut self, block: Pbn, confirmed: bool) {
        assert!(
            !self.table.is_in_use(block),
            "block {block} is in use, but added to the free blocks"
        );
        if self.flash.chip().bad(block).is_some() {
            self.table.set_state(block, State::Bad);
            return;
        }
        self.table.set_state(block, State::Free);
        let blank = self.flash.chip().frontier(block) == 0;
        let erases = self.flash.chip().erase_count(block);
        self.pool_of(block).put(block, erases, confirmed && blank);
    }

    /// Returns the numbers of the free blocks whose last erase is known to have ended.
    pub(crate) fn confirmed_free(&self) -> Vec<u32> {
        let of_slc = self.slc.iter().flat_map(|slc| slc.pool.confirmed());
        self.pool.confirmed().chain(of_slc).map(Pbn::raw).collect()
    }

    /// Records that a mount found a block with valid pages; it takes no more programs.
    pub(crate) fn adopt_full(&mut self, block: Pbn, role: Role, epoch: u64) {
        assert_eq!(
            self.table.state(block),
            State::Free,
            "a mount found block {block} twice"
        );
        assert!(
            epoch < self.next_epoch,
            "epoch {epoch} of block {block} was not observed before it is adopted"
        );
        self.table.adopt_full(block, role, epoch);
        if self.flash.chip().bad(block).is_some() {
            self.failing.push(block);
        }
    }

    /// Continues a full block that a mount found after a clean shutdown, in this stream. None of
    /// its pages is unsafe.
    pub(crate) fn resume(&mut self, stream: StreamId, block: Pbn) {
        assert!(
            self.streams[stream].open.is_none(),
            "stream {stream} already has an open block"
        );
        assert_eq!(
            self.table.state(block),
            State::Full,
            "block {block} is not full, so it cannot be resumed"
        );
        let (role, epoch) = (self.streams[stream].spec.role, self.table.epoch(block));
        assert!(
            epoch < self.next_epoch,
            "epoch {epoch} of block {block} is not below the next epoch, {}",
            self.next_epoch
        );
        self.table.set_open(block, role, epoch);
        self.stream_of_block[block.index()] = to_u32(stream);
        let chip = self.flash.chip();
        let block = (block, chip.is_slc(block));
        let (next, end) = (chip.programmed(block.0), chip.pages_in(block.0));
        self.streams[stream].open = Some(OpenBlock::new(block, epoch, next, end));
    }

    /// Continues a full block that has room but no valid pages, in a stream without an open block.
    /// On chips that take pages in any order, the stream fills the gaps between programmed pages.
    pub(crate) fn reopen(&mut self, stream: StreamId, block: Pbn) {
        assert_eq!(
            self.table.valid_count(block),
            0,
            "block {block} has valid pages when it is reopened"
        );
        let chip = self.flash.chip();
        let gaps = chip.frontier(block) != chip.programmed(block);
        self.resume(stream, block);
        self.streams[stream]
            .open
            .as_mut()
            .expect("the stream has just resumed a block")
            .gaps = gaps;
    }

    /// Returns whether the stream can continue this block. If the stream appends, all programmed
    /// pages must be at the beginning.
    pub(crate) fn can_resume(&self, stream: StreamId, block: Pbn) -> bool {
        let chip = self.flash.chip();
        self.streams[stream].spec.in_place || chip.programmed(block) == chip.frontier(block)
    }

    /// Returns the number of streams.
    pub(crate) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns the state of a block for display.
    pub(crate) fn block_view(&self, block: Pbn) -> BlockView {
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
            valid: self.table.valid_count(block),
            age,
        }
    }

    /// Records an operation that began at `began`.
    pub(crate) fn note_event(
        &mut self,
        kind: EventKind,
        block: Option<Pbn>,
        pages: u32,
        began: Nanos,
    ) {
        let took = self.flash.now().saturating_sub(began);
        if kind == EventKind::Checkpoint {
            self.programs_at_checkpoint = self.programs();
        }
        self.events.note(Event {
            kind,
            block,
            pages,
            at: began,
            took,
        });
    }

    fn programs(&self) -> u64 {
        self.flash.chip().counters().total().programs
    }

    /// Returns the pages programmed since the last checkpoint, or since the mount began.
    pub(crate) fn pages_since_checkpoint(&self) -> u64 {
        self.programs() - self.programs_at_checkpoint
    }

    /// Takes a block out of use after a failed erase.
    pub(super) fn set_bad(&mut self, block: Pbn) {
        self.table.set_state(block, State::Bad);
        self.note_bad(block);
    }

    pub(super) fn note_bad(&mut self, block: Pbn) {
        assert!(
            self.flash.chip().bad(block).is_some(),
            "block {block} is bad here, and good on the chip"
        );
        self.note_event(EventKind::BadBlock, Some(block), 0, self.flash.now());
    }

    /// Returns the stream's open block and the number of its programmed pages.
    pub(crate) fn open_block(&self, stream: StreamId) -> Option<(Pbn, u32)> {
        self.streams[stream]
            .open
            .as_ref()
            .map(|open| (open.block, open.next))
    }

    /// Returns the pages that the stream can take before it needs another block.
    pub(crate) fn room(&self, stream: StreamId) -> u32 {
        let open = self.streams[stream].open.as_ref();
        open.map_or(0, |open| {
            open.end().saturating_sub(open.next + self.reserved_pages)
        })
    }

    /// Returns whether the stream can take a page without another block, and no block is failing.
    #[inline(always)]
    pub(crate) fn has_room(&self, stream: StreamId) -> bool {
        let (reserved, open) = (self.reserved_pages, &self.streams[stream].open);
        let has_room = |open: &OpenBlock| open.next + reserved < open.end();
        open.as_ref().is_some_and(has_room) && self.failing.is_empty()
    }

    /// Returns the pages that a block can take, unless it is in SLC mode.
    #[inline]
    pub(crate) fn pages_per_block(&self) -> u32 {
        self.flash.geometry().pages_per_block - self.reserved_pages
    }

    /// Returns the blocks that the stream opens for this many more pages.
    pub(crate) fn blocks_for(&self, stream: StreamId, pages: u32) -> u32 {
        pages
            .saturating_sub(self.room(stream))
            .div_ceil(self.pages_per_block())
    }

    /// Returns whether a unit's stream fills this block. Such a block may stay open as long as a
    /// full block stays full.
    pub(crate) fn is_open_for_unit(&self, block: Pbn) -> bool {
        self.table.state(block) == State::Open
            && index(self.stream_of_block[block.index()]) >= self.fixed
    }

    /// Returns the bytes of pool, streams and released blocks: now, and at most. At most an eighth
    /// of the blocks waits for its erase or for the confirmation of one.
    pub(crate) fn ram(&self) -> (u64, u64) {
        let streams = vec_bytes::<Stream>(self.streams.capacity())
            + vec_bytes::<Lane>(self.lanes.capacity())
            + vec_bytes::<u32>(self.stream_of_block.capacity());
        let of_slc = self.slc.as_ref().map(|slc| &slc.pool);
        let now = streams
            + self.pool.bytes()
            + of_slc.map_or(0, FreePool::bytes)
            + self.is_unsafe.bytes()
            + vec_bytes::<Released>(self.released.capacity())
            + vec_bytes::<Pbn>(self.failing.capacity());
        let blocks = u64::from(self.geometry().blocks);
        let most = streams
            + self.pool.bytes_most()
            + of_slc.map_or(0, FreePool::bytes_most)
            + UnsafeStreams::bytes_most(self.streams.len())
            + vec_most::<Released>(blocks / 8)
            + vec_most::<Pbn>(blocks / 64);
        (now, most)
    }
}
