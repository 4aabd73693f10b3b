//! DFTL: a page-level map on flash, single entries of it cached on demand. Gupta, Kim, Urgaonkar:
//! "DFTL: a flash translation layer employing demand-based selective caching of page-level address
//! mappings", ASPLOS 2009. Fidelity B: the paper was not available; its rules are well known.
//!
//! The cached mapping table (CMT) holds single entries in a segmented LRU. A read or write that
//! misses reads its mapping page. Evicting a dirty entry costs a mapping page: read, changed,
//! written. All other dirty entries of that page are written with it (the paper's batch update). GC
//! relocates pages. If the entry is cached, only the cache changes (lazy copying); the other
//! entries are written at once, each mapping page once per victim.
//!
//! RAM by the paper: 8 bytes per cached entry, 4 per mapping page.
//!
//! All schemes whose map is stored on flash share the mechanism ([`crate::families::paged`], with
//! invariants and power failure). Deviations, and choices where the paper is silent:
//! - Probationary and protected segment are equal halves; validity is in RAM.
//! - GC copies pages to a block of their own, as LazyFTL does, not to the host's open block: the
//!   default of `gc.placement`. `gc.placement=single` has one current data block, as the paper.
//! - Blocks in an age window bound the scan of a mount, so a page's mapping is written before the
//!   page leaves the window.
//! - A mapping page never references a page that can still be lost, so an entry may be written
//!   after its eviction. At most twice as many entries as the cache has may wait for that; above,
//!   the mapping page with the most of them is written.

mod cmt;
#[cfg(test)]
mod tests;

use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::families::paged::{self, PagedFtl, Settings, docs};
use crate::ftl::{Ftl, Start};
use crate::ram::RamParam;
use crate::schemes::scheme::{MlcUse, Scheme};
use cmt::{Cmt, ENTRY_BYTES};
use nand_model::{Chip, Profile};

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: "dftl",
    title: "DFTL: page-level map on flash, single entries cached on demand",
    about: "The map is stored on flash, and RAM caches recently used single entries. A lookup that misses reads a mapping \
            page; the eviction of a dirty entry reads and writes one, which then has all dirty entries of that page.",
    paper: "Gupta, Kim, Urgaonkar: DFTL, ASPLOS 2009",
    mapping: "page, on flash; single entries cached",
    ram: "8 B per cached entry + 4 B per mapping page",
    fidelity: 'B',
    mlc: MlcUse::AsPublished,
    params: &[
        ParamDoc {
            key: "dftl.cache",
            help: "bytes of cached entries, 8 each (default a 16th of the table)",
        },
        docs::LOOKUP,
        docs::AGE_WINDOW,
    ],
    shared_params: docs::SHARED,
    ram_params: &[
        RamParam {
            key: "dftl.cache",
            range: |layout, _| Ok(paged::cache_range(layout, 16 * ENTRY_BYTES, ENTRY_BYTES)),
            share_percent: 75,
        },
        paged::TOMBSTONES_RAM,
        paged::AGE_WINDOW_RAM,
    ],
    overhead_blocks,
    constructor: start,
};

/// Returns the number of cached entries.
fn capacity(params: &Params, logical_pages: u32) -> Result<u32, FtlError> {
    let bytes = params.get("dftl.cache", paged::default_cache(logical_pages))?;
    if bytes < 16 * ENTRY_BYTES {
        return Err(FtlError::Config(format!(
            "parameter dftl.cache: {bytes} bytes are too few, need at least 128"
        )));
    }
    Ok(bytes / ENTRY_BYTES)
}

fn overhead_blocks(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    capacity(params, logical_pages)?;
    paged::overhead_of_params(profile, logical_pages, params)
}

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    Ok(Box::new(new(chip, config, start)?))
}

fn new(chip: Chip, config: &FtlConfig, start: Start) -> Result<PagedFtl<Cmt>, FtlError> {
    let per_page = chip.geometry().page_bytes / 4;
    let capacity = capacity(&config.params, config.logical_pages)?;
    let by_list = paged::looks_up_by_list(&config.params)?;
    let settings = Settings {
        max_pending: Some(2 * capacity),
        ..paged::settings_of(&chip, config)?
    };
    PagedFtl::create(
        SCHEME.name,
        chip,
        config,
        settings,
        Cmt::new(capacity, per_page).count_by_list(by_list),
        start,
    )
}
