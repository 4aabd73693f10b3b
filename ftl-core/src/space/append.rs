//! Filling blocks: pages are appended to the open block of a stream, or programmed at their own
//! offset. A full block is closed and another one opened. If a program fails, the remaining pages
//! go to another block.
//!
//! If power fails, mount finds the open blocks partly filled and never continues them.

use super::state::Space;
use super::streams::StreamId;
use crate::error::FtlError;
use crate::flash::{Flash, OwnPage};
use crate::format::{OOB_SLOT, PageTag};
use crate::int::{index, to_u32};
use nand_model::{Cause, Geometry, NandError, Pbn, Ppn, RunError};

impl Space {
    /// Appends as many of the pages as fit into the stream's open block, at least one, and marks
    /// them valid. Returns the first page and the count. If a program fails, the remaining pages go
    /// to another block, and the failing block becomes [`Space::failing_block`].
    pub(crate) fn append(
        &mut self,
        stream: StreamId,
        tags: &[PageTag],
        data: &[u8],
        cause: Cause,
    ) -> Result<(Ppn, u32), FtlError> {
        debug_assert_eq!(
            data.len(),
            tags.len() * self.flash.geometry().page_len(),
            "data for stream {stream} is not {} pages long",
            tags.len()
        );
        self.append_with(stream, tags.len(), |flash, first, epoch, count| {
            let tags = &tags[..count];
            let bytes = count * flash.geometry().page_len();
            flash.program(first, epoch, tags, &data[..bytes], cause)
        })
    }

    /// Appends one page like [`Space::append`], compiled for one page.
    #[inline(always)]
    pub(crate) fn append_page(
        &mut self,
        stream: StreamId,
        tag: PageTag,
        data: &[u8],
        cause: Cause,
    ) -> Result<Ppn, FtlError> {
        debug_assert_eq!(
            data.len(),
            self.flash.geometry().page_len(),
            "data is not one page long"
        );
        let (reserved, span) = (self.reserved_pages, self.flash.chip().pairs().span());
        let of = &mut self.streams[stream];
        let Some(open) = of.open.as_mut().filter(|open| open.appends(reserved)) else {
            return self.append_page_anyhow(stream, tag, data, cause);
        };
        let (block, offset) = (open.block, open.next);
        let ppn = self.flash.chip().split().page(block, offset);
        // A call, not a closure as in `program_where`: closures are not inlined.
        if let Err(run) = self.flash.program(ppn, open.epoch, &[tag], data, cause) {
            self.note_failed(stream, run.error)?;
            return self.append_page_anyhow(stream, tag, data, cause);
        }
        open.note(1, self.flash.pseq(), span);
        self.views[usize::from(of.view)].note(block, 1);
        self.table.set_valid_in(block, ppn);
        if open.next + reserved >= open.end() || reserved > 0 || self.may_be_unsafe && !of.listed {
            self.note_change(stream, offset, self.flash.pseq());
        }
        Ok(ppn)
    }

    /// [`Space::append_page`] for any stream: without an open block, or with gaps in it.
    #[cold]
    fn append_page_anyhow(
        &mut self,
        stream: StreamId,
        tag: PageTag,
        data: &[u8],
        cause: Cause,
    ) -> Result<Ppn, FtlError> {
        let appended = self.append_with(stream, 1, |flash, ppn, epoch, _| {
            flash.program(ppn, epoch, &[tag], data, cause)
        });
        appended.map(|(ppn, _)| ppn)
    }

    /// Abandons the open block if a program failed; returns any other error.
    #[cold]
    fn note_failed(&mut self, stream: StreamId, error: NandError) -> Result<(), FtlError> {
        if !matches!(error, NandError::ProgramFailed(_)) {
            return Err(error.into());
        }
        self.abandon_failing(stream);
        Ok(())
    }

    /// Appends copies like [`Space::append`]; renews their records, which are passed as read.
    pub(crate) fn append_copies(
        &mut self,
        stream: StreamId,
        records: &mut [[u8; OOB_SLOT]],
        data: &[u8],
        cause: Cause,
    ) -> Result<(Ppn, u32), FtlError> {
        debug_assert_eq!(
            data.len(),
            records.len() * self.flash.geometry().page_len(),
            "copies for stream {stream} are not {} pages long",
            records.len()
        );
        self.append_with(stream, records.len(), |flash, first, epoch, count| {
            let bytes = count * flash.geometry().page_len();
            flash.program_copies(first, epoch, &mut records[..count], &data[..bytes], cause)
        })
    }

    /// Appends a new version of one of the controller's own pages.
    pub(crate) fn append_own(
        &mut self,
        stream: StreamId,
        tag: PageTag,
        page: &mut OwnPage,
        cause: Cause,
    ) -> Result<Ppn, FtlError> {
        let appended = self.append_with(stream, 1, |flash, ppn, epoch, _| {
            flash.program_own(ppn, epoch, tag, page, cause)
        });
        appended.map(|(ppn, _)| ppn)
    }

    /// Appends copies of the controller's own pages `from`, which are of one block, like
    /// [`Space::append_copies`]. Their times are those of single programs: with cache commands, one
    /// is programmed at a time.
    pub(crate) fn append_own_copies(
        &mut self,
        stream: StreamId,
        from: &[Ppn],
        records: &mut [[u8; OOB_SLOT]],
        data: &[u8],
        cause: Cause,
    ) -> Result<(Ppn, u32), FtlError> {
        let most = match self.flash.chip().profile().timing.cache.program {
            true => 1,
            false => records.len(),
        };
        self.append_with(stream, most, |flash, to, epoch, count| {
            let bytes = count * flash.geometry().page_len();
            let (from, data) = (&from[..count], &data[..bytes]);
            flash.program_own_copies(from, to, epoch, &mut records[..count], data, cause)
        })
    }

    /// Appends one page with a scheme part in its OOB area. `fill` writes that part for the page
    /// that it receives; it runs again for another page if a program fails.
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
    /// `fill` is as above. Returns `None` if the page is unreadable or belongs to another address,
    /// or if a program failed and the stream's next block is in another plane.
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

    /// Returns the stream's next page; opens a block if needed.
    pub(crate) fn next_page(&mut self, stream: StreamId) -> Result<Ppn, FtlError> {
        self.frontier(stream).map(|(ppn, ..)| ppn)
    }

    /// Calls `program` with first page, epoch and page count until a page is programmed.
    #[inline(always)]
    pub(super) fn append_with(
        &mut self,
        stream: StreamId,
        wanted: usize,
        program: impl FnMut(&mut Flash, Ppn, u64, usize) -> Result<(), RunError>,
    ) -> Result<(Ppn, u32), FtlError> {
        self.program_where(stream, wanted, |_, next| next, program)
    }

    /// Programs pages upwards from this offset of the stream's open block, where none of them is
    /// programmed. If a program fails, uses the same offsets of another block. Only for chips that
    /// take pages in any order and pair none, and never during a mount.
    pub(crate) fn program_at(
        &mut self,
        stream: StreamId,
        offset: u32,
        tags: &[PageTag],
        data: &[u8],
        cause: Cause,
    ) -> Result<(Ppn, u32), FtlError> {
        assert!(
            !self.may_be_unsafe,
            "out-of-order program with pairing, or during a mount"
        );
        assert!(
            offset < self.flash.geometry().pages_per_block,
            "no page {offset} in a block"
        );
        let at_offset =
            |geometry: &Geometry, next: Ppn| geometry.page(geometry.block_of(next), offset);
        self.program_where(
            stream,
            tags.len(),
            at_offset,
            |flash, first, epoch, count| {
                let bytes = count * flash.geometry().page_len();
                flash.program(first, epoch, &tags[..count], &data[..bytes], cause)
            },
        )
    }

    /// Calls `program` with first page, epoch and page count until a page is programmed.
    /// `first_page` returns the first page; its argument is the next page of the open block.
    #[inline(always)]
    pub(super) fn program_where(
        &mut self,
        stream: StreamId,
        wanted: usize,
        first_page: impl Fn(&Geometry, Ppn) -> Ppn,
        mut program: impl FnMut(&mut Flash, Ppn, u64, usize) -> Result<(), RunError>,
    ) -> Result<(Ppn, u32), FtlError> {
        debug_assert!(wanted > 0, "no page is to be programmed in stream {stream}");
        loop {
            let (next, room, epoch) = self.frontier(stream)?;
            debug_assert!(room > 0, "open block of stream {stream} has no room");
            let first = first_page(self.flash.geometry(), next);
            // An open block has room for one page. The constant lets the compiler drop the loops
            // over one page.
            let count = if wanted == 1 {
                1
            } else {
                wanted.min(index(room))
            };
            let seq = self.flash.pseq();
            let outcome = program(&mut self.flash, first, epoch, count);
            let done = outcome
                .as_ref()
                .map_or_else(|run| run.done, |()| to_u32(count));
            debug_assert!(
                index(done) <= count,
                "{done} pages are programmed, at most {count} were to be"
            );
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

    /// Records `done` programs from `first` on; `seq` is the number of the last program before.
    #[inline(always)]
    pub(super) fn note_programmed(&mut self, stream: StreamId, first: Ppn, done: u32, seq: u64) {
        let span = self.flash.chip().pairs().span();
        let of = &mut self.streams[stream];
        let open = of.open.as_mut().expect("the stream has an open block");
        debug_assert_eq!(
            self.flash.geometry().block_of(first),
            open.block,
            "page {first} is not in the open block of stream {stream}"
        );
        let offset = open.next;
        self.views[usize::from(of.view)].note(open.block, done);
        open.note(done, seq + u64::from(done), span);
        match done {
            1 => self.table.set_valid_in(open.block, first),
            _ => self.table.set_valid_run(first, done),
        }
        debug_assert!(
            open.next <= open.end(),
            "block {}: next offset is {} of {}",
            open.block,
            open.next,
            open.end()
        );
        if done > 0 {
            self.note_change(stream, offset, seq + 1);
        }
    }

    /// Updates the state of the stream after programs from this offset on, the first of them number
    /// `seq`: it may have provisional or unsafe pages, or its block is full.
    fn note_change(&mut self, stream: StreamId, offset: u32, seq: u64) {
        let of = &mut self.streams[stream];
        let open = of.open.as_mut().expect("the stream has an open block");
        if self.reserved_pages > 0 {
            open.note_provisional(offset, seq);
        }
        if self.may_be_unsafe && !of.listed && open.may_be_unsafe() {
            of.listed = true;
            self.is_unsafe.put(seq, stream);
        }
        if open.next == open.end() {
            self.close(stream);
        }
    }

    /// Returns the stream's next page, the room from there, and the block's allocation number;
    /// opens a block if needed.
    #[inline(always)]
    pub(super) fn frontier(&mut self, stream: StreamId) -> Result<(Ppn, u32, u64), FtlError> {
        let (geometry, reserved) = (self.flash.geometry(), self.reserved_pages);
        match &self.streams[stream].open {
            Some(open) if open.appends(reserved) => Ok((
                geometry.page(open.block, open.next),
                open.end() - reserved - open.next,
                open.epoch,
            )),
            _ => self.new_frontier(stream),
        }
    }

    /// Like [`Self::frontier`], for a stream without room, or with room only in gaps.
    #[cold]
    pub(super) fn new_frontier(&mut self, stream: StreamId) -> Result<(Ppn, u32, u64), FtlError> {
        if self.room(stream) == 0 {
            self.open_new(stream)?;
        }
        let open = self.streams[stream]
            .open
            .as_ref()
            .expect("the stream has just opened a block");
        if open.gaps {
            let (next, room) = self.first_gap(open.block);
            return Ok((next, room, open.epoch));
        }
        let next = self.flash.geometry().page(open.block, open.next);
        Ok((next, self.room(stream), open.epoch))
    }

    /// Returns the block's first unprogrammed page, and the number of unprogrammed pages in a row
    /// from there on.
    #[cold]
    pub(super) fn first_gap(&self, block: Pbn) -> (Ppn, u32) {
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
            to_u32((first..geometry.pages_per_block).take_while(free).count()),
        )
    }
}
