//! Looking pages up: tables come from RAM, or from the spare bytes of the pages that carry them,
//! one unit's at a time (`at_hand`). Where a carrier cannot be read, the records of the unit's
//! pages say what it said.

use super::tables::Place;
use super::{Policy, UnitFtl};
use crate::addr::Lpn;
use crate::convert::index;
use crate::error::FtlError;
use crate::format::{LOST, Role, UNMAPPED};
use nand_model::{Cause, Ppn, Store};

impl<S: Store, P: Policy> UnitFtl<S, P> {
    /// Where the page is: [`UNMAPPED`], [`LOST`] or its physical page.
    pub(crate) fn look_up(&mut self, lpn: Lpn, cause: Cause) -> Result<u32, FtlError> {
        let (unit, k, slot) = self.split(lpn);
        self.take_table(unit, k, cause)?;
        Ok(self.map.at_hand.slots[slot])
    }

    /// The page that has the directory of a table's group, if the group is on flash.
    #[cfg(test)]
    pub(crate) fn head_of(&self, unit: u32, k: u32) -> Option<Ppn> {
        match self.map.tables.place(self.group_number(unit, k)) {
            Place::Flash(ppn) => Some(ppn),
            _ => None,
        }
    }

    pub(super) fn group_number(&self, unit: u32, k: u32) -> u32 {
        debug_assert!(k < self.map.shape.tables(), "unit {unit} has no table {k}");
        unit * self.map.shape.groups() + k / self.map.shape.fan
    }

    /// Reads a table, unless it is at hand.
    pub(super) fn take_table(&mut self, unit: u32, k: u32, cause: Cause) -> Result<(), FtlError> {
        if self.map.at_hand.turn_to(unit, k, &self.map.shape) {
            self.stats.map_cache_hits += u64::from(cause == Cause::Host);
            return Ok(());
        }
        let group = k / self.map.shape.fan;
        match self.map.tables.place(self.group_number(unit, k)) {
            Place::Nowhere => {
                self.map
                    .at_hand
                    .group_slots(group, &self.map.shape)
                    .fill(UNMAPPED);
                self.map
                    .at_hand
                    .group_carriers(group, &self.map.shape)
                    .fill(UNMAPPED);
            }
            Place::Ram(kept) => {
                self.map
                    .at_hand
                    .group_slots(group, &self.map.shape)
                    .copy_from_slice(&kept.slots);
                self.map
                    .at_hand
                    .group_carriers(group, &self.map.shape)
                    .copy_from_slice(&kept.carriers);
            }
            Place::Flash(head) => {
                self.stats.map_cache_misses += u64::from(cause == Cause::Host);
                return self.read_table(unit, k, head, cause);
            }
        }
        self.stats.map_cache_hits += u64::from(cause == Cause::Host);
        self.map.at_hand.note_group(group, &self.map.shape);
        Ok(())
    }

    /// Reads a table by the directory of its group.
    pub(super) fn read_table(
        &mut self,
        unit: u32,
        k: u32,
        head: Ppn,
        cause: Cause,
    ) -> Result<(), FtlError> {
        let group = k / self.map.shape.fan;
        if !self.map.at_hand.has_directory(group) {
            if self.map.shape.fan == 1 {
                self.map.at_hand.carriers[index(k)] = head.raw();
            } else if !self.read_spare(unit, group, head, true, cause)? {
                return self.rebuild_group(unit, group, head);
            }
            self.map.at_hand.note_directory(group);
        }
        if self.map.at_hand.turn_to(unit, k, &self.map.shape) {
            return Ok(());
        }
        match self.map.at_hand.carriers[index(k)] {
            UNMAPPED => self.map.at_hand.table(k, &self.map.shape).fill(UNMAPPED),
            carrier => {
                let carrier = Ppn::new(carrier);
                if !self.read_spare(unit, group, carrier, false, cause)?
                    || !self.map.at_hand.turn_to(unit, k, &self.map.shape)
                {
                    return self.rebuild_group(unit, group, carrier);
                }
            }
        }
        self.map.at_hand.note_table(k);
        Ok(())
    }

    /// Reads what a page of this group has in its spare bytes: its table, and the directory if that
    /// is wanted. False if it says nothing.
    pub(super) fn read_spare(
        &mut self,
        unit: u32,
        group: u32,
        ppn: Ppn,
        directory: bool,
        cause: Cause,
    ) -> Result<bool, FtlError> {
        let shape = self.map.shape;
        let Some((oob, spare)) = self.space.flash.read_spare(ppn, cause)? else {
            return Ok(false);
        };
        let k = oob.tag.lpn % shape.pages / shape.slots;
        if oob.tag.lpn / shape.pages != unit || k / shape.fan != group {
            return Ok(false);
        }
        if directory {
            let carriers = self.map.at_hand.group_carriers(group, &shape);
            if shape
                .decode_directory(&self.map.lists, unit, spare, carriers)
                .is_none()
            {
                return Ok(false);
            }
            if self.map.at_hand.carriers[index(k)] != ppn.raw() {
                return Ok(false);
            }
        }
        let slots = self.map.at_hand.table(k, &shape);
        if shape
            .decode_table(&self.map.lists, unit, spare, slots)
            .is_none()
        {
            return Ok(false);
        }
        // What a part tells that lies may be of another life.
        let is_live = |page: &u32| *page == UNMAPPED || self.space.table.is_live(Ppn::new(*page));
        if !slots.iter().all(is_live)
            || !self
                .map
                .at_hand
                .group_carriers(group, &shape)
                .iter()
                .all(is_live)
        {
            return Ok(false);
        }
        self.map.at_hand.note_table(k);
        Ok(true)
    }

    /// Reads all tables of a group.
    pub(super) fn take_group(
        &mut self,
        unit: u32,
        group: u32,
        cause: Cause,
    ) -> Result<(), FtlError> {
        self.map
            .shape
            .tables_of(group)
            .try_for_each(|k| self.take_table(unit, k, cause))
    }

    /// A page with a table cannot be read any more. The live pages of the unit say where they
    /// belong; what is missing is lost.
    #[cold]
    pub(super) fn rebuild_group(
        &mut self,
        unit: u32,
        group: u32,
        lost: Ppn,
    ) -> Result<(), FtlError> {
        let tables = self.map.shape.tables_of(group);
        assert!(!tables.is_empty(), "unit {unit} has no group {group}");
        let first = unit * self.map.shape.pages + tables.start * self.map.shape.slots;
        let mut slots = vec![UNMAPPED; self.map.at_hand.group_slots(group, &self.map.shape).len()];
        let mut live = Vec::new();
        self.map
            .lists
            .blocks(unit)
            .for_each(|block| self.space.table.live_pages(block, &mut live));
        for ppn in live {
            let found = self
                .space
                .flash
                .read_oob(ppn, Cause::Recovery)?
                .filter(|oob| oob.tag.role == Role::Data);
            let slot = found
                .and_then(|oob| oob.tag.lpn.checked_sub(first))
                .filter(|slot| index(*slot) < slots.len());
            if let Some(slot) = slot.filter(|slot| self.map.trims.is_mapped(Lpn::new(first + slot)))
            {
                slots[index(slot)] = ppn.raw();
            }
        }
        // One of the missing is the page that carried the table: it stays the place of an error.
        let is_free = |ppn: &u32| self.space.table.is_live(lost) && !slots.contains(ppn);
        let mut places = Some(lost.raw()).filter(is_free).into_iter();
        for (lpn, slot) in (first..self.logical_pages).zip(&mut slots) {
            if *slot == UNMAPPED && self.map.trims.is_mapped(Lpn::new(lpn)) {
                *slot = places.next().unwrap_or(LOST);
            }
        }
        self.map
            .at_hand
            .group_slots(group, &self.map.shape)
            .copy_from_slice(&slots);
        self.map
            .at_hand
            .group_carriers(group, &self.map.shape)
            .fill(UNMAPPED);
        self.map.at_hand.note_group(group, &self.map.shape);
        self.keep_group(unit, group);
        Ok(())
    }

    /// Keeps a group that is at hand in RAM.
    pub(super) fn keep_group(&mut self, unit: u32, group: u32) {
        let (slots, carriers) = (
            self.map.shape.tables_of(group),
            self.map.shape.tables_of(group),
        );
        let slots =
            index(slots.start * self.map.shape.slots)..index(slots.end * self.map.shape.slots);
        let carriers = index(carriers.start)..index(carriers.end);
        let number = unit * self.map.shape.groups() + group;
        assert!(
            self.map.at_hand.is_of(unit),
            "group {group} of unit {unit} is not at hand"
        );
        self.map.tables.keep(
            number,
            &self.map.at_hand.slots[slots],
            &self.map.at_hand.carriers[carriers],
        );
    }

    /// Whether the table maps nothing but pages of its unit's own blocks.
    pub(super) fn is_at_home(&mut self, unit: u32, k: u32) -> bool {
        let geometry = self.space.geometry();
        let lists = &self.map.lists;
        let at_home = |slot: &u32| match *slot {
            UNMAPPED => true,
            LOST => false,
            ppn => lists.owner(geometry.block_of(Ppn::new(ppn))) == Some(unit),
        };
        self.map
            .at_hand
            .table(k, &self.map.shape)
            .iter()
            .all(at_home)
    }
}
