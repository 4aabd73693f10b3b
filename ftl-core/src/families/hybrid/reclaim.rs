//! Reclaiming: the log block to merge, and other relocations.

use super::logs::LogStream;
use super::policy::{LogReclaim, Policy};
use super::state::{COMMON, FIRST_LOG, Hybrid, HybridFtl, log_stream};
use crate::addr::Lpn;
use crate::block_table::State;
use crate::copy::{CopyBuffer, misplaced};
use crate::error::FtlError;
use crate::events::EventKind;
use crate::families::one_by_one::OneByOne;
use crate::format::{Flags, PageTag, Role};
use crate::gc::{GarbageCollect, GcState};
use crate::int::{narrow, to_u64};
use crate::space::{Space, StreamId};
use nand_model::{Cause, Pbn, Ppn};

impl<P: Policy> GarbageCollect for HybridFtl<P> {
    #[inline]
    fn parts(&mut self) -> (&mut Space, &mut GcState) {
        (&mut self.space, &mut self.gc)
    }

    fn blocks_to_move(&self, victim: Pbn) -> u32 {
        let valid = self.space.table.valid_count(victim);
        if self.space.is_mounting() {
            return self.space.blocks_for(COMMON, valid);
        }
        let logged = self.map.logs.get(victim).map_or(0, |log| log.valid);
        let merged = if logged > 0 || self.map.data.owner(victim).is_some() {
            1
        } else {
            0
        };
        let others = if self.map.data.owner(victim).is_some() {
            0
        } else {
            valid - logged
        };
        merged + self.space.blocks_for(COMMON, others)
    }

    fn select_victim(&mut self) -> Result<Option<Pbn>, FtlError> {
        let emptiest = self.space.table.greedy_victim();
        if self.space.is_mounting()
            || emptiest.is_some_and(|block| self.space.table.valid_count(block) == 0)
        {
            return Ok(emptiest);
        }
        let victim = self
            .map
            .with_policy_view(&self.space, |policy, view| policy.victim(view))
            .or(emptiest);
        victim.map_or(Ok(()), |victim| {
            self.map.seal_if_no_valid_pages(&mut self.space, victim)
        })?;
        Ok(victim)
    }

    fn frees_space(&mut self, victim: Pbn) -> bool {
        // A merge frees the log block, however many of its pages are valid.
        !self.space.is_mounting()
            || self.space.table.valid_count(victim) < self.space.pages_per_block()
    }

    fn prepare_victim(&mut self, block: Pbn) -> Result<bool, FtlError> {
        // The checkpoint of a clean shutdown is obsolete once the device is in use again.
        if self.space.table.role(block) == Role::Checkpoint {
            return Ok(false);
        }
        self.space.seal_block(block)?;
        Ok(true)
    }

    fn relocate_valid(&mut self, victim: Pbn, cause: Cause) -> Result<u32, FtlError> {
        self.withdrawn(victim, |ftl| {
            let outer = ftl.map.emptying.replace(victim);
            let moved = ftl.empty(victim, cause);
            ftl.map.emptying = outer;
            moved
        })
    }

    fn release_block(&mut self, block: Pbn) {
        self.map.emptying = self.map.emptying.filter(|emptied| *emptied != block);
        let merged = self.map.merged.take() == Some(block);
        if self.map.data.owner(block).is_some() || !self.space.table.is_in_use(block) {
            // It was promoted, or released when its replacement was complete.
            return;
        }
        let log = self
            .map
            .logs
            .get(block)
            .filter(|log| !log.replaced_elsewhere);
        let stream = log.and_then(|log| log.stream);
        if self.map.logs.get(block).is_some() {
            self.map.logs.remove_block(block);
            self.map.logs.note_reclaimed();
        }
        match stream.map(log_stream) {
            stream if merged => self.space.release_merged(block, stream),
            Some(stream) => self.space.release_in_stream(block, stream),
            None => self.space.release(block),
        }
    }

    fn use_worn_block(&mut self, block: Pbn) -> Result<(), FtlError> {
        match self.map.data.owner(block) {
            Some(lbn) => self.space.use_worn_block(self.map.data_stream(lbn)),
            None => Ok(()),
        }
    }

    fn idle_gc(&mut self) -> Result<Option<u32>, FtlError> {
        let empty = self
            .space
            .table
            .greedy_victim()
            .filter(|block| self.space.table.valid_count(*block) == 0);
        match empty.filter(|_| self.space.free_blocks() < 2 * self.gc.threshold) {
            Some(victim) => Ok(Some(self.collect(victim)?)),
            None => Ok(None),
        }
    }
}

impl<P: Policy> Hybrid<P> {
    /// Returns the stream of a data block that became a log block, if one has room.
    fn swapped(&self, space: &Space) -> Option<StreamId> {
        (self.first_swapped..self.first_data).find(|stream| space.room(*stream) > 0)
    }

    /// Releases a replaced data block. `cause` is that of the new data block.
    pub(super) fn release_replaced(
        &mut self,
        space: &mut Space,
        block: Pbn,
        replaced_by: StreamId,
        cause: Cause,
    ) {
        match cause {
            Cause::Merge => space.release_merged(block, Some(replaced_by)),
            _ => space.release_in_stream(block, replaced_by),
        }
    }

    /// Seals a block without valid pages. An open block with valid pages may become a data block.
    fn seal_if_no_valid_pages(&mut self, space: &mut Space, victim: Pbn) -> Result<(), FtlError> {
        if space.table.valid_count(victim) == 0 {
            space.seal_block(victim)
        } else {
            Ok(())
        }
    }
}

impl<P: Policy> HybridFtl<P> {
    /// Makes sure that the stream can take a page without touching the reserve.
    #[inline]
    pub(super) fn ensure_blocks(&mut self, stream: StreamId) -> Result<(), FtlError> {
        if self.space.room(stream) > 0 && self.space.failing_block().is_none() {
            return Ok(());
        }
        self.collect_and_maintain()
    }

    /// Keeps enough free blocks, and maintains the cells, before a block is opened.
    pub(super) fn collect_and_maintain(&mut self) -> Result<(), FtlError> {
        self.gc_until(self.gc.threshold + 1)?;
        self.maintain()
    }

    /// Makes sure that the log stream can take a page: merges log blocks until it may open another
    /// one.
    #[inline]
    pub(super) fn make_log_room(&mut self, stream: LogStream) -> Result<(), FtlError> {
        let id = log_stream(stream);
        if self.space.room(id) == 0 {
            self.make_log_blocks(stream)?;
        }
        self.ensure_blocks(id)
    }

    #[cold]
    fn make_log_blocks(&mut self, stream: LogStream) -> Result<(), FtlError> {
        loop {
            let id = log_stream(stream);
            if let Some(swapped) = self.map.swapped(&self.space).filter(|_| id == FIRST_LOG) {
                self.space.seal(id)?;
                self.space.hand_over(swapped, id);
                return Ok(());
            }
            match self.map.with_policy_view(&self.space, |policy, view| {
                policy.select_reclaim(stream, view)
            }) {
                Some(LogReclaim::Merge(victim)) => self.merge_and_erase(victim)?,
                Some(LogReclaim::Move(from, to)) => {
                    self.stalled_by(Cause::Gc, |ftl| ftl.move_to_log(from, to))?
                }
                None => return Ok(()),
            }
        }
    }

    /// Releases a replaced data block, or swaps it for a log block: the log block's pages are
    /// copied into the data block's free pages, and the log block is erased instead.
    pub(super) fn release_or_swap(
        &mut self,
        block: Pbn,
        replaced_by: StreamId,
        cause: Cause,
    ) -> Result<(), FtlError> {
        let chip = self.space.flash.chip();
        let free = self.space.geometry().pages_per_block - chip.programmed(block);
        let stream = (self.map.first_swapped..self.map.first_data)
            .find(|stream| self.space.open_block(*stream).is_none());
        // A bad block, or one in relocation because of its cells, stays out of use.
        let kept = chip.bad(block).is_none() && self.space.table.state(block) == State::Full;
        let usable = free > 0 && kept && self.map.emptying != Some(block);
        let other = stream.filter(|_| usable).and_then(|stream| {
            Some((
                stream,
                self.map
                    .with_policy_view(&self.space, |policy, view| policy.swap(free, view))?,
            ))
        });
        match other {
            Some((stream, log)) => self.swap(stream, block, log),
            None => {
                self.map
                    .release_replaced(&mut self.space, block, replaced_by, cause);
                Ok(())
            }
        }
    }

    fn swap(&mut self, stream: StreamId, block: Pbn, log: Pbn) -> Result<(), FtlError> {
        assert_ne!(block, log, "block {block} is to be swapped for itself");
        self.space.reopen(stream, block);
        self.map.logs.add_swapped(block, 0);
        self.with_pages(log, u32::MAX, Cause::Gc, |ftl, pages| {
            ftl.copy_to_log(pages, stream, 0)
        })?;
        self.map.logs.remove_block(log);
        self.map.logs.note_reclaimed();
        self.space.release_in_stream(log, stream);
        Ok(())
    }

    /// Copies loaded log pages into the open block of stream `id`, which belongs to a log stream.
    fn copy_to_log(
        &mut self,
        pages: &CopyBuffer,
        id: StreamId,
        stream: LogStream,
    ) -> Result<(), FtlError> {
        let page = self.space.geometry().page_len();
        for (i, data) in (0..pages.from.len()).zip(pages.data.chunks_exact(page)) {
            let tag = pages.tag(i);
            let lpn = Lpn::new(tag.lpn);
            if tag.lpn >= self.logical_pages || self.map.ppn_of(lpn) != Some(pages.from[i]) {
                return Err(misplaced(pages.from[i], tag.lpn));
            }
            let tag = PageTag {
                role: Role::Log,
                flags: tag.flags.with(Flags::COPY),
                ..tag
            };
            let to = self.space.append_page(id, tag, data, Cause::Gc)?;
            self.map.note_in_log(&mut self.space, lpn, to, Some(stream));
        }
        Ok(())
    }

    /// Copies the valid pages of a log block to another log stream, at most the room of one block
    /// per step: making room may merge other blocks, and with them pages of this one.
    fn move_to_log(&mut self, from: Pbn, to: LogStream) -> Result<(), FtlError> {
        self.map.emptying = Some(from);
        let began = self.space.flash.now();
        let mut moved = 0;
        let outcome = loop {
            // It may have been merged meanwhile because its cells failed.
            let valid = self
                .map
                .logs
                .get(from)
                .filter(|_| self.map.emptying == Some(from))
                .map_or(0, |log| log.valid);
            if valid == 0 {
                break Ok(());
            }
            match self
                .make_log_room(to)
                .and_then(|()| self.move_some_to_log(from, to))
            {
                Ok(pages) => moved += pages,
                Err(error) => break Err(error),
            }
        };
        if outcome.is_ok() && self.map.emptying == Some(from) {
            self.release_block(from);
        }
        self.map.emptying = None;
        self.gc.note_run(moved);
        outcome?;
        self.space
            .note_event(EventKind::Gc, Some(from), narrow(moved), began);
        self.space.erase_released(Cause::Gc)?;
        Ok(())
    }

    fn move_some_to_log(&mut self, from: Pbn, to: LogStream) -> Result<u64, FtlError> {
        if self.map.emptying != Some(from) {
            return Ok(0);
        }
        let id = log_stream(to);
        let room = match self.space.room(id) {
            // The stream will open a block.
            0 => self.space.pages_per_block(),
            room => room,
        };
        self.with_pages(from, room, Cause::Gc, |ftl, pages| {
            let moved = to_u64(pages.from.len());
            assert!(
                moved <= u64::from(room),
                "{moved} pages are moved, the stream had room for {room}"
            );
            ftl.copy_to_log(pages, id, to)?;
            Ok(moved)
        })
    }

    /// Merges the stream's newest block.
    #[cold]
    pub(super) fn merge_newest(&mut self, stream: LogStream) -> Result<(), FtlError> {
        match self.map.logs.newest(stream).map(|log| log.block) {
            Some(block) => self.merge_and_erase(block),
            None => Ok(()),
        }
    }

    /// Merges a log block and erases the released blocks.
    fn merge_and_erase(&mut self, victim: Pbn) -> Result<(), FtlError> {
        self.ensure_free()?;
        self.map.seal_if_no_valid_pages(&mut self.space, victim)?;
        if self.blocks_to_move(victim) > self.space.free_blocks() {
            return self.gc.end_life();
        }
        self.collect(victim)?;
        self.space.erase_released(Cause::Gc)?;
        Ok(())
    }

    /// Relocates all valid pages of a block, or makes it a data block. Merges that GC needs have
    /// their own cause. Returns the number of copied pages.
    fn empty(&mut self, victim: Pbn, cause: Cause) -> Result<u32, FtlError> {
        if self.space.is_mounting() {
            return self.move_to_common(victim, cause);
        }
        let mut moved = 0;
        let of_merge = match cause {
            Cause::Gc => Cause::Merge,
            other => other,
        };
        let merges = self.map.data.owner(victim).is_some()
            || self.map.logs.get(victim).is_some_and(|log| log.valid > 0);
        self.map.merged = Some(victim).filter(|_| merges && of_merge == Cause::Merge);
        if let Some(lbn) = self.map.data.owner(victim) {
            return self.merge(lbn, None, of_merge);
        }
        while let Some(lbn) = self
            .map
            .logs
            .get(victim)
            .and_then(|log| log.associated.last())
            .map(|(lbn, _)| *lbn)
        {
            moved += self.merge(lbn, Some(victim), of_merge)?;
            if self.map.data.owner(victim).is_some() {
                return Ok(moved);
            }
        }
        assert!(
            self.map.logs.get(victim).is_none_or(|log| log.valid == 0),
            "log block {victim} has valid pages after its merges"
        );
        self.space.seal_block(victim)?;
        if self.space.table.valid_count(victim) > 0 {
            moved += self.move_to_common(victim, cause)?;
        }
        Ok(moved)
    }

    /// Copies the valid pages of a block to the common blocks: trim records, and all pages during a
    /// mount.
    fn move_to_common(&mut self, victim: Pbn, cause: Cause) -> Result<u32, FtlError> {
        let moved = self.copy_pages(victim, u32::MAX, cause);
        if let Some(lbn) = self.map.data.owner(victim).filter(|_| moved.is_ok()) {
            self.map.data.take_block(lbn);
        }
        moved
    }
}

impl<P: Policy> OneByOne for HybridFtl<P> {
    fn owner_of_page(&mut self, ppn: Ppn, _: Cause) -> Result<Option<Lpn>, FtlError> {
        let map = &self.map;
        Ok(match map.data.owner(self.space.geometry().block_of(ppn)) {
            Some(lbn) => map.pages_of(lbn).find(|lpn| map.ppn_of(*lpn) == Some(ppn)),
            None => map.logs.page_at(ppn),
        })
    }

    fn copy_host_page(
        &mut self,
        from: Ppn,
        tag: PageTag,
        data: &[u8],
        cause: Cause,
    ) -> Result<(), FtlError> {
        let (map, space) = (&mut self.map, &mut self.space);
        if tag.role == Role::Pad {
            // Its record is unreadable, and no table maps it.
            space.table.set_invalid(from);
            return Ok(());
        }
        let lpn = Lpn::new(tag.lpn);
        if tag.lpn >= map.logical_pages || map.ppn_of(lpn) != Some(from) {
            return Err(misplaced(from, tag.lpn));
        }
        let tag = PageTag {
            role: Role::Log,
            ..tag
        };
        let to = space.append_page(COMMON, tag, data, cause)?;
        map.note_in_log(space, lpn, to, None);
        Ok(())
    }
}
