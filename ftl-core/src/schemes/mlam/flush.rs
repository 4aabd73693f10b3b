//! Flushing the buffer: which superblock is written, what follows for the tables, reorganisation
//! (section 4.4), and the journal. How a superblock is written is in `rows.rs`.
//!
//! What always holds: a page counts from its program on. Where a program fails, or the host has no
//! room, the superblock is left as it is: its pages are buffered pages that are on flash, its
//! blocks are emptied later. If power fails, a mount finds the same.

use super::mapping::Place;
use super::policy::{self, Policy, Virtual};
use super::rows::Placed;
use super::settings::MAX_CANDIDATES;
use super::shape::QUARTERS;
use super::{COMMON, FIRST_CHIP, MlamFtl, chip_stream};
use crate::addr::Lpn;
use crate::block_table::State;
use crate::convert::{index, narrow, real};
use crate::error::FtlError;
use crate::events::EventKind;
use crate::format::{Flags, PageTag, Role};
use crate::gc::Collect;
use nand_model::{Cause, Pbn, Ppn, Store};

/// Superblocks that are put together after one was flushed, at most.
const MAX_REORGANISED: u32 = 4;

/// A superblock on its way.
pub(super) struct Writing {
    pub(super) psb: u32,
    pub(super) serial: u64,
    pub(super) placed: Vec<Placed>,
    pub(super) copied: u64,
}

impl<S: Store> MlamFtl<S> {
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

    /// Flushes one superblock. False if nothing is buffered.
    fn evict(&mut self) -> Result<bool, FtlError> {
        self.collect_until(self.gc.threshold + 1)?;
        self.upkeep()?;
        let Some(chosen) = self.choose() else {
            return Ok(false);
        };
        let copied = self.write_superblock(&chosen, Cause::Merge)?;
        self.map.cost.note_flush(copied);
        self.reorganise()?;
        Ok(true)
    }

    /// The superblock to flush next, virtual or not.
    pub(super) fn choose(&self) -> Option<Virtual> {
        let settings = &self.map.settings;
        let candidates = |count| {
            policy::candidates(
                &self.map.buffer,
                &self.map.shape,
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
            let cut = |candidate| {
                policy::pieces(candidate, &self.map.shape, self.map.cost.k_empty, superchip)
            };
            policy::compose(&candidates(count).iter().flat_map(cut).collect::<Vec<_>>())
        };
        let usual = compose(settings.candidates)?;
        if usual.is_full() {
            Some(usual)
        } else {
            compose(MAX_CANDIDATES)
        }
    }

    /// A logical superblock as a whole.
    fn whole(&self, logical: u32) -> Virtual {
        let quarters = logical * QUARTERS..(logical + 1) * QUARTERS;
        let superchip = quarters
            .clone()
            .find_map(|quarter| self.superchip_of(quarter));
        Virtual::new(quarters.collect(), superchip)
    }

    fn superchip_of(&self, quarter: u32) -> Option<u32> {
        self.quarter_at(quarter)
            .map(|place| self.map.superblocks.get(place.psb).superchip)
    }

    /// The wanted superchip if it has blocks for a superblock, else that with blocks for the most.
    fn superchip_with_room(&self, wanted: Option<u32>) -> u32 {
        let room = |superchip: u32| {
            let dies = (0..self.map.shape.chips).map(|chip| self.map.shape.die(superchip, chip));
            dies.map(|die| self.space.free_blocks_on(die))
                .min()
                .unwrap_or(0)
        };
        let roomiest = || {
            (0..self.map.shape.superchips())
                .rev()
                .max_by_key(|superchip| room(*superchip))
                .unwrap_or(0)
        };
        wanted
            .filter(|superchip| room(*superchip) > 0)
            .unwrap_or_else(roomiest)
    }

    /// Writes these quarters into a superblock, with all that is buffered of them. `cause` is that
    /// of unchanged pages. Returns how many of those there were.
    pub(super) fn write_superblock(
        &mut self,
        plan: &Virtual,
        cause: Cause,
    ) -> Result<u64, FtlError> {
        assert!(
            (1..=index(QUARTERS)).contains(&plan.slots.len()),
            "a superblock of {} quarters",
            plan.slots.len()
        );
        let began = self.space.flash.now();
        let superchip = self.superchip_with_room(plan.superchip);
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
        let unfinished = self.close_blocks()?;
        if matches!(outcome, Ok(true)) {
            self.settle(&writing, &plan.slots);
            let kind = match cause {
                Cause::Gc => EventKind::Collect,
                Cause::Convert => EventKind::Convert,
                _ => EventKind::BufferFlush,
            };
            self.space
                .note_event(kind, None, narrow(writing.copied), began);
        } else {
            writing
                .placed
                .iter()
                .for_each(|page| self.now_on_flash(page.lpn, page.ppn, page.ver));
            self.dissolve(psb);
            unfinished.into_iter().for_each(|block| self.loosen(block));
        }
        outcome.map(|_| writing.copied)
    }

    /// The chips' blocks take no more pages. Returns those that were open.
    fn close_blocks(&mut self) -> Result<Vec<Pbn>, FtlError> {
        let streams = FIRST_CHIP..chip_stream(self.map.shape.chips);
        let open = streams
            .clone()
            .filter_map(|stream| self.space.open_block(stream))
            .map(|(block, _)| block)
            .collect();
        for stream in streams {
            self.space.seal(stream)?;
        }
        Ok(open)
    }

    /// A full block that is no part of a superblock: emptied page by page when its turn comes, or
    /// given up.
    pub(super) fn loosen(&mut self, block: Pbn) {
        if self.space.table.state(block) != State::Full {
            return;
        }
        if self.space.table.valid(block) > 0 {
            self.space.table.set_collectable(block);
        } else {
            self.space.release(block);
        }
    }

    /// All pages are where the tables will say.
    fn settle(&mut self, writing: &Writing, slots: &[u32]) {
        debug_assert!(
            writing.placed.iter().all(|page| {
                let owner = self
                    .map
                    .superblocks
                    .owner(self.space.geometry().block_of(page.ppn));
                owner.is_some_and(|(psb, _)| psb == writing.psb)
            }),
            "a page of superblock {} is elsewhere",
            writing.psb
        );
        let mut live = vec![0; slots.len()];
        for Placed { lpn, ppn, .. } in &writing.placed {
            let old = self.place_of(*lpn);
            self.map.buffer.remove(*lpn);
            self.map.unborn -= u64::from(self.map.trims.map(*lpn));
            if let Some(old) = old {
                self.give_up_place(*lpn, old);
            }
            let (loc, _) = self
                .map
                .shape
                .loc_and_row(*ppn)
                .expect("it is in one of the slots");
            live[index(loc)] += 1;
        }
        let mut moved = Vec::new();
        for ((loc, quarter), live) in (0..).zip(slots).zip(live) {
            let place = Place {
                psb: writing.psb,
                loc,
            };
            if live > 0 {
                self.map.superblocks.hold(place, *quarter, live);
                moved.push((*quarter, place));
            }
        }
        let mut logical: Vec<u32> = slots.iter().map(|quarter| quarter / QUARTERS).collect();
        logical.dedup();
        for logical in logical {
            self.remap(logical, &moved);
            self.map.cost.written[index(logical)] = self.map.cost.flushed;
        }
        if moved.is_empty() {
            self.dissolve(writing.psb);
        }
    }

    /// The newest content of a page is on flash now, where no table says.
    fn now_on_flash(&mut self, lpn: Lpn, ppn: Ppn, ver: u64) {
        debug_assert!(
            self.space.table.is_live(ppn),
            "logical page {lpn} came to {ppn}, which is not live"
        );
        let old = self.place_of(lpn);
        self.map.buffer.programmed(lpn, ppn, ver);
        self.map.unborn -= u64::from(self.map.trims.map(lpn));
        if let Some(old) = old {
            self.give_up_place(lpn, old);
        }
    }

    /// Puts superblocks together while the tables are too large, and there is room: those that were
    /// not written for long and save much.
    fn reorganise(&mut self) -> Result<(), FtlError> {
        for _ in 0..MAX_REORGANISED {
            if real(self.map.mapping.bits())
                <= self.map.settings.smax * real(self.map.mapping.base_bits())
            {
                return Ok(());
            }
            let value = |logical: u32| {
                let age = self.map.cost.flushed + 1 - self.map.cost.written[index(logical)];
                self.map.mapping.gain(logical) * age
            };
            let unbuffered = |logical: &u32| self.map.buffer.unit(*logical).is_none();
            let all = 0..self.map.shape.superblocks(self.logical_pages);
            let best = all
                .filter(unbuffered)
                .map(|logical| (value(logical), logical))
                .max();
            let Some((1.., logical)) = best else {
                return Ok(());
            };
            self.collect_until(self.gc.threshold + 1)?;
            // Collecting may have done it.
            if self.map.mapping.gain(logical) > 0 {
                let copied = self.write_superblock(&self.whole(logical), Cause::Convert)?;
                self.map.cost.note_reorganisation(copied);
            }
        }
        Ok(())
    }

    /// Appends everything to the journal that is in RAM alone. A device that takes no more writes
    /// has room for that.
    pub(super) fn write_journal(&mut self) -> Result<(), FtlError> {
        while self.map.buffer.first_fresh().is_some() {
            match self.make_room(COMMON) {
                Err(FtlError::ReadOnly(_)) => {}
                other => other?,
            }
            // Making room may have flushed it.
            let Some(lpn) = self.map.buffer.first_fresh() else {
                break;
            };
            let slot = self
                .map
                .buffer
                .get(lpn)
                .and_then(|entry| entry.slot())
                .expect("what is fresh is in RAM");
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
            self.now_on_flash(lpn, ppn, ver);
            debug_assert!(
                self.map.buffer.first_fresh() != Some(lpn),
                "logical page {lpn} is in the journal and in RAM alone"
            );
        }
        Ok(())
    }
}
