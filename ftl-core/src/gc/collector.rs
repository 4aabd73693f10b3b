//! Collection, wear levelling, refreshing and patrol reads, for every scheme whose pages may lie
//! anywhere. Here are the loops; the scheme says which block is worth it, what moving it takes, and
//! how its pages move.
//!
//! What always holds: a block is released only when all its live pages are elsewhere, and erased
//! only when no copy can be lost ([`Space::reclaim`]). If power fails meanwhile, the block is still
//! there.

use super::policy::{Candidates, VictimPolicy};
use super::scrub::Scrub;
use crate::block_table::State;
use crate::copy::CopyBuffer;
use crate::error::FtlError;
use crate::events::EventKind;
use crate::space::Space;
use crate::stats::SchemeStats;
use crate::wear::ColdToWorn;
use nand_model::{Cause, Geometry, Pbn, Store};

/// Cold blocks that may be moved at a time, after a burst of erases.
const MAX_WEAR_MOVES: u64 = 4;

/// Thresholds, progress and counters of a collector.
pub(crate) struct Gc {
    /// Free blocks that collection keeps.
    pub(crate) threshold: u32,
    /// Free blocks below which nothing is begun that can wait.
    pub(crate) reserve: u32,
    /// Live pages on their way.
    pub(crate) pages: CopyBuffer,
    /// A checkpoint lies in cells that should be written anew.
    pub(crate) wants_checkpoint: bool,
    wear: Option<ColdToWorn>,
    scrub: Scrub,
    /// Erases when wear was last looked at.
    erases_seen: u64,
    read_only: Option<&'static str>,
    runs: u64,
    moved: u64,
    /// A block that is emptied in parts, and how many of its pages were moved so far.
    partly: Option<(Pbn, u32)>,
    wear_moves: u64,
    refreshed: u64,
    /// Chooses the victim; `None` is greedy.
    policy: Option<Box<dyn VictimPolicy>>,
    /// Recent collections freed no block: the victim is the block with the fewest valid pages.
    is_short: bool,
}

impl Gc {
    pub(crate) fn new(
        geometry: &Geometry,
        threshold: u32,
        reserve: u32,
        wear: Option<ColdToWorn>,
        scrub: Scrub,
    ) -> Self {
        Gc {
            threshold,
            reserve,
            pages: CopyBuffer::new(geometry),
            wants_checkpoint: false,
            wear,
            scrub,
            erases_seen: 0,
            read_only: None,
            runs: 0,
            moved: 0,
            partly: None,
            wear_moves: 0,
            refreshed: 0,
            policy: None,
            is_short: false,
        }
    }

    /// The block is chosen by this policy, not greedily.
    pub(crate) fn set_policy<S: Store>(
        &mut self,
        policy: Option<Box<dyn VictimPolicy>>,
        space: &mut Space<S>,
    ) {
        if policy.as_ref().is_some_and(|policy| policy.wants_order()) {
            space.table.keep_order_of_closing();
        }
        self.policy = policy;
    }

    /// The block that the policy says; the emptiest where it says none, or that one gives nothing
    /// or cannot wait.
    pub(crate) fn victim<S: Store>(&mut self, space: &mut Space<S>) -> Option<Pbn> {
        let emptiest = space.table.greedy_victim()?;
        let Some(policy) = &mut self.policy else {
            return Some(emptiest);
        };
        // What is dead costs nothing; and a device that runs short takes what helps most. So does a
        // mount: another cut costs it the blocks that it has opened.
        if space.table.valid(emptiest) == 0 || self.is_short || space.is_mounting() {
            return Some(emptiest);
        }
        let chip = space.flash.chip();
        let candidates = Candidates {
            table: &space.table,
            erases: &|block| chip.erase_count(block),
        };
        // A policy may come from outside: only a block that may be collected is.
        let pays = |block: &Pbn| {
            block.raw() < space.geometry().blocks
                && space.table.is_collectable(*block)
                && space.table.valid(*block) < space.pages_per_block()
        };
        policy.choose(&candidates).filter(pays).or(Some(emptiest))
    }

    /// Whether the device takes no writes any more.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.is_some()
    }

    /// An error if the device takes no writes any more.
    #[inline]
    pub(crate) fn refuse_if_read_only(&self) -> Result<(), FtlError> {
        self.read_only
            .map_or(Ok(()), |reason| Err(FtlError::ReadOnly(reason)))
    }

    /// A scheme collected by itself and moved so many pages.
    pub(crate) fn note_run(&mut self, moved: u64) {
        self.runs += 1;
        self.moved += moved;
    }

    /// From now on the device takes no writes.
    pub(crate) fn set_read_only(&mut self, reason: &'static str) {
        self.read_only = Some(reason);
    }

    /// Pages of this block were moved by a part of a collection, or of another move.
    pub(crate) fn note_moved(&mut self, block: Pbn, pages: u32, cause: Cause) {
        self.moved += if cause == Cause::Gc { pages as u64 } else { 0 };
        let earlier = self
            .partly
            .filter(|(partly, _)| *partly == block)
            .map_or(0, |(_, pages)| pages);
        self.partly = Some((block, earlier + pages));
    }

    /// `others` with what was counted here.
    pub(crate) fn stats(&self, others: SchemeStats) -> SchemeStats {
        SchemeStats {
            gc_runs: self.runs,
            gc_pages_moved: self.moved,
            wear_moves: self.wear_moves,
            refreshes: self.refreshed,
            reserve_blocks: self.threshold,
            read_only: self.read_only,
            ..others
        }
    }
}

/// A scheme whose blocks are collected one by one.
pub(crate) trait Collect<S: Store> {
    /// What collection works on.
    fn parts(&mut self) -> (&mut Space<S>, &mut Gc);

    /// Free blocks that moving this block's live pages may take.
    fn blocks_to_move(&self, victim: Pbn) -> u32;

    /// The block whose collection pays best, if any is worth it.
    fn best_victim(&mut self) -> Result<Option<Pbn>, FtlError>;

    /// Whether emptying this block gives more room than it takes.
    fn pays(&mut self, victim: Pbn) -> bool {
        let space = self.parts().0;
        space.table.valid(victim) < space.pages_per_block()
    }

    /// Makes sure that the live pages of a full block can be moved, whatever it is for; a unit's
    /// open block takes no more pages from now on. False if they cannot.
    fn prepare(&mut self, block: Pbn) -> Result<bool, FtlError>;

    /// Moves every live page of a full block elsewhere. Returns how many were moved.
    fn move_live_pages(&mut self, victim: Pbn, cause: Cause) -> Result<u32, FtlError>;

    /// Collects several blocks at once, where a scheme places pages in groups and that pays better
    /// than one block would. Returns whether it did. Failing blocks come first.
    fn collect_together(&mut self) -> Result<bool, FtlError> {
        Ok(false)
    }

    /// A block without live pages goes.
    fn give_up(&mut self, block: Pbn) {
        self.parts().0.release(block);
    }

    /// What this block holds is cold and about to be moved: it deserves a worn block of its own.
    fn set_cold_apart(&mut self, block: Pbn) -> Result<(), FtlError>;

    /// Collects until so many blocks are free and no bad one holds live pages.
    fn collect_until(&mut self, wanted: u32) -> Result<(), FtlError> {
        let (space, gc) = self.parts();
        space.reclaim(Cause::Gc)?;
        gc.is_short = false;
        let (mut most, mut futile) = (0, 0);
        loop {
            let (space, gc) = self.parts();
            let (free, waiting, reserve) =
                (space.free_blocks(), space.released_blocks(), gc.reserve);
            if free >= wanted && space.failing_block().is_none() {
                return Ok(());
            }
            let needs = space
                .table
                .greedy_victim()
                .map_or(0, |victim| self.blocks_to_move(victim));
            let space = self.parts().0;
            // Filler after each collection may take all that it gives: then several share one.
            let patient = futile > space.geometry().pages_per_block;
            if space.should_hurry(wanted, reserve, needs, patient) {
                space.hurry()?;
                space.reclaim(Cause::Gc)?;
                continue;
            }
            futile = if free + waiting > most { 0 } else { futile + 1 };
            most = most.max(free + waiting);
            // Space that so many collections could not free is not there.
            let pages = space.geometry().pages_per_block;
            let endless = futile > 2 * pages;
            self.parts().1.is_short = free < reserve || futile > u32::max(pages / 4, 8);
            if endless || !(self.collect_together()? || self.collect_one()?) {
                return self.no_victim(wanted);
            }
            self.parts().0.reclaim(Cause::Gc)?;
        }
    }

    /// Nothing can be collected with profit: released blocks may still help, else the device is at
    /// its end. Not so amid a mount, which keeps pages of every block back for filler: what does
    /// not pay then may pay at its end.
    #[cold]
    fn no_victim(&mut self, wanted: u32) -> Result<(), FtlError> {
        let (space, gc) = self.parts();
        space.hurry()?;
        space.reclaim(Cause::Gc)?;
        if space.free_blocks() >= wanted.min(gc.reserve) || space.is_mounting() {
            return Ok(());
        }
        gc.set_read_only("too few good blocks are left");
        gc.refuse_if_read_only()
    }

    /// Moves the live pages of the best victim and releases it; bad blocks come first. False if no
    /// block is worth it, or none can be moved.
    fn collect_one(&mut self) -> Result<bool, FtlError> {
        let failing = self.parts().0.failing_block();
        let best = match failing {
            Some(block) => Some(block),
            None => self.best_victim()?,
        };
        let Some(victim) = best else { return Ok(false) };
        let space = self.parts().0;
        let live = space.table.valid(victim);
        let worth_it = match failing {
            // A scheme has to hear of it also when nothing lives there any more.
            Some(_) => self.prepare(victim)? || live == 0,
            None => self.pays(victim),
        };
        if !worth_it {
            return Ok(false);
        }
        let free = self.parts().0.free_blocks();
        if self.blocks_to_move(victim) <= free {
            self.collect(victim)?;
            return Ok(true);
        }
        // A policy may have chosen a block that takes more room than there is.
        let emptiest = self.parts().0.table.greedy_victim();
        let other = emptiest.filter(|block| failing.is_none() && *block != victim);
        match other {
            Some(emptiest) if self.pays(emptiest) && self.blocks_to_move(emptiest) <= free => {
                self.collect(emptiest)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Collects this block. Returns how many pages were moved.
    fn collect(&mut self, victim: Pbn) -> Result<u32, FtlError> {
        let moved = self.evacuate(victim, Cause::Gc)?;
        let gc = self.parts().1;
        gc.runs += 1;
        gc.moved += moved as u64;
        Ok(moved)
    }

    /// Moves every live page out of a block and releases it. Returns how many were moved.
    fn evacuate(&mut self, victim: Pbn, cause: Cause) -> Result<u32, FtlError> {
        let needed = self.blocks_to_move(victim);
        let space = self.parts().0;
        let (free, began) = (space.free_blocks(), space.flash.now());
        assert!(
            free >= needed,
            "a collection that may take {needed} blocks was begun with {free} free ones"
        );
        let moved = if space.table.valid(victim) > 0 {
            self.move_live_pages(victim, cause)?
        } else {
            0
        };
        self.give_up(victim);
        let (space, gc) = self.parts();
        let earlier = gc
            .partly
            .take_if(|(partly, _)| *partly == victim)
            .map_or(0, |(_, pages)| pages);
        let kind = match cause {
            Cause::Wear => EventKind::WearMove,
            Cause::Refresh => EventKind::Refresh,
            _ => EventKind::Collect,
        };
        space.note_event(kind, Some(victim), earlier + moved, began);
        Ok(moved)
    }

    /// Background work of about `budget` flash operations: collects until twice the threshold is
    /// free, refreshes, patrols. Returns whether there is more to do.
    fn work_ahead(&mut self, budget: u32) -> Result<bool, FtlError> {
        if self.parts().1.is_read_only() {
            return Ok(false);
        }
        self.parts().0.reclaim(Cause::Gc)?;
        let mut left = budget as i64;
        while left > 0 {
            let cost = match self.collect_ahead()? {
                Some(moved) => 2 * moved as i64 + 1,
                None => match self.refresh()? {
                    Some(moved) => 2 * moved as i64 + 1,
                    None => match self.patrol()? {
                        Some(read) => read as i64,
                        None => return Ok(false),
                    },
                },
            };
            self.parts().0.reclaim(Cause::Gc)?;
            left -= cost;
        }
        Ok(true)
    }

    /// Collects a block ahead of need, if one costs so little that a later overwrite could not have
    /// emptied it for nothing. Returns how many pages were moved.
    fn collect_ahead(&mut self) -> Result<Option<u32>, FtlError> {
        let (space, gc) = self.parts();
        let pages = space.geometry().pages_per_block;
        let (free, reserve) = (space.free_blocks(), gc.reserve);
        if free >= 2 * gc.threshold {
            return Ok(None);
        }
        match space
            .table
            .greedy_victim()
            .filter(|block| space.table.valid(*block) <= pages / 4)
        {
            Some(victim) if free >= reserve || self.blocks_to_move(victim) == 0 => {
                Ok(Some(self.collect(victim)?))
            }
            _ => Ok(None),
        }
    }

    /// One step of what keeps the cells good, whenever a stream opens a block: so it costs no more
    /// than the writes do.
    fn upkeep(&mut self) -> Result<(), FtlError> {
        self.patrol()?;
        if !self.level_wear()? {
            self.refresh()?;
        }
        Ok(())
    }

    /// Looks at wear once per so many erases that the search costs nothing, and moves one cold
    /// block each time if the gap is too wide. Returns whether it did.
    fn level_wear(&mut self) -> Result<bool, FtlError> {
        let (space, gc) = self.parts();
        let Some(policy) = gc.wear else {
            return Ok(false);
        };
        let erases = space.flash.chip().counters().total().erases;
        let due = (erases - gc.erases_seen) / (space.geometry().blocks as u64 / 16).max(4);
        if due == 0 {
            return Ok(false);
        }
        gc.erases_seen = erases;
        let mut levelled = false;
        for earlier in 0..due.min(MAX_WEAR_MOVES) {
            let (space, gc) = self.parts();
            let free = space.free_blocks();
            // A device near its end goes on with what the last moves gave up.
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
            if self.renew(block, Cause::Wear)?.is_none() {
                break;
            }
            self.parts().1.wear_moves += 1;
            levelled = true;
        }
        Ok(levelled)
    }

    /// Sees to it that the content of a full block moves to another one, whatever it is for, if
    /// there is room. Returns how many pages were moved.
    fn renew(&mut self, block: Pbn, cause: Cause) -> Result<Option<u32>, FtlError> {
        self.renew_whole(block, cause)
    }

    /// Does that at once.
    fn renew_whole(&mut self, block: Pbn, cause: Cause) -> Result<Option<u32>, FtlError> {
        if !self.prepare(block)? {
            return Ok(None);
        }
        if cause == Cause::Wear {
            self.set_cold_apart(block)?;
        }
        let possible = self.blocks_to_move(block) <= self.parts().0.free_blocks();
        if possible {
            self.evacuate(block, cause).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Writes the data of one block anew whose bits came near to what can be corrected. Returns how
    /// many pages were moved.
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
            if let Some(moved) = self.renew(block, Cause::Refresh)? {
                self.parts().1.refreshed += 1;
                return Ok(Some(moved));
            }
        }
        Ok(None)
    }

    /// Reads one block whose turn has come, for the chip to say how good its cells are. Returns how
    /// many pages.
    #[inline]
    fn patrol(&mut self) -> Result<Option<u32>, FtlError> {
        let (space, gc) = self.parts();
        let Some(block) = gc.scrub.next(space) else {
            return Ok(None);
        };
        Ok(Some(gc.pages.look_at(space, block, Cause::Refresh)?))
    }
}
