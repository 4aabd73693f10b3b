//! Folding: the valid pages of blocks in SLC mode are copied to the other blocks.
//!
//! Streams of the host fill the region first. A stream that needs a block there finds one erased,
//! or folds a victim: `slc.victim` chooses it. Copies of GC never enter the region. With
//! `slc.full=direct` nothing is folded for a write: while the region has no erased block, streams
//! of the host open other blocks. In idle time blocks are folded until half of the region is
//! erased.
//!
//! Invariants: before each fold, GC makes room for its copies; the victim is released like any
//! other, so it is erased only when no copy can be lost. If power fails, mount finds a block with
//! its pages, some of them also elsewhere with an equal version. Without a victim, or room for its
//! pages, the stream opens another block: a region whose blocks all went bad stops no write.

use super::collector::GarbageCollect;
use super::placement::PLACEMENT_PARAM;
use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
use crate::space::Space;
use nand_model::{Cause, Pbn, Profile};

/// The parameter of the choice, for the tables of schemes.
pub(crate) const VICTIM_PARAM: ParamDoc = ParamDoc {
    key: "slc.victim",
    help: "with an SLC region, the block folded next: fifo (default), the one opened first, or greedy, the one with the fewest valid pages",
};

/// The parameter of writes without an erased block, for the tables of schemes.
pub(crate) const FULL_PARAM: ParamDoc = ParamDoc {
    key: "slc.full",
    help: "writes while the SLC region has no erased block: fold (default) a block first, or direct, to the other blocks",
};

/// Erased blocks of the region that a write finds.
const KEPT: u32 = 1;

/// Released blocks of the region that may wait for their erase before padding is programmed for
/// them.
const MAX_WAITING: u32 = 2;

/// Rules of folding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fold {
    is_fifo: bool,
    is_direct: bool,
}

/// Returns the rules that the parameters select; `None` without a region.
///
/// # Errors
/// [`FtlError::Config`] if a parameter has a wrong value, or makes no sense on this device. `lanes`
/// are the blocks that streams of the host, and of copies alone, keep open.
pub(crate) fn from_params(
    params: &Params,
    profile: &Profile,
    lanes: (u32, u32),
) -> Result<Option<Fold>, FtlError> {
    let is_fifo = params.choice(VICTIM_PARAM.key, "fifo", "greedy")?;
    let is_fold = params.choice(FULL_PARAM.key, "fold", "direct")?;
    if profile.slc.is_none() {
        let given = [(VICTIM_PARAM.key, is_fifo), (FULL_PARAM.key, is_fold)];
        return match given.into_iter().find(|(_, is_default)| !is_default) {
            None => Ok(None),
            Some((key, _)) => Err(FtlError::Config(format!(
                "parameter {key}: the device has no SLC region; make it with --slc-region, or with \
                 [slc_mode] of a device file, or leave the parameter out"
            ))),
        };
    }
    let (host, copies) = lanes;
    if copies == 0 {
        return Err(FtlError::Config(format!(
            "parameter {}: with an SLC region copies need a stream of their own; choose \
             copies_apart",
            PLACEMENT_PARAM.key
        )));
    }
    let placement: String = params.get(PLACEMENT_PARAM.key, String::new())?;
    if placement == "midas" {
        return Err(FtlError::Config(format!(
            "parameter {}: midas has no groups for blocks in SLC mode; leave --slc-region out, or \
             choose another placement",
            PLACEMENT_PARAM.key
        )));
    }
    // Open blocks, blocks that wait for their erase, one erased block, one to fold.
    let (needed, there) = (host + MAX_WAITING + 2, profile.slc_blocks());
    if profile.geometry.blocks > 0 && there < needed {
        return Err(FtlError::Config(format!(
            "an SLC region of {there} of {} blocks: {host} open at a time need {needed}; choose a \
             larger region, or a larger device",
            profile.geometry.blocks
        )));
    }
    Ok(Some(Fold {
        is_fifo,
        is_direct: !is_fold,
    }))
}

impl Fold {
    /// Returns the block to fold next. Looks at every block of the region: once per fold.
    fn victim(self, space: &Space) -> Option<Pbn> {
        let table = &space.table;
        table.foldable().min_by_key(|block| {
            let valid = table.valid_count(*block);
            // A block without valid pages costs nothing.
            let cost = if self.is_fifo { valid.min(1) } else { valid };
            (cost, table.epoch(*block))
        })
    }
}

/// Folds blocks until a stream of the host finds an erased one in the region. Returns without one
/// if none can be folded.
pub(crate) fn make_room<F: GarbageCollect>(ftl: &mut F) -> Result<(), FtlError> {
    let (space, gc) = ftl.parts();
    match gc.fold {
        Some(fold) if !fold.is_direct && space.free_slc_blocks() < KEPT => {
            ftl.stalled_by(Cause::Fold, |ftl| make_blocks(ftl, fold))
        }
        _ => Ok(()),
    }
}

fn make_blocks<F: GarbageCollect>(ftl: &mut F, fold: Fold) -> Result<(), FtlError> {
    loop {
        let (space, gc) = ftl.parts();
        space.erase_released(Cause::Gc)?;
        if space.free_slc_blocks() >= KEPT {
            return Ok(());
        }
        let wanted = gc.threshold + 1;
        let waiting = space.released_slc_blocks();
        if waiting <= MAX_WAITING {
            ftl.run_gc_until(wanted)?;
            if let Some(victim) = fold.victim(ftl.parts().0)
                && ftl.relocate_whole_block(victim, Cause::Fold)?.is_some()
            {
                continue;
            }
        }
        let space = ftl.parts().0;
        if space.released_slc_blocks() == 0 {
            return Ok(());
        }
        space.pad_released()?;
    }
}

/// Folds one block in idle time, if less than half of the region is erased. Returns the number of
/// copied pages.
pub(crate) fn when_idle<F: GarbageCollect>(ftl: &mut F) -> Result<Option<u32>, FtlError> {
    let (space, gc) = ftl.parts();
    let Some(fold) = gc.fold else { return Ok(None) };
    let ready = space.free_slc_blocks() + space.released_slc_blocks();
    if ready >= space.flash.chip().slc_blocks() / 2 || space.free_blocks() <= gc.threshold {
        return Ok(None);
    }
    match fold.victim(space) {
        Some(victim) => ftl.relocate_whole_block(victim, Cause::Fold),
        None => Ok(None),
    }
}
