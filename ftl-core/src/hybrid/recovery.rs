//! Mount: the newest version of every page by all records (`crate::recovery`). The data block of a logical block is the one that has most of
//! its pages and no others; what is elsewhere is in log blocks. After a clean stop data blocks go on being filled; after a cut they
//! take no more pages, and are merged when their time comes.

use super::{COMMON, FIRST_LOG, HybridFtl, Policy};
use crate::block_table::State;
use crate::error::FtlError;
use crate::format::{Role, UNMAPPED};
use crate::gc::Collect;
use crate::recovery::{CleanStop, Newest, find_newest, scan_heads};
use nand_model::{Pbn, Ppn, Store};
use std::cmp::Reverse;

impl<S: Store, P: Policy> HybridFtl<S, P> {
    /// Finds what an earlier run left.
    pub(super) fn mount(&mut self) -> Result<(), FtlError> {
        self.space.flash.begin(0);
        let mut scanned = 0;
        let heads = scan_heads(&mut self.space.flash, &mut scanned)?;
        self.end_step("scan heads");
        let pages = self.logical_pages;
        let stop = CleanStop::load(&mut self.space, &mut self.checkpoints, &heads, pages, &mut scanned)?;
        self.end_step("load checkpoint");
        let free = stop.as_ref().map(CleanStop::free);
        let (space, trims) = (&mut self.space, &mut self.trims);
        let mut newest = find_newest(space, &heads, trims, &self.checkpoints, pages, free.as_ref(), &mut scanned)?;
        self.end_step("scan pages");
        self.next_ver = newest.next_ver;
        self.stats.mount.pages_scanned = scanned;
        self.stats.mount.clean = stop.is_some();
        self.stats.mount.free_blocks = self.space.free_blocks() + self.space.released_blocks();
        match stop {
            Some(stop) => {
                self.next_ver = self.next_ver.max(stop.next_ver);
                stop.resume(&mut self.space);
                // What a log block was begun for is not known any more.
                (FIRST_LOG..self.first_data).try_for_each(|stream| self.space.seal(stream))?;
                self.adopt(&newest)?;
            }
            None => self.put_right(&mut newest)?,
        }
        for lbn in 0..self.logical_blocks() {
            self.data.block(lbn).map(|block| self.space.table.withdraw(block));
        }
        self.stats.mount.pages_discarded = newest.discarded;
        self.end_step("rebuild tables");
        Ok(())
    }

    /// After a cut: rescues, and collects until the free blocks are back at their usual number.
    fn put_right(&mut self, newest: &mut Newest) -> Result<(), FtlError> {
        self.space.begin_mount();
        self.mounting = true;
        let rescued = newest.rescue(&mut self.space, &mut self.trims, COMMON);
        self.adopt(newest)?;
        match rescued.and_then(|()| self.collect_until(self.gc.threshold + 1)) {
            // Reading goes on.
            Err(FtlError::ReadOnly(reason)) => self.gc.set_read_only(reason),
            other => other?,
        }
        self.mounting = false;
        self.space.end_mount()
    }

    fn end_step(&mut self, name: &'static str) {
        let before = self.stats.mount.total_ns();
        let now = self.space.flash.now();
        self.stats.mount.steps.push((name, now - before));
    }

    fn adopt(&mut self, newest: &Newest) -> Result<(), FtlError> {
        for lbn in 0..self.logical_blocks() {
            self.adopt_logical_block(lbn, newest);
            let stream = self.data_stream(lbn);
            if self.space.open_block(stream).is_some_and(|(open, _)| self.data.block(lbn) != Some(open)) {
                self.space.seal(stream)?;
            }
        }
        Ok(())
    }

    fn adopt_logical_block(&mut self, lbn: u32, newest: &Newest) {
        let geometry = self.space.geometry();
        let found: Vec<(u32, Ppn)> = self
            .pages_of(lbn)
            .filter(|lpn| newest.map[*lpn as usize] != UNMAPPED)
            .map(|lpn| (lpn, Ppn::new(newest.map[lpn as usize])))
            .collect();
        let mut blocks: Vec<(Pbn, u32)> = Vec::new();
        for (_, ppn) in &found {
            let block = geometry.block_of(*ppn);
            match blocks.iter_mut().find(|(other, _)| *other == block) {
                Some((_, pages)) => *pages += 1,
                None => blocks.push((block, 1)),
            }
        }
        blocks.retain(|(block, pages)| self.can_be_data(lbn, *block, *pages, &found));
        let table = &self.space.table;
        let best = blocks
            .into_iter()
            .max_by_key(|(block, pages)| (table.role(*block) == Role::Data, *pages, Reverse(table.epoch(*block))));
        if let Some((block, _)) = best {
            self.data.set_block(lbn, block);
            if self.space.table.state(block) == State::Full {
                self.space.table.set_role(block, Role::Data);
            }
        }
        for (lpn, ppn) in found {
            let block = geometry.block_of(ppn);
            if best.is_some_and(|(best, _)| best == block) {
                self.data.set_place(lpn, ppn);
            } else {
                self.logs.insert(lpn, block, ppn, None);
            }
        }
    }

    /// Whether a block with so many of the logical block's pages has no others, and those where they belong.
    fn can_be_data(&self, lbn: u32, block: Pbn, pages: u32, found: &[(u32, Ppn)]) -> bool {
        let geometry = self.space.geometry();
        let is_own = match self.space.table.state(block) {
            State::Full => true,
            _ => self.space.open_block(self.data_stream(lbn)).is_some_and(|(open, _)| open == block),
        };
        let at_home = |(lpn, ppn): &(u32, Ppn)| {
            geometry.block_of(*ppn) != block || geometry.offset_of(*ppn) == lpn % geometry.pages_per_block
        };
        is_own && self.space.table.valid(block) == pages && (!self.data.in_place() || found.iter().all(at_home))
    }
}
