//! Mount: rebuilds the newest version of every page from all records ([`crate::recovery`]), then
//! the superblocks, by the serial number in their pages. Then it assigns every quarter the location
//! with most of its pages. The other pages are buffered pages that are on flash.

use super::mapping::Location;
use super::shape::QUARTERS;
use super::state::{COMMON, Mlam, MlamFtl, SPARE_BYTES};
use crate::addr::Lpn;
use crate::block_table::State;
use crate::error::FtlError;
use crate::format::COUNTER_FOUND_MAX;
use crate::recovery::{CommonParts, MountByScan, ScanResult};
use crate::space::Space;
use nand_model::{Cause, Pbn, Ppn};
use std::collections::BTreeMap;

impl MountByScan for MlamFtl {
    fn common_parts(&mut self) -> CommonParts<'_> {
        self.common_parts_with(COMMON, |map| &mut map.trims)
    }

    fn rebuild_tables(&mut self, newest: &ScanResult) -> Result<(), FtlError> {
        self.map.adopt_blocks(&mut self.space)?;
        for logical in 0..self.map.shape.superblocks(self.logical_pages) {
            self.map.adopt_superblock(&self.space, logical, newest);
        }
        let empty = |psb: &u32| self.map.superblocks.get(*psb).held().next().is_none();
        let all: Vec<u32> = self.map.superblocks.iter().map(|(psb, _)| psb).collect();
        for psb in all.into_iter().filter(empty).collect::<Vec<_>>() {
            // Their valid pages are buffered; the victim index already contains their blocks.
            self.map.superblocks.dissolve(psb);
        }
        Ok(())
    }

    fn finish_mount(&mut self) {
        // GC empties whole superblocks, not their single blocks.
        let blocks: Vec<Pbn> = self
            .map
            .superblocks
            .iter()
            .flat_map(|(_, superblock)| superblock.blocks())
            .collect();
        for block in blocks {
            self.space.table.withdraw(block);
        }
    }
}

impl Mlam {
    /// Assembles blocks with the same serial number, older ones first: of two blocks with the same
    /// chip, one is an unfinished copy.
    fn adopt_blocks(&mut self, space: &mut Space) -> Result<(), FtlError> {
        let geometry = space.geometry();
        let is_full = |block: &Pbn| {
            space.table.state(*block) == State::Full && space.table.valid_count(*block) > 0
        };
        let mut blocks: Vec<Pbn> = geometry.all_blocks().filter(is_full).collect();
        blocks.sort_by_key(|block| space.table.epoch(*block));
        let mut by_serial: BTreeMap<u64, u32> = BTreeMap::new();
        let mut pages = Vec::new();
        for block in blocks {
            pages.clear();
            space.table.list_valid(block, &mut pages);
            let Some((serial, chip)) = self.serial_of(space, pages[0])? else {
                continue;
            };
            let superchip = self.shape.superchip_of(geometry.die_of(block), chip);
            let psb = *by_serial
                .entry(serial)
                .or_insert_with(|| self.superblocks.open(self.shape.chips, superchip, serial));
            if self.superblocks.block(psb, chip).is_none() {
                self.superblocks.set_block(psb, chip, block);
            }
        }
        Ok(())
    }

    /// Returns the serial number of the superblock that a page was written for, and its chip there.
    fn serial_of(&mut self, space: &mut Space, ppn: Ppn) -> Result<Option<(u64, u32)>, FtlError> {
        let Some((oob, spare)) = space.flash.read_spare(ppn, Cause::Recovery)? else {
            return Ok(None);
        };
        let mut bytes = [0; 8];
        bytes[..SPARE_BYTES].copy_from_slice(&spare[..SPARE_BYTES]);
        let serial = u64::from_le_bytes(bytes);
        let is_regular = oob.tag.role.is_host_data()
            && oob.tag.lpn < self.logical_pages
            && serial <= COUNTER_FOUND_MAX;
        Ok(is_regular.then(|| (serial, self.shape.spot(Lpn::new(oob.tag.lpn)).chip)))
    }

    fn adopt_superblock(&mut self, space: &Space, logical: u32, newest: &ScanResult) {
        let mut found = Vec::new();
        for quarter in logical * QUARTERS..(logical + 1) * QUARTERS {
            if let Some(location) = self.adopt_quarter(space, quarter, newest) {
                found.push((quarter, location));
            }
        }
        self.remap(logical, &found);
    }

    /// Assigns a quarter the location with most of its pages; of equal locations, the one in the
    /// youngest superblock. A page whose program failed first is at the start of another block. Its
    /// position may be that of another quarter, which it does not get.
    fn adopt_quarter(
        &mut self,
        space: &Space,
        quarter: u32,
        newest: &ScanResult,
    ) -> Option<Location> {
        let first = quarter * self.shape.quarter_pages();
        let end = (first + self.shape.quarter_pages()).min(self.logical_pages);
        let on_flash: Vec<(Lpn, Ppn)> = (first..end)
            .map(Lpn::new)
            .filter_map(|lpn| Some((lpn, newest.ppn_of(lpn)?)))
            .collect();
        let mut counts: BTreeMap<Location, u32> = BTreeMap::new();
        let is_free = |location: &Location| {
            self.superblocks
                .get(location.psb)
                .held()
                .all(|(loc, _)| loc != location.loc)
        };
        for (lpn, ppn) in &on_flash {
            if let Some(location) = self.location_by_position(space, *lpn, *ppn).filter(is_free) {
                *counts.entry(location).or_default() += 1;
            }
        }
        let most = counts
            .into_iter()
            .max_by_key(|(location, pages)| (*pages, self.superblocks.get(location.psb).serial));
        if let Some((location, pages)) = most {
            self.superblocks.hold(location, quarter, pages);
        }
        let location = most.map(|(location, _)| location);
        for (lpn, ppn) in on_flash {
            if location.is_none() || self.location_by_position(space, lpn, ppn) != location {
                self.buffer.on_relocate(lpn, ppn);
            }
        }
        location
    }
}
