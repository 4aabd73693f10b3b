//! Scan of the records of blocks: the head of every block, and every page of selected blocks.
//!
//! The first *readable* page identifies a block: a cut may have destroyed page 0. A block without a
//! readable record is blank or garbage. It is erased again before use in both cases, because an
//! interrupted erase may look blank and still be unstable.
//!
//! Pages that a mount programmed but did not commit ([`crate::space`]) are skipped as if
//! unreadable: the pages that they were to replace still exist. A block without other pages is
//! garbage. So a mount that was cut leaves no trace except wear.

pub(crate) mod provisional;

use crate::error::FtlError;
use crate::flash::Flash;
use crate::format::{Flags, Oob, Role};
use crate::int::{index, to_u32};
use nand_model::{Bad, Cause, Pbn, Ppn};

/// Result of reading a block up to its first readable page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Bad from the factory: never read.
    Factory,
    /// No page has a readable, committed record.
    Nothing,
    /// First readable page of the block, and the block's role and epoch.
    Found {
        /// Role of the block: data, if that first page is a trim record or padding.
        role: Role,
        /// Role of that first page.
        first: Role,
        /// Allocation number.
        epoch: u64,
        /// Sequence number of that first page.
        pseq: u64,
        /// False if page 0 is lost: the cut may have hit the block.
        intact: bool,
    },
}

/// Reads the head of every block. The index is the block number. `scanned` counts OOB reads.
pub(crate) fn scan_heads(flash: &mut Flash, scanned: &mut u64) -> Result<Vec<Head>, FtlError> {
    let geometry = *flash.geometry();
    geometry
        .all_blocks()
        .map(|block| scan_head(flash, block, scanned))
        .collect()
}

fn scan_head(flash: &mut Flash, block: Pbn, scanned: &mut u64) -> Result<Head, FtlError> {
    if flash.chip().bad(block) == Some(Bad::Factory) {
        return Ok(Head::Factory);
    }
    let geometry = *flash.geometry();
    // For most free blocks a blank check of page 0 is enough; a torn page 0 does not look blank.
    for offset in 0..flash.chip().frontier(block).max(1) {
        *scanned += 1;
        if let Some(Oob { tag, pseq, epoch }) =
            flash.read_oob(geometry.page(block, offset), Cause::Recovery)?
        {
            let counts = !tag.flags.has(Flags::PROVISIONAL)
                || is_committed_by_last_page(flash, block, scanned)?
                || committed_pages(flash, block, scanned)?
                    .iter()
                    .any(is_content);
            if !counts {
                return Ok(Head::Nothing);
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
    let lost = flash.chip().programmed(block);
    flash.findings.scanned(block, lost, 0);
    Ok(Head::Nothing)
}

/// Returns whether the last page before those that a cut may have hit is not provisional. Then the
/// pages up to it are committed, and the scan need not read those between.
fn is_committed_by_last_page(
    flash: &mut Flash,
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

/// Returns the role of a block whose first readable page has this role: trim records and padding
/// are stored among data.
fn block_role(page: Role) -> Role {
    match page {
        Role::Trim | Role::Pad => Role::Data,
        other => other,
    }
}

fn is_content((_, oob): &(Ppn, Oob)) -> bool {
    oob.tag.role != Role::Pad
}

/// Calls `each` for every page with a readable, committed record, in ascending order.
pub(crate) fn scan_block(
    flash: &mut Flash,
    block: Pbn,
    scanned: &mut u64,
    mut each: impl FnMut(Ppn, Oob),
) -> Result<BlockEnd, FtlError> {
    let slots = read_records(flash, block, scanned)?;
    let mut ends = BlockEnd {
        lost_before: lost_before(flash, block, &slots),
        ..BlockEnd::default()
    };
    for (ppn, oob) in keep_committed(flash, block, slots) {
        let of_mount = oob.tag.flags.has(Flags::OF_MOUNT) || !is_content(&(ppn, oob));
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

/// Last programmed pages of a block, used to find suspects.
#[derive(Clone, Copy, Default)]
pub(crate) struct BlockEnd {
    /// Program of the last page begun, if its record is readable: no cut hit the block after it.
    pub(crate) last: Option<u64>,
    /// The newest program that was not made by a mount.
    pub(crate) newest: u64,
    /// The page with the newest readable record.
    pub(crate) latest: Option<(u64, Ppn)>,
    /// The last page with a lost record that no cut can have torn was programmed before this
    /// program. `None` if there is no such page.
    pub(crate) lost_before: Option<u64>,
}

/// Returns the records of a block's pages in ascending order; `None` where the record is
/// unreadable. Observes their program numbers, so that none is used again.
fn read_records(
    flash: &mut Flash,
    block: Pbn,
    scanned: &mut u64,
) -> Result<Vec<(Ppn, Option<Oob>)>, FtlError> {
    let geometry = *flash.geometry();
    let frontier = flash.chip().frontier(block);
    assert!(
        frontier <= geometry.pages_per_block,
        "block {block}: {frontier} pages are programmed, more than it has"
    );
    *scanned += u64::from(frontier);
    let pages = geometry.page(block, 0).run(frontier);
    let records = flash.read_oobs(geometry.page(block, 0), frontier, Cause::Recovery)?;
    let slots: Vec<_> = pages.zip(records).collect();
    let newest = slots.iter().flat_map(|(_, oob)| *oob).map(|oob| oob.pseq);
    flash.observe_pseq(newest.max().unwrap_or(0));
    Ok(slots)
}

/// Returns the program before which the last page with a lost record was programmed; `u64::MAX` if
/// no readable page follows it. Returns `None` if no record is lost.
///
/// A cut tears the last page of a block and its LSB partner, and a mount does not continue the
/// block. Such a page is ignored while the block is not full: its record may never have been
/// complete.
fn lost_before(flash: &Flash, block: Pbn, slots: &[(Ppn, Option<Oob>)]) -> Option<u64> {
    let is_full = index(flash.chip().pages_in(block)) == slots.len();
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

/// Returns the pages of a block with a readable, committed record, in ascending order.
fn committed_pages(
    flash: &mut Flash,
    block: Pbn,
    scanned: &mut u64,
) -> Result<Vec<(Ppn, Oob)>, FtlError> {
    let slots = read_records(flash, block, scanned)?;
    Ok(keep_committed(flash, block, slots))
}

fn keep_committed(
    flash: &mut Flash,
    block: Pbn,
    mut slots: Vec<(Ppn, Option<Oob>)>,
) -> Vec<(Ppn, Oob)> {
    let is_lost =
        |(ppn, slot): &&(Ppn, Option<Oob>)| slot.is_none() && flash.chip().is_programmed(*ppn);
    let lost = to_u32(slots.iter().filter(is_lost).count());
    let readable = slots.iter().filter(|(_, slot)| slot.is_some()).count();
    if !ended_by_failed_program(flash, block) {
        let suspects: Vec<Ppn> = suspects(flash, block).collect();
        provisional::drop_uncommitted(&mut slots, &suspects);
    }
    let kept: Vec<(Ppn, Oob)> = slots
        .into_iter()
        .filter_map(|(ppn, slot)| Some((ppn, slot?)))
        .collect();
    let uncommitted = to_u32(readable - kept.len());
    flash.findings.scanned(block, lost, uncommitted);
    kept
}

/// Returns whether a program without power loss failed in this block: no padding could follow. A
/// failed erase changes nothing: what is uncommitted stays so.
fn ended_by_failed_program(flash: &Flash, block: Pbn) -> bool {
    flash.chip().bad(block) == Some(Bad::FailedProgram)
}

/// Returns the suspects of a block: its last programmed page and the LSB partners.
pub(crate) fn suspects(flash: &Flash, block: Pbn) -> impl Iterator<Item = Ppn> + use<> {
    let geometry = *flash.geometry();
    let last = flash.chip().frontier(block).checked_sub(1);
    let victims: Vec<u32> = last.map_or_else(Vec::new, |last| {
        flash.chip().pairs_of(block).victims(last).collect()
    });
    last.into_iter()
        .chain(victims)
        .map(move |offset| geometry.page(block, offset))
}
