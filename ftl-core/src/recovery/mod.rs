//! Finding out, after power came back, what is on the flash. Schemes plan which blocks are read in full; the reading is here.
//!
//! A block is known by its first *readable* page: a cut may have destroyed page 0. A block without any readable record is
//! blank or garbage; either way it is erased again before use, because an interrupted erase may look blank and not hold.

use crate::error::FtlError;
use crate::flash::Flash;
use crate::format::{Oob, Role};
use nand_model::{Bad, Cause, Pbn, Ppn, Store};

/// Programs before the newest one that a cut may have left unstable: a mount that was itself cut may have added a few.
pub(crate) const RECENT: u64 = 256;

/// What the first readable page of a block says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    /// Bad from the factory: never looked at.
    Factory,
    /// No page has a readable record.
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
pub(crate) fn scan_heads<S: Store>(flash: &mut Flash<S>, scanned: &mut u64) -> Result<Vec<Head>, FtlError> {
    let geometry = *flash.geometry();
    geometry.all_blocks().map(|block| scan_head(flash, block, scanned)).collect()
}

fn scan_head<S: Store>(flash: &mut Flash<S>, block: Pbn, scanned: &mut u64) -> Result<Head, FtlError> {
    if flash.chip().bad(block) == Some(Bad::Factory) {
        return Ok(Head::Factory);
    }
    let geometry = *flash.geometry();
    // A blank check of page 0 alone ends the search for most free blocks; a torn page 0 does not look blank.
    for offset in 0..flash.chip().frontier(block).max(1) {
        *scanned += 1;
        if let Some(Oob { tag, pseq, epoch }) = flash.read_oob(geometry.page(block, offset), Cause::Recovery)? {
            return Ok(Head::Found { role: block_role(tag.role), first: tag.role, epoch, pseq, intact: offset == 0 });
        }
    }
    Ok(Head::Nothing)
}

/// The role of a block whose first readable page has this role: trim records and pads lie among data.
fn block_role(page: Role) -> Role {
    match page {
        Role::Trim | Role::Pad => Role::Data,
        other => other,
    }
}

/// Calls `each` for every page of the block whose record can be read, upwards.
pub(crate) fn scan_block<S: Store>(
    flash: &mut Flash<S>,
    block: Pbn,
    scanned: &mut u64,
    mut each: impl FnMut(Ppn, Oob),
) -> Result<(), FtlError> {
    let geometry = *flash.geometry();
    for offset in 0..flash.chip().frontier(block) {
        *scanned += 1;
        let ppn = geometry.page(block, offset);
        if let Some(oob) = flash.read_oob(ppn, Cause::Recovery)? {
            each(ppn, oob);
        }
    }
    Ok(())
}

/// The pages of a block that an interrupted program may have damaged although their record reads well: the last programmed
/// one and what its word line held before. Every earlier cut left its mark at such a place too, because mount never continues a block.
pub(crate) fn suspects<S: Store>(flash: &Flash<S>, block: Pbn) -> impl Iterator<Item = Ppn> + use<S> {
    let geometry = *flash.geometry();
    let last = flash.chip().frontier(block).checked_sub(1);
    let victims: Vec<u32> = last.map_or_else(Vec::new, |last| flash.chip().pairs().victims(last).collect());
    last.into_iter().chain(victims).map(move |offset| geometry.page(block, offset))
}
