//! Giving blocks up: a released block is erased when nothing that replaced its pages can be lost
//! any more, and filler makes pages safe where something waits for it.
//!
//! If power fails between release and erase, a mount finds a block without live pages and erases
//! it.

use super::{NEVER, Space, Stream, StreamId};
use crate::block_table::State;
use crate::convert::index;
use crate::error::FtlError;
use nand_model::{Cause, NandError, Pbn, Ppn, Store};

/// Released blocks that may wait for their turn before filler hurries them.
pub(super) const MAX_WAITING: u32 = 2;

/// Where the pages lie that replaced those of a released block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heirs {
    Anywhere,
    /// In this stream, or in one of the fixed ones.
    Stream(StreamId),
}

/// A block that holds nothing live and waits for its erase.
#[derive(Clone, Copy, Debug)]
pub(super) struct Released {
    pub(super) block: Pbn,
    /// The last program before its release.
    pub(super) seq: u64,
    pub(super) heirs: Heirs,
}

impl<S: Store> Space<S> {
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

    pub(super) fn release_to(&mut self, block: Pbn, heirs: Heirs) {
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
        let blank = vec![0; self.geometry().page_len()];
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
        assert_eq!(
            (self.table.state(block), self.table.valid(block)),
            (State::Released, 0),
            "state and live pages of released block {block}"
        );
        match self.flash.erase(block, cause) {
            Ok(()) => self.add_free(block, true),
            Err(NandError::EraseFailed(_)) => self.set_bad(block),
            Err(other) => return Err(other.into()),
        }
        self.released.remove(at);
        Ok(true)
    }

    /// A stream with a page at risk that the erase of this block has to wait for.
    pub(super) fn waits_for(&mut self, Released { seq, heirs, .. }: Released) -> Option<StreamId> {
        debug_assert!(seq <= self.flash.pseq(), "a release after program {seq}");
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
    pub(super) fn oldest_at_risk(&mut self) -> Option<(u64, StreamId)> {
        let pairs = self.pair_protection.then(|| self.flash.chip().pairs());
        let oldest_of = |stream: &Stream| {
            stream
                .open
                .as_ref()
                .map_or(NEVER, |open| open.oldest_unsafe(pairs))
        };
        self.at_risk.oldest(&mut self.streams, oldest_of)
    }

    pub(super) fn oldest_unsafe(&self, stream: StreamId) -> u64 {
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
        let open = self.streams[index(self.filled_by[block.index()])]
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
        let blank = vec![0; self.geometry().page_len()];
        while self.oldest_unsafe(stream) < NEVER {
            self.pad(stream, &blank)?;
        }
        Ok(())
    }

    /// Programs one page of filler into the stream's open block.
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
}
