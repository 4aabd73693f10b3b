//! Power-cut recovery: a mount finds out which data is stored on flash. The families select
//! the blocks to read in full; [`crate::scan`] reads them.
//!
//! `evidence.rs` gathers from their records the versions of logical pages and the pages that the
//! cut may have hit (suspects), and decides which of these need a rewrite. `resolve.rs` selects the
//! newest readable version of each logical page. `rewrite.rs` programs the rewrites.
//! `shutdown_state.rs` has the state that a clean shutdown stores.
//!
//! `units`, `hybrid` and `mlam` are mounted from all records (`mount_by_scan.rs`, `newest.rs`).
//! `page_ram` loads a checkpoint and `paged` a map; both then read the records of later programs.

mod evidence;
mod mount_by_scan;
mod newest;
mod resolve;
mod rewrite;
mod shutdown_state;
#[cfg(test)]
mod tests;

pub(crate) use evidence::{Evidence, Version};
pub(crate) use mount_by_scan::{CommonParts, MountByScan};
pub(crate) use newest::ScanResult;
pub(crate) use resolve::{FoundTrim, MapCandidate, read_page, read_trims, resolve};
pub(crate) use rewrite::{Rewrite, Rewriter, Rewrites};
pub(crate) use shutdown_state::ShutdownState;

use crate::scan::provisional;
use nand_model::{PairTable, Profile};

/// Maximum number of blocks with pages to rewrite in a mount that follows another without a
/// request.
const MAX_BLOCKS_LEFT_BY_MOUNT: u32 = 32;

/// Returns the number of blocks that a mount may use for rewrites if `units` units have an open
/// block each. The mount rewrites pages of the last block that each die programmed, or each of
/// its planes that operate together, or of the blocks that the mount before it wrote.
pub(crate) fn rewrite_reserve(profile: &Profile, units: u32) -> u32 {
    let pages_per_block = profile.geometry.pages_per_block;
    let pairs = PairTable::new(profile.pairing, pages_per_block);
    let reserved_pages = provisional::padding_per_block(&pairs, pages_per_block);
    let room = if pages_per_block > 2 * reserved_pages {
        pages_per_block - reserved_pages
    } else {
        pages_per_block
    };
    let hit = 1 + pairs.victims_max();
    let blocks = profile
        .geometry
        .places()
        .max((units + 1).min(MAX_BLOCKS_LEFT_BY_MOUNT));
    (hit * blocks).div_ceil(room)
}
