//! Page look-up: tables come from RAM, or from the OOB areas of their carriers, one unit at a time
//! (`cached_unit`). If a carrier is unreadable, the records of the unit's pages replace its table.

use super::policy::Policy;
use super::state::Units;
use super::tables::GroupLocation;
use crate::addr::Lpn;
use crate::error::FtlError;
use crate::format::{LOST, Role, UNMAPPED};
use crate::int::index;
use crate::space::Space;
use nand_model::{Cause, Ppn};

impl<P: Policy> Units<P> {
    /// Returns the physical page of a logical page, [`UNMAPPED`] or [`LOST`].
    pub(crate) fn look_up(
        &mut self,
        space: &mut Space,
        lpn: Lpn,
        cause: Cause,
    ) -> Result<u32, FtlError> {
        let (unit, k, slot) = self.split(lpn);
        self.load_table(space, unit, k, cause)?;
        Ok(self.cached_unit.slots[slot])
    }

    /// Returns the page with the directory of a table's group, if the group is on flash.
    #[cfg(test)]
    pub(crate) fn head_of(&self, unit: u32, k: u32) -> Option<Ppn> {
        match self.tables.location(self.group_number(unit, k)) {
            GroupLocation::Flash(ppn) => Some(ppn),
            _ => None,
        }
    }

    pub(super) fn group_number(&self, unit: u32, k: u32) -> u32 {
        debug_assert!(
            k < self.shape.tables(),
            "table {k} of unit {unit} does not exist"
        );
        unit * self.shape.groups() + k / self.shape.tables_per_group
    }

    /// Reads a table, unless it is loaded.
    pub(super) fn load_table(
        &mut self,
        space: &mut Space,
        unit: u32,
        k: u32,
        cause: Cause,
    ) -> Result<(), FtlError> {
        if self.cached_unit.select_unit(unit, k, &self.shape) {
            return Ok(());
        }
        let group = k / self.shape.tables_per_group;
        match self.tables.location(self.group_number(unit, k)) {
            GroupLocation::Nowhere => {
                self.cached_unit
                    .group_slots(group, &self.shape)
                    .fill(UNMAPPED);
                self.cached_unit
                    .group_carriers(group, &self.shape)
                    .fill(UNMAPPED);
            }
            GroupLocation::Ram(kept) => {
                self.cached_unit
                    .group_slots(group, &self.shape)
                    .copy_from_slice(&kept.slots);
                self.cached_unit
                    .group_carriers(group, &self.shape)
                    .copy_from_slice(&kept.carriers);
            }
            GroupLocation::Flash(head) => {
                return self.read_table(space, unit, k, head, cause);
            }
        }
        self.cached_unit.note_group(group, &self.shape);
        Ok(())
    }

    /// Reads a table through the directory of its group.
    pub(super) fn read_table(
        &mut self,
        space: &mut Space,
        unit: u32,
        k: u32,
        head: Ppn,
        cause: Cause,
    ) -> Result<(), FtlError> {
        let group = k / self.shape.tables_per_group;
        if !self.cached_unit.has_directory(group) {
            if self.shape.tables_per_group == 1 {
                self.cached_unit.carriers[index(k)] = head.raw();
            } else if !self.read_spare(space, unit, group, head, true, cause)? {
                return self.rebuild_group(space, unit, group, head);
            }
            self.cached_unit.note_directory(group);
        }
        if self.cached_unit.select_unit(unit, k, &self.shape) {
            return Ok(());
        }
        match self.cached_unit.carriers[index(k)] {
            UNMAPPED => self.cached_unit.table(k, &self.shape).fill(UNMAPPED),
            carrier => {
                let carrier = Ppn::new(carrier);
                if !self.read_spare(space, unit, group, carrier, false, cause)?
                    || !self.cached_unit.select_unit(unit, k, &self.shape)
                {
                    return self.rebuild_group(space, unit, group, carrier);
                }
            }
        }
        self.cached_unit.note_table(k);
        Ok(())
    }

    /// Reads the OOB area of a page of this group: its table, and the directory if `directory` is
    /// set. Returns false if the OOB area has no valid content for this group. `cause` is that of
    /// the work that needs the table.
    pub(super) fn read_spare(
        &mut self,
        space: &mut Space,
        unit: u32,
        group: u32,
        ppn: Ppn,
        directory: bool,
        cause: Cause,
    ) -> Result<bool, FtlError> {
        let shape = self.shape;
        self.table_reads += 1;
        let Some((oob, spare)) = space.flash.read_spare(ppn, cause.of_map())? else {
            return Ok(false);
        };
        let k = oob.tag.lpn % shape.pages / shape.slots;
        if oob.tag.lpn / shape.pages != unit || k / shape.tables_per_group != group {
            return Ok(false);
        }
        if directory {
            let carriers = self.cached_unit.group_carriers(group, &shape);
            if shape
                .decode_directory(&self.lists, unit, spare, carriers)
                .is_none()
            {
                return Ok(false);
            }
            if self.cached_unit.carriers[index(k)] != ppn.raw() {
                return Ok(false);
            }
        }
        let slots = self.cached_unit.table(k, &shape);
        if shape
            .decode_table(&self.lists, unit, spare, slots)
            .is_none()
        {
            return Ok(false);
        }
        // With silent read faults, the content may be from before an erase.
        let is_live = |page: &u32| *page == UNMAPPED || space.table.is_valid(Ppn::new(*page));
        if !slots.iter().all(is_live)
            || !self
                .cached_unit
                .group_carriers(group, &shape)
                .iter()
                .all(is_live)
        {
            return Ok(false);
        }
        self.cached_unit.note_table(k);
        Ok(true)
    }

    /// Reads all tables of a group.
    pub(super) fn take_group(
        &mut self,
        space: &mut Space,
        unit: u32,
        group: u32,
        cause: Cause,
    ) -> Result<(), FtlError> {
        self.shape
            .tables_of(group)
            .try_for_each(|k| self.load_table(space, unit, k, cause))
    }

    /// Rebuilds a group after a page with one of its tables became unreadable. The records of the
    /// unit's valid pages give their addresses; missing pages are lost.
    #[cold]
    pub(super) fn rebuild_group(
        &mut self,
        space: &mut Space,
        unit: u32,
        group: u32,
        lost: Ppn,
    ) -> Result<(), FtlError> {
        let tables = self.shape.tables_of(group);
        assert!(
            !tables.is_empty(),
            "group {group} of unit {unit} has no tables"
        );
        let first = unit * self.shape.pages + tables.start * self.shape.slots;
        let mut slots = vec![UNMAPPED; self.cached_unit.group_slots(group, &self.shape).len()];
        let mut pages = Vec::new();
        self.lists
            .blocks(unit)
            .for_each(|block| space.table.list_valid(block, &mut pages));
        for ppn in pages {
            let found = space
                .flash
                .read_oob(ppn, Cause::Recovery)?
                .filter(|oob| oob.tag.role == Role::Data);
            let slot = found
                .and_then(|oob| oob.tag.lpn.checked_sub(first))
                .filter(|slot| index(*slot) < slots.len());
            if let Some(slot) = slot.filter(|slot| self.trims.is_mapped(Lpn::new(first + slot))) {
                slots[index(slot)] = ppn.raw();
            }
        }
        // One of the missing pages is the carrier itself: the table maps it, so that reads return
        // an error.
        let is_free = |ppn: &u32| space.table.is_valid(lost) && !slots.contains(ppn);
        let mut ppns = Some(lost.raw()).filter(is_free).into_iter();
        for (lpn, slot) in (first..self.logical_pages).zip(&mut slots) {
            if *slot == UNMAPPED && self.trims.is_mapped(Lpn::new(lpn)) {
                *slot = ppns.next().unwrap_or(LOST);
            }
        }
        self.cached_unit
            .group_slots(group, &self.shape)
            .copy_from_slice(&slots);
        self.cached_unit
            .group_carriers(group, &self.shape)
            .fill(UNMAPPED);
        self.cached_unit.note_group(group, &self.shape);
        self.keep_group(unit, group);
        Ok(())
    }

    /// Keeps a loaded group in RAM.
    pub(super) fn keep_group(&mut self, unit: u32, group: u32) {
        let (slots, carriers) = (self.shape.tables_of(group), self.shape.tables_of(group));
        let slots = index(slots.start * self.shape.slots)..index(slots.end * self.shape.slots);
        let carriers = index(carriers.start)..index(carriers.end);
        let number = unit * self.shape.groups() + group;
        assert!(
            self.cached_unit.is_of(unit),
            "group {group} of unit {unit} is not loaded"
        );
        self.tables.keep(
            number,
            &self.cached_unit.slots[slots],
            &self.cached_unit.carriers[carriers],
        );
    }

    /// Returns whether the table maps only pages of its unit's own blocks.
    pub(super) fn is_in_unit(&mut self, space: &Space, unit: u32, k: u32) -> bool {
        let geometry = space.geometry();
        let lists = &self.lists;
        let at_home = |slot: &u32| match *slot {
            UNMAPPED => true,
            LOST => false,
            ppn => lists.owner(geometry.block_of(Ppn::new(ppn))) == Some(unit),
        };
        self.cached_unit.table(k, &self.shape).iter().all(at_home)
    }
}
