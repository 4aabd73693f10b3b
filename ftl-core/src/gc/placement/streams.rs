//! The streams of data of a device, and their lanes.

use crate::addr::Lpn;
use crate::gc::policy::{HostWrite, InvalidPage, PageCopy, Policy};
use crate::gc::selected::{Policies, STREAMS_MAX};
use crate::int::{index, low_u8};
use crate::space::{BlockEvent, Space, StreamId, StreamSpec};
use nand_model::{Pbn, Ppn};

/// Policies, and the lanes of each of their streams: on this many dies, one per plane.
pub(crate) struct Striped {
    pub(super) policies: Policies,
    pub(super) dies: u32,
    pub(super) planes: u32,
}

impl Striped {
    /// Returns the lanes of host data, and of copies alongside them.
    pub(crate) fn lanes(&self) -> (u32, u32) {
        let (host, copies) = self.policies.streams();
        let lanes = self.dies * self.planes;
        (host * lanes, copies * lanes)
    }
}

/// Streams of data, and the policies that choose among them. Each has `stripe` lanes; a lane is one
/// [`StreamId`].
pub(crate) struct DataStreams {
    policies: Policies,
    stripe: usize,
    /// Lanes, `stripe` for each stream of the placement.
    host: Vec<StreamId>,
    copies: Vec<StreamId>,
    /// The lane of all writes of the host, if no policy chooses it.
    only_for_host: Option<StreamId>,
    /// Whether the policy for streams is asked for each write of the host.
    is_asked: bool,
    /// Whether copies stay on one lane.
    keeps_lane: bool,
    /// By stream of the placement: which of its lanes takes the next page.
    next: [u8; 2 * STREAMS_MAX as usize],
    /// By block: the number of the placement's stream that filled it last. Empty if the placement
    /// does not need it.
    stream_of_block: Vec<u8>,
    /// By block: the time when it was opened, 0 if that was before the mount. Empty if no policy
    /// needs it.
    opened_at: Vec<u64>,
    /// By number of the lane: the block that it filled last.
    last_block: Vec<Option<Pbn>>,
    /// By stream of the space: the number of its lane.
    lane_of_stream: Vec<u16>,
}

/// A stream of the space that is no lane.
const NO_LANE: u16 = u16::MAX;

impl DataStreams {
    /// Creates the streams of this placement. `host` and `copies` are the first stream of either
    /// kind; further ones are added to the space.
    pub(crate) fn new(
        striped: Striped,
        space: &mut Space,
        host: (StreamId, StreamSpec),
        copies: (StreamId, StreamSpec),
    ) -> Self {
        let Striped {
            policies,
            dies,
            planes,
        } = striped;
        let stripe = dies * planes;
        let (hosts, others) = policies.streams();
        let every_page = policies.need_every_page();
        if policies.want_order() {
            space.table.keep_order_of_closing();
        }
        if every_page {
            space.log_blocks();
        }
        let mut add = |(first, spec): (StreamId, StreamSpec), count: u32| {
            let lanes = count * stripe;
            let streams: Vec<_> = std::iter::once(first)
                .chain((1..lanes).map(|lane| {
                    let number = if count > 1 { 1 + lane / stripe } else { 0 };
                    let number = low_u8(u64::from(number));
                    space.add_fixed_streams(StreamSpec { number, ..spec }, 1)
                }))
                .collect();
            if count > 1 {
                space.number_first(first);
            }
            if dies > 1 {
                // Another stream begins on another die.
                for (i, stream) in (0..).zip(&streams) {
                    space.stripe(*stream, i / stripe + i % stripe / planes, dies as u8);
                }
            }
            if planes > 1 {
                space.join_planes(&streams);
            }
            streams
        };
        let host_streams = add(host, hosts);
        let copy_streams = match others {
            0 => host_streams.clone(),
            _ => add(copies, others),
        };
        let is_asked = hosts > 1 || others > 1 || every_page;
        let blocks = if is_asked {
            space.geometry().block_slots()
        } else {
            0
        };
        let mut lane_of_stream = vec![NO_LANE; space.streams()];
        // If copies share the streams of the host, a stream has the lane number of the host.
        for (lane, stream) in (0u16..).zip(host_streams.iter().chain(&copy_streams)) {
            let known = &mut lane_of_stream[*stream];
            *known = u16::min(*known, lane);
        }
        DataStreams {
            is_asked: hosts > 1 || every_page,
            last_block: vec![None; host_streams.len() + copy_streams.len()],
            opened_at: vec![0; if policies.need_age() { blocks } else { 0 }],
            lane_of_stream,
            policies,
            only_for_host: match host_streams[..] {
                [only] if !every_page => Some(only),
                _ => None,
            },
            stripe: index(stripe),
            keeps_lane: false,
            host: host_streams,
            copies: copy_streams,
            next: [0; 2 * STREAMS_MAX as usize],
            stream_of_block: vec![0; blocks],
        }
    }

    /// Returns the lanes of host data.
    pub(crate) fn host(&self) -> &[StreamId] {
        &self.host
    }

    /// Returns the lanes of copies; with one stream for all, those of the host.
    pub(crate) fn copies(&self) -> &[StreamId] {
        &self.copies
    }

    /// Returns the lane of all writes of the host, if no policy chooses it.
    #[inline(always)]
    pub(crate) fn only_for_host(&self) -> Option<StreamId> {
        self.only_for_host
    }

    /// Returns the lane of all copies, if no policy chooses it.
    pub(crate) fn one_for_copies(&self) -> Option<StreamId> {
        (self.copies.len() == 1 && !self.need_every_page()).then(|| self.copies[0])
    }

    /// Returns whether a policy needs a call for every page.
    #[inline(always)]
    pub(crate) fn need_every_page(&self) -> bool {
        self.policies.need_every_page()
    }

    /// Returns whether a policy uses the replaced version of a write, and its lifespan.
    pub(crate) fn wants_lifespan(&self) -> bool {
        self.is_asked && self.policies.need_replaced()
    }

    /// Returns the number of pages at most that may go to one lane before the next is asked for.
    pub(crate) fn pages_in_turn(&self) -> usize {
        match self.stripe > 1 && !self.keeps_lane || self.need_every_page() {
            true => 1,
            false => usize::MAX,
        }
    }

    /// Makes copies stay on one lane, or not: those of cold pages share a worn block.
    pub(crate) fn keep_lane(&mut self, keeps: bool) {
        self.keeps_lane = keeps;
    }

    /// Returns the lane of a host write; see [`Policy::stream_of_write`].
    pub(crate) fn of_write(&mut self, write: &HostWrite) -> StreamId {
        let wanted = match self.is_asked {
            true => index(self.policies.stream_of_write(write)),
            false => 0,
        };
        self.host[wanted * self.stripe + usize::from(self.next[wanted])]
    }

    /// Records that GC is about to take a block, `lifetime` pages after it was opened.
    pub(crate) fn collected(&mut self, block: Pbn, lifetime: u64) {
        let from = self.stream_of_block(block);
        let times = (lifetime, self.age_of(block));
        self.policies.on_collect(block, from, times);
    }

    /// Returns the time since a block was opened.
    fn age_of(&self, block: Pbn) -> u64 {
        match self.opened_at.get(block.index()) {
            None | Some(0) => u64::MAX,
            Some(opened) => self.policies.now().saturating_sub(*opened),
        }
    }

    /// Reports that a page of the host has just become invalid, at time `now`.
    #[cold]
    pub(crate) fn invalidated(
        &mut self,
        space: &mut Space,
        (lpn, ppn): (Lpn, Ppn),
        is_trim: bool,
        now: u64,
    ) {
        self.pass_block_events(space);
        let block = space.geometry().block_of(ppn);
        self.policies.on_invalidate(&InvalidPage {
            lpn,
            block,
            stream: self.stream_of_block(block),
            age: space.written_since(space.table.epoch(block)),
            is_trim,
            now,
        });
    }

    /// Reports the blocks that were filled or erased since the last call.
    #[inline(always)]
    pub(crate) fn pass_block_events(&mut self, space: &mut Space) {
        if self.need_every_page() {
            self.pass_events(space);
        }
    }

    #[cold]
    fn pass_events(&mut self, space: &mut Space) {
        for event in space.take_block_events() {
            match event {
                BlockEvent::Erased(block) => self.policies.on_erase(block),
                BlockEvent::Sealed {
                    block,
                    stream,
                    lifetime,
                } => {
                    if let Some(lane) = self.find_number(stream) {
                        let stream = (lane / self.stripe) as u32;
                        let times = (lifetime, self.age_of(block));
                        self.policies.on_seal(block, stream, times);
                    }
                }
            }
        }
    }

    /// Returns the policy that chooses victims; `None` is greedy.
    pub(crate) fn policy_of_victims(&mut self) -> Option<&mut dyn Policy> {
        self.policies.of_victims()
    }

    /// Returns the stream of the copies of a whole block with cold pages.
    pub(crate) fn of_cold_block(&mut self, space: &Space, block: Pbn, now: u64) -> StreamId {
        let age = space.written_since(space.table.epoch(block));
        self.of_copy(space, (None, block), age, now, false)
    }

    /// Returns the stream of a copy of this logical page, if it has one, from this block. If blocks
    /// are short (`is_short`) and the stream would open one, returns another copy stream that has
    /// room.
    pub(crate) fn of_copy(
        &mut self,
        space: &Space,
        (lpn, block): (Option<Lpn>, Pbn),
        age: u64,
        now: u64,
        is_short: bool,
    ) -> StreamId {
        let stream = self.stream_of_block(block);
        let wanted = index(self.policies.stream_of_copy(&PageCopy {
            lpn,
            block,
            stream,
            age,
            now,
        }));
        let wanted = wanted - self.first_of_copies();
        let turn = self.next[self.first_of_copies() + wanted];
        let stream = self.copies[wanted * self.stripe + usize::from(turn)];
        if !is_short || space.room(stream) > 0 {
            return stream;
        }
        let open = self
            .copies
            .iter()
            .copied()
            .find(|copy| space.room(*copy) > 0);
        open.unwrap_or(stream)
    }

    /// Returns the blocks that copies of `pages` pages may open.
    pub(crate) fn blocks_for_copies(&self, space: &Space, pages: u32) -> u32 {
        let room: u32 = self.copies.iter().map(|copy| space.room(*copy)).sum();
        match pages.saturating_sub(room) {
            0 => 0,
            // Without a division for the pages of one block.
            rest if rest <= space.pages_per_block() => 1,
            rest => rest.div_ceil(space.pages_per_block()),
        }
    }

    /// Returns a host stream for copies if no block is free, no copy stream has room, and this one
    /// has.
    pub(crate) fn host_in_need(&self, space: &Space) -> Option<StreamId> {
        let with_room = |streams: &[StreamId]| {
            let mut streams = streams.iter().copied();
            streams.find(|stream| space.room(*stream) > 0 && !space.is_slc_stream(*stream))
        };
        match space.free_blocks() {
            0 if with_room(&self.copies).is_none() => with_room(&self.host),
            _ => None,
        }
    }

    /// Returns the pages that the open blocks of host streams can take. Streams that copies use
    /// anyway are left out: [`Self::blocks_for_copies`] counts them.
    pub(crate) fn room_of_host(&self, space: &Space) -> u32 {
        let is_apart =
            |host: &&StreamId| !self.copies.contains(host) && !space.is_slc_stream(**host);
        let apart = self.host.iter().filter(is_apart);
        apart.map(|stream| space.room(*stream)).sum()
    }

    /// Records that this stream programmed a page of this block.
    #[inline(always)]
    pub(crate) fn note(&mut self, space: &Space, block: Pbn, stream: StreamId) {
        if self.stripe > 1 || !self.stream_of_block.is_empty() {
            self.note_lane(space, block, stream);
        }
    }

    fn note_lane(&mut self, space: &Space, block: Pbn, stream: StreamId) {
        let number = self.number_of(stream);
        let (of_placement, turn) = (number / self.stripe, number % self.stripe);
        if !self.keeps_lane {
            let all = if number < self.host.len() {
                &self.host[of_placement * self.stripe..]
            } else {
                &self.copies[number - turn - self.host.len()..]
            };
            self.next[of_placement] = space.lane_after(&all[..self.stripe], turn) as u8;
        }
        let Some(stream_of_block) = self.stream_of_block.get_mut(block.index()) else {
            return;
        };
        let last = self.last_block[number].replace(block);
        if (last, *stream_of_block) != (Some(block), of_placement as u8) {
            *stream_of_block = of_placement as u8;
            if let Some(opened) = self.opened_at.get_mut(block.index()) {
                *opened = self.policies.now();
            }
        }
    }

    /// Returns the placement's number of the first stream of copies. With a single stream, it is
    /// the stream of the host.
    fn first_of_copies(&self) -> usize {
        match self.copies[0] == self.host[0] {
            true => 0,
            // Without a division.
            false => index(self.policies.streams().0),
        }
    }

    /// Returns the number of a lane among those of host data, then of copies.
    fn number_of(&self, stream: StreamId) -> usize {
        self.find_number(stream)
            .expect("the stream is of the placement")
    }

    fn find_number(&self, stream: StreamId) -> Option<usize> {
        let lane = self.lane_of_stream.get(stream).copied()?;
        (lane != NO_LANE).then_some(usize::from(lane))
    }

    fn stream_of_block(&self, block: Pbn) -> u32 {
        self.stream_of_block
            .get(block.index())
            .copied()
            .unwrap_or(0) as u32
    }

    /// Returns the bytes of the streams and of the policies: as a paper would count them, and as
    /// allocated.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        let (paper, real) = self.policies.bytes();
        let of_blocks = self.stream_of_block.len() + 8 * self.opened_at.len();
        (paper, real + of_blocks as u64)
    }
}
