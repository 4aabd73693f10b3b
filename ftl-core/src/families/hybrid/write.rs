//! Host writes: a page goes to its offset in the data block while that is free, else to the log
//! block that the policy chooses. The old page becomes invalid.

use super::logs::LogStream;
use super::policy::{Policy, Route, Write};
use super::state::{Hybrid, HybridFtl, log_stream};
use crate::addr::{Lbn, Lpn};
use crate::error::FtlError;
use crate::format::{Flags, PageTag, Role};
use crate::int::to_u64;
use crate::space::{Space, StreamId};
use nand_model::{Cause, Ppn};

impl<P: Policy> Hybrid<P> {
    /// Returns whether the page's offset in its data block is free.
    #[inline]
    pub(super) fn has_free_offset(&self, space: &Space, lpn: Lpn) -> bool {
        if self.trims.is_mapped(lpn) {
            return false;
        }
        let (lbn, _) = self.split(lpn);
        let open = space
            .open_block(self.data_stream(lbn))
            .map(|(open, _)| open);
        let Some(block) = self.data.block(lbn) else {
            // A merge that an error stopped leaves a log block, which takes the other pages of that
            // merge.
            return open.is_none_or(|open| self.logs.get(open).is_none());
        };
        let taken = match self.data.ppn_of(lpn) {
            None => false,
            Some(ppn) => !self.data.in_place() || space.flash.chip().is_programmed(ppn),
        };
        open == Some(block) && !taken
    }

    /// Programs pages of a data block, from this offset on if the chip takes pages in any order.
    pub(super) fn program_data(
        &mut self,
        space: &mut Space,
        stream: StreamId,
        offset: u32,
        tags: &[PageTag],
        bytes: &[u8],
        cause: Cause,
    ) -> Result<(Ppn, u32), FtlError> {
        debug_assert_eq!(
            bytes.len(),
            tags.len() * space.geometry().page_len(),
            "data is not {} pages long",
            tags.len()
        );
        if self.data.in_place() {
            space.program_at(stream, offset, tags, bytes, cause)
        } else {
            space.append(stream, tags, bytes, cause)
        }
    }

    /// Records that a log block has a page's newest content, whatever stream filled the block, and
    /// invalidates the old page.
    pub(super) fn note_in_log(
        &mut self,
        space: &mut Space,
        lpn: Lpn,
        ppn: Ppn,
        stream: Option<LogStream>,
    ) {
        self.note_replacement(space, lpn, stream);
        self.invalidate_page(space, lpn);
        self.logs
            .insert(lpn, space.geometry().block_of(ppn), ppn, stream);
        self.trims.map(lpn);
    }

    /// Marks a log block if a page of it is replaced in another group's stream. An unmarked log
    /// block may be erased when the pages of its own stream and the shared ones are safe.
    pub(super) fn note_replacement(&mut self, space: &Space, lpn: Lpn, stream: Option<LogStream>) {
        let Some(stream) = stream.filter(|stream| *stream >= self.policy.shared_streams()) else {
            return;
        };
        let Some(old) = self
            .logs
            .ppn_of(lpn)
            .map(|ppn| space.geometry().block_of(ppn))
        else {
            return;
        };
        if self
            .logs
            .get(old)
            .is_some_and(|log| log.stream != Some(stream))
        {
            self.logs.mark_replaced_elsewhere(old);
        }
    }

    /// Invalidates the old page of a logical page.
    pub(super) fn invalidate_page(&mut self, space: &mut Space, lpn: Lpn) {
        let Some(old) = self.ppn_of(lpn) else { return };
        space.table.set_invalid(old);
        if self.logs.ppn_of(lpn).is_some() {
            self.logs.remove(lpn, space.geometry().block_of(old));
        }
    }

    /// Unmaps a page; its trim record is programmed.
    pub(super) fn unmap(&mut self, space: &mut Space, lpn: Lpn) {
        if self.trims.is_mapped(lpn) {
            self.invalidate_page(space, lpn);
            self.trims.unmap(lpn);
        }
    }

    /// Releases the data blocks of these pages that have no mapped pages left.
    pub(super) fn drop_empty_blocks(
        &mut self,
        space: &mut Space,
        first: Lpn,
        count: u32,
    ) -> Result<(), FtlError> {
        let (from, to) = (self.split(first).0, self.split(first.plus(count - 1)).0);
        for lbn in (from.raw()..=to.raw()).map(Lbn::new) {
            let Some(block) = self
                .data
                .block(lbn)
                .filter(|block| space.table.valid_count(*block) == 0)
            else {
                continue;
            };
            if self.pages_of(lbn).all(|lpn| !self.trims.is_mapped(lpn)) {
                space.seal_block(block)?;
                self.data.take_block(lbn);
                space.release(block);
            }
        }
        Ok(())
    }
}

impl<P: Policy> HybridFtl<P> {
    pub(super) fn write_page(
        &mut self,
        lpn: Lpn,
        bytes: &[u8],
        request: u32,
    ) -> Result<(), FtlError> {
        assert_eq!(
            bytes.len(),
            self.space.geometry().page_len(),
            "data of logical page {lpn} is not one page long"
        );
        if self.map.has_free_offset(&self.space, lpn) {
            return self.write_into_data_block(lpn, bytes);
        }
        let (lbn, offset) = self.map.split(lpn);
        let stream = loop {
            let write = Write {
                lbn,
                offset,
                request,
            };
            match self
                .map
                .with_policy_view(&self.space, |policy, view| policy.route(&write, view))
            {
                Route::Log(stream) => break stream,
                Route::MergeNewest(stream) => self.merge_newest(stream)?,
            }
        };
        self.make_log_room(stream)?;
        // Making room may have merged the logical block: its new data block may have an
        // offset for the page.
        if self.map.has_free_offset(&self.space, lpn) {
            return self.write_into_data_block(lpn, bytes);
        }
        let tag = PageTag {
            role: Role::Log,
            flags: Flags::NONE,
            lpn: lpn.raw(),
            ver: self.new_version(),
        };
        let id = log_stream(stream);
        let ppn = match self.map.in_place_logs {
            true => {
                self.space
                    .program_at(id, offset, &[tag], bytes, Cause::Host)?
                    .0
            }
            false => self.space.append_page(id, tag, bytes, Cause::Host)?,
        };
        self.map
            .note_in_log(&mut self.space, lpn, ppn, Some(stream));
        Ok(())
    }

    pub(super) fn write_into_data_block(&mut self, lpn: Lpn, bytes: &[u8]) -> Result<(), FtlError> {
        let (lbn, offset) = self.map.split(lpn);
        let stream = self.map.data_stream(lbn);
        if self.map.data.block(lbn).is_none() {
            self.ensure_blocks(stream)?;
        }
        let tag = PageTag {
            role: Role::Data,
            flags: Flags::NONE,
            lpn: lpn.raw(),
            ver: self.new_version(),
        };
        let (ppn, _) =
            self.map
                .program_data(&mut self.space, stream, offset, &[tag], bytes, Cause::Host)?;
        let block = self.space.geometry().block_of(ppn);
        if self.map.data.block(lbn) != Some(block) {
            // This is the first page, or a program failed and the stream continued in another
            // block.
            self.demote(lbn);
            self.map.data.set_block(lbn, block);
        }
        self.map.data.set_page(lpn, ppn);
        self.map.trims.map(lpn);
        Ok(())
    }

    /// Writes all pages of a logical block to a new data block.
    pub(super) fn write_block(&mut self, lbn: Lbn, bytes: &[u8]) -> Result<(), FtlError> {
        self.collect_and_maintain()?;
        let was_open = self.map.close_data_block(&mut self.space, lbn)?;
        let ver = self.next_ver;
        let pages = self.map.pages_of(lbn);
        let count = pages.clone().count();
        assert_eq!(
            (count, bytes.len()),
            (
                self.space.geometry().block_pages(),
                count * self.space.geometry().page_len()
            ),
            "request for logical block {lbn} is not a whole logical block: pages, bytes"
        );
        self.next_ver += to_u64(count);
        let tag = |(lpn, ver): (Lpn, u64)| PageTag {
            role: Role::Data,
            flags: Flags::NONE,
            lpn: lpn.raw(),
            ver,
        };
        let tags: Vec<PageTag> = pages.zip(ver..).map(tag).collect();
        let block = self.program_gathered(lbn, &tags, bytes, Cause::Host)?;
        self.make_data_block(lbn, block, was_open, Cause::Host)?;
        self.space.erase_released(Cause::Gc)?;
        Ok(())
    }

    /// Makes the logical block's data block, if any, a log block, whose pages will be merged.
    pub(super) fn demote(&mut self, lbn: Lbn) {
        let pages: Vec<(Lpn, Ppn)> = self
            .map
            .pages_of(lbn)
            .filter(|lpn| self.map.trims.is_mapped(*lpn) && self.map.logs.ppn_of(*lpn).is_none())
            .filter_map(|lpn| Some((lpn, self.map.data.ppn_of(lpn)?)))
            .collect();
        if let Some(block) = self.map.data.take_block(lbn) {
            pages
                .into_iter()
                .for_each(|(lpn, ppn)| self.map.logs.insert(lpn, block, ppn, None));
        }
    }
}
