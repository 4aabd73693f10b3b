//! LearnedFTL: TPFTL with learned indexes. Wang, Lin, Wu, Jiang, Zhang, Mao: "LearnedFTL: A
//! Learning-Based Page-Level FTL for Reducing Double Reads in Flash-Based SSDs", HPCA 2024.
//! Fidelity B: of the paper only the abstract was available; the rest is taken from the authors'
//! program (github.com/astlxmu/LearnedFTL), read but not copied.
//!
//! A read that misses the cache costs two reads of flash: mapping page, then data (a *double
//! read*). Therefore each mapping page has a *model* in RAM, a line in a few pieces from its
//! logical pages to their locations, and a bitmap of the pages for which it is exact (`models.rs`).
//! A miss whose bit is set goes to the predicted page at once; no read is ever lost to a wrong
//! prediction.
//!
//! Models are made of pages in order. Pages written in order are learned at once (*sequential
//! initialisation*). GC copies pages in the order of their addresses, and a group of mapping pages
//! has blocks of its own, and is rewritten as a whole in that order ([`paged`], `groups.rs`).
//! Overwriting, moving or trimming a page clears its bit.
//!
//! RAM by the paper: TPFTL's, and 8 bytes per piece and a bit per logical page.
//!
//! All schemes whose map is stored on flash share the mechanism ([`crate::families::paged`], with
//! invariants and power failure). Models are in RAM alone: a mount begins without them, and the
//! first miss of each mapping page makes its model anew. Differences from the authors' program:
//! - A model is made whenever its mapping page is written, of its whole content, not only by GC:
//!   the page is in RAM then. Its lines pass through all their points, so every point of a piece is
//!   exact; the authors divide the pages evenly and fit least squares. Pieces are integers.
//! - Their *virtual* page numbers make the pages of parallel units contiguous. Here a line ends
//!   where a block does, and with `alloc.stripe` above 1 there are hardly any.
//! - Their group is 64 mapping pages of 512 entries, its blocks a superblock over all dies, and GC
//!   rewrites it at once when it fills five. Here there are `learned.groups` groups, each rewritten
//!   in parts. When blocks are short, GC of single blocks mixes groups; theirs lends blocks between
//!   groups.
//! - Their bits stay set at a write, and the full map in the emulator's RAM decides whether a
//!   prediction is used. Here nothing else knows the location.
//! - The cache is half of TPFTL's by default, as models take RAM too.

mod cache;
mod models;
#[cfg(test)]
mod tests;

use crate::block_table::GROUPS_MAX;
use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::families::paged::{self, PagedFtl, Settings, docs};
use crate::ftl::{Ftl, Start};
use crate::gc::Own;
use crate::gc::policy::{Device, NewPolicy};
use crate::int::narrow;
use crate::ram::RamParam;
use crate::schemes::scheme::{MlcUse, Scheme};
use crate::schemes::tpftl::nodes::{ENTRY_BYTES, Nodes};
use cache::Learned;
use models::Models;
use nand_model::{Chip, Geometry, Profile};

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: "learnedftl",
    title: "LearnedFTL: page-level map on flash, cached as in TPFTL, misses predicted",
    about: "The map is stored on flash and cached as in TPFTL. Each mapping page has lines through the locations of its pages in RAM, \
            and a bit for each page that they predict exactly, so that a miss reads no mapping page. Groups of pages have blocks of \
            their own, and are rewritten in the order of their addresses.",
    paper: "Wang et al.: LearnedFTL, HPCA 2024",
    mapping: "page, on flash; entries cached in a node per mapping page, others predicted",
    ram: "6 B per cached entry + 8 B per cached node + 1 bit per page + 8 B per piece and 4 B per mapping page",
    fidelity: 'B',
    mlc: MlcUse::AsPublished,
    params: &[
        ParamDoc {
            key: "learned.cache",
            help: "bytes of cached entries, 6 each and 8 per node (default a 32nd of the table)",
        },
        ParamDoc {
            key: "learned.pieces",
            help: "lines per mapping page, 0 to 64; 0: no predictions (default 1 per 64 entries, at least 4)",
        },
        ParamDoc {
            key: GROUPS,
            help: "groups of consecutive pages with blocks of their own, 1 to 16; 1: none (default 1 per 64 blocks, at most 8; none with an SLC region)",
        },
        docs::LOOKUP,
        docs::AGE_WINDOW,
    ],
    shared_params: docs::SHARED,
    ram_params: &[
        RamParam {
            key: "learned.pieces",
            range: |layout, _| Ok((1, u64::from(default_pieces(&layout.profile.geometry)))),
            share_percent: 40,
        },
        RamParam {
            key: "learned.cache",
            range: |layout, _| Ok(paged::cache_range(layout, 128, ENTRY_BYTES)),
            share_percent: 75,
        },
        paged::TOMBSTONES_RAM,
        RamParam {
            key: docs::AGE_WINDOW.key,
            range: |layout, params| {
                paged::window_range(params, &own(&layout.profile, layout.logical_pages))
            },
            share_percent: 100,
        },
    ],
    overhead_blocks,
    constructor: start,
};

const GROUPS: &str = "learned.groups";

/// The placement by groups.
const PLACEMENTS: &[(&str, NewPolicy)] = &[("groups", |device, params| {
    let groups = groups_of(params, device)?;
    let placement = paged::Placement::new(&device.geometry, device.logical_pages, groups);
    Ok(Box::new(placement))
})];

/// Returns the scheme's own placement. There is none with an SLC region, which takes the pages of
/// the host first.
fn own(profile: &Profile, logical_pages: u32) -> Own {
    let device = Device {
        geometry: profile.geometry,
        logical_pages,
    };
    let list = match profile.slc {
        None => PLACEMENTS,
        Some(_) => &[],
    };
    Own { list, device }
}

/// Returns the number of groups.
fn groups_of(params: &Params, device: &Device) -> Result<u32, FtlError> {
    let geometry = &device.geometry;
    let blocks = device.logical_pages / geometry.pages_per_block;
    let default = (blocks / 64).clamp(1, 8);
    let groups = params.get(GROUPS, default)?;
    if !(1..=GROUPS_MAX).contains(&groups) {
        return Err(FtlError::Config(format!(
            "parameter {GROUPS}: {groups} is not within 1 to {GROUPS_MAX}"
        )));
    }
    let placement: String = params.get("gc.placement", "groups".into())?;
    let mapping_pages = paged::map_pages(geometry, device.logical_pages);
    match placement == "groups" {
        true => Ok(groups.min(mapping_pages)),
        false => Ok(1),
    }
}

/// As many pieces per entry as the authors' program has: 8 for 512.
fn default_pieces(geometry: &Geometry) -> u32 {
    (geometry.page_bytes / 4 / 64).clamp(4, 64)
}

/// Returns the bytes of the cache, and the number of pieces.
fn own_params(
    params: &Params,
    geometry: &Geometry,
    logical_pages: u32,
) -> Result<(u32, u32), FtlError> {
    let default = (paged::default_cache(logical_pages) / 2).max(128);
    let bytes = params.get("learned.cache", default)?;
    if bytes < 128 {
        return Err(FtlError::Config(format!(
            "parameter learned.cache: {bytes} bytes are too few, need at least 128"
        )));
    }
    let pieces = params.get("learned.pieces", default_pieces(geometry))?;
    if pieces > 64 {
        return Err(FtlError::Config(format!(
            "parameter learned.pieces: {pieces} is not within 0 to 64"
        )));
    }
    Ok((bytes, pieces))
}

fn overhead_blocks(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    own_params(params, &profile.geometry, logical_pages)?;
    paged::overhead_under(profile, logical_pages, params, &own(profile, logical_pages))
}

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    Ok(Box::new(new(chip, config, start)?))
}

fn new(chip: Chip, config: &FtlConfig, start: Start) -> Result<PagedFtl<Learned>, FtlError> {
    let (geometry, logical_pages) = (*chip.geometry(), config.logical_pages);
    let (bytes, pieces) = own_params(&config.params, &geometry, logical_pages)?;
    let own = own(chip.profile(), logical_pages);
    let groups = match own.list {
        [] => 1,
        _ => groups_of(&config.params, &own.device)?,
    };
    let settings = Settings {
        max_pending: Some(narrow(2 * u64::from(bytes) / u64::from(ENTRY_BYTES))),
        groups,
        ..paged::settings_under(&chip, config, &own)?
    };
    let per_page = geometry.page_bytes / 4;
    let nodes = Nodes::new(bytes, 3, per_page, logical_pages);
    let nodes = nodes.count_by_list(paged::looks_up_by_list(&config.params)?);
    let mapping_pages = paged::map_pages(&geometry, logical_pages);
    let models = Models::new(mapping_pages, per_page, pieces);
    let policy = Learned::new(nodes, models, per_page, logical_pages);
    let parts = (settings, policy);
    PagedFtl::create_under(SCHEME.name, &own, chip, config, parts, start)
}
