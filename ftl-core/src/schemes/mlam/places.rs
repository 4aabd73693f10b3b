//! Where a logical page is: in the buffer, at the place of its quarter, or apart.

use super::MlamFtl;
use super::mapping::Place;
use super::shape::QUARTERS;
use crate::addr::Lpn;
use crate::convert::to_u32;
use nand_model::{Ppn, Store};

impl<S: Store> MlamFtl<S> {
    /// Where a quarter lies by the tables, if any of its pages do.
    pub(super) fn quarter_at(&self, quarter: u32) -> Option<Place> {
        self.map
            .mapping
            .get(quarter)
            .filter(|place| self.map.superblocks.holds(*place, quarter))
    }

    /// The page of flash that holds a logical page's newest content there.
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

    /// Pages from `lpn` on, before `end`, that hold nothing together, or lie one after the other in
    /// one block. One, if it is in RAM.
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

    /// The page holds nothing from now on; if it is on flash, a record says so.
    pub(super) fn unmap(&mut self, lpn: Lpn) {
        let place = self.place_of(lpn);
        let buffered = self.map.buffer.remove(lpn).is_some();
        if self.map.trims.is_mapped(lpn) {
            self.map.trims.unmap(lpn);
        } else if buffered {
            self.map.unborn -= 1;
        }
        if let Some(ppn) = place {
            self.give_up_place(lpn, ppn);
        }
    }

    /// A page that held this logical page's newest content on flash does so no more.
    pub(super) fn give_up_place(&mut self, lpn: Lpn, ppn: Ppn) {
        self.space.table.clear_live(ppn);
        if let Some(place) = self.regular_place(lpn, ppn) {
            self.leave_place(lpn, place);
        }
    }

    /// The tables no longer lead from this logical page to this place.
    pub(super) fn leave_place(&mut self, lpn: Lpn, place: Place) {
        debug_assert!(
            self.map
                .superblocks
                .holds(place, self.map.shape.spot(lpn).quarter),
            "the quarter of logical page {lpn} is not at {place:?}"
        );
        if self.map.superblocks.page_died(place) {
            self.remap(self.map.shape.superblock_of(lpn), &[]);
        }
        if self.map.superblocks.get(place.psb).held().next().is_none() {
            self.dissolve(place.psb);
        }
    }

    /// The place by which the tables lead from this logical page to this page, if they do.
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

    /// Writes the tables of a logical superblock anew; `moved` says where some of its quarters are
    /// now.
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

    /// A superblock that holds no quarters is none any more; pages of its blocks that are live all
    /// the same are moved one by one later.
    pub(super) fn dissolve(&mut self, psb: u32) {
        for block in self.map.superblocks.dissolve(psb) {
            self.loosen(block);
        }
    }

    /// Takes a superblock apart without a copy: the buffer knows where its pages are, and its
    /// blocks can be collected one by one. Nothing changes on flash: a mount finds the superblock
    /// again.
    pub(super) fn take_apart(&mut self, psb: u32) {
        let held: Vec<(u32, u32)> = self.map.superblocks.get(psb).held().collect();
        for (loc, quarter) in held {
            let (place, first) = (Place { psb, loc }, quarter * self.map.shape.quarter_pages());
            let end = (first + self.map.shape.quarter_pages()).min(self.logical_pages);
            for lpn in (first..end).map(Lpn::new) {
                let here = |ppn: &Ppn| self.regular_place(lpn, *ppn) == Some(place);
                if let Some(ppn) = self.place_of(lpn).filter(here) {
                    self.map.buffer.moved(lpn, ppn);
                    self.leave_place(lpn, place);
                }
            }
        }
    }
}
