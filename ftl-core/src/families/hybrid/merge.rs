//! Merges: the newest pages of a logical block are copied into one data block.
//!
//! Invariants: the block that a merge fills is a log block until it has all pages. So every page is
//! on a map, even if an error stops the merge. The blocks that the new data block replaces are
//! released only when none of its pages can be lost. If power fails before, mount finds some pages
//! in the new block and some in the old ones.

use super::logs::LogBlock;
use super::policy::Policy;
use super::state::{Hybrid, HybridFtl, log_stream};
use crate::addr::{Lbn, Lpn};
use crate::block_table::State;
use crate::copy::misplaced;
use crate::error::FtlError;
use crate::events::EventKind;
use crate::format::{Flags, PageTag, Role};
use crate::gc::GarbageCollect;
use crate::int::{index, to_u32};
use crate::space::{Space, StreamId};
use nand_model::{Cause, Pbn, Ppn};

impl<P: Policy> Hybrid<P> {
    /// Returns the block of an earlier merge that an error stopped, if this merge can continue in
    /// it.
    fn begun(&self, space: &Space, lbn: Lbn) -> Option<Pbn> {
        let (block, _) = space.open_block(self.data_stream(lbn))?;
        let is_whole = self
            .logs
            .get(block)
            .is_none_or(|log| log.valid == log.written);
        (self.data.block(lbn) != Some(block) && is_whole).then_some(block)
    }

    fn is_logged_in(&self, space: &Space, block: Pbn, lpn: Lpn) -> bool {
        self.logs
            .ppn_of(lpn)
            .is_some_and(|ppn| space.geometry().block_of(ppn) == block)
    }

    /// Seals the data block. Returns whether the block was open in its stream. A data block that a
    /// mount found may have been hit by a power cut, and must not be programmed again even if it
    /// has room.
    pub(super) fn close_data_block(
        &mut self,
        space: &mut Space,
        lbn: Lbn,
    ) -> Result<bool, FtlError> {
        let stream = self.data_stream(lbn);
        let was_open = self
            .data
            .block(lbn)
            .is_some_and(|block| self.is_filling(space, stream, block));
        space.seal(stream)?;
        Ok(was_open)
    }

    fn is_filling(&self, space: &Space, stream: StreamId, block: Pbn) -> bool {
        space
            .open_block(stream)
            .is_some_and(|(open, _)| open == block)
    }

    /// Returns the pages to copy behind those of the log block to make it a data block; `None` if
    /// it cannot become one.
    fn missing_behind(&self, space: &Space, lbn: Lbn, block: Pbn) -> Option<Vec<Lpn>> {
        let geometry = space.geometry();
        let log = self
            .logs
            .get(block)
            .filter(|log| log.only_owner() == Some(lbn))?;
        let in_use = match log.stream {
            Some(stream) => self.is_filling(space, log_stream(stream), block),
            None => false,
        };
        // Common blocks have trim records, too, and remain open.
        let is_own = in_use || space.table.state(block) == State::Full;
        if !is_own || space.table.valid_count(block) != log.valid {
            return None;
        }
        if self.in_place_logs {
            return self.missing_in_gaps(space, lbn, log);
        }
        if log.valid != log.written
            || !self.policy.may_become_data(log)
            || space.flash.chip().bad(block).is_some()
        {
            return None;
        }
        let pages = self.pages_of(lbn);
        let mut at_least = 0;
        for (offset, lpn) in (0..log.written).zip(pages.clone()) {
            let ppn = self
                .logs
                .ppn_of(lpn)
                .filter(|ppn| geometry.block_of(*ppn) == block)?;
            let at = geometry.offset_of(ppn);
            if at < at_least || (self.data.in_place() && at != offset) {
                return None;
            }
            at_least = at + 1;
        }
        Some(
            pages
                .skip(index(log.written))
                .filter(|lpn| self.trims.is_mapped(*lpn))
                .collect(),
        )
    }

    /// Returns the missing pages of a log block with pages at their own offsets; `None` unless the
    /// offsets of all missing pages are free.
    fn missing_in_gaps(&self, space: &Space, lbn: Lbn, log: &LogBlock) -> Option<Vec<Lpn>> {
        let chip = space.flash.chip();
        let lacks =
            |lpn: &Lpn| self.trims.is_mapped(*lpn) && !self.is_logged_in(space, log.block, *lpn);
        let missing: Vec<Lpn> = self.pages_of(lbn).filter(lacks).collect();
        let at_home = |lpn: Lpn| {
            let ppn = self
                .logs
                .ppn_of(lpn)
                .filter(|_| self.is_logged_in(space, log.block, lpn));
            ppn.is_none_or(|ppn| chip.geometry().offset_of(ppn) == self.split(lpn).1)
        };
        if !self.pages_of(lbn).all(at_home) {
            return None;
        }
        let is_free =
            |lpn: &Lpn| !chip.is_programmed(chip.geometry().page(log.block, self.split(*lpn).1));
        (chip.bad(log.block).is_none() && missing.iter().all(is_free)).then_some(missing)
    }
}

impl<P: Policy> HybridFtl<P> {
    /// Merges a logical block. `candidate` is a log block that becomes its data block if that is
    /// cheaper. Returns the number of copied pages.
    pub(super) fn merge(
        &mut self,
        lbn: Lbn,
        candidate: Option<Pbn>,
        cause: Cause,
    ) -> Result<u32, FtlError> {
        self.stalled_by(cause, |ftl| ftl.merge_pages(lbn, candidate, cause))
    }

    fn merge_pages(
        &mut self,
        lbn: Lbn,
        candidate: Option<Pbn>,
        cause: Cause,
    ) -> Result<u32, FtlError> {
        let began = self.space.flash.now();
        if let Some(candidate) = candidate
            && let Some(copied) = self.promote(lbn, candidate, cause)?
        {
            let kind = if copied == 0 {
                EventKind::SwitchMerge
            } else {
                EventKind::PartialMerge
            };
            self.space.note_event(kind, Some(candidate), copied, began);
            return Ok(copied);
        }
        let mut lpns: Vec<Lpn> = self
            .map
            .pages_of(lbn)
            .filter(|lpn| self.map.trims.is_mapped(*lpn))
            .collect();
        self.ensure_free()?;
        let begun = self.map.begun(&self.space, lbn);
        let was_open = match begun {
            Some(block) => {
                lpns.retain(|lpn| !self.map.is_logged_in(&self.space, block, *lpn));
                false
            }
            None => self.map.close_data_block(&mut self.space, lbn)?,
        };
        let block = match begun {
            // The error came after the last copy.
            Some(block) if lpns.is_empty() => block,
            _ => self.with_copies(&lpns, cause, |ftl, tags, bytes| {
                ftl.program_gathered(lbn, tags, bytes, cause)
            })?,
        };
        self.make_data_block(lbn, block, was_open, cause)?;
        self.space
            .note_event(EventKind::FullMerge, Some(block), to_u32(lpns.len()), began);
        Ok(to_u32(lpns.len()))
    }

    /// Reads the newest content of these pages of a logical block, and passes it to `then` as
    /// copies for a data block.
    fn with_copies<R>(
        &mut self,
        lpns: &[Lpn],
        cause: Cause,
        then: impl FnOnce(&mut Self, &[PageTag], &[u8]) -> Result<R, FtlError>,
    ) -> Result<R, FtlError> {
        assert!(
            lpns.len() <= self.space.geometry().block_pages(),
            "{} pages are to be copied, more than a logical block has",
            lpns.len()
        );
        let from: Vec<Ppn> = lpns
            .iter()
            .map(|lpn| {
                self.map
                    .ppn_of(*lpn)
                    .expect("a mapped page has a physical page")
            })
            .collect();
        let mut pages = std::mem::take(&mut self.gc.pages);
        let outcome = pages
            .load_pages(&mut self.space, &from, cause)
            .and_then(|()| {
                let unknown: Vec<usize> = pages.unknown().map(|(i, _)| i).collect();
                for i in unknown {
                    let ver = self.new_version();
                    pages.name(i, Role::Data, lpns[i].raw(), ver);
                }
                let mut tags = Vec::with_capacity(lpns.len());
                for (i, lpn) in lpns.iter().enumerate() {
                    let tag = pages.tag(i);
                    if tag.lpn != lpn.raw() {
                        return Err(misplaced(from[i], tag.lpn));
                    }
                    tags.push(PageTag {
                        role: Role::Data,
                        flags: tag.flags.with(Flags::COPY),
                        ..tag
                    });
                }
                let bytes = lpns.len() * self.space.geometry().page_len();
                then(self, &tags, &pages.data[..bytes])
            });
        self.gc.pages = pages;
        outcome
    }

    /// Programs pages of a logical block, upwards, into a block of its data stream. Until
    /// [`HybridFtl::make_data_block`] they are log pages. Returns the block of the last page.
    pub(super) fn program_gathered(
        &mut self,
        lbn: Lbn,
        tags: &[PageTag],
        bytes: &[u8],
        cause: Cause,
    ) -> Result<Pbn, FtlError> {
        self.program_in(
            self.map.data_stream(lbn),
            tags,
            bytes,
            cause,
            |ftl, lpn, ppn| ftl.map.note_in_log(&mut ftl.space, lpn, ppn, None),
        )
    }

    fn program_in(
        &mut self,
        stream: StreamId,
        tags: &[PageTag],
        bytes: &[u8],
        cause: Cause,
        note: impl Fn(&mut Self, Lpn, Ppn),
    ) -> Result<Pbn, FtlError> {
        let page = self.space.geometry().page_len();
        let (mut done, mut block) = (0, None);
        while done < tags.len() {
            let offset = self.map.split(Lpn::new(tags[done].lpn)).1;
            let follows = |(i, tag): &(u32, &PageTag)| tag.lpn == tags[done].lpn + i;
            let run = match self.map.data.in_place() {
                true => (0..).zip(&tags[done..]).take_while(follows).count(),
                false => tags.len() - done,
            };
            let bytes = &bytes[done * page..][..run * page];
            let (first, count) = self.map.program_data(
                &mut self.space,
                stream,
                offset,
                &tags[done..done + run],
                bytes,
                cause,
            )?;
            assert!(
                (1..=run).contains(&index(count)),
                "{count} pages of a run of {run} are programmed"
            );
            for (tag, ppn) in tags[done..].iter().zip(first.run(count)) {
                note(self, Lpn::new(tag.lpn), ppn);
            }
            block = Some(self.space.geometry().block_of(first));
            done += index(count);
        }
        Ok(block.expect("at least one page is programmed"))
    }

    /// Makes a log block that has all newest pages of a logical block, and no others, its data
    /// block. `was_open`: whether the replaced data block was open. `cause`: why the log block was
    /// filled.
    pub(super) fn make_data_block(
        &mut self,
        lbn: Lbn,
        block: Pbn,
        was_open: bool,
        cause: Cause,
    ) -> Result<(), FtlError> {
        let stream = self.map.data_stream(lbn);
        let old = self.map.data.take_block(lbn);
        self.map.data.set_block(lbn, block);
        let mut placed = 0;
        for lpn in self.map.pages_of(lbn) {
            if self.map.is_logged_in(&self.space, block, lpn) {
                let ppn = self
                    .map
                    .logs
                    .ppn_of(lpn)
                    .expect("the page is in the log block");
                self.map.logs.remove(lpn, block);
                self.map.data.set_page(lpn, ppn);
                placed += 1;
            }
        }
        assert_eq!(
            self.space.table.valid_count(block),
            placed,
            "data block {block} has valid pages that are not of logical block {lbn}"
        );
        self.map.logs.remove_block(block);
        self.space.table.set_role(block, Role::Data);
        match old {
            Some(old) if was_open => self.release_or_swap(old, stream, cause)?,
            Some(old) => self
                .map
                .release_replaced(&mut self.space, old, stream, cause),
            None => {}
        }
        self.space.make_stream_safe(stream)
    }

    /// Makes a log block the data block, if that needs no more than copies of the missing pages
    /// behind its own. It must have only newest pages of this logical block, consecutive from page
    /// 0 on. Returns the number of copied pages.
    fn promote(&mut self, lbn: Lbn, block: Pbn, cause: Cause) -> Result<Option<u32>, FtlError> {
        let Some(missing) = self.map.missing_behind(&self.space, lbn, block) else {
            return Ok(None);
        };
        let log = self.map.logs.get(block).and_then(|log| log.stream);
        let stream = log
            .map(log_stream)
            .filter(|stream| self.map.is_filling(&self.space, *stream, block));
        if !missing.is_empty() {
            let Some(stream) =
                stream.filter(|stream| self.space.room(*stream) >= to_u32(missing.len()))
            else {
                return Ok(None);
            };
            let copied = self.with_copies(&missing, cause, |ftl, tags, bytes| {
                ftl.program_in(stream, tags, bytes, cause, |ftl, lpn, ppn| {
                    ftl.map.note_in_log(&mut ftl.space, lpn, ppn, log)
                })
                .map(|_| ())
            });
            if copied.is_err()
                || !missing
                    .iter()
                    .all(|lpn| self.map.is_logged_in(&self.space, block, *lpn))
            {
                // The stream's block has pages at their own offsets and cannot be appended to.
                // Either the copies ended early, or a program failed and the stream continued in
                // another block.
                self.space.seal(stream)?;
                return copied.map(|()| None);
            }
        }
        let data = self.map.data_stream(lbn);
        let was_open = self.map.close_data_block(&mut self.space, lbn)?;
        if let Some(stream) =
            stream.filter(|stream| self.map.is_filling(&self.space, *stream, block))
        {
            self.space.hand_over(stream, data);
        }
        self.map.logs.note_reclaimed();
        self.make_data_block(lbn, block, was_open, cause)?;
        Ok(Some(to_u32(missing.len())))
    }

    /// Makes sure that a block is free: a merge takes a block before it releases one.
    pub(super) fn ensure_free(&mut self) -> Result<(), FtlError> {
        if self.space.free_blocks() < 2 {
            self.space.erase_released(Cause::Gc)?;
        }
        if self.space.free_blocks() < 2 && self.space.released_blocks() > 0 {
            self.space.pad_released()?;
            self.space.erase_released(Cause::Gc)?;
        }
        if self.space.free_blocks() == 0 {
            return self.gc.end_life();
        }
        self.gc.refuse_if_read_only()
    }
}
