//! Garbage collection: the victim, and the destination of its pages. Valid pages stay in their
//! unit; the policy chooses the unit.
//!
//! A unit can shrink if it has more blocks than its valid pages fill. The first GC run may have to
//! open a block, so GC continues with the same unit until that has one block less. If no full block
//! has an invalid page, the only room is in open blocks: GC empties one of those.

use super::policy::Policy;
use super::slices::HEADROOM;
use super::state::{COMMON, FIRST_UNIT, UnitFtl, Units, stream_of};
use crate::addr::Lpn;
use crate::copy::misplaced;
use crate::error::FtlError;
use crate::families::one_by_one::OneByOne;
use crate::format::{PageTag, Role};
use crate::gc::{GarbageCollect, GcState};
use crate::int::to_u32;
use crate::space::{Space, StreamId};
use nand_model::{Cause, Pbn, Ppn};

impl<P: Policy> GarbageCollect for UnitFtl<P> {
    #[inline]
    fn parts(&mut self) -> (&mut Space, &mut GcState) {
        (&mut self.space, &mut self.gc)
    }

    fn blocks_to_move(&self, victim: Pbn) -> u32 {
        let valid = self.space.table.valid_count(victim);
        let to_common = self.space.blocks_for(COMMON, valid);
        match self
            .map
            .lists
            .owner(victim)
            .filter(|_| !self.space.is_mounting())
        {
            None => to_common,
            Some(unit) => {
                let to_unit = self.space.blocks_for(stream_of(unit), valid);
                let stays = self.map.can_shrink(&self.space, unit) || self.map.is_under_way(victim);
                if stays && self.map.lists.takes_another(unit) {
                    to_unit
                } else {
                    to_unit.max(to_common)
                }
            }
        }
    }

    fn select_victim(&mut self) -> Result<Option<Pbn>, FtlError> {
        let emptiest = self.space.table.greedy_victim();
        let valid = |block: Pbn| self.space.table.valid_count(block);
        let pages = self.space.geometry().pages_per_block;
        if self.space.free_blocks() < self.gc.reserve
            && !self.space.is_mounting()
            && emptiest.is_none_or(|block| valid(block) == pages)
        {
            let open = self.map.emptiest_open(&self.space);
            open.map_or(Ok(()), |block| self.space.seal_block(block))?;
            return Ok(open.or(emptiest));
        }
        if self.space.is_mounting()
            || self.map.policy.victim_is_greedy()
            || emptiest.is_some_and(|block| valid(block) == 0)
        {
            return Ok(emptiest);
        }
        // Padding may use all the space that a GC run frees. Then the emptiest block frees more
        // than the same unit again.
        let goes_on = |(unit, length, _): &(u32, u32, u32)| {
            self.map.lists.length(*unit) >= *length && self.map.can_shrink(&self.space, *unit)
        };
        let (unit, length, tries) = match self.map.collecting.filter(goes_on) {
            Some(collecting) => collecting,
            None => match self.map.policy.choose(&self.map.lists, &|unit| {
                self.map.can_shrink(&self.space, unit)
            }) {
                Some(unit) => (unit, self.map.lists.length(unit), 0),
                None => return Ok(emptiest),
            },
        };
        let Some(victim) = self.map.emptiest_of(&self.space, unit) else {
            return Ok(emptiest);
        };
        let is_cheaper =
            |block: &Pbn| self.map.lists.owner(*block).is_none() && valid(*block) <= valid(victim);
        if tries > 2 * length || emptiest.as_ref().is_some_and(is_cheaper) {
            return Ok(emptiest);
        }
        self.map.collecting = Some((unit, length, tries + 1));
        Ok(Some(victim))
    }

    fn prepare_victim(&mut self, block: Pbn) -> Result<bool, FtlError> {
        // The checkpoint of a clean shutdown is obsolete once the device is in use again.
        if self.space.table.role(block) == Role::Checkpoint {
            return Ok(false);
        }
        if self.space.is_open_for_unit(block) {
            self.space.seal_block(block)?;
        }
        Ok(true)
    }

    fn relocate_valid(&mut self, victim: Pbn, cause: Cause) -> Result<u32, FtlError> {
        self.map.cached_unit.forget();
        let moved = self.withdrawn(victim, |ftl| ftl.copy_valid(victim, u32::MAX, cause));
        self.map.cached_unit.forget();
        moved
    }

    fn use_worn_block(&mut self, block: Pbn) -> Result<(), FtlError> {
        let stream = self.map.lists.owner(block).map_or(COMMON, stream_of);
        self.space.use_worn_block(stream)
    }

    fn release_block(&mut self, block: Pbn) {
        assert_eq!(
            self.space.table.valid_count(block),
            0,
            "block {block} has valid pages when it is released"
        );
        if let Some(slices) = &mut self.map.slices {
            slices.remove(block);
        }
        match self.map.lists.owner(block) {
            None => self.space.release(block),
            Some(unit) => {
                self.map.lists.remove(block);
                self.space.release_in_stream(block, stream_of(unit));
            }
        }
    }

    fn relocate_block(&mut self, block: Pbn, cause: Cause) -> Result<Option<u32>, FtlError> {
        // When slices cannot keep up, requests wait in any case.
        if self.map.slices.is_some() && self.space.free_blocks() > self.gc.threshold {
            let begun = self.map.may_move_in_slices(block) && self.prepare_victim(block)?;
            return Ok(begun.then(|| self.map.move_in_slices(block, cause)));
        }
        self.relocate_whole_block(block, cause)
    }

    fn idle_gc(&mut self) -> Result<Option<u32>, FtlError> {
        if self.map.slices.is_some() {
            return self.clean_a_slice();
        }
        if self.space.free_blocks() >= 2 * self.gc.threshold
            || self.space.free_blocks() < self.gc.reserve
        {
            return Ok(None);
        }
        let empty = self
            .space
            .table
            .greedy_victim()
            .filter(|block| self.space.table.valid_count(*block) == 0);
        match empty.or_else(|| {
            self.map
                .emptiest_of(&self.space, self.map.policy.choose_idle(&self.map.lists)?)
        }) {
            Some(victim) => Ok(Some(self.collect(victim)?)),
            None => Ok(None),
        }
    }
}

impl<P: Policy> Units<P> {
    /// Returns whether the unit has more blocks than its valid pages fill.
    pub(super) fn can_shrink(&self, space: &Space, unit: u32) -> bool {
        let valid: u32 = self
            .lists
            .blocks(unit)
            .map(|block| space.table.valid_count(block))
            .sum();
        self.lists.length(unit) > valid.div_ceil(space.geometry().pages_per_block).max(1)
    }

    /// Returns the open block of a unit with the fewest valid pages. Where units have few pages
    /// each, the room of their open blocks can be all that is left. Looks at every block, so only
    /// if no full block has an invalid page.
    #[cold]
    fn emptiest_open(&self, space: &Space) -> Option<Pbn> {
        let open = space.geometry().all_blocks();
        let open = open.filter(|block| space.is_open_for_unit(*block));
        open.min_by_key(|block| (space.table.valid_count(*block), *block))
    }

    /// Returns the full block of a unit with the fewest valid pages, if it has an invalid one.
    pub(crate) fn emptiest_of(&self, space: &Space, unit: u32) -> Option<Pbn> {
        let table = &space.table;
        let full = self
            .lists
            .blocks(unit)
            .filter(|block| table.is_collectable(*block));
        let emptiest = full.min_by_key(|block| (table.valid_count(*block), table.epoch(*block)))?;
        (table.valid_count(emptiest) < space.geometry().pages_per_block).then_some(emptiest)
    }
}

impl<P: Policy> UnitFtl<P> {
    /// Makes sure that the stream can take a page without touching the reserve.
    #[inline]
    pub(super) fn ensure_space(&mut self, stream: StreamId) -> Result<(), FtlError> {
        if self.space.room(stream) > 0 && self.space.failing_block().is_none() {
            return Ok(());
        }
        self.ensure_blocks(stream)
    }

    #[cold]
    fn ensure_blocks(&mut self, stream: StreamId) -> Result<(), FtlError> {
        self.map.cached_unit.forget();
        let wanted = self.gc.threshold + 1;
        if self.map.slices.is_none() {
            if stream >= FIRST_UNIT {
                self.shrink_unit(to_u32(stream - FIRST_UNIT))?;
                self.limit_all()?;
            }
            self.map.collecting = None;
            self.gc_until(wanted)?;
        } else if self.space.free_blocks() < wanted || self.space.failing_block().is_some() {
            self.gc_until(wanted + HEADROOM)?;
        }
        self.maintain()?;
        self.map.cached_unit.forget();
        Ok(())
    }

    /// Makes a unit with `max_length` blocks release one before it opens another.
    fn shrink_unit(&mut self, unit: u32) -> Result<(), FtlError> {
        while self.map.lists.is_full(unit) && self.space.room(stream_of(unit)) == 0 {
            let Some(victim) = self.map.emptiest_of(&self.space, unit) else {
                break;
            };
            if self.blocks_to_move(victim) > self.space.free_blocks() {
                break;
            }
            self.collect(victim)?;
        }
        Ok(())
    }

    /// Runs GC on the unit that the policy chooses, while all units together have too many blocks.
    fn limit_all(&mut self) -> Result<(), FtlError> {
        while self.map.policy.has_too_many(&self.map.lists) {
            let chosen = self.map.policy.choose(&self.map.lists, &|unit| {
                self.map.can_shrink(&self.space, unit)
            });
            let Some(victim) = chosen.and_then(|unit| self.map.emptiest_of(&self.space, unit))
            else {
                break;
            };
            if self.blocks_to_move(victim) > self.space.free_blocks() {
                break;
            }
            self.collect(victim)?;
        }
        Ok(())
    }

    /// Returns the stream that takes a page of the victim. If GC runs free no block, none opens a
    /// block for a unit: many units with a few pages each in an open block would use up the device.
    fn destination(&self, victim: Pbn, unit: u32, cause: Cause) -> StreamId {
        let home = stream_of(unit);
        let at_home = match self.map.lists.owner(victim) {
            _ if self.space.is_mounting() => false,
            Some(_)
                if self.space.room(home) == 0
                    && (self.gc.is_futile() || !self.map.lists.takes_another(unit)) =>
            {
                false
            }
            Some(_) => {
                cause != Cause::Gc
                    || self.map.is_under_way(victim)
                    || self.map.can_shrink(&self.space, unit)
            }
            None => self.space.room(home) > 0,
        };
        if at_home { home } else { COMMON }
    }

    /// Copies the first valid pages of the victim, at most `most`.
    pub(super) fn copy_valid(
        &mut self,
        victim: Pbn,
        most: u32,
        cause: Cause,
    ) -> Result<u32, FtlError> {
        let (map, space) = (&mut self.map, &mut self.space);
        if let Some(unit) = map.lists.owner(victim)
            && map.policy.reads_all_tables()
        {
            (0..map.shape.tables()).try_for_each(|k| map.load_table(space, unit, k, cause))?;
        }
        self.copy_pages(victim, most, cause)
    }
}

impl<P: Policy> OneByOne for UnitFtl<P> {
    fn owner_of_page(&mut self, ppn: Ppn, _: Cause) -> Result<Option<Lpn>, FtlError> {
        let (map, space) = (&mut self.map, &mut self.space);
        let pages = match map.lists.owner(space.geometry().block_of(ppn)) {
            Some(unit) => {
                unit * map.shape.pages..((unit + 1) * map.shape.pages).min(map.logical_pages)
            }
            None => 0..map.logical_pages,
        };
        // Two passes: a look-up may rebuild an unreadable table, and that may map the page to an
        // address that the first pass has already checked.
        for lpn in pages.clone().chain(pages).map(Lpn::new) {
            if map.trims.is_mapped(lpn) && map.look_up(space, lpn, Cause::Recovery)? == ppn.raw() {
                return Ok(Some(lpn));
            }
        }
        Ok(None)
    }

    fn copy_host_page(
        &mut self,
        from: Ppn,
        tag: PageTag,
        data: &[u8],
        cause: Cause,
    ) -> Result<(), FtlError> {
        let (map, space) = (&mut self.map, &mut self.space);
        if tag.role == Role::Pad {
            // The page has an unreadable record, and no table maps the page.
            space.table.set_invalid(from);
            return Ok(());
        }
        let lpn = Lpn::new(tag.lpn);
        if tag.lpn >= map.logical_pages || map.look_up(space, lpn, cause)? != from.raw() {
            return Err(misplaced(from, tag.lpn));
        }
        let (victim, unit) = (space.geometry().block_of(from), tag.lpn / map.shape.pages);
        if self.destination(victim, unit, cause) == COMMON {
            self.map
                .program_in_common(&mut self.space, tag, data, cause)
        } else {
            self.map.program_in_unit(&mut self.space, tag, data, cause)
        }
    }
}
