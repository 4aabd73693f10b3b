//! Page look-up: tables come from RAM, or from the OOB areas of their carriers, one unit at a time
//! (`cached_unit`). If a carrier is unreadable, the records of the unit's pages replace its table.

use super::policy::Policy;
use super::state::UnitFtl;
use super::tables::GroupLocation;
use crate::addr::Lpn;
use crate::error::FtlError;
use crate::format::{LOST, Role, UNMAPPED};
use crate::int::index;
use nand_model::{Cause, Ppn};

impl<P: Policy> UnitFtl<P> {
    /// Returns the physical page of a logical page, [`UNMAPPED`] or [`LOST`].
    pub(crate) fn look_up(&mut self, lpn: Lpn, cause: Cause) -> Result<u32, FtlError> {
        let (unit, k, slot) = self.split(lpn);
        self.load_table(unit, k, cause)?;
        Ok(self.map.cached_unit.slots[slot])
    }

    /// Returns the page with the directory of a table's group, if the group is on flash.
    #[cfg(test)]
    pub(crate) fn head_of(&self, unit: u32, k: u32) -> Option<Ppn> {
        match self.map.tables.location(self.group_number(unit, k)) {
            GroupLocation::Flash(ppn) => Some(ppn),
            _ => None,
        }
    }

    pub(super) fn group_number(&self, unit: u32, k: u32) -> u32 {
        debug_assert!(
            k < self.map.shape.tables(),
            "table {k} of unit {unit} does not exist"
        );
        unit * self.map.shape.groups() + k / self.map.shape.tables_per_group
    }

    /// Reads a table, unless it is loaded.
    pub(super) fn load_table(&mut self, unit: u32, k: u32, cause: Cause) -> Result<(), FtlError> {
        if self.map.cached_unit.select_unit(unit, k, &self.map.shape) {
            return Ok(());
        }
        let group = k / self.map.shape.tables_per_group;
        match self.map.tables.location(self.group_number(unit, k)) {
            GroupLocation::Nowhere => {
                self.map
                    .cached_unit
                    .group_slots(group, &self.map.shape)
                    .fill(UNMAPPED);
                self.map
                    .cached_unit
                    .group_carriers(group, &self.map.shape)
                    .fill(UNMAPPED);
            }
            GroupLocation::Ram(kept) => {
                self.map
                    .cached_unit
                    .group_slots(group, &self.map.shape)
                    .copy_from_slice(&kept.slots);
                self.map
                    .cached_unit
                    .group_carriers(group, &self.map.shape)
                    .copy_from_slice(&kept.carriers);
            }
            GroupLocation::Flash(head) => {
                return self.read_table(unit, k, head, cause);
            }
        }
        self.map.cached_unit.note_group(group, &self.map.shape);
        Ok(())
    }

    /// Reads a table through the directory of its group.
    pub(super) fn read_table(
        &mut self,
        unit: u32,
        k: u32,
        head: Ppn,
        cause: Cause,
    ) -> Result<(), FtlError> {
        let group = k / self.map.shape.tables_per_group;
        if !self.map.cached_unit.has_directory(group) {
            if self.map.shape.tables_per_group == 1 {
                self.map.cached_unit.carriers[index(k)] = head.raw();
            } else if !self.read_spare(unit, group, head, true, cause)? {
                return self.rebuild_group(unit, group, head);
            }
            self.map.cached_unit.note_directory(group);
        }
        if self.map.cached_unit.select_unit(unit, k, &self.map.shape) {
            return Ok(());
        }
        match self.map.cached_unit.carriers[index(k)] {
            UNMAPPED => self
                .map
                .cached_unit
                .table(k, &self.map.shape)
                .fill(UNMAPPED),
            carrier => {
                let carrier = Ppn::new(carrier);
                if !self.read_spare(unit, group, carrier, false, cause)?
                    || !self.map.cached_unit.select_unit(unit, k, &self.map.shape)
                {
                    return self.rebuild_group(unit, group, carrier);
                }
            }
        }
        self.map.cached_unit.note_table(k);
        Ok(())
    }

    /// Reads the OOB area of a page of this group: its table, and the directory if `directory` is
    /// set. Returns false if the OOB area has no valid content for this group. `cause` is that of
    /// the work that needs the table.
    pub(super) fn read_spare(
        &mut self,
        unit: u32,
        group: u32,
        ppn: Ppn,
        directory: bool,
        cause: Cause,
    ) -> Result<bool, FtlError> {
        let shape = self.map.shape;
        self.map.table_reads += 1;
        let Some((oob, spare)) = self.space.flash.read_spare(ppn, cause.of_map())? else {
            return Ok(false);
        };
        let k = oob.tag.lpn % shape.pages / shape.slots;
        if oob.tag.lpn / shape.pages != unit || k / shape.tables_per_group != group {
            return Ok(false);
        }
        if directory {
            let carriers = self.map.cached_unit.group_carriers(group, &shape);
            if shape
                .decode_directory(&self.map.lists, unit, spare, carriers)
                .is_none()
            {
                return Ok(false);
            }
            if self.map.cached_unit.carriers[index(k)] != ppn.raw() {
                return Ok(false);
            }
        }
        let slots = self.map.cached_unit.table(k, &shape);
        if shape
            .decode_table(&self.map.lists, unit, spare, slots)
            .is_none()
        {
            return Ok(false);
        }
        // With silent read faults, the content may be from before an erase.
        let is_live = |page: &u32| *page == UNMAPPED || self.space.table.is_valid(Ppn::new(*page));
        if !slots.iter().all(is_live)
            || !self
                .map
                .cached_unit
                .group_carriers(group, &shape)
                .iter()
                .all(is_live)
        {
            return Ok(false);
        }
        self.map.cached_unit.note_table(k);
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
            .try_for_each(|k| self.load_table(unit, k, cause))
    }

    /// Rebuilds a group after a page with one of its tables became unreadable. The records of the
    /// unit's valid pages give their addresses; missing pages are lost.
    #[cold]
    pub(super) fn rebuild_group(
        &mut self,
        unit: u32,
        group: u32,
        lost: Ppn,
    ) -> Result<(), FtlError> {
        let tables = self.map.shape.tables_of(group);
        assert!(
            !tables.is_empty(),
            "group {group} of unit {unit} has no tables"
        );
        let first = unit * self.map.shape.pages + tables.start * self.map.shape.slots;
        let mut slots = vec![
            UNMAPPED;
            self.map
                .cached_unit
                .group_slots(group, &self.map.shape)
                .len()
        ];
        let mut pages = Vec::new();
        self.map
            .lists
            .blocks(unit)
            .for_each(|block| self.space.table.list_valid(block, &mut pages));
        for ppn in pages {
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
        // One of the missing pages is the carrier itself: the table maps it, so that reads return
        // an error.
        let is_free = |ppn: &u32| self.space.table.is_valid(lost) && !slots.contains(ppn);
        let mut ppns = Some(lost.raw()).filter(is_free).into_iter();
        for (lpn, slot) in (first..self.logical_pages).zip(&mut slots) {
            if *slot == UNMAPPED && self.map.trims.is_mapped(Lpn::new(lpn)) {
                *slot = ppns.next().unwrap_or(LOST);
            }
        }
        self.map
            .cached_unit
            .group_slots(group, &self.map.shape)
            .copy_from_slice(&slots);
        self.map
            .cached_unit
            .group_carriers(group, &self.map.shape)
            .fill(UNMAPPED);
        self.map.cached_unit.note_group(group, &self.map.shape);
        self.keep_group(unit, group);
        Ok(())
    }

    /// Keeps a loaded group in RAM.
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
            self.map.cached_unit.is_of(unit),
            "group {group} of unit {unit} is not loaded"
        );
        self.map.tables.keep(
            number,
            &self.map.cached_unit.slots[slots],
            &self.map.cached_unit.carriers[carriers],
        );
    }

    /// Returns whether the table maps only pages of its unit's own blocks.
    pub(super) fn is_in_unit(&mut self, unit: u32, k: u32) -> bool {
        let geometry = self.space.geometry();
        let lists = &self.map.lists;
        let at_home = |slot: &u32| match *slot {
            UNMAPPED => true,
            LOST => false,
            ppn => lists.owner(geometry.block_of(Ppn::new(ppn))) == Some(unit),
        };
        self.map
            .cached_unit
            .table(k, &self.map.shape)
            .iter()
            .all(at_home)
    }
}
