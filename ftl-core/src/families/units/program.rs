//! Programs of pages, with the tables in their OOB areas.

use super::policy::Policy;
use super::state::{COMMON, UnitFtl};
use super::tables::GroupLocation;
use crate::addr::Lpn;
use crate::error::FtlError;
use crate::format::{PageTag, UNMAPPED};
use crate::int::index;
use nand_model::Cause;

impl<P: Policy> UnitFtl<P> {
    /// Programs a page into its unit's own block, with its table and directory, and invalidates the
    /// old page.
    pub(super) fn program_in_unit(
        &mut self,
        tag: PageTag,
        data: &[u8],
        cause: Cause,
    ) -> Result<(), FtlError> {
        let (unit, k, slot) = self.map.split(Lpn::new(tag.lpn));
        let group = k / self.map.shape.tables_per_group;
        self.map.load_table(&mut self.space, unit, k, cause)?;
        let on_flash = !matches!(
            self.map.tables.location(self.map.group_number(unit, k)),
            GroupLocation::Ram(_)
        );
        if on_flash && !self.map.is_in_unit(&self.space, unit, k) {
            self.map.take_group(&mut self.space, unit, group, cause)?;
        }
        let old = self.map.cached_unit.slots[slot];
        let (stream, geometry, shape, epoch) = (
            self.stream_of(unit),
            self.space.geometry(),
            self.map.shape,
            self.space.next_epoch(),
        );
        let (lists, cached_unit) = (&mut self.map.lists, &mut self.map.cached_unit);
        let mut said = false;
        let programmed = self
            .space
            .append_with_spare(stream, tag, data, cause, |ppn, spare| {
                let block = geometry.block_of(ppn);
                // Epochs ascend, so a block that is new on the list has the latest.
                lists.add(unit, block, epoch, None);
                cached_unit.slots[slot] = ppn.raw();
                cached_unit.carriers[index(k)] = ppn.raw();
                let tables = shape.tables_of(group);
                let carriers = &cached_unit.carriers[index(tables.start)..index(tables.end)];
                let slots = &cached_unit.slots[index(k * shape.slots)..][..index(shape.slots)];
                said = shape.encode(lists, unit, block, slots, carriers, spare);
            });
        let ppn = match programmed {
            Ok(ppn) => ppn,
            Err(error) => {
                self.map.cached_unit.forget();
                return Err(error);
            }
        };
        // Before any other read: a rebuild of a table requires exactly one valid page per mapped
        // logical page.
        self.map.trims.map(Lpn::new(tag.lpn));
        self.invalidate_entry(old);
        self.note_block(geometry.block_of(ppn));
        if !said {
            self.map.cached_unit.carriers[index(k)] = UNMAPPED;
        }
        // If the group was on flash, all its other tables have carriers.
        if said && (on_flash || self.map.cached_unit.is_carried(group, &self.map.shape)) {
            self.map
                .tables
                .set_on_flash(self.map.group_number(unit, k), ppn);
        } else {
            self.map.take_group(&mut self.space, unit, group, cause)?;
            self.map.keep_group(unit, group);
        }
        Ok(())
    }

    /// Programs a copy of a page into the common blocks and keeps its group in RAM.
    pub(super) fn program_in_common(
        &mut self,
        tag: PageTag,
        data: &[u8],
        cause: Cause,
    ) -> Result<(), FtlError> {
        let (unit, k, slot) = self.map.split(Lpn::new(tag.lpn));
        self.map.take_group(
            &mut self.space,
            unit,
            k / self.map.shape.tables_per_group,
            cause,
        )?;
        let ppn = self.space.append_page(COMMON, tag, data, cause)?;
        self.map.trims.map(Lpn::new(tag.lpn));
        let block = self.space.geometry().block_of(ppn);
        let owner = self.map.lists.owner(block);
        assert_eq!(owner, None, "common block {block} is in the list of a unit");
        let old = std::mem::replace(&mut self.map.cached_unit.slots[slot], ppn.raw());
        self.map.cached_unit.carriers[index(k)] = UNMAPPED;
        self.map
            .keep_group(unit, k / self.map.shape.tables_per_group);
        self.invalidate_entry(old);
        self.note_block(block);
        Ok(())
    }
}
