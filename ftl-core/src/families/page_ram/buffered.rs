//! Requests that meet the write buffer.
//!
//! A FLUSH, a full buffer and a clean shutdown program its pages in the order of their addresses. A
//! read-only device has free blocks for that: they are part of the reserve. If power fails, pages
//! in the buffer are lost; programmed ones are found like any others.

use super::map::PageMap;
use super::state::{PageMapFtl, PageRam};
use crate::addr::Lpn;
use crate::error::FtlError;
use crate::format::UNMAPPED;
use crate::int::{index, to_u32, to_u64, to_usize};
use nand_model::Ppn;

impl<M: PageMap> PageRam<M> {
    /// Returns whether any page is buffered.
    pub(super) fn has_buffered(&self) -> bool {
        self.buffer
            .as_ref()
            .is_some_and(|buffer| !buffer.is_empty())
    }

    /// Returns whether acknowledged pages are being programmed.
    pub(super) fn is_emptying(&self) -> bool {
        self.buffer
            .as_ref()
            .is_some_and(|buffer| buffer.is_emptying)
    }

    pub(super) fn is_buffered(&self, lpn: Lpn) -> bool {
        self.buffer.as_ref().is_some_and(|buffer| buffer.has(lpn))
    }
}

impl<M: PageMap> PageMapFtl<M> {
    /// Reads pages, the buffered ones from RAM. The others are read in parallel.
    pub(super) fn read_buffered(&mut self, first: Lpn, out: &mut [u8]) -> Result<(), FtlError> {
        let page = self.space.geometry().page_len();
        let at = self.space.flash.now();
        let (mut lpn, mut rest, mut done) = (first, out, at);
        while !rest.is_empty() {
            let left = to_u32(rest.len() / page);
            let buffer = self.map.buffer.as_ref();
            let (run, is_buffered) = buffer.map_or((left, false), |of| of.run_from(lpn, left));
            let (bytes, behind) = rest.split_at_mut(index(run) * page);
            if let Some(buffer) = buffer.filter(|_| is_buffered) {
                let pages = lpn.run(run).zip(bytes.chunks_exact_mut(page));
                pages.for_each(|(lpn, bytes)| buffer.read(lpn, bytes));
                if M::PREDICTS {
                    (0..run).for_each(|_| self.stats.lookups_read.note(true));
                }
            } else {
                self.space.flash.begin(at);
                self.read_from_flash(lpn, bytes)?;
                done = done.max(self.space.flash.now());
            }
            (lpn, rest) = (lpn.plus(run), behind);
        }
        self.space.flash.begin(done);
        Ok(())
    }

    /// Buffers pages, and programs all if the buffer is full.
    pub(super) fn write_buffered(
        &mut self,
        lpns: impl Iterator<Item = Lpn>,
        data: &[u8],
    ) -> Result<(), FtlError> {
        let page = self.space.geometry().page_len();
        for (lpn, bytes) in lpns.zip(data.chunks_exact(page)) {
            let is_new = self.map.pages.predict(lpn).is_none();
            let buffer = self.map.buffer.as_mut().expect("writes are buffered");
            // Programs that failed may have left it full.
            if buffer.is_full() {
                self.program_buffered()?;
            }
            let buffer = self.map.buffer.as_mut().expect("writes are buffered");
            buffer.put(lpn, bytes, is_new);
            self.stats.host_pages_written += 1;
            if buffer.is_full() {
                self.program_buffered()?;
            }
        }
        self.pace_gc(data.len() / page)
    }

    /// Programs all buffered pages.
    pub(super) fn program_buffered(&mut self) -> Result<(), FtlError> {
        if !self.map.has_buffered() {
            return Ok(());
        }
        // A page was counted when the host wrote it.
        let counted = self.stats.host_pages_written;
        let outcome = self.program_runs(counted);
        self.stats.host_pages_written = counted;
        outcome
    }

    /// Programs buffered pages run by run; each leaves the buffer when it is programmed.
    fn program_runs(&mut self, counted: u64) -> Result<(), FtlError> {
        let page = self.space.geometry().page_len();
        let most = self.space.geometry().block_pages();
        while self.map.has_buffered() {
            let buffer = self.map.buffer.as_mut().expect("it has pages");
            buffer.prepare_run(most);
            let (run, content) = (
                std::mem::take(&mut buffer.run),
                std::mem::take(&mut buffer.content),
            );
            buffer.is_emptying = true;
            let outcome = if self.map.streams.only_for_host().is_some() {
                self.append_run(run.len(), |i| run[i], &content)
            } else {
                let mut parts = self.space.flash.begin_parts();
                let mut pages = run.iter().zip(content.chunks_exact(page));
                let outcome = pages.try_for_each(|(lpn, bytes)| {
                    self.space.flash.next_part(&mut parts);
                    self.write_page(*lpn, bytes)
                });
                self.space.flash.end_parts(parts);
                outcome
            };
            let done = self.stats.host_pages_written - counted;
            self.stats.host_pages_written = counted;
            let buffer = self.map.buffer.as_mut().expect("it has pages");
            let programmed = run.iter().take(to_usize(done));
            programmed.for_each(|lpn| buffer.remove(*lpn));
            (buffer.run, buffer.content) = (run, content);
            buffer.is_emptying = false;
            outcome?;
        }
        Ok(())
    }

    /// Reads pages that are not buffered.
    #[inline(always)]
    pub(super) fn read_from_flash(&mut self, first: Lpn, out: &mut [u8]) -> Result<(), FtlError> {
        if M::PREDICTS {
            return self.read_predicted(first, out);
        }
        let count = out.len() / self.space.flash.geometry().page_len();
        let pages = &self.map.pages;
        let ppn_of = |i: usize| pages.get(first.plus(i as u32)).map_or(UNMAPPED, Ppn::raw);
        self.space
            .flash
            .read_logical_pages(first.raw(), count, ppn_of, out)
    }

    /// Drops buffered pages that were trimmed.
    pub(super) fn drop_buffered(&mut self, first: Lpn, count: u32) {
        let Some(buffer) = self.map.buffer.as_mut().filter(|buffer| !buffer.is_empty()) else {
            return;
        };
        first.run(count).for_each(|lpn| buffer.remove(lpn));
    }

    pub(super) fn audit_buffer(&self, wrong: &mut Vec<String>) {
        let Some(buffer) = &self.map.buffer else {
            return;
        };
        let pages = (0..self.logical_pages).map(Lpn::new);
        let is_new = |lpn: &Lpn| buffer.has(*lpn) && self.map.pages.predict(*lpn).is_none();
        let new = to_u64(pages.filter(is_new).count());
        if new != buffer.new_pages() {
            wrong.push(format!(
                "{new} buffered pages are not mapped, {} are counted",
                buffer.new_pages()
            ));
        }
    }
}
