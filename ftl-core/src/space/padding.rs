//! Padding: programs without data that make unsafe pages safe, at a FLUSH, for a checkpoint, and
//! when the erase of a released block waits for it (`release.rs`).
//!
//! If power fails during padding, the pages are as unsafe as before it, and nothing was
//! acknowledged or erased.

use super::release::ReplacedIn;
use super::state::Space;
use super::streams::{NEVER, Stream, StreamId};
use crate::block_table::State;
use crate::error::FtlError;
use crate::int::index;
use nand_model::{Cause, NandError, Ppn};

/// Released blocks that may wait for their erase before padding is programmed for them.
pub(super) const MAX_WAITING: u32 = 2;

impl Space {
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
    pub(crate) fn most_padding(&self) -> u32 {
        if self.pair_protection {
            self.flash.chip().pairs().span()
        } else {
            0
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
            .expect("the stream of an open block has it open");
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

    /// Programs padding until no page of these streams can be lost. They start together; with
    /// multi-plane commands a page of each is programmed in turn, so that they share array times.
    pub(crate) fn make_streams_safe(&mut self, streams: &[StreamId]) -> Result<(), FtlError> {
        if streams
            .iter()
            .all(|stream| self.oldest_unsafe(*stream) == NEVER)
        {
            return Ok(());
        }
        if self.geometry().joint_planes() > 1 {
            return self.stalled_by(Cause::Pad, |space| space.pad_together(streams));
        }
        let mut parts = self.flash.begin_parts();
        for stream in streams {
            self.flash.next_part(&mut parts);
            self.make_stream_safe(*stream)?;
        }
        self.flash.end_parts(parts);
        Ok(())
    }

    fn pad_together(&mut self, streams: &[StreamId]) -> Result<(), FtlError> {
        let blank = vec![0; self.geometry().page_len()];
        let mut padded = true;
        while std::mem::take(&mut padded) {
            let mut parts = self.flash.begin_parts();
            for stream in streams {
                if self.oldest_unsafe(*stream) < NEVER {
                    self.flash.next_part(&mut parts);
                    self.pad(*stream, &blank)?;
                    padded = true;
                }
            }
            self.flash.end_parts(parts);
        }
        Ok(())
    }

    /// Programs padding until no page of this stream can be lost.
    pub(crate) fn make_stream_safe(&mut self, stream: StreamId) -> Result<(), FtlError> {
        if self.oldest_unsafe(stream) == NEVER {
            return Ok(());
        }
        self.stalled_by(Cause::Pad, |space| {
            let blank = vec![0; space.geometry().page_len()];
            let mut padded = 0;
            while space.oldest_unsafe(stream) < NEVER {
                space.pad(stream, &blank)?;
                padded += 1;
                assert!(
                    padded <= space.geometry().pages_per_block,
                    "{padded} pages of padding do not make stream {stream} safe"
                );
            }
            Ok(())
        })
    }

    /// Programs one page of padding into the stream's open block.
    pub(super) fn pad(&mut self, stream: StreamId, blank: &[u8]) -> Result<(), FtlError> {
        let geometry = self.geometry();
        let Stream { open, view, .. } = &mut self.streams[stream];
        let open = open
            .as_mut()
            .expect("a stream with unsafe pages has an open block");
        assert!(
            open.next < open.end(),
            "block {} has no room for padding",
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
        self.views[usize::from(*view)].pages += 1;
        open.note_padding(self.flash.chip().pairs());
        if open.next == open.end() {
            self.close(stream);
        }
        Ok(())
    }
}
