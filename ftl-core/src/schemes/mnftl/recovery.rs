//! Mount: the newest version of every page by all records (`crate::recovery`), then the block lists, by what the pages say of their
//! block, and the subtables, by comparison. After a clean stop the open blocks go on being filled.

use super::tables::Shape;
use super::{COMMON, Mnftl};
use crate::block_table::State;
use crate::error::FtlError;
use crate::format::{Role, UNMAPPED};
use crate::gc::Collect;
use crate::recovery::{CleanStop, Newest, find_newest, scan_heads};
use nand_model::{Cause, Ppn, Store};

impl<S: Store> Mnftl<S> {
    /// Finds what an earlier run left.
    pub(super) fn mount(&mut self) -> Result<(), FtlError> {
        self.space.flash.begin(0);
        let mut scanned = 0;
        let heads = scan_heads(&mut self.space.flash, &mut scanned)?;
        self.end_step("scan heads");
        let pages = self.logical_pages;
        let stop = CleanStop::load(&mut self.space, &mut self.checkpoints, &heads, pages, &mut scanned)?;
        self.end_step("load checkpoint");
        let free = stop.as_ref().map(CleanStop::free);
        let (space, trims) = (&mut self.space, &mut self.trims);
        let mut newest = find_newest(space, &heads, trims, &self.checkpoints, pages, free.as_ref(), &mut scanned)?;
        self.end_step("scan pages");
        self.next_ver = newest.next_ver;
        self.stats.mount.pages_scanned = scanned;
        self.stats.mount.clean = stop.is_some();
        self.stats.mount.free_blocks = self.space.free_blocks() + self.space.released_blocks();
        match stop {
            Some(stop) => {
                self.next_ver = self.next_ver.max(stop.next_ver);
                stop.resume(&mut self.space);
                self.adopt(&newest)?;
            }
            None => self.put_right(&mut newest)?,
        }
        self.stats.mount.pages_discarded = newest.discarded;
        self.end_step("rebuild tables");
        Ok(())
    }

    /// After a cut: rescues, and collects until the free blocks are back at their usual number.
    fn put_right(&mut self, newest: &mut Newest) -> Result<(), FtlError> {
        self.space.begin_mount();
        self.mounting = true;
        let rescued = newest.rescue(&mut self.space, &mut self.trims, COMMON);
        self.adopt(newest)?;
        match rescued.and_then(|()| self.collect_until(self.gc.threshold + 1)) {
            // Reading goes on.
            Err(FtlError::ReadOnly(reason)) => self.gc.set_read_only(reason),
            other => other?,
        }
        self.mounting = false;
        self.space.end_mount()
    }

    fn end_step(&mut self, name: &'static str) {
        let before = self.stats.mount.total_ns();
        let now = self.space.flash.now();
        self.stats.mount.steps.push((name, now - before));
    }

    fn adopt(&mut self, newest: &Newest) -> Result<(), FtlError> {
        self.adopt_blocks()?;
        (0..self.logical_pages.div_ceil(self.shape.pages)).try_for_each(|lbn| self.adopt_tables(lbn, newest))
    }

    /// Puts blocks on the lists of their logical blocks, the oldest first.
    fn adopt_blocks(&mut self) -> Result<(), FtlError> {
        let geometry = self.space.geometry();
        let in_use = |block: &nand_model::Pbn| {
            matches!(self.space.table.state(*block), State::Full | State::Open) && self.space.table.valid(*block) > 0
        };
        let mut blocks: Vec<_> = geometry.all_blocks().filter(in_use).collect();
        blocks.sort_by_key(|block| self.space.table.epoch(*block));
        let mut live = Vec::new();
        for block in blocks {
            live.clear();
            self.space.table.live_pages(block, &mut live);
            let Some((oob, spare)) = self.space.flash.read_spare(live[0], Cause::Recovery)? else { continue };
            let own = Shape::own_node(spare).filter(|_| oob.tag.role == Role::Data);
            if let Some(node) = own.filter(|_| oob.tag.lpn < self.logical_pages) {
                let epoch = self.space.table.epoch(block);
                self.units.add(oob.tag.lpn / self.shape.pages, block, epoch, Some(node));
            }
        }
        Ok(())
    }

    /// The subtables of a logical block: on flash where the page programmed last says the same as the records, else in RAM.
    fn adopt_tables(&mut self, lbn: u32, newest: &Newest) -> Result<(), FtlError> {
        let geometry = self.space.geometry();
        let mut said = vec![UNMAPPED; self.shape.slots as usize];
        for k in 0..self.shape.subtables() {
            let first = (lbn * self.shape.pages + k * self.shape.slots) as usize;
            let end = (first + self.shape.slots as usize).min(((lbn + 1) * self.shape.pages) as usize);
            let Some(found) = newest.map.get(first..end.min(newest.map.len())) else { continue };
            let mut slots = found.to_vec();
            slots.resize(self.shape.slots as usize, UNMAPPED);
            let mapped = (first..).zip(found).filter(|(_, ppn)| **ppn != UNMAPPED);
            let Some((_, last)) = mapped.max_by_key(|(lpn, _)| newest.programmed[*lpn]) else { continue };
            let last = Ppn::new(*last);
            let read = self.space.flash.read_spare(last, Cause::Recovery)?;
            let own = read.as_ref().and_then(|(_, spare)| Shape::own_node(spare));
            let decoded = read
                .filter(|_| own.is_some())
                .and_then(|(_, spare)| self.shape.decode(&geometry, &self.units, lbn, spare, &mut said));
            let agrees = decoded.is_some() && said == slots;
            self.tables.set(lbn * self.shape.subtables() + k, &slots, Some(last).filter(|_| agrees));
        }
        Ok(())
    }
}
