//! Programs of pages, with the tables in their OOB areas.

use super::policy::Policy;
use super::state::{COMMON, Units, stream_of};
use super::tables::GroupLocation;
use crate::addr::Lpn;
use crate::error::FtlError;
use crate::format::{PageTag, UNMAPPED};
use crate::int::index;
use crate::space::Space;
use nand_model::Cause;

impl<P: Policy> Units<P> {
    /// Programs a page into its unit's own block, with its table and directory, and invalidates the
    /// old page.
    pub(super) fn program_in_unit(
        &mut self,
        space: &mut Space,
        tag: PageTag,
        data: &[u8],
        cause: Cause,
    ) -> Result<(), FtlError> {
        let (unit, k, slot) = self.split(Lpn::new(tag.lpn));
        let group = k / self.shape.tables_per_group;
        self.load_table(space, unit, k, cause)?;
        let on_flash = !matches!(
            self.tables.location(self.group_number(unit, k)),
            GroupLocation::Ram(_)
        );
        if on_flash && !self.is_in_unit(space, unit, k) {
            self.take_group(space, unit, group, cause)?;
        }
        let old = self.cached_unit.slots[slot];
        let (stream, geometry, shape, epoch) = (
            stream_of(unit),
            space.geometry(),
            self.shape,
            space.next_epoch(),
        );
        let (lists, cached_unit) = (&mut self.lists, &mut self.cached_unit);
        let mut said = false;
        let programmed = space.append_with_spare(stream, tag, data, cause, |ppn, spare| {
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
                self.cached_unit.forget();
                return Err(error);
            }
        };
        // Before any other read: a rebuild of a table requires exactly one valid page per mapped
        // logical page.
        self.trims.map(Lpn::new(tag.lpn));
        self.invalidate_entry(space, old);
        self.note_block(space, geometry.block_of(ppn));
        if !said {
            self.cached_unit.carriers[index(k)] = UNMAPPED;
        }
        // If the group was on flash, all its other tables have carriers.
        if said && (on_flash || self.cached_unit.is_carried(group, &self.shape)) {
            self.tables.set_on_flash(self.group_number(unit, k), ppn);
        } else {
            self.take_group(space, unit, group, cause)?;
            self.keep_group(unit, group);
        }
        Ok(())
    }

    /// Programs a copy of a page into the common blocks and keeps its group in RAM.
    pub(super) fn program_in_common(
        &mut self,
        space: &mut Space,
        tag: PageTag,
        data: &[u8],
        cause: Cause,
    ) -> Result<(), FtlError> {
        let (unit, k, slot) = self.split(Lpn::new(tag.lpn));
        self.take_group(space, unit, k / self.shape.tables_per_group, cause)?;
        let ppn = space.append_page(COMMON, tag, data, cause)?;
        self.trims.map(Lpn::new(tag.lpn));
        let block = space.geometry().block_of(ppn);
        let owner = self.lists.owner(block);
        assert_eq!(owner, None, "common block {block} is in the list of a unit");
        let old = std::mem::replace(&mut self.cached_unit.slots[slot], ppn.raw());
        self.cached_unit.carriers[index(k)] = UNMAPPED;
        self.keep_group(unit, k / self.shape.tables_per_group);
        self.invalidate_entry(space, old);
        self.note_block(space, block);
        Ok(())
    }
}
