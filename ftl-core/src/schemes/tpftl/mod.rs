//! TPFTL: a page-level map on flash, entries cached in groups by mapping page. Zhou, Wu, Huang, He,
//! Xie, Zhou: "An efficient page-level FTL to optimize address translation in flash memory",
//! EuroSys 2015. Fidelity B: the paper was not available; its rules are taken from other
//! descriptions.
//!
//! Cached entries form a node per mapping page. The node whose entries were used longest ago on
//! average loses its least recently used clean entry, at no cost. Only if there is none, the
//! mapping page is written with all dirty entries. A miss loads the entries
//! of that mapping page that the request needs (*request-level*). In sequential phases it also
//! loads as many further entries as are cached right before it (*selective prefetch*). A phase is
//! sequential while the number of cached nodes decreases.
//!
//! RAM by the paper: 6 bytes per cached entry (its offset in the mapping page, the physical page)
//! and a head per node; 4 bytes per mapping page.
//!
//! All schemes whose map is stored on flash share the mechanism ([`crate::families::paged`], with
//! invariants and power failure). Choices where descriptions differ: a head counts 8 bytes; the
//! threshold of phases is 3; prefetching takes at most the space that the coldest node can free.
//! Age window, safe pages, validity, placement of copies and the bound of waiting entries (here
//! twice as many as 6 bytes fit into the cache) are as in DFTL's header.

pub(super) mod nodes;
#[cfg(test)]
mod tests;

use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::families::paged::{self, PagedFtl, Settings, docs};
use crate::ftl::{Ftl, Start};
use crate::int::narrow;
use crate::ram::RamParam;
use crate::schemes::scheme::{MlcUse, Scheme};
use nand_model::{Chip, Profile};
use nodes::{ENTRY_BYTES, Nodes};

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: "tpftl",
    title: "TPFTL: page-level map on flash, entries cached by mapping page, prefetched",
    about: "The map is stored on flash, and RAM caches its entries in one node per mapping page. A miss loads all entries that the \
            request needs of a mapping page, and prefetches more in sequential phases. The cache evicts from the least recently \
            used node, clean entries first.",
    paper: "Zhou et al.: An efficient page-level FTL to optimize address translation, EuroSys 2015",
    mapping: "page, on flash; entries cached in a node per mapping page",
    ram: "6 B per cached entry + 8 B per cached node + 4 B per mapping page",
    fidelity: 'B',
    mlc: MlcUse::AsPublished,
    params: &[
        ParamDoc {
            key: "tpftl.cache",
            help: "bytes of cached entries, 6 each and 8 per node (default a 16th of the table)",
        },
        ParamDoc {
            key: "tpftl.prefetch_threshold",
            help: "number of nodes lost or gained that begins or ends a sequential phase, 0 = never prefetch (default 3)",
        },
        docs::LOOKUP,
        docs::AGE_WINDOW,
    ],
    shared_params: docs::SHARED,
    ram_params: &[
        RamParam {
            key: "tpftl.cache",
            range: |layout, _| Ok(paged::cache_range(layout, 128, ENTRY_BYTES)),
            share_percent: 75,
        },
        paged::TOMBSTONES_RAM,
        paged::AGE_WINDOW_RAM,
    ],
    overhead_blocks,
    constructor: start,
};

/// Returns the bytes of the cache, and the threshold of phases.
fn own_params(params: &Params, logical_pages: u32) -> Result<(u32, u32), FtlError> {
    let bytes = params.get("tpftl.cache", paged::default_cache(logical_pages))?;
    if bytes < 128 {
        return Err(FtlError::Config(format!(
            "parameter tpftl.cache: {bytes} bytes are too few, need at least 128"
        )));
    }
    Ok((bytes, params.get("tpftl.prefetch_threshold", 3)?))
}

fn overhead_blocks(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    own_params(params, logical_pages)?;
    paged::overhead_of_params(profile, logical_pages, params)
}

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    Ok(Box::new(new(chip, config, start)?))
}

fn new(chip: Chip, config: &FtlConfig, start: Start) -> Result<PagedFtl<Nodes>, FtlError> {
    let per_page = chip.geometry().page_bytes / 4;
    let (bytes, threshold) = own_params(&config.params, config.logical_pages)?;
    let settings = Settings {
        max_pending: Some(narrow(2 * u64::from(bytes) / u64::from(ENTRY_BYTES))),
        ..paged::settings_of(&chip, config)?
    };
    let by_list = paged::looks_up_by_list(&config.params)?;
    let policy = Nodes::new(bytes, threshold, per_page, config.logical_pages);
    let policy = policy.count_by_list(by_list);
    PagedFtl::create(SCHEME.name, chip, config, settings, policy, start)
}
