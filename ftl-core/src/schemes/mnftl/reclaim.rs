//! Garbage collection: which block, and where its pages go. Valid pages stay inside their logical block; the victim is a block of the
//! logical block with the most (the paper's search), because there the fewest pages are valid.
//!
//! A logical block with two blocks or more can always do with one less: its valid pages fit into one. The first collection may have
//! to open a block for that; so the same logical block is collected on until it gave one back.

use super::{COMMON, Mnftl};
use crate::copy::{CopyBuffer, misplaced};
use crate::error::FtlError;
use crate::format::{Flags, PageTag, Role};
use crate::gc::{Collect, Gc};
use crate::recovery::CleanStop;
use crate::space::{Space, StreamId};
use nand_model::{Cause, Pbn, Ppn, Store};

impl<S: Store> Collect<S> for Mnftl<S> {
    #[inline]
    fn parts(&mut self) -> (&mut Space<S>, &mut Gc) {
        (&mut self.space, &mut self.gc)
    }

    fn blocks_to_move(&self, victim: Pbn) -> u32 {
        let valid = self.space.table.valid(victim);
        let abroad = self.space.blocks_for(COMMON, valid);
        match self.units.owner(victim).filter(|_| !self.mounting) {
            None => abroad,
            Some(lbn) => {
                let home = self.space.blocks_for(self.stream_of(lbn), valid);
                if self.units.length(lbn) > 1 { home } else { home.max(abroad) }
            }
        }
    }

    fn best_victim(&mut self) -> Result<Option<Pbn>, FtlError> {
        let emptiest = self.space.table.greedy_victim();
        let valid = |block: Pbn| self.space.table.valid(block);
        if self.mounting || !self.settings.by_chain || emptiest.is_some_and(|block| valid(block) == 0) {
            return Ok(emptiest);
        }
        let on = self.collecting.filter(|(lbn, length)| self.units.length(*lbn) >= *length);
        let on = on.and_then(|(lbn, _)| Some((lbn, self.emptiest_of(lbn)?)));
        let longest = || self.units.longest_first().find_map(|lbn| Some((lbn, self.emptiest_of(lbn)?)));
        let Some((lbn, victim)) = on.or_else(longest) else { return Ok(emptiest) };
        let is_cheaper = |block: &Pbn| self.units.owner(*block).is_none() && valid(*block) <= valid(victim);
        if let Some(common) = emptiest.filter(is_cheaper) {
            return Ok(Some(common));
        }
        if on.is_none() {
            self.collecting = Some((lbn, self.units.length(lbn)));
        }
        Ok(Some(victim))
    }

    fn prepare(&mut self, block: Pbn) -> Result<bool, FtlError> {
        // What a clean stop left says nothing any more when the device is in use again.
        Ok(self.space.table.role(block) != Role::Checkpoint)
    }

    fn move_live_pages(&mut self, victim: Pbn, cause: Cause) -> Result<u32, FtlError> {
        self.at_hand.forget();
        let collectable = self.space.table.withdraw(victim);
        let mut pages = std::mem::take(&mut self.gc.pages);
        let moved = self.copy_live_pages(victim, &mut pages, cause);
        self.gc.pages = pages;
        self.at_hand.forget();
        if moved.is_err() && collectable {
            self.space.table.set_collectable(victim);
        }
        moved
    }

    fn set_cold_apart(&mut self, block: Pbn) -> Result<(), FtlError> {
        let stream = self.units.owner(block).map_or(COMMON, |lbn| self.stream_of(lbn));
        self.space.set_cold_apart(stream)
    }

    fn give_up(&mut self, block: Pbn) {
        match self.units.owner(block) {
            None => self.space.release(block),
            Some(lbn) => {
                self.units.remove(block);
                self.space.release_within(block, self.stream_of(lbn));
            }
        }
    }

    fn collect_ahead(&mut self) -> Result<Option<u32>, FtlError> {
        if self.space.free_blocks() >= 2 * self.gc.threshold || self.space.free_blocks() < self.gc.reserve {
            return Ok(None);
        }
        let min = self.settings.idle_min_chain;
        let longest = self.units.longest_first().next().filter(|lbn| min > 0 && self.units.length(*lbn) >= min);
        let dead = self.space.table.greedy_victim().filter(|block| self.space.table.valid(*block) == 0);
        match dead.or_else(|| longest.and_then(|lbn| self.emptiest_of(lbn))) {
            Some(victim) => Ok(Some(self.collect(victim)?)),
            None => Ok(None),
        }
    }
}

impl<S: Store> Mnftl<S> {
    /// Makes sure that the stream can take a page without touching the reserve.
    #[inline]
    pub(super) fn make_room(&mut self, stream: StreamId) -> Result<(), FtlError> {
        if self.space.room(stream) > 0 && self.space.failing_block().is_none() {
            return Ok(());
        }
        self.make_blocks(stream)
    }

    #[cold]
    fn make_blocks(&mut self, stream: StreamId) -> Result<(), FtlError> {
        self.at_hand.forget();
        if stream >= super::FIRST_UNIT {
            self.shorten((stream - super::FIRST_UNIT) as u32)?;
        }
        self.collect_until(self.gc.threshold + 1)?;
        self.upkeep()?;
        self.at_hand.forget();
        Ok(())
    }

    /// A list with no number left for another block gives one up first.
    fn shorten(&mut self, lbn: u32) -> Result<(), FtlError> {
        while self.units.is_full(lbn) {
            let Some(victim) = self.emptiest_of(lbn) else { break };
            if self.blocks_to_move(victim) > self.space.free_blocks() {
                break;
            }
            self.collect(victim)?;
        }
        Ok(())
    }

    /// The full block of a logical block with the fewest valid pages, if it has an invalid one.
    pub(super) fn emptiest_of(&self, lbn: u32) -> Option<Pbn> {
        let table = &self.space.table;
        let full = self.units.blocks(lbn).filter(|block| table.is_collectable(*block));
        let emptiest = full.min_by_key(|block| (table.valid(*block), table.epoch(*block)))?;
        (table.valid(emptiest) < self.shape.pages).then_some(emptiest)
    }

    /// Where a page of the victim goes.
    fn destination(&self, victim: Pbn, lbn: u32, cause: Cause) -> StreamId {
        let home = self.stream_of(lbn);
        let at_home = match self.units.owner(victim) {
            _ if self.mounting => false,
            Some(_) => cause != Cause::Gc || self.units.length(lbn) > 1,
            None => self.space.room(home) > 0,
        };
        if at_home { home } else { COMMON }
    }

    fn copy_live_pages(&mut self, victim: Pbn, pages: &mut CopyBuffer, cause: Cause) -> Result<u32, FtlError> {
        // The paper finds the valid pages by these reads; here they are known, and the subtables are needed for the copies.
        if let Some(lbn) = self.units.owner(victim) {
            (0..self.shape.subtables()).try_for_each(|k| self.take_in_hand(lbn, k, cause))?;
        }
        pages.load(&mut self.space, victim, cause)?;
        self.name_unknown_pages(victim, pages)?;
        let page = self.space.geometry().page_bytes as usize;
        for (i, data) in (0..pages.from.len()).zip(pages.data.chunks_exact(page)) {
            self.copy_page(victim, pages.from[i], pages.tag(i), data, cause)?;
        }
        Ok(pages.from.len() as u32)
    }

    fn copy_page(&mut self, victim: Pbn, from: Ppn, tag: PageTag, data: &[u8], cause: Cause) -> Result<(), FtlError> {
        let tag = PageTag { flags: tag.flags.with(Flags::COPY), ..tag };
        if tag.role == Role::Trim {
            let to = self.space.append_page(COMMON, tag, data, cause)?;
            self.trims.moved(from, to);
            self.space.table.clear_live(from);
            return Ok(());
        }
        if tag.role == Role::Pad {
            // Its record is lost, and nothing says that it is anywhere.
            self.space.table.clear_live(from);
            return Ok(());
        }
        if tag.lpn >= self.logical_pages || self.look_up(tag.lpn, cause)? != from.raw() {
            return Err(misplaced(from, tag.lpn));
        }
        if self.destination(victim, tag.lpn / self.shape.pages, cause) == COMMON {
            self.program_abroad(tag, data, cause)
        } else {
            self.program_home(tag, data, cause)
        }
    }

    /// Finds the owners of live pages whose record is lost: a search, because it happens next to never. Where there is none, the page stays
    /// without a name.
    fn name_unknown_pages(&mut self, victim: Pbn, pages: &mut CopyBuffer) -> Result<(), FtlError> {
        let unknown: Vec<(usize, Ppn)> = pages.unknown().collect();
        for (i, ppn) in unknown {
            if self.trims.holds(ppn) {
                pages.name(i, Role::Trim, 0, self.next_ver);
            } else if let Some(lpn) = self.owner_of_page(victim, ppn)? {
                pages.name(i, Role::Data, lpn, self.next_ver);
            }
            self.next_ver += 1;
        }
        Ok(())
    }

    fn owner_of_page(&mut self, victim: Pbn, ppn: Ppn) -> Result<Option<u32>, FtlError> {
        let pages = match self.units.owner(victim) {
            Some(lbn) => lbn * self.shape.pages..((lbn + 1) * self.shape.pages).min(self.logical_pages),
            None => 0..self.logical_pages,
        };
        for lpn in pages {
            if self.trims.is_mapped(lpn) && self.look_up(lpn, Cause::Recovery)? == ppn.raw() {
                return Ok(Some(lpn));
            }
        }
        Ok(None)
    }

    /// Leaves everything so that the next mount finds nothing to do; the device is idle and stays so.
    pub(super) fn stop_cleanly(&mut self) -> Result<(), FtlError> {
        let geometry = self.space.geometry();
        let pages = CleanStop::chunks(&geometry);
        self.collect_until(self.gc.threshold + 1 + pages.div_ceil(geometry.pages_per_block))?;
        self.level_wear()?;
        self.space.make_safe()?;
        self.space.reclaim(Cause::Gc)?;
        let stop = CleanStop::of(&self.space, self.next_ver, self.logical_pages);
        stop.write(&mut self.space, &mut self.checkpoints)?;
        self.stats.checkpoints += 1;
        Ok(())
    }
}
