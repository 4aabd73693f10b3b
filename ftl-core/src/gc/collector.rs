//! GC, wear levelling, refresh and scrub, for every scheme that may put its pages anywhere. The
//! loops are here; the scheme chooses the victim, estimates the blocks for its pages, and relocates
//! them.
//!
//! Invariants: a block is released only when all its valid pages are relocated. It is erased only
//! when no copy can be lost ([`Space::erase_released`]). If power fails before the erase, the block
//! still has its pages.

use super::state::GcState;
use super::{fold, pace};
use crate::block_table::State;
use crate::error::FtlError;
use crate::events::EventKind;
use crate::space::Space;
use nand_model::{Cause, Pbn};

/// Largest number of cold blocks relocated at a time, after a burst of erases.
const MAX_WEAR_MOVES: u64 = 4;

/// A scheme with GC of single blocks.
pub(crate) trait GarbageCollect: Sized {
    /// Returns the space and the GC state.
    fn parts(&mut self) -> (&mut Space, &mut GcState);

    /// Runs work of this cause. If a host write waits for it, the time counts as a stall.
    fn stalled_by<R>(&mut self, cause: Cause, work: impl FnOnce(&mut Self) -> R) -> R {
        let space = self.parts().0;
        let begun = space.stalls.begin(space.flash.now());
        let result = work(self);
        let space = self.parts().0;
        space.stalls.end(begun, space.flash.now(), cause);
        result
    }

    /// Returns the free blocks that relocating this block's valid pages may take.
    fn blocks_to_move(&self, victim: Pbn) -> u32;

    /// Returns the block whose GC frees most for its cost, if any is worth it.
    fn select_victim(&mut self) -> Result<Option<Pbn>, FtlError>;

    /// Returns whether emptying this block frees more space than it takes.
    fn frees_space(&mut self, victim: Pbn) -> bool {
        let space = self.parts().0;
        space.table.valid_count(victim) < space.pages_per_block()
    }

    /// Makes sure that the valid pages of a full block can be relocated, whatever its role. A
    /// unit's open block is sealed first. Returns false if the pages cannot be relocated.
    fn prepare_victim(&mut self, block: Pbn) -> Result<bool, FtlError>;

    /// Runs a relocation, during which this block is no victim. If it fails, the block is a victim
    /// again, provided that it was one and is still full.
    fn withdrawn(
        &mut self,
        victim: Pbn,
        relocate: impl FnOnce(&mut Self) -> Result<u32, FtlError>,
    ) -> Result<u32, FtlError> {
        let table = &mut self.parts().0.table;
        assert!(
            table.is_in_use(victim),
            "block {victim} is not in use, so it has no pages to relocate"
        );
        let collectable = table.withdraw(victim);
        let moved = relocate(self);
        let table = &mut self.parts().0.table;
        if moved.is_err() && collectable && table.state(victim) == State::Full {
            table.set_collectable(victim);
        }
        moved
    }

    /// Relocates every valid page of a full block. Returns their number.
    fn relocate_valid(&mut self, victim: Pbn, cause: Cause) -> Result<u32, FtlError>;

    /// Relocates at most `most` valid pages of a victim, which stays one. Returns their number, 0
    /// if it would take a block of the reserve. Only a scheme with `gc.pace` does.
    fn relocate_first(&mut self, _: Pbn, _: u32, _: Cause) -> Result<u32, FtlError> {
        Ok(0)
    }

    /// Runs GC on several blocks at once, if a scheme places pages in groups and that frees more
    /// than one block would. Returns whether it did. Failing blocks come first.
    fn gc_group(&mut self) -> Result<bool, FtlError> {
        Ok(false)
    }

    /// Releases a block without valid pages.
    fn release_block(&mut self, block: Pbn) {
        self.parts().0.release(block);
    }

    /// Makes the pages of this block, which are cold and about to be relocated, go to a worn block
    /// of their own.
    fn use_worn_block(&mut self, block: Pbn) -> Result<(), FtlError>;

    /// Does the work of the controller's `gc_until`.
    fn run_gc_until(&mut self, wanted: u32) -> Result<(), FtlError> {
        let (space, gc) = self.parts();
        space.erase_released(Cause::Gc)?;
        (gc.is_short, gc.is_futile) = (false, false);
        let (mut most, mut futile) = (0, 0);
        loop {
            let (space, gc) = self.parts();
            let (free, waiting, reserve) =
                (space.free_blocks(), space.released_blocks(), gc.reserve);
            let besides_kept = space.free_besides_kept();
            if besides_kept >= wanted && space.failing_block().is_none() {
                (gc.is_short, gc.is_futile) = (false, false);
                return Ok(());
            }
            let needs = space
                .table
                .greedy_victim()
                .map_or(0, |victim| self.blocks_to_move(victim));
            let space = self.parts().0;
            // Padding after each GC run may use all the space that the run frees. Then several runs
            // share one padding.
            let patient = futile > space.geometry().pages_per_block;
            if space.should_pad_released(wanted, reserve, needs, patient) {
                space.pad_released()?;
                space.erase_released(Cause::Gc)?;
                space.give_back_kept_blocks();
                continue;
            }
            let gained = besides_kept + waiting;
            futile = if gained > most { 0 } else { futile + 1 };
            most = most.max(gained);
            // After this many futile GC runs, no space is left to free.
            let pages = space.geometry().pages_per_block;
            let endless = futile > 2 * pages;
            let gc = self.parts().1;
            gc.is_futile = futile > u32::max(pages / 4, 8);
            gc.is_short = free < reserve || gc.is_futile;
            if endless || !(self.gc_group()? || self.gc_one()?) {
                if !endless && self.parts().0.borrow_kept_blocks() {
                    continue;
                }
                return self.no_victim(wanted);
            }
            let space = self.parts().0;
            space.erase_released(Cause::Gc)?;
            space.give_back_kept_blocks();
        }
    }

    /// Handles the lack of a worthwhile victim: released blocks may still help, else the device is
    /// at its end of life. A mount does not end so, because it reserves pages of every block for
    /// padding: a victim that frees nothing during the mount may free space after it.
    #[cold]
    fn no_victim(&mut self, wanted: u32) -> Result<(), FtlError> {
        let (space, gc) = self.parts();
        space.pad_released()?;
        space.erase_released(Cause::Gc)?;
        if space.free_blocks() >= wanted.min(gc.reserve) || space.is_mounting() {
            return Ok(());
        }
        gc.end_life()
    }

    /// Relocates the valid pages of the best victim and releases it; bad blocks come first. Returns
    /// false if no block is worth it, or none can be relocated.
    fn gc_one(&mut self) -> Result<bool, FtlError> {
        let failing = self.parts().0.failing_block();
        let best = match failing {
            Some(block) => Some(block),
            None => self.select_victim()?,
        };
        let Some(victim) = best else { return Ok(false) };
        let space = self.parts().0;
        let valid = space.table.valid_count(victim);
        let worth_it = match failing {
            // `prepare_victim` runs for a failing block even if it has no valid pages.
            Some(_) => self.prepare_victim(victim)? || valid == 0,
            None => self.frees_space(victim),
        };
        if !worth_it {
            return Ok(false);
        }
        let free = self.parts().0.free_blocks();
        if self.blocks_to_move(victim) <= free {
            self.collect(victim)?;
            return Ok(true);
        }
        // A policy may have chosen a block that needs more room than there is.
        let emptiest = self.parts().0.table.greedy_victim();
        let other = emptiest.filter(|block| failing.is_none() && *block != victim);
        match other {
            Some(emptiest)
                if self.frees_space(emptiest) && self.blocks_to_move(emptiest) <= free =>
            {
                self.collect(emptiest)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Runs GC on this block. Returns the number of relocated pages.
    fn collect(&mut self, victim: Pbn) -> Result<u32, FtlError> {
        let moved = self.stalled_by(Cause::Gc, |ftl| ftl.evacuate(victim, Cause::Gc))?;
        let gc = self.parts().1;
        gc.runs += 1;
        gc.moved += moved as u64;
        Ok(moved)
    }

    /// Relocates every valid page of a block and releases it. Returns their number.
    fn evacuate(&mut self, victim: Pbn, cause: Cause) -> Result<u32, FtlError> {
        let needed = self.blocks_to_move(victim);
        let space = self.parts().0;
        let (free, began) = (space.free_blocks(), space.flash.now());
        assert!(
            free >= needed,
            "a GC run that can take {needed} blocks began with {free} free blocks"
        );
        let moved = if space.table.valid_count(victim) > 0 {
            self.relocate_valid(victim, cause)?
        } else {
            0
        };
        self.release_block(victim);
        let (space, gc) = self.parts();
        let earlier = gc
            .partly
            .take_if(|(partly, _)| *partly == victim)
            .map_or(0, |(_, pages)| pages);
        let kind = match cause {
            Cause::Wear => EventKind::WearMove,
            Cause::Refresh => EventKind::Refresh,
            Cause::Fold => EventKind::Fold,
            _ => EventKind::Gc,
        };
        space.note_event(kind, Some(victim), earlier + moved, began);
        Ok(moved)
    }

    /// Runs about `budget` flash operations of background work: GC until twice the threshold is
    /// free, refresh, scrub. Returns whether there is more to do.
    fn background_work(&mut self, budget: u32) -> Result<bool, FtlError> {
        if self.parts().1.is_read_only() {
            return Ok(false);
        }
        self.parts().0.erase_released(Cause::Gc)?;
        let mut left = budget as i64;
        while left > 0 {
            let cost = match self.idle_gc()? {
                Some(moved) => 2 * moved as i64 + 1,
                None => match fold::when_idle(self)? {
                    Some(moved) => 2 * moved as i64 + 1,
                    None => match self.refresh()? {
                        Some(moved) => 2 * moved as i64 + 1,
                        None => match self.scrub_one()? {
                            Some(read) => read as i64,
                            None => return Ok(false),
                        },
                    },
                },
            };
            self.parts().0.erase_released(Cause::Gc)?;
            left -= cost;
        }
        Ok(true)
    }

    /// Runs GC on a block ahead of need, if it has so few valid pages that later overwrites could
    /// hardly have saved its cost. Returns the number of relocated pages.
    fn idle_gc(&mut self) -> Result<Option<u32>, FtlError> {
        let (space, gc) = self.parts();
        if gc.pace.is_some() {
            return pace::when_idle(self);
        }
        let pages = space.geometry().pages_per_block;
        let (free, reserve) = (space.free_blocks(), gc.reserve);
        if free >= 2 * gc.threshold {
            return Ok(None);
        }
        match space
            .table
            .greedy_victim()
            .filter(|block| space.table.valid_count(*block) <= pages / 4)
        {
            Some(victim) if free >= reserve || self.blocks_to_move(victim) == 0 => {
                Ok(Some(self.collect(victim)?))
            }
            _ => Ok(None),
        }
    }

    /// Runs one step of scrub, wear levelling and refresh. It runs when a stream opens a block, so
    /// its cost is limited by that of the writes.
    fn maintain(&mut self) -> Result<(), FtlError> {
        self.scrub_one()?;
        if !self.level_wear()? {
            self.refresh()?;
        }
        Ok(())
    }

    /// Checks wear once per `n` erases, with `n` large enough that the search costs nothing. Each
    /// time, relocates one cold block if the gap is too wide. Returns whether it did.
    fn level_wear(&mut self) -> Result<bool, FtlError> {
        let (space, gc) = self.parts();
        let Some(policy) = gc.wear else {
            return Ok(false);
        };
        let erases = space.flash.chip().counters().erases();
        let due = (erases - gc.erases_seen) / (space.geometry().blocks as u64 / 16).max(4);
        if due == 0 {
            return Ok(false);
        }
        gc.erases_seen = erases;
        let mut levelled = false;
        for earlier in 0..due.min(MAX_WEAR_MOVES) {
            let (space, gc) = self.parts();
            let free = space.free_blocks();
            // A device near its end of life continues with the blocks that the last relocations
            // released.
            let enough = match earlier {
                0 => free > 2 && free + space.released_blocks() >= gc.reserve,
                _ => free > gc.reserve,
            };
            if !enough {
                break;
            }
            let Some(block) = policy.candidate(space) else {
                break;
            };
            space.seal_block(block)?;
            let relocate = |ftl: &mut Self| ftl.relocate_block(block, Cause::Wear);
            if self.stalled_by(Cause::Wear, relocate)?.is_none() {
                break;
            }
            self.parts().1.wear_moves += 1;
            levelled = true;
        }
        Ok(levelled)
    }

    /// Starts the relocation of a full block, whatever its role, if there is room. Returns the
    /// number of pages relocated so far.
    fn relocate_block(&mut self, block: Pbn, cause: Cause) -> Result<Option<u32>, FtlError> {
        self.relocate_whole_block(block, cause)
    }

    /// Relocates a full block at once.
    fn relocate_whole_block(&mut self, block: Pbn, cause: Cause) -> Result<Option<u32>, FtlError> {
        if !self.prepare_victim(block)? {
            return Ok(None);
        }
        if cause == Cause::Wear {
            self.use_worn_block(block)?;
        }
        let possible = self.blocks_to_move(block) <= self.parts().0.free_blocks();
        if possible {
            self.evacuate(block, cause).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Rewrites one block whose bit errors came near the ECC limit. Returns the number of relocated
    /// pages.
    #[inline]
    fn refresh(&mut self) -> Result<Option<u32>, FtlError> {
        if self.parts().0.flash.chip().blocks_to_refresh().is_empty() {
            Ok(None)
        } else {
            self.refresh_one()
        }
    }

    #[cold]
    fn refresh_one(&mut self) -> Result<Option<u32>, FtlError> {
        let (space, gc) = self.parts();
        if space.free_blocks() < gc.reserve {
            return Ok(None);
        }
        for block in super::scrub::due(space) {
            let space = self.parts().0;
            if space.table.state(block) != State::Full && !space.is_open_for_unit(block) {
                continue;
            }
            let relocate = |ftl: &mut Self| ftl.relocate_block(block, Cause::Refresh);
            if let Some(moved) = self.stalled_by(Cause::Refresh, relocate)? {
                self.parts().1.refreshed += 1;
                return Ok(Some(moved));
            }
        }
        Ok(None)
    }

    /// Reads the next due block, so that the chip can check its cells. Returns the number of pages.
    #[inline]
    fn scrub_one(&mut self) -> Result<Option<u32>, FtlError> {
        let (space, gc) = self.parts();
        let Some(block) = gc.scrub.next(space) else {
            return Ok(None);
        };
        Ok(Some(gc.pages.scan_block(space, block, Cause::Refresh)?))
    }
}
