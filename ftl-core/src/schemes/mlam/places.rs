//! Location of a logical page: in the buffer, at the place of its quarter, or outside it.

use super::MlamFtl;
use super::mapping::Place;
use super::shape::QUARTERS;
use crate::addr::Lpn;
use crate::convert::to_u32;
use nand_model::{Ppn, Store};

impl<S: Store> MlamFtl<S> {
    /// Returns the location of a quarter by the tables, if any of its pages is stored there.
    pub(super) fn quarter_at(&self, quarter: u32) -> Option<Place> {
        self.map
            .mapping
            .get(quarter)
            .filter(|place| self.map.superblocks.holds(*place, quarter))
    }

    /// Returns the flash page with a logical page's newest content on flash.
    pub(super) fn place_of(&self, lpn: Lpn) -> Option<Ppn> {
        if !self.map.trims.is_mapped(lpn) {
            return None;
        }
        if let Some(ppn) = self.map.buffer.get(lpn).and_then(|entry| entry.place()) {
            return Some(ppn);
        }
        let spot = self.map.shape.spot(lpn);
        let place = self.quarter_at(spot.quarter)?;
        let block = self.map.superblocks.block(place.psb, spot.chip)?;
        Some(
            self.space
                .geometry()
                .page(block, self.map.shape.block_row(place.loc, spot.row)),
        )
    }

    /// Returns the number of pages from `lpn` on, before `end`, that are all unmapped, or
    /// consecutive in one block. Returns 1 if `lpn` is in RAM.
    pub(super) fn physical_run(&self, lpn: Lpn, end: Lpn) -> u32 {
        assert!(lpn < end, "no logical pages from {lpn} to {end}");
        let in_ram = |lpn: Lpn| {
            self.map
                .buffer
                .get(lpn)
                .is_some_and(|entry| entry.slot().is_some())
        };
        if in_ram(lpn) {
            return 1;
        }
        let geometry = self.space.geometry();
        let first = self.place_of(lpn);
        let empty = |lpn: Lpn| !self.map.trims.is_mapped(lpn);
        let follows = |n: &u32| match first {
            _ if in_ram(lpn.plus(*n)) => false,
            None => empty(lpn) && empty(lpn.plus(*n)),
            Some(first) => self.place_of(lpn.plus(*n)).is_some_and(|ppn| {
                ppn.raw() == first.raw() + n && geometry.block_of(ppn) == geometry.block_of(first)
            }),
        };
        1 + to_u32((1..end.raw() - lpn.raw()).take_while(follows).count())
    }

    /// Unmaps the page; if it is on flash, a trim record exists.
    pub(super) fn unmap(&mut self, lpn: Lpn) {
        let place = self.place_of(lpn);
        let buffered = self.map.buffer.remove(lpn).is_some();
        if self.map.trims.is_mapped(lpn) {
            self.map.trims.unmap(lpn);
        } else if buffered {
            self.map.unflushed_pages -= 1;
        }
        if let Some(ppn) = place {
            self.invalidate_place(lpn, ppn);
        }
    }

    /// Invalidates the flash page that held this logical page's newest content.
    pub(super) fn invalidate_place(&mut self, lpn: Lpn, ppn: Ppn) {
        self.space.table.set_invalid(ppn);
        if let Some(place) = self.regular_place(lpn, ppn) {
            self.unmap_place(lpn, place);
        }
    }

    /// Removes the logical page from the tables' place.
    pub(super) fn unmap_place(&mut self, lpn: Lpn, place: Place) {
        debug_assert!(
            self.map
                .superblocks
                .holds(place, self.map.shape.spot(lpn).quarter),
            "the quarter of logical page {lpn} is not at {place:?}"
        );
        if self.map.superblocks.count_invalid(place) {
            self.remap(self.map.shape.superblock_of(lpn), &[]);
        }
        if self.map.superblocks.get(place.psb).held().next().is_none() {
            self.dissolve(place.psb);
        }
    }

    /// Returns the place by which the tables map this logical page to this flash page, if they do.
    pub(super) fn regular_place(&self, lpn: Lpn, ppn: Ppn) -> Option<Place> {
        let (psb, chip) = self
            .map
            .superblocks
            .owner(self.space.geometry().block_of(ppn))?;
        let (loc, row) = self.map.shape.loc_and_row(ppn)?;
        let spot = self.map.shape.spot(lpn);
        let place = Place { psb, loc };
        let is_there =
            spot.row == row && spot.chip == chip && self.map.superblocks.holds(place, spot.quarter);
        is_there.then_some(place)
    }

    /// Rewrites the tables of a logical superblock; `moved` has the new locations of some quarters.
    pub(super) fn remap(&mut self, logical: u32, moved: &[(u32, Place)]) {
        let first = logical * QUARTERS;
        let place = |quarter: u32| {
            let new = moved
                .iter()
                .find(|(of, _)| *of == quarter)
                .map(|(_, place)| *place);
            new.or_else(|| self.quarter_at(quarter))
        };
        let places = [0, 1, 2, 3].map(|n| place(first + n));
        self.map.mapping.set(logical, places);
    }

    /// Dissolves a superblock that holds no quarter; the remaining valid pages of its blocks are
    /// relocated one by one later.
    pub(super) fn dissolve(&mut self, psb: u32) {
        for block in self.map.superblocks.dissolve(psb) {
            self.detach_block(block);
        }
    }

    /// Takes a superblock apart without a copy: the buffer gets the locations of its pages, and GC
    /// can empty its blocks one by one. Flash is unchanged: a mount finds the superblock again.
    pub(super) fn take_apart(&mut self, psb: u32) {
        let held: Vec<(u32, u32)> = self.map.superblocks.get(psb).held().collect();
        for (loc, quarter) in held {
            let (place, first) = (Place { psb, loc }, quarter * self.map.shape.quarter_pages());
            let end = (first + self.map.shape.quarter_pages()).min(self.logical_pages);
            for lpn in (first..end).map(Lpn::new) {
                let here = |ppn: &Ppn| self.regular_place(lpn, *ppn) == Some(place);
                if let Some(ppn) = self.place_of(lpn).filter(here) {
                    self.map.buffer.on_relocate(lpn, ppn);
                    self.unmap_place(lpn, place);
                }
            }
        }
    }
}
