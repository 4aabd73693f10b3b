//! Releasing blocks: a released block is erased when no new version of its pages can be lost any
//! more. `padding.rs` makes the pages safe that an erase waits for.
//!
//! If power fails between release and erase, mount finds a block without valid pages and erases it.

use super::state::Space;
use super::streams::StreamId;
use crate::block_table::State;
use crate::error::FtlError;
use crate::int::to_u32;
use nand_model::{Cause, NandError, Pbn};

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
    /// Whether a merge emptied it: then its erase has that cause.
    merged: bool,
}

impl Space {
    /// Returns a full bad block that still has valid pages; GC takes it before any other.
    pub(crate) fn failing_block(&self) -> Option<Pbn> {
        self.failing.last().copied()
    }

    /// Releases a full block without valid pages. It is erased once no new version of its pages can
    /// be lost.
    pub(crate) fn release(&mut self, block: Pbn) {
        self.release_to(block, ReplacedIn::Anywhere, false);
    }

    /// Releases a block whose pages were replaced by pages of this stream or of the fixed ones:
    /// only those pages have to be safe.
    pub(crate) fn release_in_stream(&mut self, block: Pbn, stream: StreamId) {
        self.release_to(block, ReplacedIn::Stream(stream), false);
    }

    /// Releases a block that a merge emptied. `stream` as in [`Space::release_in_stream`]; `None`
    /// as in [`Space::release`].
    pub(crate) fn release_merged(&mut self, block: Pbn, stream: Option<StreamId>) {
        let replaced_in = stream.map_or(ReplacedIn::Anywhere, ReplacedIn::Stream);
        self.release_to(block, replaced_in, true);
    }

    fn release_to(&mut self, block: Pbn, replaced_in: ReplacedIn, merged: bool) {
        self.failing.retain(|b| *b != block);
        if self.flash.chip().bad(block).is_some() {
            self.table.set_state(block, State::Bad);
            return;
        }
        assert!(
            self.table.is_in_use(block),
            "block {block} is released in state {:?}",
            self.table.state(block)
        );
        debug_assert!(
            !self
                .streams
                .iter()
                .any(|stream| { stream.open.is_some_and(|open| open.block == block) }),
            "block {block} is released while a stream has it open"
        );
        self.table.set_state(block, State::Released);
        self.released.push_back(Released {
            block,
            seq: self.flash.pseq(),
            replaced_in,
            merged,
        });
    }

    /// Erases the released blocks that no unsafe page depends on. `cause` does not apply to blocks
    /// that a merge emptied, nor to those in SLC mode. Returns the number of other blocks that
    /// became free.
    pub(crate) fn erase_released(&mut self, cause: Cause) -> Result<u32, FtlError> {
        let before = self.pool.len();
        while self.erase_one_released(cause)? {}
        Ok(to_u32(self.pool.len() - before))
    }

    /// Erases the first of those blocks. Returns false if there is none.
    pub(crate) fn erase_one_released(&mut self, cause: Cause) -> Result<bool, FtlError> {
        let Some(at) =
            (0..self.released.len()).find(|at| self.blocking_stream(self.released[*at]).is_none())
        else {
            return Ok(false);
        };
        if self.geometry().joint_planes() > 1 {
            return self.erase_together(at, cause).map(|()| true);
        }
        self.erase_released_at(at, cause)?;
        Ok(true)
    }

    /// Erases this released block, and with it others that may be erased and are on other planes of
    /// its die: one operation of a chip with multi-plane commands.
    fn erase_together(&mut self, at: usize, cause: Cause) -> Result<(), FtlError> {
        let geometry = self.geometry();
        let of = |space: &Space, at: usize| {
            let block = space.released[at].block;
            (geometry.die_of(block), geometry.plane_of(block))
        };
        let (die, plane) = of(self, at);
        let (mut places, mut planes) = (vec![at], 1u64 << plane);
        for other in at + 1..self.released.len() {
            let (on, plane) = of(self, other);
            let is_joint = on == die && planes >> plane & 1 == 0;
            if is_joint && self.blocking_stream(self.released[other]).is_none() {
                planes |= 1 << plane;
                places.push(other);
            }
        }
        let mut parts = self.flash.begin_parts();
        // From the back, so that the places stay.
        for at in places.into_iter().rev() {
            self.flash.next_part(&mut parts);
            self.erase_released_at(at, cause)?;
        }
        self.flash.end_parts(parts);
        Ok(())
    }

    fn erase_released_at(&mut self, at: usize, cause: Cause) -> Result<(), FtlError> {
        let Released { block, merged, .. } = self.released[at];
        let cause = if merged {
            Cause::Merge
        } else if self.flash.chip().is_slc(block) {
            Cause::Fold
        } else {
            cause
        };
        assert_eq!(
            (self.table.state(block), self.table.valid_count(block)),
            (State::Released, 0),
            "block {block} is to be erased, but not released, or has valid pages"
        );
        match self.stalled_by(cause, |space| space.flash.erase(block, cause)) {
            Ok(()) => {
                self.note_erased(block);
                self.add_free(block, true);
            }
            Err(NandError::EraseFailed(_)) => self.set_bad(block),
            Err(other) => return Err(other.into()),
        }
        self.released.remove(at);
        Ok(())
    }

    /// Returns a stream with an unsafe page that delays the erase of this block.
    pub(super) fn blocking_stream(
        &mut self,
        Released {
            seq, replaced_in, ..
        }: Released,
    ) -> Option<StreamId> {
        debug_assert!(
            seq <= self.flash.pseq(),
            "a block was released after program {seq}, which is newer than the last program"
        );
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
}
