//! Garbage collection (the paper's Algorithm 2) and wear levelling.
//!
//! Victims are data and mapping blocks. A live page whose logical page is in the UMT was superseded without the GMT knowing it:
//! it is skipped, and its invalidate flag cleared. The others move to the cold area, so a collection may open a cold block, which may
//! convert a block, which may open a mapping block: the reserve, looked at before a victim is touched.
//!
//! If power fails, the victim is still there: it is erased only when no copy can be lost.

use super::{COLD, Lazy, MAP, UNMAPPED, UPDATE};
use crate::block_table::State;
use crate::error::FtlError;
use crate::format::{Flags, PageTag, Role};
use crate::space::StreamId;
use nand_model::{Cause, Pbn, Ppn, Store};

impl<S: Store> Lazy<S> {
    /// Makes sure that the stream can take a page, that the areas keep their size and age, and that the reserve is left.
    #[inline]
    pub(super) fn make_room(&mut self, stream: StreamId) -> Result<(), FtlError> {
        if self.space.room(stream) > 0 && self.space.failing_block().is_none() {
            return Ok(());
        }
        self.level_wear()?;
        self.make_blocks((stream == UPDATE && self.space.room(stream) == 0) as u32)
    }

    /// Makes sure that the pool is full, and that the areas have their size and age if `more` blocks join them.
    pub(super) fn make_blocks(&mut self, more: u32) -> Result<(), FtlError> {
        loop {
            self.collect_until(self.settings.free_threshold + 1)?;
            // One conversion at a time: each may need a block of the reserve.
            if !self.convert_one(more)? {
                return self.settle_window();
            }
        }
    }

    fn collect_until(&mut self, wanted: u32) -> Result<(), FtlError> {
        self.space.reclaim(Cause::Gc)?;
        let (mut most, mut futile) = (0, 0);
        while self.space.free_blocks() < wanted || self.space.failing_block().is_some() {
            let (free, waiting) = (self.space.free_blocks(), self.space.released_blocks());
            let needs = self.space.table.greedy_victim().map_or(0, |victim| self.blocks_to_move(victim));
            if self.space.should_hurry(wanted, self.settings.reserve, needs) {
                self.space.make_safe()?;
                self.space.reclaim(Cause::Gc)?;
                continue;
            }
            futile = if free + waiting > most { 0 } else { futile + 1 };
            most = most.max(free + waiting);
            // Space that so many collections could not free is not there.
            let endless = futile > 2 * self.space.geometry().pages_per_block;
            if endless || !self.collect_one()? {
                return self.no_victim(wanted);
            }
            self.space.reclaim(Cause::Gc)?;
        }
        Ok(())
    }

    /// Nothing can be collected with profit: released blocks may still help, else the device is at its end.
    fn no_victim(&mut self, wanted: u32) -> Result<(), FtlError> {
        self.space.make_safe()?;
        self.space.reclaim(Cause::Gc)?;
        if self.space.free_blocks() >= wanted.min(self.settings.reserve) {
            return Ok(());
        }
        self.read_only = Some("too few good blocks are left");
        self.refuse_if_read_only()
    }

    /// Free blocks that moving this block's pages may take: none if they fit into the open blocks; else a cold block, and a
    /// mapping block for the conversion that makes room for it.
    fn blocks_to_move(&self, victim: Pbn) -> u32 {
        let live = self.space.table.valid(victim);
        match self.space.table.role(victim) {
            Role::Map => self.space.blocks_for(MAP, live),
            _ => 2 * self.space.blocks_for(COLD, live),
        }
    }

    /// Moves the live pages of the best victim and releases it. False if no block is worth it, or none can be moved.
    fn collect_one(&mut self) -> Result<bool, FtlError> {
        let pages = self.space.pages_per_block();
        let victim = match self.space.failing_block() {
            Some(block) => {
                if self.umt.holds(block) {
                    self.convert(block)?;
                }
                Some(block)
            }
            None => self.greedy_victim()?.filter(|block| self.space.table.valid(*block) < pages),
        };
        let possible = |block: &Pbn| self.blocks_to_move(*block) <= self.space.free_blocks();
        let Some(victim) = victim.filter(possible) else { return Ok(false) };
        let moved = self.evacuate(victim, Cause::Gc)?;
        self.stats.gc_runs += 1;
        self.stats.gc_pages_moved += moved as u64;
        Ok(true)
    }

    /// The collectable block with the fewest live pages. When that one is nearly full, garbage sits in the update and cold area:
    /// a block there with fewer live pages is converted ahead of its turn.
    fn greedy_victim(&mut self) -> Result<Option<Pbn>, FtlError> {
        let pages = self.space.pages_per_block();
        let best = self.space.table.greedy_victim();
        let live = best.map_or(pages, |block| self.space.table.valid(block));
        if live < pages - pages / 16 {
            return Ok(best);
        }
        let table = &self.space.table;
        let filled = self.umt.blocks().filter(|(block, _)| table.state(*block) == State::Full);
        let emptier = filled.map(|(block, buffer)| (table.valid(block), buffer.cost, buffer.epoch, block)).min();
        match emptier.filter(|(valid, ..)| *valid < live) {
            Some((.., block)) => {
                self.convert(block)?;
                Ok(Some(block))
            }
            None => Ok(best),
        }
    }

    /// Moves every live page out of a block and releases it. Returns how many were moved.
    pub(super) fn evacuate(&mut self, victim: Pbn, cause: Cause) -> Result<u32, FtlError> {
        let mut moved = 0;
        if self.space.table.role(victim) == Role::Map {
            self.expire_records();
        }
        let free = self.space.free_blocks();
        assert!(free >= self.blocks_to_move(victim), "a collection was begun with {free} free blocks");
        if self.space.table.valid(victim) > 0 {
            self.pages.load(&mut self.space, victim, cause)?;
            moved = match self.space.table.role(victim) {
                Role::Map => self.move_map_pages(cause)?,
                _ => self.move_data_pages(cause)?,
            };
        }
        self.space.release(victim);
        Ok(moved)
    }

    fn move_map_pages(&mut self, cause: Cause) -> Result<u32, FtlError> {
        let page = self.space.geometry().page_bytes as usize;
        for i in 0..self.pages.from.len() {
            let (tag, from) = (self.pages.tags[i], self.pages.from[i]);
            if self.space.room(MAP) == 0 && !self.converting {
                self.keep_window()?;
            }
            if !self.space.table.is_live(from) {
                // Keeping the window has just written this very page anew.
                continue;
            }
            let owned = match tag.role {
                Role::Map => self.gmd.get(tag.lpn as usize) == Some(&from.raw()),
                Role::Trim => self.trims.get(tag.ver).is_some_and(|record| record.ppn == from),
                _ => false,
            };
            if !owned || tag.flags.has(Flags::LOST) {
                return Err(FtlError::Corrupt(format!("page {from} of the map cannot be read: {tag:?}")));
            }
            let (to, _) = self.space.append(MAP, &[tag], &self.pages.data[i * page..][..page], cause)?;
            if tag.role == Role::Map {
                self.set_gmd(tag.lpn, Some(to));
            } else {
                self.trims.moved(tag.ver, to);
                self.space.table.clear_live(from);
            }
        }
        Ok(self.pages.from.len() as u32)
    }

    fn move_data_pages(&mut self, cause: Cause) -> Result<u32, FtlError> {
        self.name_unknown_pages()?;
        let page = self.space.geometry().page_bytes as usize;
        let (mut next, mut moved) = (0, 0);
        let total = self.pages.from.len();
        // Decided before anything moves: nothing below brings another page of these into the UMT.
        let stays = (0..total).map(|i| self.skip_superseded(i)).collect::<Result<Vec<bool>, _>>()?;
        while next < total {
            let run = stays[next..].iter().take_while(|stays| !**stays).count();
            if run == 0 {
                next += 1;
                continue;
            }
            if self.space.room(COLD) == 0 {
                while self.convert_one(1)? {}
                self.settle_window()?;
            }
            for tag in &mut self.pages.tags[next..next + run] {
                tag.role = Role::Cold;
            }
            let seq = self.space.flash.pseq() + 1;
            let tags = &self.pages.tags[next..next + run];
            let (first, taken) = self.space.append(COLD, tags, &self.pages.data[next * page..][..run * page], cause)?;
            self.enlist_block_of(first);
            for i in 0..taken {
                let (lpn, from) = (self.pages.tags[next].lpn, self.pages.from[next]);
                let old = self.umt.point(lpn, Some(Ppn::new(first.raw() + i)), false, seq);
                if old.is_some() {
                    return Err(misplaced(from, lpn));
                }
                self.space.table.clear_live(from);
                next += 1;
            }
            moved += taken;
        }
        Ok(moved)
    }

    /// Whether a newer version of this live page is in the UMT; if so, the page dies here instead of in a conversion.
    fn skip_superseded(&mut self, i: usize) -> Result<bool, FtlError> {
        let (lpn, from) = (self.pages.tags[i].lpn, self.pages.from[i]);
        if lpn >= self.logical_pages {
            return Err(misplaced(from, lpn));
        }
        let Some(entry) = self.umt.get(lpn) else { return Ok(false) };
        if !entry.invalidate {
            return Err(misplaced(from, lpn));
        }
        self.umt.clear_invalidate(lpn);
        self.space.table.clear_live(from);
        Ok(true)
    }

    /// Finds the owners of live pages whose record is lost: a search through the whole map, because it happens next to never.
    fn name_unknown_pages(&mut self) -> Result<(), FtlError> {
        let unknown: Vec<Ppn> = self.pages.unknown().map(|(_, ppn)| ppn).collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let mut owners = vec![None; unknown.len()];
        for vtpn in 0..self.gmd.len() as u32 {
            if self.gmd[vtpn as usize] == UNMAPPED {
                continue;
            }
            self.load_map_page(vtpn, Cause::Gc)?;
            for lpn in self.pages_of(vtpn) {
                let here = super::mapping::entry_at(&self.map_page, lpn % self.per_page());
                if let Some(i) = unknown.iter().position(|ppn| here == Some(*ppn)) {
                    owners[i] = Some(lpn);
                }
            }
        }
        for (i, (tag, ppn)) in self.pages.unknown().enumerate() {
            let lpn = owners[i].ok_or_else(|| FtlError::Corrupt(format!("nobody owns the live page {ppn}")))?;
            // A new version, so that no older one comes back in its place.
            *tag = PageTag { role: Role::Cold, flags: Flags::COPY.with(Flags::LOST), lpn, ver: self.next_ver };
            self.next_ver += 1;
        }
        Ok(())
    }

    /// Collects while nobody waits, until twice the threshold is free.
    pub(super) fn collect_ahead(&mut self, budget: u32) -> Result<bool, FtlError> {
        if self.read_only.is_some() {
            return Ok(false);
        }
        self.space.reclaim(Cause::Gc)?;
        let pages = self.space.geometry().pages_per_block;
        let mut left = budget as i64;
        while left > 0 && self.space.free_blocks() < 2 * self.settings.free_threshold {
            // Ahead of need, only what costs little: a later overwrite may empty the block for nothing.
            let victim = self.space.table.greedy_victim();
            let Some(victim) = victim.filter(|block| self.space.table.valid(*block) <= pages / 4) else {
                return Ok(false);
            };
            if self.space.free_blocks() < self.settings.reserve {
                return Ok(false);
            }
            let moved = self.evacuate(victim, Cause::Gc)?;
            self.stats.gc_runs += 1;
            self.stats.gc_pages_moved += moved as u64;
            self.space.reclaim(Cause::Gc)?;
            left -= 2 * moved as i64 + 1;
        }
        Ok(left <= 0)
    }

    /// Looks at wear once per so many erases that the search costs nothing, and moves one cold block if the gap is too wide.
    fn level_wear(&mut self) -> Result<(), FtlError> {
        let Some(policy) = self.settings.wear else { return Ok(()) };
        let erases = self.space.flash.chip().counters().total().erases;
        if erases - self.erases_seen < (self.space.geometry().blocks as u64 / 8).max(8) {
            return Ok(());
        }
        self.erases_seen = erases;
        if self.space.free_blocks() < self.settings.reserve {
            return Ok(());
        }
        if let Some(block) = policy.candidate(&self.space) {
            self.evacuate(block, Cause::Wear)?;
            self.stats.wear_moves += 1;
        }
        Ok(())
    }
}

#[cold]
fn misplaced(ppn: Ppn, lpn: u32) -> FtlError {
    FtlError::Corrupt(format!("the live page {ppn} says that it is logical page {lpn}, which is elsewhere"))
}
