//! Flushing the buffer: choice of the superblock, update of the tables, reorganisation (section
//! 4.4), and the journal. `rows.rs` writes the superblock.
//!
//! Invariants: a page is committed when it is programmed. If a program fails, or the host has no
//! space, the superblock stays incomplete. Its pages are buffered pages that are on flash, and its
//! blocks are emptied later. If power fails, a mount finds the same state.

use super::mapping::Location;
use super::policy::{self, Policy, Virtual};
use super::rows::{Placed, Writing};
use super::settings::MAX_CANDIDATES;
use super::shape::QUARTERS;
use super::state::{COMMON, FIRST_CHIP, Mlam, MlamFtl, chip_stream};
use crate::addr::Lpn;
use crate::block_table::State;
use crate::error::FtlError;
use crate::events::EventKind;
use crate::format::{Flags, PageTag, Role};
use crate::gc::GarbageCollect;
use crate::int::{index, narrow, real};
use crate::space::Space;
use nand_model::{Cause, Pbn, Ppn};

/// Maximum number of superblocks reassembled after a flush.
const MAX_REORGANISED: u32 = 4;

impl Mlam {
    /// Counts the quarters that are about to be flushed, for the adaptation of `k_empty`.
    fn note_quarters(&mut self, slots: &[u32]) {
        let superblock = |quarter: &u32| quarter / QUARTERS;
        for quarter in slots {
            let logical = superblock(quarter);
            let together = slots.iter().filter(|other| superblock(other) == logical);
            let is_apart = together.count() < index(QUARTERS);
            let unit = self.buffer.unit(logical);
            let is_updated = unit.is_some_and(|unit| unit.of_quarter(*quarter) > 0);
            self.cost.note_quarter(*quarter, is_apart, is_updated);
        }
    }

    /// Returns the superblock to flush next, virtual or not.
    pub(super) fn choose(&self) -> Option<Virtual> {
        let settings = &self.settings;
        let candidates = |count| {
            policy::candidates(
                &self.buffer,
                &self.shape,
                settings.policy,
                settings.alpha,
                count,
            )
        };
        if settings.policy != Policy::Mlam {
            return candidates(1)
                .first()
                .map(|victim| self.whole(victim.logical));
        }
        let superchip = |quarter| self.superchip_of(quarter);
        let compose = |count| {
            let cut =
                |candidate| policy::pieces(candidate, &self.shape, self.cost.k_empty, superchip);
            policy::compose(&candidates(count).iter().flat_map(cut).collect::<Vec<_>>())
        };
        let usual = compose(settings.candidates)?;
        if usual.is_full() {
            Some(usual)
        } else {
            compose(MAX_CANDIDATES)
        }
    }

    /// Returns a whole logical superblock.
    fn whole(&self, logical: u32) -> Virtual {
        let quarters = logical * QUARTERS..(logical + 1) * QUARTERS;
        let superchip = quarters
            .clone()
            .find_map(|quarter| self.superchip_of(quarter));
        Virtual::new(quarters.collect(), superchip)
    }

    fn superchip_of(&self, quarter: u32) -> Option<u32> {
        self.quarter_at(quarter)
            .map(|location| self.superblocks.get(location.psb).superchip)
    }

    /// Returns the wanted superchip if it has blocks for a superblock, else the one with blocks for
    /// most superblocks.
    fn superchip_with_room(&self, space: &Space, wanted: Option<u32>) -> u32 {
        let room = |superchip: u32| {
            let dies = (0..self.shape.chips).map(|chip| self.shape.die(superchip, chip));
            dies.map(|die| space.free_blocks_on(die)).min().unwrap_or(0)
        };
        let roomiest = || {
            (0..self.shape.superchips())
                .rev()
                .max_by_key(|superchip| room(*superchip))
                .unwrap_or(0)
        };
        wanted
            .filter(|superchip| room(*superchip) > 0)
            .unwrap_or_else(roomiest)
    }

    /// Closes the chips' blocks. Returns the blocks that were open.
    fn close_blocks(&mut self, space: &mut Space) -> Result<Vec<Pbn>, FtlError> {
        let streams = FIRST_CHIP..chip_stream(self.shape.chips);
        let open = streams
            .clone()
            .filter_map(|stream| space.open_block(stream))
            .map(|(block, _)| block)
            .collect();
        for stream in streams {
            space.seal(stream)?;
        }
        Ok(open)
    }

    /// Detaches a full block from its superblock: GC empties it page by page later, or it is
    /// released at once.
    pub(super) fn detach_block(&mut self, space: &mut Space, block: Pbn) {
        if space.table.state(block) != State::Full {
            return;
        }
        if space.table.valid_count(block) > 0 {
            space.table.set_collectable(block);
        } else {
            space.release(block);
        }
    }

    /// Updates the tables after all pages were programmed.
    fn update_tables(&mut self, space: &mut Space, writing: &Writing, slots: &[u32]) {
        debug_assert!(
            writing.placed.iter().all(|page| {
                let owner = self.superblocks.owner(space.geometry().block_of(page.ppn));
                owner.is_some_and(|(psb, _)| psb == writing.psb)
            }),
            "a page of superblock {} is in a block of another superblock",
            writing.psb
        );
        let mut valid = vec![0; slots.len()];
        for Placed { lpn, ppn, .. } in &writing.placed {
            let old = self.ppn_of(space, *lpn);
            self.buffer.remove(*lpn);
            self.unflushed_pages -= u64::from(self.trims.map(*lpn));
            if let Some(old) = old {
                self.invalidate_page(space, *lpn, old);
            }
            let (loc, _) = self
                .shape
                .loc_and_row(*ppn)
                .expect("the page is in one of the quarters");
            valid[index(loc)] += 1;
        }
        let mut moved = Vec::new();
        for ((loc, quarter), valid) in (0..).zip(slots).zip(valid) {
            let location = Location {
                psb: writing.psb,
                loc,
            };
            if valid > 0 {
                self.superblocks.hold(location, *quarter, valid);
                moved.push((*quarter, location));
            }
        }
        let mut logical: Vec<u32> = slots.iter().map(|quarter| quarter / QUARTERS).collect();
        logical.dedup();
        for logical in logical {
            self.remap(logical, &moved);
            self.cost.written[index(logical)] = self.cost.flushed;
        }
        if moved.is_empty() {
            self.dissolve(space, writing.psb);
        }
    }

    /// Marks a page clean whose newest content is on flash outside the mapping tables.
    fn mark_clean(&mut self, space: &mut Space, lpn: Lpn, ppn: Ppn, ver: u64) {
        debug_assert!(
            space.table.is_valid(ppn),
            "logical page {lpn} is at {ppn}, which is not valid"
        );
        let old = self.ppn_of(space, lpn);
        self.buffer.programmed(lpn, ppn, ver);
        self.unflushed_pages -= u64::from(self.trims.map(lpn));
        if let Some(old) = old {
            self.invalidate_page(space, lpn, old);
        }
    }

    /// Returns the superblock to reassemble, if any: no page of it is buffered, and the product of
    /// the bits that it saves (Table 1) and the age of its last write is the largest.
    pub(super) fn to_reorganise(&self) -> Option<u32> {
        let value = |logical: u32| {
            let age = self.cost.flushed + 1 - self.cost.written[index(logical)];
            self.mapping.gain(logical) * age
        };
        let unbuffered = |logical: &u32| self.buffer.unit(*logical).is_none();
        let all = 0..self.shape.superblocks(self.logical_pages);
        let best = all.filter(unbuffered);
        let best = best.map(|logical| (value(logical), logical)).max();
        best.filter(|(value, _)| *value > 0)
            .map(|(_, logical)| logical)
    }
}

impl MlamFtl {
    /// Flushes until enough of the buffer is free.
    pub(super) fn drain(&mut self) -> Result<(), FtlError> {
        if self.map.settings.policy == Policy::FlushAll {
            return self.drain_all();
        }
        while self.map.buffer.free_share() <= self.map.settings.high && self.evict()? {}
        Ok(())
    }

    pub(super) fn drain_all(&mut self) -> Result<(), FtlError> {
        while self.evict()? {}
        Ok(())
    }

    /// Flushes one superblock. Returns false if nothing is buffered.
    fn evict(&mut self) -> Result<bool, FtlError> {
        self.gc_until(self.gc.threshold + 1)?;
        self.maintain()?;
        let Some(chosen) = self.map.choose() else {
            return Ok(false);
        };
        self.map.note_quarters(&chosen.slots);
        let copied = self.write_superblock(&chosen, Cause::Merge)?;
        self.map.cost.note_flush(copied);
        self.reorganise()?;
        Ok(true)
    }

    /// Writes these quarters into a superblock, with all their buffered pages. `cause` is the cause
    /// of unchanged pages. Returns the number of unchanged pages.
    pub(super) fn write_superblock(
        &mut self,
        plan: &Virtual,
        cause: Cause,
    ) -> Result<u64, FtlError> {
        self.stalled_by(cause, |ftl| ftl.gather(plan, cause))
    }

    fn gather(&mut self, plan: &Virtual, cause: Cause) -> Result<u64, FtlError> {
        assert!(
            (1..=index(QUARTERS)).contains(&plan.slots.len()),
            "the plan of a superblock has {} quarters",
            plan.slots.len()
        );
        let began = self.space.flash.now();
        let superchip = self.map.superchip_with_room(&self.space, plan.superchip);
        let serial = self.space.next_epoch();
        for chip in 0..self.map.shape.chips {
            self.space
                .prefer_die(chip_stream(chip), self.map.shape.die(superchip, chip));
        }
        let psb = self
            .map
            .superblocks
            .open(self.map.shape.chips, superchip, serial);
        let mut writing = Writing {
            psb,
            serial,
            placed: Vec::new(),
            copied: 0,
        };
        let outcome = self.write_rows(&mut writing, &plan.slots, cause);
        let unfinished = self.map.close_blocks(&mut self.space)?;
        if matches!(outcome, Ok(true)) {
            self.map
                .update_tables(&mut self.space, &writing, &plan.slots);
            let kind = match cause {
                Cause::Gc => EventKind::Gc,
                Cause::Convert => EventKind::Convert,
                _ => EventKind::BufferFlush,
            };
            self.space
                .note_event(kind, None, narrow(writing.copied), began);
        } else {
            writing.placed.iter().for_each(|page| {
                self.map
                    .mark_clean(&mut self.space, page.lpn, page.ppn, page.ver)
            });
            self.map.dissolve(&mut self.space, psb);
            unfinished
                .into_iter()
                .for_each(|block| self.map.detach_block(&mut self.space, block));
        }
        outcome.map(|_| writing.copied)
    }

    /// Reassembles superblocks that were not written for long and save many bits, while the tables
    /// are too large and there is space.
    fn reorganise(&mut self) -> Result<(), FtlError> {
        for _ in 0..MAX_REORGANISED {
            if real(self.map.mapping.bits())
                <= self.map.settings.smax * real(self.map.mapping.base_bits())
            {
                return Ok(());
            }
            let Some(logical) = self.map.to_reorganise() else {
                return Ok(());
            };
            self.gc_until(self.gc.threshold + 1)?;
            // GC may have done it.
            if self.map.mapping.gain(logical) > 0 {
                let copied = self.write_superblock(&self.map.whole(logical), Cause::Convert)?;
                self.map.cost.note_reorganisation(logical, copied);
            }
        }
        Ok(())
    }

    /// Appends all pages that are only in RAM to the journal. A read-only device has space for
    /// that.
    pub(super) fn write_journal(&mut self) -> Result<(), FtlError> {
        self.stalled_by(Cause::Journal, Self::journal_all)
    }

    fn journal_all(&mut self) -> Result<(), FtlError> {
        while self.map.buffer.first_fresh().is_some() {
            match self.ensure_space(COMMON) {
                Err(FtlError::ReadOnly(_)) => {}
                other => other?,
            }
            // Freeing space may have flushed it.
            let Some(lpn) = self.map.buffer.first_fresh() else {
                break;
            };
            let slot = self
                .map
                .buffer
                .get(lpn)
                .and_then(|entry| entry.slot())
                .expect("an unflushed page has a slot in RAM");
            let ver = self.new_version();
            let tag = PageTag {
                role: Role::Journal,
                flags: Flags::NONE,
                lpn: lpn.raw(),
                ver,
            };
            let ppn =
                self.space
                    .append_page(COMMON, tag, self.map.buffer.data(slot), Cause::Journal)?;
            self.map.mark_clean(&mut self.space, lpn, ppn, ver);
            debug_assert!(
                self.map.buffer.first_fresh() != Some(lpn),
                "logical page {lpn} is in the journal, but still counts as only in RAM"
            );
        }
        Ok(())
    }
}
