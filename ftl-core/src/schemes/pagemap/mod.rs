//! Page-level ideal: the whole table LPN -> PPN in RAM ([`page_ram`]).
//!
//! Not one paper's scheme but everybody's reference: any page may lie anywhere, a lookup costs no
//! flash. Greedy garbage collection at a threshold of free blocks. RAM: 4 bytes per logical page,
//! one bit per physical page, the victim index.
//!
//! Ours, where papers say nothing: trims leave records (role TRIM) that live until two checkpoints
//! contain them; checkpoints of the map bound the scan of a mount; a page whose data is lost while
//! it is moved stays an error.

use crate::config::FtlConfig;
use crate::error::FtlError;
use crate::families::page_ram;
use crate::ftl::{Ftl, Start};
use crate::schemes::{MlcUse, Scheme};
use nand_model::{Chip, Store};

/// The table's line.
pub(super) const SCHEME: Scheme = Scheme {
    name: "pagemap",
    title: "page-level ideal: the whole map in RAM",
    about: "The whole map is in RAM: any page may lie anywhere, a lookup costs no flash, and collection takes the block with the \
            fewest valid pages. Every other scheme is measured against it; it pays with the most RAM.",
    paper: "folklore; the reference of every paper here",
    mapping: "page, in RAM",
    ram: "4 B per logical page + 1 bit per physical page",
    fidelity: 'A',
    mlc: MlcUse::AsPublished,
    params: page_ram::PARAMS,
    shared_params: &[],
    overhead_blocks: page_ram::overhead_blocks,
    mem: start,
    file: start,
    oob_only: start,
};

fn start<S: Store>(
    chip: Chip<S>,
    config: &FtlConfig,
    start: Start,
) -> Result<Box<dyn Ftl<S>>, FtlError> {
    Ok(Box::new(page_ram::create(
        SCHEME.name,
        chip,
        config,
        start,
    )?))
}
