//! Write-back of mapping pages, and conversion (LazyFTL's Algorithm 1): the map on flash gets the
//! entries of a block, and the block becomes plain data.
//!
//! A conversion writes at most one mapping page per page of the block. So it needs at most one
//! mapping block beyond the open one, taken from the reserve. If power fails during it, some
//! mapping pages are new, and mount finds the other entries in the recovery window. A block leaves
//! the window only after the mapping pages that replaced its entries are safe.

use super::map::entry_at;
use super::pending::{Change, Pending};
use super::policy::Policy;
use super::state::{MAP, PagedFtl, PagedMap};
use crate::block_table::State;
use crate::error::FtlError;
use crate::events::EventKind;
use crate::format::UNMAPPED;
use crate::format::{Flags, PageTag, Role};
use crate::gc::GarbageCollect;
use crate::space::Space;
use nand_model::{Cause, Pbn, Ppn};

/// Blocks that may be opened between two checks of the window: replacements of failing blocks,
/// mapping blocks of one conversion. Mount extends the window by this number and by that of the
/// lanes, since the parts of one request may open a block each.
pub(crate) const WINDOW_SLACK: u64 = 16;

impl<P: Policy> PagedMap<P> {
    /// Returns the full block whose conversion writes the fewest mapping pages; of several, the
    /// oldest.
    fn cheapest(&mut self, space: &Space) -> Option<Pbn> {
        self.count_costs(space);
        let filled = self
            .pending
            .blocks()
            .filter(|(block, _)| space.table.state(*block) == State::Full);
        filled
            .min_by_key(|(_, buffer)| (buffer.cost(), buffer.epoch))
            .map(|(block, _)| block)
    }

    /// Counts the conversion costs of the full blocks.
    pub(crate) fn count_costs(&mut self, space: &Space) {
        let (pending, table) = (&mut self.pending, &space.table);
        pending.count_costs(|block| table.state(block) == State::Full);
    }

    /// Advances the recovery window before another block is opened. A converted block leaves it
    /// only when all pages that superseded its pages, and every mapping page that names them, are
    /// safe.
    pub(crate) fn advance_window(&mut self, space: &mut Space) -> Result<(), FtlError> {
        let floor = space.oldest_unsafe_pseq();
        self.converted.retain(|(_, seq)| *seq >= floor);
        if self
            .converted
            .iter()
            .any(|(epoch, _)| self.is_overdue(space, *epoch))
        {
            space.make_safe()?;
            self.converted.clear();
        }
        Ok(())
    }

    fn is_overdue(&self, space: &Space, epoch: u64) -> bool {
        epoch + self.settings.age_window < space.next_epoch() + 1
    }

    /// Lists in `left` the dirty entries whose page can still be lost. Returns whether one of the
    /// others replaces a page that still counts as valid.
    fn leave_unsafe(&mut self, space: &Space, vtpn: u32) -> bool {
        self.left.clear();
        let mut has_superseded = false;
        for Change { index, entry, .. } in self.pending.changes(vtpn) {
            if entry.ppn().is_some_and(|ppn| !space.is_safe(ppn)) {
                self.left.push(index);
            } else {
                has_superseded |= entry.invalidate;
            }
        }
        has_superseded
    }

    /// Puts the dirty entries into `map_page`, except those in `left`. Lists the pages that they
    /// supersede in `superseded`, in the order of the changes.
    fn compose_page(&mut self, space: &Space, vtpn: u32) {
        self.superseded.clear();
        self.superseded
            .resize(self.pending.dirty(vtpn) as usize, UNMAPPED);
        let mut left = self.left.iter().copied().peekable();
        for change in self.pending.changes(vtpn) {
            if left.next_if_eq(&change.index).is_some() {
                continue;
            }
            let (index, entry) = (u32::from(change.index), change.entry);
            if entry.invalidate
                && let Some(old) = entry_at(space.flash.own(&self.map_page), index)
            {
                self.superseded[usize::from(change.order)] = old.raw();
            }
            let to = entry.ppn().map_or(UNMAPPED, Ppn::raw);
            self.map_page.set_word(index, to);
        }
    }

    /// Programs `map_page` as the newest version of a mapping page.
    pub(crate) fn program_map_page(
        &mut self,
        space: &mut Space,
        vtpn: u32,
        upto: u64,
        cause: Cause,
    ) -> Result<(), FtlError> {
        assert!(
            upto >= self.upto[vtpn as usize],
            "mapping page {vtpn}: upto {upto} is smaller than that of its last version, {}",
            self.upto[vtpn as usize]
        );
        assert!(
            upto <= space.flash.pseq(),
            "mapping page {vtpn}: upto {upto} exceeds the last program, {}",
            space.flash.pseq()
        );
        let tag = PageTag {
            role: Role::Map,
            flags: Flags::NONE,
            lpn: vtpn,
            ver: upto,
        };
        let page = &mut self.map_page;
        let ppn = space.append_own(MAP, tag, page, cause)?;
        self.set_directory(space, vtpn, Some(ppn));
        self.upto[vtpn as usize] = upto;
        let page = space.flash.own(&self.map_page);
        self.policy.on_writeback(vtpn, page, &self.pending);
        Ok(())
    }
}

impl<P: Policy> PagedFtl<P> {
    /// Converts one block if the update and cold area has no room for `more` blocks. Also converts
    /// a block that would get too old for the recovery window when another block is opened. Open
    /// blocks are included. Returns whether it converted one.
    pub(crate) fn convert_one(&mut self, more: u32) -> Result<bool, FtlError> {
        let pending = &self.map.pending;
        let limit = self.map.settings.buffer_blocks;
        let victim = match pending.oldest_block() {
            Some((block, epoch)) if self.map.is_overdue(&self.space, epoch) => Some(block),
            _ if limit.is_some_and(|limit| pending.block_count() + more > limit) => {
                self.map.cheapest(&self.space)
            }
            _ => None,
        };
        let Some(block) = victim else {
            return Ok(false);
        };
        self.space.seal_block(block)?;
        self.convert(block)?;
        Ok(true)
    }

    /// Converts the blocks that would get too old for the window, before a mapping block is opened
    /// during other work.
    pub(crate) fn enforce_window(&mut self) -> Result<(), FtlError> {
        while self.convert_one(0)? {}
        self.map.advance_window(&mut self.space)
    }

    /// Converts a full block of the update or cold area to plain data.
    pub(crate) fn convert(&mut self, block: Pbn) -> Result<(), FtlError> {
        self.stalled_by(Cause::Convert, |ftl| ftl.write_entries_of(block))
    }

    fn write_entries_of(&mut self, block: Pbn) -> Result<(), FtlError> {
        assert_eq!(
            self.space.table.state(block),
            State::Full,
            "block {block} is to be converted, but not full"
        );
        let (began, before) = (self.space.flash.now(), self.stats.convert_map_pages);
        let nested = std::mem::replace(&mut self.map.converting, true);
        let mut pages = std::mem::take(&mut self.map.to_write);
        self.map.pending.list_pages_to_write(block, &mut pages);
        let outcome = pages
            .iter()
            .try_for_each(|vtpn| self.write_back(*vtpn, Cause::Convert));
        self.map.to_write = pages;
        self.map.converting = nested;
        outcome?;
        self.map.pending.remove_block(block);
        assert_eq!(
            self.space.table.state(block),
            State::Full,
            "block {block} changed its state during its conversion"
        );
        self.map
            .converted
            .push_back((self.space.table.epoch(block), self.space.flash.pseq()));
        self.space.table.set_role(block, Role::Data);
        self.space.table.set_collectable(block);
        self.stats.converts += 1;
        let written = (self.stats.convert_map_pages - before) as u32;
        let costs = &mut self.stats.convert_costs;
        costs.resize(costs.len().max(written as usize + 1), 0);
        costs[written as usize] += 1;
        self.space
            .note_event(EventKind::Convert, Some(block), written, began);
        Ok(())
    }

    /// Writes a mapping page because entries leave the cache, or too many are pending.
    pub(crate) fn write_back_evicted(&mut self, vtpn: u32) -> Result<(), FtlError> {
        self.stalled_by(Cause::Translation, |ftl| {
            ftl.write_back(vtpn, Cause::Translation)
        })
    }

    /// Writes a mapping page with all its dirty entries, except those whose page can still be lost.
    pub(crate) fn write_back(&mut self, vtpn: u32, cause: Cause) -> Result<(), FtlError> {
        if self.space.room(MAP) == 0 && !self.map.converting {
            self.enforce_window()?;
        }
        let dirty = self.map.pending.dirty(vtpn);
        if dirty == 0 {
            return Ok(());
        }
        let has_superseded = self.map.leave_unsafe(&self.space, vtpn);
        let plain = P::LOOKS_UP_WRITES && !has_superseded && self.map.left.is_empty();
        self.map
            .load_map_page(&mut self.space, vtpn, plain, cause)?;
        let reached = match self.map.left.len() as u32 {
            0 => self.space.flash.pseq(),
            left if left == dirty => return Ok(()),
            _ => self.map.pending.dirty_since(vtpn) - 1,
        };
        self.map.compose_page(&self.space, vtpn);
        self.map
            .program_map_page(&mut self.space, vtpn, reached, cause)?;
        self.stats.convert_map_pages += 1;
        self.map.pending.clean(vtpn, &self.map.left);
        for i in 0..self.map.superseded.len() {
            let old = self.map.superseded[i];
            if old != UNMAPPED {
                self.map.invalidate(&mut self.space, Ppn::new(old), cause)?;
            }
        }
        Ok(())
    }

    /// Writes mapping pages until the number of pending changes is within its limits.
    pub(crate) fn limit_pending(&mut self) -> Result<(), FtlError> {
        let settings = self.map.settings;
        let too_many = |pending: &Pending| {
            pending.tombstones() > settings.max_tombstones
                || settings.max_pending.is_some_and(|max| pending.len() > max)
        };
        while too_many(&self.map.pending) {
            self.ensure_space(MAP)?;
            let (Some(vtpn), before) = (self.map.pending.dirtiest(), self.map.pending.len()) else {
                return Ok(());
            };
            self.write_back_evicted(vtpn)?;
            if self.map.pending.len() == before {
                // All its dirty entries name pages that can still be lost.
                return Ok(());
            }
        }
        Ok(())
    }

    /// Writes back all pending entries, after making every page safe.
    pub(crate) fn convert_everything(&mut self) -> Result<(), FtlError> {
        self.map.seal_data(&mut self.space)?;
        loop {
            self.ensure_space(MAP)?;
            self.map.seal_data(&mut self.space)?;
            let Some((block, _)) = self.map.pending.oldest_block() else {
                break;
            };
            self.convert(block)?;
        }
        for vtpn in self.map.pending.dirty_pages() {
            self.ensure_space(MAP)?;
            self.write_back(vtpn, Cause::Translation)?;
        }
        Ok(())
    }
}
