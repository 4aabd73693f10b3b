//! Mount: finds the newest version of every page from all records (`crate::recovery`). Then it
//! rebuilds the block lists from the node numbers in the pages, and compares the tables with the
//! records. After a clean shutdown, writes continue in the open blocks.

use super::policy::Policy;
use super::state::{COMMON, UnitFtl, Units};
use crate::addr::Lpn;
use crate::block_table::State;
use crate::error::FtlError;
use crate::format::{Role, UNMAPPED};
use crate::int::index;
use crate::recovery::{CommonParts, MountByScan, ScanResult};
use crate::space::Space;
use nand_model::{Cause, Ppn};

impl<P: Policy> MountByScan for UnitFtl<P> {
    fn common_parts(&mut self) -> CommonParts<'_> {
        self.common_parts_with(COMMON, |map| &mut map.trims)
    }

    fn rebuild_tables(&mut self, newest: &ScanResult) -> Result<(), FtlError> {
        self.map.adopt_blocks(&mut self.space)?;
        (0..self.logical_pages.div_ceil(self.map.shape.pages))
            .try_for_each(|unit| self.map.adopt_unit(&mut self.space, unit, newest))
    }
}

impl<P: Policy> Units<P> {
    /// Puts blocks on the lists of their units, the oldest first.
    fn adopt_blocks(&mut self, space: &mut Space) -> Result<(), FtlError> {
        let geometry = space.geometry();
        let in_use = |block: &nand_model::Pbn| {
            matches!(space.table.state(*block), State::Full | State::Open)
                && space.table.valid_count(*block) > 0
        };
        let mut blocks: Vec<_> = geometry.all_blocks().filter(in_use).collect();
        blocks.sort_by_key(|block| space.table.epoch(*block));
        let mut pages = Vec::new();
        for block in blocks {
            pages.clear();
            space.table.list_valid(block, &mut pages);
            let Some((oob, spare)) = space.flash.read_spare(pages[0], Cause::Recovery)? else {
                continue;
            };
            let own = self
                .shape
                .own_node(spare)
                .filter(|_| oob.tag.role == Role::Data);
            if let Some(node) = own.filter(|_| oob.tag.lpn < self.logical_pages) {
                let epoch = space.table.epoch(block);
                self.lists
                    .add(oob.tag.lpn / self.shape.pages, block, epoch, Some(node));
            }
        }
        Ok(())
    }

    /// Rebuilds the tables of a unit. A table has a carrier if the last programmed page that it
    /// maps has a table equal to the records. A group is on flash if its last programmed page has
    /// the directory of those carriers.
    fn adopt_unit(
        &mut self,
        space: &mut Space,
        unit: u32,
        newest: &ScanResult,
    ) -> Result<(), FtlError> {
        let pages = self.shape.pages;
        let found = newest.words(Lpn::new(unit * pages), pages);
        if found.iter().all(|ppn| *ppn == UNMAPPED) {
            return Ok(());
        }
        self.cached_unit.forget();
        self.cached_unit.select_unit(unit, 0, &self.shape);
        self.cached_unit.slots.fill(UNMAPPED);
        self.cached_unit.slots[..found.len()].copy_from_slice(found);
        self.cached_unit.carriers.fill(UNMAPPED);
        for group in 0..self.shape.groups() {
            let mut head = None;
            for k in self.shape.tables_of(group) {
                let last = self.last_programmed(unit, k, newest);
                if let Some((pseq, ppn)) = last {
                    head = head.max(Some((pseq, ppn.raw())));
                    if self.table_matches(space, unit, k, ppn)? {
                        self.cached_unit.carriers[index(k)] = ppn.raw();
                    }
                }
            }
            let carried = self.cached_unit.is_carried(group, &self.shape);
            match head {
                None => {}
                Some((_, head))
                    if carried && self.directory_matches(space, unit, group, Ppn::new(head))? =>
                {
                    self.tables
                        .set_on_flash(unit * self.shape.groups() + group, Ppn::new(head));
                }
                Some(_) => self.keep_group(unit, group),
            }
        }
        self.cached_unit.forget();
        Ok(())
    }

    fn last_programmed(&mut self, unit: u32, k: u32, newest: &ScanResult) -> Option<(u64, Ppn)> {
        let first = unit * self.shape.pages + k * self.shape.slots;
        let mapped = (first..)
            .map(Lpn::new)
            .zip(&*self.cached_unit.table(k, &self.shape))
            .filter(|(_, ppn)| **ppn != UNMAPPED);
        mapped
            .map(|(lpn, ppn)| (newest.programmed(lpn), Ppn::new(*ppn)))
            .max()
    }

    /// Returns whether the page's OOB area has the loaded table.
    fn table_matches(
        &mut self,
        space: &mut Space,
        unit: u32,
        k: u32,
        ppn: Ppn,
    ) -> Result<bool, FtlError> {
        let Some((_, spare)) = space.flash.read_spare(ppn, Cause::Recovery)? else {
            return Ok(false);
        };
        let mut said = vec![UNMAPPED; index(self.shape.slots)];
        let decoded = self.shape.own_node(spare);
        let decoded =
            decoded.and_then(|_| self.shape.decode_table(&self.lists, unit, spare, &mut said));
        Ok(decoded.is_some() && said == self.cached_unit.table(k, &self.shape))
    }

    /// Returns whether the page's OOB area has the directory of the loaded carriers.
    fn directory_matches(
        &mut self,
        space: &mut Space,
        unit: u32,
        group: u32,
        ppn: Ppn,
    ) -> Result<bool, FtlError> {
        if self.shape.tables_per_group == 1 {
            return Ok(true);
        }
        let Some((_, spare)) = space.flash.read_spare(ppn, Cause::Recovery)? else {
            return Ok(false);
        };
        let carriers = self.cached_unit.group_carriers(group, &self.shape);
        let mut said = vec![UNMAPPED; carriers.len()];
        let decoded = self
            .shape
            .decode_directory(&self.lists, unit, spare, &mut said);
        Ok(decoded.is_some() && said == carriers)
    }
}
