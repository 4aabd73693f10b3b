//! Selection of a page's stream by the placement, and operations on all data streams.

use super::policy::Policy;
use super::state::{CHECKPOINT, PagedFtl, PagedMap};
use crate::addr::Lpn;
use crate::error::FtlError;
use crate::format::Oob;
use crate::gc::policy::HostWrite;
use crate::space::{Space, StreamId};
use nand_model::{Pbn, Ppn};

/// Lifespan of a mapped version that is neither pending nor cached.
const LONG_AGO: u64 = u64::MAX;

impl<P: Policy> PagedMap<P> {
    /// Reports the lifetime of a data block to the placement, before GC empties the block.
    pub(super) fn note_collected(&mut self, space: &Space, victim: Pbn) {
        let lifetime = space.written_since(space.table.epoch(victim));
        self.streams.collected(victim, lifetime);
    }

    /// Closes the open blocks of all data streams.
    pub(super) fn seal_data(&mut self, space: &mut Space) -> Result<(), FtlError> {
        let streams = self.streams.host().iter();
        let mut streams = streams.chain(self.streams.copies());
        streams.try_for_each(|stream| space.seal(*stream))
    }

    /// Adds the block of a page that this stream just programmed to the pending blocks.
    #[inline]
    pub(super) fn track_buffer_block(&mut self, space: &Space, ppn: Ppn, stream: StreamId) {
        let block = space.flash.geometry().block_of(ppn);
        self.streams.note(space, block, stream);
        if !self.pending.holds(block) {
            self.pending.add_block(block, space.table.epoch(block));
        }
    }
}

impl<P: Policy> PagedFtl<P> {
    /// Returns the stream of the host's next pages, of `count` from `first` on. Also returns the
    /// number of pages for it, and whether they were looked up.
    #[inline]
    pub(super) fn stream_of_write(
        &mut self,
        first: Lpn,
        count: u32,
    ) -> Result<(StreamId, u32, bool), FtlError> {
        match self.map.streams.only_for_host() {
            Some(only) => Ok((only, count, false)),
            None => {
                self.map.streams.pass_block_events(&mut self.space);
                let (replaces, lifespan, is_known) = match self.map.streams.wants_lifespan() {
                    true => self.replaced(first, count - 1)?,
                    false => (None, None, false),
                };
                let write = HostWrite {
                    lpn: first,
                    hint: self.write_hint,
                    replaces,
                    lifespan,
                    now: self.next_ver,
                };
                let stream = self.map.streams.of_write(&write);
                let count = match self.map.streams.pages_in_turn() {
                    1 => 1,
                    _ => self.map.groups.run_of_write(first.raw(), count),
                };
                Ok((stream, count, is_known))
            }
        }
    }

    /// Returns the block of the version that a write is about to replace, the pages written since
    /// that block was opened, and whether the page was looked up. A scheme that does not look up
    /// writes gets no block and [`LONG_AGO`] for a version that is not in RAM.
    fn replaced(
        &mut self,
        lpn: Lpn,
        more: u32,
    ) -> Result<(Option<Pbn>, Option<u64>, bool), FtlError> {
        let pending = self.map.pending.get(lpn.raw()).map(|entry| entry.ppn());
        let (old, is_known) = match pending.or_else(|| self.map.policy.peek(lpn.raw())) {
            Some(old) => (old, false),
            None if !self.map.mapped.has(lpn.raw()) => (None, false),
            None if P::LOOKS_UP_WRITES => (
                self.locate(lpn, more, |stats| &mut stats.lookups_write)?,
                true,
            ),
            None => return Ok((None, Some(LONG_AGO), false)),
        };
        let block = old.map(|old| self.space.geometry().block_of(old));
        let lifespan = block.map(|block| self.space.written_since(self.space.table.epoch(block)));
        Ok((block, lifespan, is_known))
    }

    /// Returns the stream of the next copies out of the victim, and the number of pages for it. The
    /// candidates are `run` pages in the copy buffer from `next` on. If the stream has to open a
    /// block, the areas have room for it.
    pub(super) fn place_copies(
        &mut self,
        victim: Pbn,
        next: usize,
        run: usize,
    ) -> Result<(StreamId, usize), FtlError> {
        debug_assert!(
            run > 0 && next + run <= self.gc.pages.records.len(),
            "pages {next} to {} of {} loaded ones",
            next + run,
            self.gc.pages.records.len()
        );
        let (stream, some) = self.stream_of_copies(victim, next, run);
        if self.space.room(stream) > 0 {
            return Ok((stream, some));
        }
        while self.convert_one(1)? {}
        self.map.advance_window(&mut self.space)?;
        // The conversions took blocks, so the copies may have to join others now.
        Ok(self.stream_of_copies(victim, next, run))
    }

    /// Returns the stream and the number of pages as [`Self::place_copies`] does. A mount opens as
    /// few blocks as possible: the next mount lacks each of them.
    fn stream_of_copies(&mut self, victim: Pbn, next: usize, run: usize) -> (StreamId, usize) {
        if let Some(only) = self.map.streams.one_for_copies() {
            return (only, run);
        }
        self.map.streams.pass_block_events(&mut self.space);
        let most = self.map.streams.pages_in_turn();
        let (space, now, streams) = (&self.space, self.next_ver, &mut self.map.streams);
        let is_short = space.free_blocks() <= self.gc.reserve || space.is_mounting();
        let mut records = self.gc.pages.records[next..next + run].iter();
        let mut of = |record| {
            let (lpn, age) = (Oob::data_page(record), now.saturating_sub(Oob::ver(record)));
            streams.of_copy(space, (lpn, victim), age, now, is_short)
        };
        let first = of(records.next().expect("a run has at least one page"));
        let others = records.take(most - 1);
        let others = others.take_while(|record| of(record) == first).count();
        (first, 1 + others)
    }

    /// Returns the streams with pages of the host or the map.
    pub(super) fn streams_of_content(&self) -> impl Iterator<Item = StreamId> + use<P> {
        (0..self.space.streams()).filter(|stream| *stream != CHECKPOINT)
    }
}
