//! LeaFTL: a page map in RAM that consists of learned segments. Sun, Li, Sun, Sun, Vucinic, Huang:
//! "LeaFTL: A Learning-Based Flash Translation Layer for Solid-State Drives", ASPLOS 2023. Fidelity
//! B: of the paper only the abstract, and a summary by others with quotations, were available.
//!
//! Writes are collected in a buffer and programmed in the order of their addresses, so their
//! locations rise with their addresses. A piecewise regression replaces runs of them by *segments*
//! of 8 bytes, a line each (`segment.rs`). New segments lie above older ones, in levels, as in a
//! log-structured merge tree; compaction drops what newer segments cover (`group.rs`). GC sorts the
//! pages of a victim by address too, and its copies are learned again. An *accurate* segment knows
//! its locations. With `leaftl.gamma` above 0 there are *approximate* ones, which miss by at most
//! gamma pages; the records of the pages there decide
//! ([`predicted`](crate::families::page_ram)).
//!
//! RAM by the paper: 8 bytes per segment, a byte per page of an approximate one, and the buffer. A
//! load without any order has a segment per page, twice the table of `pagemap`.
//!
//! The whole table is in RAM, as in the paper's evaluation. Checkpoints contain a plain table, from
//! which a mount learns accurate segments; it scans the blocks written since, and all blocks if an
//! entry was approximate ([`page_ram`](crate::families::page_ram), with invariants and power
//! failure). Deviations, and choices where the paper or our sources are silent:
//! - The paper stores the addresses of 2 gamma neighbours in the OOB area, so that a miss costs one
//!   read. That is more than many parts have, and the next pages are not known when a page is
//!   written through. Here a miss reads the nearest valid pages one by one, 2 gamma at most; pages
//!   that are not valid are ruled out for free.
//! - The old version of an overwritten page must become invalid at once, so an approximate one is
//!   looked up: records are read unless only one valid page is within the bound.
//! - A write is acknowledged when it is programmed: RAM does not outlive the daemon
//!   (docs/DURABILITY.md). So only the pages of a request, or of requests that arrive together, are
//!   sorted. `leaftl.ack=buffer` has the paper's buffer: a FLUSH programs it.
//! - Segments store integers, not a float (`segment.rs`).
//! - A group is compacted when it has learned a quarter of its pages, not the whole table after a
//!   million writes: no request waits for more than a group.
//! - A bitmap says which pages hold data. The paper has no trims.
//! - ftld's tables of valid pages replace the paper's, as for every scheme.

mod group;
mod segment;
mod settings;
mod table;
#[cfg(test)]
mod tests;

use crate::author::PageMapScheme;
use crate::config::{FtlConfig, Params};
use crate::error::FtlError;
use crate::families::page_ram;
use crate::ftl::{Ftl, Start};
use crate::ram::RamParam;
use crate::schemes::scheme::{MlcUse, Scheme};
use nand_model::{Chip, Profile};
use table::LearnedMap;

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    title: "LeaFTL: a page map of learned segments",
    about: "Pages are programmed in the order of their addresses where that is possible, and lines through their locations \
            replace the entries of the map: 8 bytes for up to 256 pages. Newer lines hide older ones until a compaction drops them.",
    paper: "Sun et al.: LeaFTL, ASPLOS 2023",
    mapping: "page, in learned segments; in RAM",
    ram: "8 B per segment of up to 256 pages + 1 bit per logical page, + the buffer",
    params: &[
        settings::GAMMA,
        settings::BUFFER,
        settings::ACK,
        settings::COMPACT_AFTER,
    ],
    shared_params: page_ram::PARAMS,
    ram_params: &[RamParam {
        key: settings::BUFFER.key,
        range: |layout, _| Ok(settings::buffer_range(layout)),
        share_percent: 100,
    }],
    fidelity: 'B',
    mlc: MlcUse::AsPublished,
    overhead_blocks,
    constructor: start,
    ..Scheme::of_trusted_page_map::<Learned>()
};

/// The scheme's name and map; its policies are ftld's.
struct Learned;

impl PageMapScheme for Learned {
    const NAME: &'static str = "leaftl";
    type Map = LearnedMap;
}

fn overhead_blocks(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    let buffering = settings::buffering(&profile.geometry, logical_pages, params)?;
    page_ram::overhead_with_buffer::<Learned>(profile, logical_pages, params, buffering)
}

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    let pages = config.logical_pages;
    let buffering = settings::buffering(chip.geometry(), pages, &config.params)?;
    page_ram::start_with_buffer::<Learned>(chip, config, start, buffering)
}
