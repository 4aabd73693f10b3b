//! Releasing blocks: a released block is erased when no new version of its pages can be lost any
//! more. Padding makes pages safe if an erase waits for it.
//!
//! If power fails between release and erase, mount finds a block without valid pages and erases it.

use super::{NEVER, Space, Stream, StreamId};
use crate::block_table::State;
use crate::convert::index;
use crate::error::FtlError;
use nand_model::{Cause, NandError, Pbn, Ppn, Store};

/// Released blocks that may wait for their erase before padding is programmed for them.
pub(super) const MAX_WAITING: u32 = 2;

/// Streams that hold the new versions of a released block's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplacedIn {
    Anywhere,
    /// This stream, or one of the fixed ones.
    Stream(StreamId),
}

/// A block without valid pages that waits for its erase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Released {
    pub(super) block: Pbn,
    /// Sequence number of the last program before its release.
    pub(super) seq: u64,
    pub(super) replaced_in: ReplacedIn,
}

impl<S: Store> Space<S> {
    /// Returns a full bad block that still has valid pages; GC takes it before any other.
    pub(crate) fn failing_block(&self) -> Option<Pbn> {
        self.failing.last().copied()
    }

    /// Releases a full block without valid pages. It is erased once no new version of its pages can
    /// be lost.
    pub(crate) fn release(&mut self, block: Pbn) {
        self.release_to(block, ReplacedIn::Anywhere);
    }

    /// Releases a block whose pages were replaced by pages of this stream or of the fixed ones:
    /// only those pages have to be safe.
    pub(crate) fn release_in_stream(&mut self, block: Pbn, stream: StreamId) {
        self.release_to(block, ReplacedIn::Stream(stream));
    }

    pub(super) fn release_to(&mut self, block: Pbn, replaced_in: ReplacedIn) {
        self.failing.retain(|b| *b != block);
        if self.flash.chip().bad(block).is_some() {
            self.table.set_state(block, State::Bad);
            return;
        }
        self.table.set_state(block, State::Released);
        self.released.push_back(Released {
            block,
            seq: self.flash.pseq(),
            replaced_in,
        });
    }

    /// Returns whether to program padding for released blocks. GC wants `wanted` free blocks, keeps
    /// `reserve`, and will take `needs` blocks for the next victim. A mount delays padding as long
    /// as possible, and so does a `patient` collector: padding between two GC runs would take more
    /// space than they free.
    pub(crate) fn should_pad_released(
        &self,
        wanted: u32,
        reserve: u32,
        needs: u32,
        patient: bool,
    ) -> bool {
        let (free, waiting) = (self.free_blocks(), self.released_blocks());
        let due = if patient || self.reserved_pages > 0 {
            free + waiting >= wanted || free < needs
        } else {
            waiting > MAX_WAITING || free < reserve
        };
        waiting > 0 && due
    }

    /// Programs the padding that released blocks wait for.
    pub(crate) fn pad_released(&mut self) -> Result<(), FtlError> {
        if self
            .released
            .iter()
            .any(|released| released.replaced_in == ReplacedIn::Anywhere)
        {
            return self.make_safe();
        }
        for at in 0..self.released.len() {
            if let ReplacedIn::Stream(stream) = self.released[at].replaced_in {
                self.make_stream_safe(stream)?;
            }
        }
        (0..self.fixed).try_for_each(|stream| self.make_stream_safe(stream))
    }

    /// Programs at most `most` pages of the padding that the oldest released block waits for.
    /// Returns their number.
    pub(crate) fn pad_oldest_released(&mut self, most: u32) -> Result<u32, FtlError> {
        let Some(&oldest) = self.released.front() else {
            return Ok(0);
        };
        let blank = vec![0; self.geometry().page_len()];
        let mut done = 0;
        while done < most
            && let Some(stream) = self.blocking_stream(oldest)
        {
            self.pad(stream, &blank)?;
            done += 1;
        }
        Ok(done)
    }

    /// Returns the maximal number of padding pages that make all pages of a stream safe.
    pub(crate) fn most_filler(&self) -> u32 {
        if self.pair_protection {
            self.flash.chip().pairs().span()
        } else {
            0
        }
    }

    /// Erases the released blocks that no unsafe page depends on. Returns the number of blocks that
    /// became free.
    pub(crate) fn erase_released(&mut self, cause: Cause) -> Result<u32, FtlError> {
        let before = self.free_blocks();
        while self.reclaim_one(cause)? {}
        Ok(self.free_blocks() - before)
    }

    /// Erases the first of those blocks. Returns false if there is none.
    pub(crate) fn reclaim_one(&mut self, cause: Cause) -> Result<bool, FtlError> {
        let Some(at) =
            (0..self.released.len()).find(|at| self.blocking_stream(self.released[*at]).is_none())
        else {
            return Ok(false);
        };
        let block = self.released[at].block;
        assert_eq!(
            (self.table.state(block), self.table.valid_count(block)),
            (State::Released, 0),
            "state and valid pages of released block {block}"
        );
        match self.flash.erase(block, cause) {
            Ok(()) => self.add_free(block, true),
            Err(NandError::EraseFailed(_)) => self.set_bad(block),
            Err(other) => return Err(other.into()),
        }
        self.released.remove(at);
        Ok(true)
    }

    /// Returns a stream with an unsafe page that delays the erase of this block.
    pub(super) fn blocking_stream(
        &mut self,
        Released {
            seq, replaced_in, ..
        }: Released,
    ) -> Option<StreamId> {
        debug_assert!(seq <= self.flash.pseq(), "a release after program {seq}");
        match replaced_in {
            ReplacedIn::Anywhere => self
                .oldest_unsafe_page()
                .filter(|(oldest, _)| *oldest <= seq)
                .map(|(_, stream)| stream),
            ReplacedIn::Stream(stream) => (0..self.fixed)
                .chain([stream])
                .find(|stream| self.oldest_unsafe(*stream) <= seq),
        }
    }

    /// Returns the sequence number of the oldest unsafe page, which the next program may destroy;
    /// all pages before it are safe. Returns `u64::MAX` if there is none.
    pub(crate) fn oldest_unsafe_pseq(&mut self) -> u64 {
        self.oldest_unsafe_page().map_or(NEVER, |(seq, _)| seq)
    }

    /// Returns the sequence number of the oldest unsafe page, and its stream.
    pub(super) fn oldest_unsafe_page(&mut self) -> Option<(u64, StreamId)> {
        let pairs = self.pair_protection.then(|| self.flash.chip().pairs());
        let oldest_of = |stream: &Stream| {
            stream
                .open
                .as_ref()
                .map_or(NEVER, |open| open.oldest_unsafe(pairs))
        };
        self.is_unsafe.oldest(&mut self.streams, oldest_of)
    }

    pub(super) fn oldest_unsafe(&self, stream: StreamId) -> u64 {
        let pairs = self.pair_protection.then(|| self.flash.chip().pairs());
        self.streams[stream]
            .open
            .as_ref()
            .map_or(NEVER, |open| open.oldest_unsafe(pairs))
    }

    /// Returns whether no later program can destroy this page.
    pub(crate) fn is_safe(&self, ppn: Ppn) -> bool {
        let geometry = self.geometry();
        let (block, offset) = (geometry.block_of(ppn), geometry.offset_of(ppn));
        if self.table.state(block) != State::Open {
            return true;
        }
        let open = self.streams[index(self.stream_of_block[block.index()])]
            .open
            .as_ref()
            .expect("it fills the block");
        !open.is_unsafe(
            self.pair_protection.then(|| self.flash.chip().pairs()),
            offset,
        )
    }

    /// Programs padding until no page of any stream can be lost.
    pub(crate) fn make_safe(&mut self) -> Result<(), FtlError> {
        while let Some((_, stream)) = self.oldest_unsafe_page() {
            self.make_stream_safe(stream)?;
        }
        Ok(())
    }

    /// Programs padding until no page of this stream can be lost.
    pub(crate) fn make_stream_safe(&mut self, stream: StreamId) -> Result<(), FtlError> {
        if self.oldest_unsafe(stream) == NEVER {
            return Ok(());
        }
        let blank = vec![0; self.geometry().page_len()];
        while self.oldest_unsafe(stream) < NEVER {
            self.pad(stream, &blank)?;
        }
        Ok(())
    }

    /// Programs one page of padding into the stream's open block.
    pub(super) fn pad(&mut self, stream: StreamId, blank: &[u8]) -> Result<(), FtlError> {
        let geometry = self.geometry();
        let open = self.streams[stream]
            .open
            .as_mut()
            .expect("only pages of an open block are unsafe");
        assert!(
            open.next < geometry.pages_per_block,
            "block {} has no room for filler",
            open.block
        );
        let ppn = geometry.page(open.block, open.next);
        match self.flash.program_padding(ppn, open.epoch, blank) {
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
}
