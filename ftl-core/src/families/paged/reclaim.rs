//! Garbage collection (LazyFTL's Algorithm 2; DFTL's lazy copying and batched updates).
//!
//! Victims are data and mapping blocks. A valid page that was superseded without a write-back is
//! skipped, and its invalidate flag cleared. The other pages are relocated to a cold block. So a GC
//! run may open a cold block, which may convert a block, which may open a mapping block. For
//! relocated pages without a cached entry, mapping pages are written at once, which may open
//! another. The reserve covers these blocks, and is checked before a victim is touched.
//!
//! If power fails, the victim still exists: it is erased only when no copy can be lost.

use super::policy::Policy;
use super::state::{MAP, PagedFtl, PagedMap};
use crate::block_table::State;
use crate::copy::misplaced;
use crate::error::FtlError;
use crate::format::UNMAPPED;
use crate::format::{Flags, Oob, Role};
use crate::gc::{GarbageCollect, GcState, fold};
use crate::int::{index, to_u32};
use crate::space::{Space, StreamId};
use nand_model::{Cause, Pbn, Ppn, Store};

/// Mapping pages that are copied at once, at most.
const RUN: usize = 32;

impl<P: Policy> GarbageCollect for PagedFtl<P> {
    fn parts(&mut self) -> (&mut Space, &mut GcState) {
        (&mut self.space, &mut self.gc)
    }

    /// Returns 0 if the pages fit into the open blocks. Otherwise returns a cold block, and a
    /// mapping block for the conversion that makes room for it. Adds the blocks for the mapping
    /// pages of the relocated pages.
    fn blocks_to_move(&self, victim: Pbn) -> u32 {
        let valid = self.space.table.valid_count(victim);
        let for_copies = || self.map.streams.blocks_for_copies(&self.space, valid);
        match self.space.table.role(victim) {
            Role::Map => self.space.blocks_for(MAP, valid),
            _ if P::LOOKS_UP_WRITES => 2 * for_copies() + self.space.blocks_for(MAP, valid),
            _ => 2 * for_copies(),
        }
    }

    /// Selects the victim of the policy. If at least 15/16 of its pages are valid, the invalid
    /// pages are in the update and cold area: a block there with fewer valid pages is converted
    /// early. A higher share would copy more, a lower one convert more (the papers give none).
    fn select_victim(&mut self) -> Result<Option<Pbn>, FtlError> {
        let pages = self.space.pages_per_block();
        self.map.streams.pass_block_events(&mut self.space);
        let policy = self.map.streams.policy_of_victims();
        let best = self.gc.victim(&mut self.space, policy);
        let fewest = best.map_or(pages, |block| self.space.table.valid_count(block));
        if fewest < pages - pages / 16 || self.map.settings.buffer_blocks.is_none() {
            return Ok(best);
        }
        self.map.count_costs(&self.space);
        let (table, chip) = (&self.space.table, self.space.flash.chip());
        let is_filled = |block| table.state(block) == State::Full && !chip.is_slc(block);
        let filled = self.map.pending.blocks();
        let filled = filled.filter(|(block, _)| is_filled(*block));
        let emptier = filled
            .map(|(block, buffer)| (table.valid_count(block), buffer.cost(), buffer.epoch, block))
            .min();
        match emptier.filter(|(valid, ..)| *valid < fewest) {
            Some((.., block)) => {
                self.convert(block)?;
                Ok(Some(block))
            }
            None => Ok(best),
        }
    }

    /// Converts the victim first if the scheme has buffer blocks and the victim has pending pages.
    fn prepare_victim(&mut self, block: Pbn) -> Result<bool, FtlError> {
        let is_checkpoint = self.space.table.role(block) == Role::Checkpoint;
        self.gc.wants_checkpoint |= is_checkpoint;
        if self.map.pending.holds(block) && self.map.settings.buffer_blocks.is_some() {
            self.convert(block)?;
        }
        Ok(!is_checkpoint)
    }

    fn relocate_valid(&mut self, victim: Pbn, cause: Cause) -> Result<u32, FtlError> {
        assert!(
            self.space.table.is_in_use(victim),
            "block {victim} is not in use, so it has no pages to relocate"
        );
        let is_map = self.space.table.role(victim) == Role::Map;
        if is_map {
            self.map.expire_records(&mut self.space);
        }
        if is_map {
            let cause = cause.of_map();
            self.gc.pages.load_own(&mut self.space, victim, cause)?;
            self.move_map_pages(cause)
        } else {
            self.gc.pages.load(&mut self.space, victim, cause)?;
            self.move_data_pages(victim, cause)
        }
    }

    fn release_block(&mut self, block: Pbn) {
        if self.map.pending.holds(block) {
            self.map.pending.remove_block(block);
        }
        self.space.release(block);
    }

    fn use_worn_block(&mut self, block: Pbn) -> Result<(), FtlError> {
        let stream = if self.space.table.role(block) == Role::Map {
            MAP
        } else {
            let streams = &mut self.map.streams;
            streams.of_cold_block(&self.space, block, self.next_ver)
        };
        self.space.use_worn_block(stream)
    }
}

impl<P: Policy> PagedMap<P> {
    fn is_pending_at(&self, lpn: u32, ppn: Ppn) -> bool {
        self.pending
            .get(lpn)
            .is_some_and(|entry| entry.ppn() == Some(ppn))
    }
}

impl<P: Policy> PagedFtl<P> {
    /// Ensures that the stream can take a page, that the areas keep their size and age, and that
    /// the reserve is left.
    #[inline]
    pub(crate) fn ensure_space(&mut self, stream: StreamId) -> Result<(), FtlError> {
        if self.space.room(stream) > 0 && self.space.failing_block().is_none() {
            return Ok(());
        }
        if self.space.is_slc_stream(stream) {
            fold::make_room(self)?;
        }
        self.maintain()?;
        let joins = self.map.streams.host().contains(&stream) && self.space.room(stream) == 0;
        if joins {
            self.rewrite_groups()?;
        }
        self.ensure_blocks(joins as u32)
    }

    /// Ensures that the pool is full, and that the areas keep their size and age if `more` blocks
    /// join them.
    pub(crate) fn ensure_blocks(&mut self, more: u32) -> Result<(), FtlError> {
        // A GC run opens blocks, which makes other blocks too old. If the rounds do not end, this
        // always happens before GC has made room for their conversion.
        for _ in 0..2 * self.space.geometry().blocks {
            self.gc_until(self.gc.threshold + 1)?;
            // Convert one block at a time: each conversion may need a block of the reserve.
            if !self.convert_one(more)? {
                return self.map.advance_window(&mut self.space);
            }
        }
        self.gc
            .end_writes("the age window is shorter than the GC runs that a conversion needs")
    }

    fn move_map_pages(&mut self, cause: Cause) -> Result<u32, FtlError> {
        let page = self.space.geometry().page_len();
        let (mut next, total) = (0, self.gc.pages.from.len());
        while next < total {
            if self.space.room(MAP) == 0 && !self.map.converting {
                self.enforce_window()?;
            }
            let run = self.map_pages_from(next)?;
            if run == 0 {
                next += 1;
                continue;
            }
            let pages = &mut self.gc.pages;
            let (from, records) = (
                &pages.from[next..][..run],
                &mut pages.records[next..][..run],
            );
            let data = &pages.data[next * page..][..run * page];
            let (first, taken) = (self.space).append_own_copies(MAP, from, records, data, cause)?;
            let taken = index(taken);
            let copied = &from[..taken];
            self.space.table.set_pages_invalid(copied);
            for (to, record) in first.run(to_u32(taken)).zip(&*records) {
                match Oob::owner(record) {
                    (Role::Trim, _) => self.map.trims.on_relocate(Oob::ver(record), to),
                    (_, vtpn) => self.map.directory[index(vtpn)] = to.raw(),
                }
            }
            next += taken;
        }
        Ok(to_u32(total))
    }

    /// Returns the number of loaded pages from this one on, at most [`RUN`], up to the first that
    /// is not valid any more: `enforce_window` has just rewritten it.
    fn map_pages_from(&self, first: usize) -> Result<usize, FtlError> {
        let pages = &self.gc.pages;
        let end = pages.from.len().min(first + RUN);
        for (i, from) in (first..).zip(&pages.from[first..end]) {
            if !self.space.table.is_valid(*from) {
                return Ok(i - first);
            }
            let record = &pages.records[i];
            let owned = match Oob::owner(record) {
                (Role::Map, vtpn) => self.map.directory.get(index(vtpn)) == Some(&from.raw()),
                (Role::Trim, _) => {
                    let trim = self.map.trims.get(Oob::ver(record));
                    trim.is_some_and(|trim| trim.ppn == *from)
                }
                _ => false,
            };
            if !owned || Oob::has(record, Flags::LOST) {
                let tag = pages.tag(i);
                return Err(FtlError::Corrupt(format!(
                    "page {from} of the map cannot be read: {tag:?}"
                )));
            }
        }
        Ok(end - first)
    }

    pub(super) fn move_data_pages(&mut self, victim: Pbn, cause: Cause) -> Result<u32, FtlError> {
        self.find_lost_owners(cause.of_map())?;
        if P::SORTS_COPIES {
            let has_data = self.space.flash.chip().store().keeps_data();
            let (pages, page) = (&mut self.gc.pages, self.space.geometry().page_len());
            pages.sort_by_owner(page, has_data, &mut self.map.order);
        }
        self.map.note_collected(&self.space, victim);
        self.map.streams.keep_lane(cause == Cause::Wear);
        let page = self.space.geometry().page_bytes as usize;
        let (mut next, mut moved) = (0, 0);
        let total = self.gc.pages.from.len();
        let (mut uncached, mut stays) = std::mem::take(&mut self.map.relocated);
        uncached.clear();
        stays.clear();
        // Decided for all pages before the first relocation: relocating a page does not make the
        // following ones pending.
        for i in 0..total {
            stays.push(self.skip_superseded(i)?);
        }
        let mut parts = self.space.flash.begin_parts();
        while next < total {
            self.space.flash.next_part(&mut parts);
            let run = stays[next..].iter().take_while(|stays| !**stays).count();
            if run == 0 {
                next += 1;
                continue;
            }
            let (stream, run) = self.place_copies(victim, next, run)?;
            let pages = &mut self.gc.pages;
            let (records, data) = (
                &mut pages.records[next..next + run],
                &pages.data[next * page..][..run * page],
            );
            records
                .iter_mut()
                .for_each(|record| Oob::assume(record, self.map.settings.copy_role));
            let seq = self.space.flash.pseq() + 1;
            let (first, taken) = self.space.append_copies(stream, records, data, cause)?;
            assert!(
                taken > 0 && taken as usize <= run,
                "{taken} pages were copied of {run}"
            );
            self.map.track_buffer_block(&self.space, first, stream);
            let block = self.space.flash.geometry().block_of(first);
            let lpn = self.gc.pages.owner(next).1;
            self.map.groups.note(&mut self.space.table, block, lpn);
            for i in 0..taken {
                let ((_, lpn), from) = (self.gc.pages.owner(next), self.gc.pages.from[next]);
                let to = Some(Ppn::new(first.raw() + i));
                if self
                    .map
                    .pending
                    .update_entry(lpn, to, false, seq)
                    .is_some_and(|old| old.ppn() != Some(from))
                {
                    return Err(misplaced(from, lpn));
                }
                if !self.map.policy.on_relocate(lpn, to) {
                    uncached.push(lpn / self.map.per_page());
                }
                next += 1;
            }
            let copied = &self.gc.pages.from[next - taken as usize..next];
            if P::SORTS_COPIES {
                let table = &mut self.space.table;
                copied.iter().for_each(|ppn| table.set_invalid(*ppn));
            } else {
                self.space.table.set_pages_invalid(copied);
            }
            moved += taken;
        }
        self.space.flash.end_parts(parts);
        self.map.streams.keep_lane(false);
        let outcome = self.write_uncached(&mut uncached, cause.of_map());
        self.map.relocated = (uncached, stays);
        outcome.map(|()| moved)
    }

    /// Writes the mapping pages of relocated pages whose entries are not cached, each once.
    fn write_uncached(&mut self, vtpns: &mut Vec<u32>, cause: Cause) -> Result<(), FtlError> {
        vtpns.sort_unstable();
        vtpns.dedup();
        let nested = std::mem::replace(&mut self.map.converting, true);
        let outcome = vtpns
            .iter()
            .try_for_each(|vtpn| self.write_back(*vtpn, cause));
        self.map.converting = nested;
        outcome
    }

    /// Returns whether a newer version of this valid page is pending. If so, invalidates the page
    /// now instead of when its mapping page is written.
    fn skip_superseded(&mut self, i: usize) -> Result<bool, FtlError> {
        let ((_, lpn), from) = (self.gc.pages.owner(i), self.gc.pages.from[i]);
        if lpn >= self.logical_pages {
            return Err(misplaced(from, lpn));
        }
        let Some(entry) = self
            .map
            .pending
            .get(lpn)
            .filter(|entry| entry.ppn() != Some(from))
        else {
            return Ok(false);
        };
        if !entry.invalidate {
            return Err(misplaced(from, lpn));
        }
        self.map.pending.clear_invalidate(lpn);
        self.space.table.set_invalid(from);
        Ok(true)
    }

    /// Finds the owners of valid pages with a lost record. Searches the whole map, because such
    /// pages are very rare.
    fn find_lost_owners(&mut self, cause: Cause) -> Result<(), FtlError> {
        let unknown: Vec<(usize, Ppn)> = self.gc.pages.unknown().collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let mut owners: Vec<Option<u32>> = unknown
            .iter()
            .map(|(_, ppn)| {
                self.map
                    .pending
                    .lpn_at(*ppn)
                    .filter(|lpn| self.map.is_pending_at(*lpn, *ppn))
            })
            .collect();
        for vtpn in 0..self.map.directory.len() as u32 {
            if self.map.directory[vtpn as usize] == UNMAPPED {
                continue;
            }
            self.map
                .load_map_page(&mut self.space, vtpn, false, cause)?;
            for lpn in self.map.pages_of(vtpn) {
                let here = self
                    .map
                    .loaded_entry(&self.space, lpn % self.map.per_page());
                // If a newer version is pending, the map's entry is current only while the
                // invalidate flag is set.
                let counts = self
                    .map
                    .pending
                    .get(lpn)
                    .is_none_or(|entry| entry.invalidate);
                if let Some(i) = unknown
                    .iter()
                    .position(|(_, ppn)| here == Some(*ppn))
                    .filter(|_| counts)
                {
                    owners[i] = Some(lpn);
                }
            }
        }
        for ((i, ppn), owner) in unknown.into_iter().zip(owners) {
            let lpn =
                owner.ok_or_else(|| FtlError::Corrupt(format!("valid page {ppn} has no owner")))?;
            let ver = self.version_of_next_program();
            self.gc.pages.name(i, self.map.settings.copy_role, lpn, ver);
        }
        Ok(())
    }
}
