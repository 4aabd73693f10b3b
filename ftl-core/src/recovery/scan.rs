//! Reading the records of blocks: of each its head, of some every page.
//!
//! A block is known by its first *readable* page: a cut may have destroyed page 0. A block without
//! any readable record is blank or garbage; either way it is erased again before use, because an
//! interrupted erase may look blank and not hold.
//!
//! What a mount programmed and did not come to vouch for ([`crate::space`]) is passed over, as if
//! it were unreadable: what it was to replace is still there. A block with nothing else is garbage.
//! So a mount that was cut leaves no trace but the wear.

use super::evidence::suspects;
use super::provisional;
use crate::convert::index;
use crate::error::FtlError;
use crate::flash::Flash;
use crate::format::{Flags, Oob, Role};
use nand_model::{Bad, Cause, Pbn, Ppn, Store};

/// What the first readable page of a block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Bad from the factory: never looked at.
    Factory,
    /// No page has a readable record that counts.
    Nothing,
    /// The block's role in this life, its epoch, and whether page 0 itself was readable.
    Found {
        /// Role of the block, where trim records and pads lie among data.
        role: Role,
        /// Role of that first page.
        first: Role,
        /// Allocation number.
        epoch: u64,
        /// Sequence number of that first page.
        pseq: u64,
        /// False if page 0 is lost: the block may have been hit by the cut.
        intact: bool,
    },
}

/// Reads the head of every block. The index is the block number. `scanned` counts OOB reads.
pub(crate) fn scan_heads<S: Store>(
    flash: &mut Flash<S>,
    scanned: &mut u64,
) -> Result<Vec<Head>, FtlError> {
    let geometry = *flash.geometry();
    geometry
        .all_blocks()
        .map(|block| scan_head(flash, block, scanned))
        .collect()
}

fn scan_head<S: Store>(
    flash: &mut Flash<S>,
    block: Pbn,
    scanned: &mut u64,
) -> Result<Head, FtlError> {
    if flash.chip().bad(block) == Some(Bad::Factory) {
        return Ok(Head::Factory);
    }
    let geometry = *flash.geometry();
    // A blank check of page 0 alone ends the search for most free blocks; a torn page 0 does not
    // look blank.
    for offset in 0..flash.chip().frontier(block).max(1) {
        *scanned += 1;
        if let Some(Oob { tag, pseq, epoch }) =
            flash.read_oob(geometry.page(block, offset), Cause::Recovery)?
        {
            let counts = !tag.flags.has(Flags::PROVISIONAL)
                || is_vouched_early(flash, block, scanned)?
                || standing_pages(flash, block, scanned)?
                    .iter()
                    .any(is_content);
            if !counts {
                break;
            }
            return Ok(Head::Found {
                role: block_role(tag.role),
                first: tag.role,
                epoch,
                pseq,
                intact: offset == 0,
            });
        }
    }
    Ok(Head::Nothing)
}

/// Whether the last page that no cut can have hit was not a mount's: then what the block begins
/// with counts, without a look at all the pages between.
fn is_vouched_early<S: Store>(
    flash: &mut Flash<S>,
    block: Pbn,
    scanned: &mut u64,
) -> Result<bool, FtlError> {
    let geometry = *flash.geometry();
    let hit = suspects(flash, block)
        .map(|ppn| geometry.offset_of(ppn))
        .min();
    let Some(offset) = hit.and_then(|first| first.checked_sub(1)) else {
        return Ok(false);
    };
    *scanned += 1;
    let oob = flash.read_oob(geometry.page(block, offset), Cause::Recovery)?;
    Ok(oob.is_some_and(|oob| !oob.tag.flags.has(Flags::PROVISIONAL)))
}

/// The role of a block whose first readable page has this role: trim records and pads lie among
/// data.
fn block_role(page: Role) -> Role {
    match page {
        Role::Trim | Role::Pad => Role::Data,
        other => other,
    }
}

fn is_content((_, oob): &(Ppn, Oob)) -> bool {
    oob.tag.role != Role::Pad
}

/// Calls `each` for every page of the block whose record can be read and counts, upwards.
pub(crate) fn scan_block<S: Store>(
    flash: &mut Flash<S>,
    block: Pbn,
    scanned: &mut u64,
    mut each: impl FnMut(Ppn, Oob),
) -> Result<Ends, FtlError> {
    let slots = read_slots(flash, block, scanned)?;
    let mut ends = Ends {
        lost_before: lost_before(flash, block, &slots),
        ..Ends::default()
    };
    for (ppn, oob) in committed_pages(flash, block, slots) {
        let of_mount = oob.tag.flags.has(Flags::PROVISIONAL) || !is_content(&(ppn, oob));
        ends.newest = ends.newest.max(if of_mount { 0 } else { oob.pseq });
        ends.last = (flash.geometry().offset_of(ppn) + 1 == flash.chip().frontier(block))
            .then_some(oob.pseq);
        if ends.latest.is_none_or(|(pseq, _)| pseq < oob.pseq) {
            ends.latest = Some((oob.pseq, ppn));
        }
        each(ppn, oob);
    }
    Ok(ends)
}

/// What a block tells of when power failed.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ends {
    /// Program of the last page that was begun, if that can be read: no cut hit the block after it.
    pub(super) last: Option<u64>,
    /// The newest program that was not a mount's.
    pub(super) newest: u64,
    /// The page with the newest readable record.
    pub(super) latest: Option<(u64, Ppn)>,
    /// The program before which the last page with a lost record was programmed, if there is one
    /// that no cut can have torn.
    pub(crate) lost_before: Option<u64>,
}

/// The records of a block's pages, upwards; `None` where the record is unreadable. None of their
/// program numbers is used again.
fn read_slots<S: Store>(
    flash: &mut Flash<S>,
    block: Pbn,
    scanned: &mut u64,
) -> Result<Vec<(Ppn, Option<Oob>)>, FtlError> {
    let geometry = *flash.geometry();
    let frontier = flash.chip().frontier(block);
    assert!(
        frontier <= geometry.pages_per_block,
        "block {block} has {frontier} pages"
    );
    *scanned += u64::from(frontier);
    let mut slots = Vec::with_capacity(index(frontier));
    for offset in 0..frontier {
        let ppn = geometry.page(block, offset);
        let oob = flash.read_oob(ppn, Cause::Recovery)?;
        flash.saw_pseq(oob.map_or(0, |oob| oob.pseq));
        slots.push((ppn, oob));
    }
    Ok(slots)
}

/// The program before which the last page with a lost record was programmed; `u64::MAX` if no
/// readable page follows it. `None` if no record is lost.
///
/// A cut tears the last page of a block, and its LSB partner; a mount does not continue the block.
/// Such a page does not count while the block is not full: its record may never have been complete.
fn lost_before<S: Store>(
    flash: &Flash<S>,
    block: Pbn,
    slots: &[(Ppn, Option<Oob>)],
) -> Option<u64> {
    let is_full = index(flash.geometry().pages_per_block) == slots.len();
    let torn: Vec<Ppn> = if is_full && flash.chip().bad(block).is_none() {
        Vec::new()
    } else {
        suspects(flash, block).collect()
    };
    let is_lost = |(ppn, slot): &(Ppn, Option<Oob>)| slot.is_none() && !torn.contains(ppn);
    let last = slots.iter().rposition(is_lost)?;
    let next = slots[last..].iter().find_map(|(_, slot)| *slot);
    Some(next.map_or(u64::MAX, |oob| oob.pseq))
}

/// The pages of a block whose record can be read and counts, upwards.
fn standing_pages<S: Store>(
    flash: &mut Flash<S>,
    block: Pbn,
    scanned: &mut u64,
) -> Result<Vec<(Ppn, Oob)>, FtlError> {
    let slots = read_slots(flash, block, scanned)?;
    Ok(committed_pages(flash, block, slots))
}

fn committed_pages<S: Store>(
    flash: &Flash<S>,
    block: Pbn,
    mut slots: Vec<(Ppn, Option<Oob>)>,
) -> Vec<(Ppn, Oob)> {
    // Where a program failed and was survived, no filler could follow, and nothing is missing.
    if flash.chip().bad(block).is_none() {
        let suspects: Vec<Ppn> = suspects(flash, block).collect();
        provisional::drop_unvouched(&mut slots, &suspects);
    }
    slots
        .into_iter()
        .filter_map(|(ppn, slot)| Some((ppn, slot?)))
        .collect()
}
