//! Location of a logical page: in the buffer, in its quarter, or outside it.

use super::mapping::Location;
use super::shape::QUARTERS;
use super::state::Mlam;
use crate::addr::Lpn;
use crate::int::to_u32;
use crate::space::Space;
use nand_model::Ppn;

impl Mlam {
    /// Returns the location that the tables have for a quarter, if it has any of the quarter's
    /// pages.
    pub(super) fn quarter_at(&self, quarter: u32) -> Option<Location> {
        self.mapping
            .get(quarter)
            .filter(|location| self.superblocks.holds(*location, quarter))
    }

    /// Returns the flash page with a logical page's newest content on flash.
    pub(super) fn ppn_of(&self, space: &Space, lpn: Lpn) -> Option<Ppn> {
        if !self.trims.is_mapped(lpn) {
            return None;
        }
        if let Some(ppn) = self.buffer.get(lpn).and_then(|entry| entry.ppn()) {
            return Some(ppn);
        }
        let spot = self.shape.spot(lpn);
        let location = self.quarter_at(spot.quarter)?;
        let block = self.superblocks.block(location.psb, spot.chip)?;
        Some(
            space
                .geometry()
                .page(block, self.shape.block_row(location.loc, spot.row)),
        )
    }

    /// Returns the number of pages from `lpn` on, before `end`, that are all unmapped, or
    /// consecutive in one block. Returns 1 if `lpn` is in RAM.
    pub(super) fn physical_run(&self, space: &Space, lpn: Lpn, end: Lpn) -> u32 {
        assert!(
            lpn < end,
            "the range of logical pages from {lpn} to {end} is empty"
        );
        let in_ram = |lpn: Lpn| {
            self.buffer
                .get(lpn)
                .is_some_and(|entry| entry.slot().is_some())
        };
        if in_ram(lpn) {
            return 1;
        }
        let geometry = space.geometry();
        let first = self.ppn_of(space, lpn);
        let empty = |lpn: Lpn| !self.trims.is_mapped(lpn);
        let follows = |n: &u32| match first {
            _ if in_ram(lpn.plus(*n)) => false,
            None => empty(lpn) && empty(lpn.plus(*n)),
            Some(first) => self.ppn_of(space, lpn.plus(*n)).is_some_and(|ppn| {
                ppn.raw() == first.raw() + n && geometry.block_of(ppn) == geometry.block_of(first)
            }),
        };
        1 + to_u32((1..end.raw() - lpn.raw()).take_while(follows).count())
    }

    /// Unmaps the page; if it is on flash, a trim record exists.
    pub(super) fn unmap(&mut self, space: &mut Space, lpn: Lpn) {
        let ppn = self.ppn_of(space, lpn);
        let buffered = self.buffer.remove(lpn).is_some();
        if self.trims.is_mapped(lpn) {
            self.trims.unmap(lpn);
        } else if buffered {
            self.unflushed_pages -= 1;
        }
        if let Some(ppn) = ppn {
            self.invalidate_page(space, lpn, ppn);
        }
    }

    /// Invalidates the flash page that held this logical page's newest content.
    pub(super) fn invalidate_page(&mut self, space: &mut Space, lpn: Lpn, ppn: Ppn) {
        space.table.set_invalid(ppn);
        if let Some(location) = self.regular_location(space, lpn, ppn) {
            self.unmap_location(space, lpn, location);
        }
    }

    /// Removes the logical page from the quarter at this location.
    pub(super) fn unmap_location(&mut self, space: &mut Space, lpn: Lpn, location: Location) {
        debug_assert!(
            self.superblocks
                .holds(location, self.shape.spot(lpn).quarter),
            "the quarter of logical page {lpn} is not at {location:?}"
        );
        if self.superblocks.count_invalid(location) {
            self.remap(self.shape.superblock_of(lpn), &[]);
        }
        if self.superblocks.get(location.psb).held().next().is_none() {
            self.dissolve(space, location.psb);
        }
    }

    /// Returns the location by which the tables map this logical page to this flash page, if any.
    pub(super) fn regular_location(&self, space: &Space, lpn: Lpn, ppn: Ppn) -> Option<Location> {
        let (psb, chip) = self.superblocks.owner(space.geometry().block_of(ppn))?;
        let (loc, row) = self.shape.loc_and_row(ppn)?;
        let spot = self.shape.spot(lpn);
        let location = Location { psb, loc };
        let is_there =
            spot.row == row && spot.chip == chip && self.superblocks.holds(location, spot.quarter);
        is_there.then_some(location)
    }

    /// Rewrites the tables of a logical superblock; `moved` has the new locations of some quarters.
    pub(super) fn remap(&mut self, logical: u32, moved: &[(u32, Location)]) {
        let first = logical * QUARTERS;
        let location = |quarter: u32| {
            let new = moved
                .iter()
                .find(|(of, _)| *of == quarter)
                .map(|(_, location)| *location);
            new.or_else(|| self.quarter_at(quarter))
        };
        let locations = [0, 1, 2, 3].map(|n| location(first + n));
        self.mapping.set(logical, locations);
    }

    /// Dissolves a superblock that holds no quarter; the remaining valid pages of its blocks are
    /// relocated one by one later.
    pub(super) fn dissolve(&mut self, space: &mut Space, psb: u32) {
        for block in self.superblocks.dissolve(psb) {
            self.detach_block(space, block);
        }
    }

    /// Takes a superblock apart without a copy: the buffer gets the locations of its pages, and GC
    /// can empty its blocks one by one. Flash is unchanged: a mount finds the superblock again.
    pub(super) fn take_apart(&mut self, space: &mut Space, psb: u32) {
        let held: Vec<(u32, u32)> = self.superblocks.get(psb).held().collect();
        for (loc, quarter) in held {
            let (location, first) = (Location { psb, loc }, quarter * self.shape.quarter_pages());
            let end = (first + self.shape.quarter_pages()).min(self.logical_pages);
            for lpn in (first..end).map(Lpn::new) {
                let here = |ppn: &Ppn| self.regular_location(space, lpn, *ppn) == Some(location);
                if let Some(ppn) = self.ppn_of(space, lpn).filter(here) {
                    self.buffer.on_relocate(lpn, ppn);
                    self.unmap_location(space, lpn, location);
                }
            }
        }
    }
}
