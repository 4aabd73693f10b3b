//! Finding out, after power came back, what is on the flash. Schemes plan which blocks are read in
//! full; the reading is here.
//!
//! The records of blocks are read (`scan.rs`) and tell of versions of logical pages
//! (`evidence.rs`). Of each logical page the newest version that can be had rules (`resolve.rs`);
//! what the cut may have left unstable is programmed again (`rescue.rs`). A scheme whose map is not
//! on flash is mounted by all records (`mount.rs`, `newest.rs`); the others bring a map that
//! contains the programs up to some point, and hear the records of what came later.

mod clean_stop;
mod evidence;
mod mount;
mod newest;
pub(crate) mod provisional;
mod rescue;
mod resolve;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use clean_stop::CleanStop;
pub(crate) use evidence::{Evidence, Version};
pub(crate) use mount::{MountByRecords, Unmounted};
pub(crate) use newest::{Newest, find_newest};
pub(crate) use rescue::{Rescue, Rescuer, Rescues};
pub(crate) use resolve::{Claim, FoundTrim, read_page, read_trims, resolve};
pub(crate) use scan::{Head, scan_block, scan_heads};

use crate::convert::to_u32;
use nand_model::PairTable;

/// Programs that may be under way together when power fails.
const IN_FLIGHT: u32 = 32;

/// Blocks that a mount may take for what it programs again, when `units` units have an open block
/// each: pages of every block that the cut may have hit, while [`IN_FLIGHT`] programs were under
/// way. Some of these blocks were full by then.
pub(crate) fn rescue_blocks(pairs: &PairTable, pages_per_block: u32, units: u32) -> u32 {
    let kept_back = provisional::filler_of_full_block(pairs, pages_per_block);
    let room = if pages_per_block > 2 * kept_back {
        pages_per_block - kept_back
    } else {
        pages_per_block
    };
    let hit = 1
        + (0..pages_per_block)
            .map(|page| to_u32(pairs.victims(page).count()))
            .max()
            .unwrap_or(0);
    let blocks = units + 1 + IN_FLIGHT / pages_per_block;
    (hit * blocks.min(IN_FLIGHT)).div_ceil(room)
}
