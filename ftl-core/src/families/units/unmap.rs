//! Trims, and the groups of tables that trims keep in RAM.
//!
//! Invariants: the tables that a trim changes are read before its record is programmed. If power
//! fails, mount applies the record.

use super::policy::Policy;
use super::state::{COMMON, MIN_IN_RAM, UnitFtl, Units, stream_of};
use super::tables::GroupLocation;
use crate::addr::Lpn;
use crate::error::FtlError;
use crate::format::{Flags, LOST, PageTag, UNMAPPED};
use crate::gc::GarbageCollect;
use crate::int::index;
use crate::space::Space;
use nand_model::{Cause, Pbn, Ppn};

impl<P: Policy> Units<P> {
    /// Reads the tables that [`UnitFtl::unmap`] needs. After the record is programmed, an
    /// unreadable table must not bring trimmed pages back.
    pub(super) fn read_tables_at_ends(
        &mut self,
        space: &mut Space,
        first: Lpn,
        count: u32,
    ) -> Result<(), FtlError> {
        let (mut lpn, end) = (first.raw(), first.raw() + count);
        while lpn < end {
            let (unit, k, offset) = self.split(Lpn::new(lpn));
            let unit_end = ((unit + 1) * self.shape.pages).min(self.logical_pages);
            if offset == 0 && unit_end <= end {
                lpn = unit_end;
                continue;
            }
            let table_end = (unit * self.shape.pages + (k + 1) * self.shape.slots)
                .min(unit_end)
                .min(end);
            if (lpn..table_end).any(|lpn| self.trims.is_mapped(Lpn::new(lpn))) {
                self.take_group(space, unit, k / self.shape.tables_per_group, Cause::Trim)?;
            }
            lpn = table_end;
        }
        Ok(())
    }

    pub(super) fn unmap_in_table(
        &mut self,
        space: &mut Space,
        unit: u32,
        k: u32,
        pages: std::ops::Range<u32>,
    ) -> Result<(), FtlError> {
        let pages = pages.map(Lpn::new);
        if pages.clone().all(|lpn| !self.trims.is_mapped(lpn)) {
            return Ok(());
        }
        self.take_group(space, unit, k / self.shape.tables_per_group, Cause::Trim)?;
        for lpn in pages
            .filter(|lpn| self.trims.is_mapped(*lpn))
            .collect::<Vec<_>>()
        {
            let (own, of, slot) = self.split(lpn);
            debug_assert_eq!(
                (own, of),
                (unit, k),
                "logical page {lpn} is not in table {k} of unit {unit}"
            );
            let old = std::mem::replace(&mut self.cached_unit.slots[slot], UNMAPPED);
            self.invalidate_entry(space, old);
            self.trims.unmap(lpn);
        }
        self.cached_unit.carriers[index(k)] = UNMAPPED;
        self.keep_group(unit, k / self.shape.tables_per_group);
        Ok(())
    }

    /// Returns the number of groups in RAM above which trims write groups back.
    pub(super) fn most_groups_in_ram(&self) -> u32 {
        let shape = &self.shape;
        MIN_IN_RAM.max(self.logical_pages / (shape.slots * shape.tables_per_group) / 16)
    }

    /// Returns a page of a table without a carrier: one in a common block, else any. Returns `None`
    /// if a table of the group has a lost page.
    pub(super) fn page_to_settle(
        &mut self,
        space: &Space,
        unit: u32,
        group: u32,
    ) -> Option<(u32, Ppn)> {
        let geometry = space.geometry();
        for k in self.shape.tables_of(group) {
            if self.cached_unit.carriers[index(k)] != UNMAPPED {
                continue;
            }
            let slots = self.cached_unit.table(k, &self.shape);
            if slots.contains(&LOST) {
                return None;
            }
            let first = unit * self.shape.pages + k * self.shape.slots;
            let mapped = (first..)
                .zip(&*slots)
                .filter(|(_, slot)| **slot != UNMAPPED);
            let mapped = mapped.map(|(lpn, slot)| (lpn, Ppn::new(*slot)));
            let in_common_block =
                |(_, ppn): &(u32, Ppn)| self.lists.owner(geometry.block_of(*ppn)) != Some(unit);
            if let Some(page) = mapped
                .clone()
                .find(in_common_block)
                .or_else(|| mapped.clone().next())
            {
                return Some(page);
            }
        }
        None
    }
}

impl<P: Policy> UnitFtl<P> {
    /// Unmaps these pages; their trim record is programmed.
    pub(super) fn unmap(&mut self, first: Lpn, count: u32) -> Result<(), FtlError> {
        let (mut lpn, end) = (first.raw(), first.raw() + count);
        while lpn < end {
            let (unit, k, offset) = self.map.split(Lpn::new(lpn));
            let unit_end = ((unit + 1) * self.map.shape.pages).min(self.logical_pages);
            if offset == 0 && unit_end <= end {
                self.drop_unit(unit, unit_end)?;
                lpn = unit_end;
                continue;
            }
            let table_end = (unit * self.map.shape.pages + (k + 1) * self.map.shape.slots)
                .min(unit_end)
                .min(end);
            self.map
                .unmap_in_table(&mut self.space, unit, k, lpn..table_end)?;
            lpn = table_end;
        }
        Ok(())
    }

    /// Unmaps a whole unit, without a read of its tables.
    pub(super) fn drop_unit(&mut self, unit: u32, end: u32) -> Result<(), FtlError> {
        self.map.cached_unit.forget();
        let mut gone = Vec::new();
        for group in unit * self.map.shape.groups()..(unit + 1) * self.map.shape.groups() {
            if let GroupLocation::Ram(kept) = self.map.tables.location(group) {
                let ppns = kept
                    .slots
                    .iter()
                    .filter(|slot| **slot < LOST)
                    .map(|slot| Ppn::new(*slot));
                gone.extend(ppns.filter(|ppn| {
                    self.map.lists.owner(self.space.geometry().block_of(*ppn)) != Some(unit)
                }));
            }
            self.map.tables.clear(group);
        }
        let blocks: Vec<Pbn> = self.map.lists.blocks(unit).collect();
        blocks
            .iter()
            .for_each(|block| self.space.table.list_valid(*block, &mut gone));
        gone.into_iter()
            .for_each(|ppn| self.map.invalidate_page(&mut self.space, ppn));
        for lpn in (unit * self.map.shape.pages..end).map(Lpn::new) {
            if self.map.trims.is_mapped(lpn) {
                self.map.trims.unmap(lpn);
            }
        }
        assert!(
            blocks
                .iter()
                .all(|block| self.space.table.valid_count(*block) == 0),
            "unit {unit} has valid pages when its blocks are dropped"
        );
        self.space.seal(stream_of(unit))?;
        blocks
            .into_iter()
            .for_each(|block| self.release_block(block));
        Ok(())
    }

    /// Writes groups back while too many are in RAM: copies a page in a common block, else any
    /// page, of each table without a carrier.
    pub(super) fn write_back_groups(&mut self) -> Result<(), FtlError> {
        let limit = self.map.most_groups_in_ram();
        // A trim adds at most one group at either end.
        for _ in 0..2 {
            if self.map.tables.in_ram() <= index(limit) {
                break;
            }
            if let Some(group) = self.map.tables.next_in_ram(self.map.next_settled) {
                self.map.next_settled = group + 1;
                self.settle_group(
                    group / self.map.shape.groups(),
                    group % self.map.shape.groups(),
                )?;
            }
        }
        Ok(())
    }

    pub(super) fn settle_group(&mut self, unit: u32, group: u32) -> Result<(), FtlError> {
        let mut data = vec![0; self.space.geometry().page_len()];
        while let GroupLocation::Ram(_) = self
            .map
            .tables
            .location(unit * self.map.shape.groups() + group)
        {
            if self.stream_of_write(unit) == COMMON {
                // GC of the common blocks returns the unit's pages to the unit.
                return Ok(());
            }
            self.ensure_space(stream_of(unit))?;
            self.map
                .take_group(&mut self.space, unit, group, Cause::Trim)?;
            let Some((lpn, ppn)) = self.map.page_to_settle(&self.space, unit, group) else {
                return Ok(());
            };
            let Some(oob) = self
                .space
                .flash
                .read(ppn, &mut data, Cause::Trim)?
                .filter(|oob| oob.tag.lpn == lpn)
            else {
                return Ok(());
            };
            self.map.program_in_unit(
                &mut self.space,
                PageTag {
                    flags: oob.tag.flags.with(Flags::COPY),
                    ..oob.tag
                },
                &data,
                Cause::Trim,
            )?;
        }
        Ok(())
    }
}
