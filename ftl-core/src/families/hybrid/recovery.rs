//! Mount: finds the newest version of every page from all records (`crate::recovery`). The data
//! block of a logical block is the one with most of its pages and no others; other pages are in log
//! blocks. After a clean shutdown, writes continue in the data blocks. After a power cut, the data
//! blocks take no more pages until they are merged.

use super::policy::Policy;
use super::state::{COMMON, FIRST_LOG, Hybrid, HybridFtl};
use crate::addr::{Lbn, Lpn};
use crate::block_table::State;
use crate::error::FtlError;
use crate::format::Role;
use crate::recovery::{CommonParts, MountByScan, ScanResult};
use crate::space::Space;
use nand_model::{Pbn, Ppn};
use std::cmp::Reverse;

impl<P: Policy> MountByScan for HybridFtl<P> {
    fn common_parts(&mut self) -> CommonParts<'_> {
        self.common_parts_with(COMMON, |map| &mut map.trims)
    }

    fn rebuild_tables(&mut self, newest: &ScanResult) -> Result<(), FtlError> {
        let geometry = self.space.geometry();
        // The purpose of an open log block is unknown after a mount.
        (FIRST_LOG..self.map.first_data).try_for_each(|stream| self.space.seal(stream))?;
        let mut logged = Vec::new();
        for lbn in (0..self.map.logical_blocks()).map(Lbn::new) {
            self.adopt_logical_block(lbn, newest, &mut logged);
            let stream = self.map.data_stream(lbn);
            if self
                .space
                .open_block(stream)
                .is_some_and(|(open, _)| self.map.data.block(lbn) != Some(open))
            {
                self.space.seal(stream)?;
            }
        }
        // Log blocks age in the order in which they were opened, as before the mount.
        logged.sort_by_key(|(_, ppn)| self.space.table.epoch(geometry.block_of(*ppn)));
        for (lpn, ppn) in logged {
            self.map.logs.insert(lpn, geometry.block_of(ppn), ppn, None);
        }
        Ok(())
    }

    fn finish_mount(&mut self) {
        for lbn in (0..self.map.logical_blocks()).map(Lbn::new) {
            self.map
                .data
                .block(lbn)
                .map(|block| self.space.table.withdraw(block));
        }
    }
}

impl<P: Policy> Hybrid<P> {
    /// Returns whether a block with `pages` pages of the logical block has no others, and has them
    /// at their own offsets if the chip needs that.
    fn can_be_data(
        &self,
        space: &Space,
        lbn: Lbn,
        block: Pbn,
        pages: u32,
        found: &[(Lpn, Ppn)],
    ) -> bool {
        let geometry = space.geometry();
        let is_own = match space.table.state(block) {
            State::Full => true,
            _ => space
                .open_block(self.data_stream(lbn))
                .is_some_and(|(open, _)| open == block),
        };
        let at_home = |(lpn, ppn): &(Lpn, Ppn)| {
            geometry.block_of(*ppn) != block || geometry.offset_of(*ppn) == self.split(*lpn).1
        };
        is_own
            && space.table.valid_count(block) == pages
            && (!self.data.in_place() || found.iter().all(at_home))
    }
}

impl<P: Policy> HybridFtl<P> {
    /// Sets the data block of a logical block. Appends the pages in log blocks to `logged`.
    fn adopt_logical_block(&mut self, lbn: Lbn, newest: &ScanResult, logged: &mut Vec<(Lpn, Ppn)>) {
        let geometry = self.space.geometry();
        let found: Vec<(Lpn, Ppn)> = self
            .map
            .pages_of(lbn)
            .filter_map(|lpn| Some((lpn, newest.ppn_of(lpn)?)))
            .collect();
        let mut blocks: Vec<(Pbn, u32)> = Vec::new();
        for (_, ppn) in &found {
            let block = geometry.block_of(*ppn);
            match blocks.iter_mut().find(|(other, _)| *other == block) {
                Some((_, pages)) => *pages += 1,
                None => blocks.push((block, 1)),
            }
        }
        blocks.retain(|(block, pages)| {
            self.map
                .can_be_data(&self.space, lbn, *block, *pages, &found)
        });
        let table = &self.space.table;
        let best = blocks.into_iter().max_by_key(|(block, pages)| {
            (
                table.role(*block) == Role::Data,
                *pages,
                Reverse(table.epoch(*block)),
            )
        });
        if let Some((block, _)) = best {
            self.map.data.set_block(lbn, block);
            if self.space.table.state(block) == State::Full {
                self.space.table.set_role(block, Role::Data);
            }
        }
        for (lpn, ppn) in found {
            debug_assert!(
                self.space.table.is_valid(ppn),
                "logical page {lpn} is at {ppn}, which is not valid"
            );
            let block = geometry.block_of(ppn);
            if best.is_some_and(|(best, _)| best == block) {
                self.map.data.set_page(lpn, ppn);
            } else {
                logged.push((lpn, ppn));
            }
        }
    }
}
