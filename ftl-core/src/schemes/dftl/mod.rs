//! DFTL: a page-level map on flash, single entries of it cached on demand. Gupta, Kim, Urgaonkar:
//! "DFTL: a flash translation layer employing demand-based selective caching of page-level address
//! mappings", ASPLOS 2009. Fidelity B: the paper was not at hand; its rules are well known.
//!
//! The cached mapping table (CMT) holds single entries in a segmented LRU. A read or write whose
//! entry is not there reads its mapping page. An entry that leaves and that the flash does not know
//! costs a mapping page: read, changed, written; all other changed entries of that page go with it
//! (the paper's batch update). Collection moves pages; where the entry is cached only the cache
//! changes (lazy copying), the others are written at once, each mapping page once per victim.
//!
//! RAM by the paper: 8 bytes per cached entry, 4 per mapping page.
//!
//! The mechanism is that of all schemes whose map lies on flash ([`crate::families::paged`], with
//! what always holds and what happens if power fails). Deviations, where the paper is silent:
//! probationary and protected segment are equal halves; validity is in RAM; blocks in an age window
//! bound what a mount scans, so the flash learns of every page before it leaves the window; a
//! mapping page never names a page that can still be lost, so an entry may be written later than it
//! leaves the cache.

mod cmt;
#[cfg(test)]
mod tests;

use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::families::paged::{self, Paged, Settings, docs};
use crate::ftl::{Ftl, Start};
use crate::schemes::{MlcUse, Scheme};
use cmt::Cmt;
use nand_model::{Chip, Profile, Store};

/// The table's line.
pub(super) const SCHEME: Scheme = Scheme {
    name: "dftl",
    title: "DFTL: page-level map on flash, single entries cached on demand",
    about: "The map lies on flash and RAM caches single entries of it, those used lately. A lookup that misses reads a mapping \
            page; a changed entry that has to leave costs reading and writing one, and takes all changed entries of that page \
            along.",
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
        docs::AGE_WINDOW,
    ],
    shared_params: docs::SHARED,
    overhead_blocks,
    mem: start,
    file: start,
    oob_only: start,
};

/// Bytes of an entry by the paper's count: logical and physical page.
const ENTRY_BYTES: u32 = 8;

/// Cached entries.
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

fn start<S: Store>(
    chip: Chip<S>,
    config: &FtlConfig,
    start: Start,
) -> Result<Box<dyn Ftl<S>>, FtlError> {
    Ok(Box::new(new(chip, config, start)?))
}

fn new<S: Store>(
    chip: Chip<S>,
    config: &FtlConfig,
    start: Start,
) -> Result<Paged<S, Cmt>, FtlError> {
    let per_page = chip.geometry().page_bytes / 4;
    let capacity = capacity(&config.params, config.logical_pages)?;
    let settings = Settings {
        max_pending: Some(2 * capacity),
        ..paged::settings_of(&chip, config)?
    };
    Paged::create(
        SCHEME.name,
        chip,
        config,
        settings,
        Cmt::new(capacity, per_page),
        start,
    )
}
