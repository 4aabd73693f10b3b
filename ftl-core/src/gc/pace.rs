//! When the pages of a victim are relocated: `gc.pace`.
//!
//! - `at_once` (default): all of them, before the write that needs a free block.
//! - `even`: some after every host write, as soon as there are no more free blocks than GC keeps
//!   and [`HEADROOM`]. A victim of P pages, v of them valid, gains P - v pages. So GC keeps up with
//!   the host if it relocates v / (P - v) pages per page written, and that times the number of
//!   missing blocks if it fell behind. The write does not wait for these copies; a later request
//!   may, for those that its die still has to do. In idle time it relocates one page at a time.
//!
//! Invariants: each step is bounded by the pages that the host has just written. An unfinished
//! victim keeps its other pages and stays a victim, so any GC run may finish it; a write that finds
//! too few free blocks still runs GC at once. If power fails, mount finds copies of equal version.

use super::collector::GarbageCollect;
use crate::block_table::State;
use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
use nand_model::{Cause, Pbn};

/// The parameter, for the tables of schemes.
pub(crate) const PARAM: ParamDoc = ParamDoc {
    key: "gc.pace",
    help: "when a victim's pages are relocated: at_once (default), before the write that needs a block, or even, some after every write and page by page in idle time",
};

/// Free or released blocks, beyond those that GC keeps, below which pages are relocated: the one
/// that the next write needs, and one that waits for its erase.
const HEADROOM: u32 = 2;

/// Most relocated pages per page written, in times of those that keep up.
const MOST_BEHIND: u32 = 4;

/// Progress of paced GC.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    victim: Option<Victim>,
    /// Pages to relocate, times the gain of the victim.
    owed: u64,
}

/// A block that is being emptied.
#[derive(Clone, Copy, Debug)]
struct Victim {
    block: Pbn,
    /// Its allocation number: the block may be emptied and used again meanwhile.
    epoch: u64,
    /// Valid pages at the beginning.
    valid: u32,
}

/// Returns the pace that the parameters select; `None` is `at_once`.
pub(crate) fn from_params(params: &Params) -> Result<Option<Pace>, FtlError> {
    let is_default = params.choice(PARAM.key, "at_once", "even")?;
    Ok((!is_default).then(Pace::default))
}

/// Relocates the pages that are due after the host wrote this number of pages.
#[cold]
pub(crate) fn after_write<F: GarbageCollect>(ftl: &mut F, written: u32) -> Result<(), FtlError> {
    let space = ftl.parts().0;
    let done = space.flash.now();
    // The write waits for none of this.
    space.stalls.end_write();
    let erased = space.erase_released(Cause::Gc);
    let (space, gc) = ftl.parts();
    let wanted = gc.threshold + HEADROOM;
    let missing = wanted.saturating_sub(space.free_besides_kept() + space.released_blocks());
    if erased.is_err() || missing == 0 || gc.is_read_only() {
        space.flash.begin(done);
        return power_lost(erased.map(drop));
    }
    let outcome = step(ftl, |victim, pages, owed| {
        let gain = u64::from(pages - victim.valid);
        let rate = u64::from(victim.valid) * u64::from(missing.min(MOST_BEHIND));
        *owed += rate * u64::from(written);
        let due = *owed / gain;
        *owed %= gain;
        u32::try_from(due).unwrap_or(u32::MAX)
    });
    ftl.parts().0.flash.begin(done);
    power_lost(outcome.map(drop))
}

/// Returns an error only if power is lost: the write has taken effect, and the GC run that needs
/// the block reports the others.
fn power_lost(outcome: Result<(), FtlError>) -> Result<(), FtlError> {
    match outcome {
        Err(FtlError::PowerLost) => Err(FtlError::PowerLost),
        _ => Ok(()),
    }
}

/// Relocates one page in idle time. Returns the number of relocated pages, or `None` if there is
/// nothing to do.
pub(crate) fn when_idle<F: GarbageCollect>(ftl: &mut F) -> Result<Option<u32>, FtlError> {
    let (space, gc) = ftl.parts();
    if space.free_besides_kept() + space.released_blocks() >= gc.threshold + HEADROOM {
        return Ok(None);
    }
    step(ftl, |_, _, _| 1)
}

/// Relocates pages of the victim, or releases it if it has none left. `due` returns their number
/// for a victim, the pages of a block, and what is owed. Returns `None` if nothing can be done.
fn step<F: GarbageCollect>(
    ftl: &mut F,
    due: impl FnOnce(Victim, u32, &mut u64) -> u32,
) -> Result<Option<u32>, FtlError> {
    let Some(victim) = victim(ftl)? else {
        return Ok(None);
    };
    let (space, gc) = ftl.parts();
    let pages = space.pages_per_block();
    let Some(pace) = &mut gc.pace else {
        return Ok(None);
    };
    let most = due(victim, pages, &mut pace.owed);
    let valid = space.table.valid_count(victim.block);
    let mut moved = 0;
    if valid > 0 && most > 0 {
        moved = ftl.relocate_first(victim.block, most.min(valid), Cause::Gc)?;
        if moved == 0 {
            return Ok(None);
        }
        let gc = ftl.parts().1;
        gc.note_relocated(victim.block, moved, Cause::Gc);
    }
    let space = ftl.parts().0;
    if space.table.valid_count(victim.block) == 0 {
        ftl.collect(victim.block)?;
        let (space, gc) = ftl.parts();
        gc.pace = Some(Pace::default());
        space.erase_released(Cause::Gc)?;
    }
    Ok(Some(moved))
}

/// Returns the victim in progress, or the next one.
fn victim<F: GarbageCollect>(ftl: &mut F) -> Result<Option<Victim>, FtlError> {
    let (space, gc) = ftl.parts();
    let current = gc.pace.and_then(|pace| pace.victim);
    let is_current = |victim: &Victim| {
        space.table.is_collectable(victim.block)
            && space.table.state(victim.block) == State::Full
            && space.table.epoch(victim.block) == victim.epoch
    };
    if let Some(victim) = current.filter(is_current) {
        return Ok(Some(victim));
    }
    let Some(block) = ftl.select_victim()? else {
        return Ok(None);
    };
    if !ftl.frees_space(block) {
        return Ok(None);
    }
    let (space, gc) = ftl.parts();
    let victim = Victim {
        block,
        epoch: space.table.epoch(block),
        valid: space.table.valid_count(block),
    };
    if let Some(pace) = &mut gc.pace {
        pace.victim = Some(victim);
    }
    Ok(Some(victim))
}
