//! The state of GC, and the choice of a victim.

use super::fold::Fold;
use super::pace::Pace;
use super::policy::{Candidates, Policy};
use super::scrub::Scrub;
use super::settings::Settings;
use crate::author::contract;
use crate::copy::CopyBuffer;
use crate::error::FtlError;
use crate::space::Space;
use crate::stats::SchemeStats;
use crate::wear::ColdToWorn;
use nand_model::{Cause, Geometry, Pbn};

/// Thresholds, progress and counters of GC.
pub(crate) struct GcState {
    /// Free blocks that GC maintains, besides those kept for a mount.
    pub(crate) threshold: u32,
    /// Free blocks below which no deferrable work starts.
    pub(crate) reserve: u32,
    /// Valid pages in relocation.
    pub(crate) pages: CopyBuffer,
    /// Whether a checkpoint is stored in cells that need a refresh.
    pub(crate) wants_checkpoint: bool,
    pub(super) wear: Option<ColdToWorn>,
    pub(super) scrub: Scrub,
    /// Erases at the last check of wear.
    pub(super) erases_seen: u64,
    pub(super) read_only: Option<&'static str>,
    pub(super) runs: u64,
    pub(super) moved: u64,
    /// Progress of paced GC; `None` if GC runs at once.
    pub(crate) pace: Option<Pace>,
    /// Rules of folding; `None` without blocks in SLC mode.
    pub(crate) fold: Option<Fold>,
    /// A block that is emptied in parts, and its pages relocated so far.
    pub(super) partly: Option<(Pbn, u32)>,
    pub(super) wear_moves: u64,
    pub(super) refreshed: u64,
    /// Whether recent GC runs freed no block, or the reserve is in use: then the victim is the
    /// block with the fewest valid pages.
    pub(super) is_short: bool,
    /// Whether recent GC runs freed no block.
    pub(super) is_futile: bool,
}

impl GcState {
    pub(crate) fn new(geometry: &Geometry, settings: &Settings, reserve: u32) -> Self {
        GcState {
            threshold: settings.free_threshold - settings.kept_for_mount,
            reserve,
            pages: CopyBuffer::new(geometry),
            wants_checkpoint: false,
            wear: settings.wear,
            scrub: settings.scrub,
            erases_seen: 0,
            read_only: None,
            runs: 0,
            moved: 0,
            pace: None,
            fold: None,
            partly: None,
            wear_moves: 0,
            refreshed: 0,
            is_short: false,
            is_futile: false,
        }
    }

    /// Begins a session of the device.
    pub(crate) fn begin_session(&mut self, space: &Space) {
        self.scrub.begin(space);
    }

    /// Returns the victim of the policy; without one, the emptiest block. Returns that too if the
    /// policy has no victim, its victim frees nothing, or the device cannot wait.
    pub(crate) fn victim(&self, space: &mut Space, policy: Option<&mut dyn Policy>) -> Option<Pbn> {
        let emptiest = space.table.greedy_victim()?;
        let Some(policy) = policy else {
            return Some(emptiest);
        };
        // A victim without valid pages costs nothing. A device short of blocks takes the victim
        // that frees most. So does a mount, because another power cut costs it the blocks that it
        // opened.
        if space.table.valid_count(emptiest) == 0 || self.is_short || space.is_mounting() {
            return Some(emptiest);
        }
        let chip = space.flash.chip();
        let candidates = Candidates {
            table: &space.table,
            erases: &|block| chip.erase_count(block),
        };
        // A policy may come from another crate, so only collectable blocks with an invalid page
        // qualify.
        let pays = |block: &Pbn| {
            contract::check(candidates.contains(*block), contract::CHOOSE_VICTIM, || {
                format!("it chose block {block}")
            });
            candidates.contains(*block) && space.table.valid_count(*block) < space.pages_per_block()
        };
        let chosen = policy.choose_victim(&candidates);
        chosen.filter(pays).or(Some(emptiest))
    }

    /// Returns whether the device is read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.is_some()
    }

    /// Returns an error if the device is read-only.
    #[inline]
    pub(crate) fn refuse_if_read_only(&self) -> Result<(), FtlError> {
        self.read_only
            .map_or(Ok(()), |reason| Err(FtlError::ReadOnly(reason)))
    }

    /// Counts a GC run of the scheme itself, which relocated `moved` pages.
    pub(crate) fn note_run(&mut self, moved: u64) {
        self.runs += 1;
        self.moved += moved;
    }

    /// Returns whether recent GC runs freed no block.
    pub(crate) fn is_futile(&self) -> bool {
        self.is_futile
    }

    /// Makes the device read-only for this reason, and returns it as an error.
    #[cold]
    pub(crate) fn end_writes(&mut self, reason: &'static str) -> Result<(), FtlError> {
        self.read_only = Some(reason);
        Err(FtlError::ReadOnly(reason))
    }

    /// Makes the device read-only: too few good blocks are left. Returns that as an error.
    #[cold]
    pub(crate) fn end_life(&mut self) -> Result<(), FtlError> {
        self.end_writes("end of life: too few good blocks")
    }

    /// Makes the device read-only if work ended so. Then that is no error: reads still work.
    pub(crate) fn stay_readable(&mut self, outcome: Result<(), FtlError>) -> Result<(), FtlError> {
        match outcome {
            Err(FtlError::ReadOnly(reason)) => {
                self.read_only = Some(reason);
                Ok(())
            }
            other => other,
        }
    }

    /// Counts pages of this block that a part of a GC run, or of another relocation, moved.
    pub(crate) fn note_relocated(&mut self, block: Pbn, pages: u32, cause: Cause) {
        self.moved += if cause == Cause::Gc { pages as u64 } else { 0 };
        let earlier = self
            .partly
            .filter(|(partly, _)| *partly == block)
            .map_or(0, |(_, pages)| pages);
        self.partly = Some((block, earlier + pages));
    }

    /// Returns `others` with the counters of GC.
    pub(crate) fn stats(&self, others: SchemeStats) -> SchemeStats {
        SchemeStats {
            gc_runs: self.runs,
            gc_pages_moved: self.moved,
            wear_moves: self.wear_moves,
            refreshes: self.refreshed,
            read_only: self.read_only,
            ..others
        }
    }
}
