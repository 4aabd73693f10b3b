//! DOPFTL: a page-level map on flash, whole mapping pages cached in one of two forms. Chen, Lin,
//! Cao, Cheng: "A dual-mode on-demand page-level flash translation layer for large scale NAND flash
//! memory". Fidelity A for cache and directory; GC, writes and recovery are not described there and
//! follow DFTL and TPFTL.
//!
//! A miss caches the whole mapping page. It is *compressed*, as extents (logical offset, length,
//! physical page), if it has few enough runs; else *original*, as an array four times as large.
//! Updates of a compressed page are appended as extents of their own. Lookups go from the last
//! extent to the first, so the newest wins and nothing is split. An original page is compressed
//! only when it is about to be evicted. The directory contains the cache position of every mapping
//! page (CTPA), so a lookup takes one step.
//!
//! RAM by the paper: the cache; 4 bytes per mapping page and 2 for its CTPA.
//!
//! All schemes whose map is stored on flash share the mechanism ([`crate::families::paged`], with
//! invariants and power failure). Choices where the paper is silent: an update that continues the
//! last extent makes it longer. A full compressed page is built again, and becomes original only if
//! that does not help. The cache is a 64th of the table. Age window, safe pages, validity and
//! placement of copies are as in DFTL's header; `dop.max_dirty` bounds the waiting entries.

mod cache;
mod node;
#[cfg(test)]
mod tests;

use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::families::paged::{self, PagedFtl, Settings, docs};
use crate::ftl::{Ftl, Start};
use crate::ram::RamParam;
use crate::schemes::scheme::{MlcUse, Scheme};
use cache::{Cache, Shape};
use nand_model::{Chip, Geometry, Profile};

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: "dopftl",
    title: "DOPFTL: page-level map on flash, whole mapping pages cached in two forms",
    about: "The map is stored on flash, and whole mapping pages are cached in one of two forms: as extents if the page has few \
            runs of pages, else as a plain array four times as large. A change is appended to the extents, so a lookup starts at \
            the newest extent.",
    paper: "Chen, Lin, Cao, Cheng: A dual-mode on-demand page-level FTL",
    mapping: "page, on flash; mapping pages cached as extents or arrays",
    ram: "cache + 6 B per mapping page",
    fidelity: 'A',
    mlc: MlcUse::AsPublished,
    params: &[
        ParamDoc {
            key: "dop.cache",
            help: "bytes of cached mapping pages (default a 64th of the table, at least 2 pages)",
        },
        ParamDoc {
            key: "dop.max_ext",
            help: "maximum number of extents of a compressed mapping page (default: as many as fit, 125 for pages of 4 KiB)",
        },
        ParamDoc {
            key: "dop.ratio",
            help: "size of an uncompressed mapping page divided by that of a compressed one (default 4)",
        },
        ParamDoc {
            key: "dop.original_share",
            help: "share of the cache reserved for uncompressed mapping pages, 0 to 1; auto (default): shared",
        },
        ParamDoc {
            key: "dop.ctpa",
            help: "on (default): the directory has the cache index of a mapping page (CTPA); off: a lookup searches the list",
        },
        ParamDoc {
            key: "dop.max_dirty",
            help: "maximum number of dirty entries (default 16384)",
        },
        docs::AGE_WINDOW,
    ],
    shared_params: docs::SHARED,
    ram_params: &[
        RamParam {
            key: "dop.max_dirty",
            range: |_, _| Ok((64, 16_384)),
            share_percent: 50,
        },
        RamParam {
            key: "dop.cache",
            range: |layout, _| {
                Ok(paged::cache_range(
                    layout,
                    2 * layout.profile.geometry.page_bytes,
                    4,
                ))
            },
            share_percent: 75,
        },
        paged::TOMBSTONES_RAM,
        paged::AGE_WINDOW_RAM,
    ],
    overhead_blocks,
    constructor: start,
};

/// Bytes of an extent, and of a cached page's head, by the paper.
const EXTENT_BYTES: u32 = 8;
const HEAD_BYTES: u32 = 24;

/// Returns the cache's shape and the maximum number of dirty entries.
fn own_params(
    params: &Params,
    geometry: &Geometry,
    logical_pages: u32,
) -> Result<(Shape, u32), FtlError> {
    let refuse = |text: String| Err(FtlError::Config(text));
    let page = geometry.page_bytes;
    let ratio = params.get("dop.ratio", 4)?;
    if !(2..=64).contains(&ratio) {
        return refuse(format!(
            "parameter dop.ratio: {ratio} is not between 2 and 64"
        ));
    }
    let block = page / ratio;
    let most = block.saturating_sub(HEAD_BYTES) / EXTENT_BYTES;
    let extents = params.get("dop.max_ext", most)?;
    if extents == 0 || extents > most {
        return refuse(format!(
            "parameter dop.max_ext: {extents} is not between 1 and {most}, the most that fit into {block} bytes"
        ));
    }
    let table = 4 * logical_pages as u64;
    let bytes = params.get("dop.cache", (table / 64).max(2 * page as u64))?;
    if bytes < 2 * page as u64 {
        return refuse(format!(
            "parameter dop.cache: {bytes} bytes are too few, need two mapping pages of {page}"
        ));
    }
    let max_pending = params.get("dop.max_dirty", 16_384)?;
    if max_pending < 64 {
        return refuse(format!(
            "parameter dop.max_dirty: {max_pending} is too few, need at least 64"
        ));
    }
    let blocks = u32::try_from(bytes / block as u64).unwrap_or(u32::MAX);
    let original = match params
        .get("dop.original_share", "auto".to_string())?
        .as_str()
    {
        "auto" => None,
        text => {
            let share = text.parse::<f64>().unwrap_or(f64::NAN);
            let original = (blocks as f64 * share).round();
            // Each part must hold at least one page.
            if !(ratio as f64..=blocks as f64 - 1.0).contains(&original) {
                return refuse(format!(
                    "parameter dop.original_share: {text} is neither auto nor a share of the {blocks} blocks that leaves {ratio} to uncompressed and 1 to compressed pages"
                ));
            }
            Some(original as u32)
        }
    };
    let ctpa = params.choice("dop.ctpa", "on", "off")?;
    let shape = Shape {
        blocks,
        original,
        ctpa,
        block_bytes: block,
        ratio,
        extents,
        per_page: page / 4,
        logical_pages,
    };
    Ok((shape, max_pending))
}

fn overhead_blocks(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    own_params(params, &profile.geometry, logical_pages)?;
    paged::overhead_of_params(profile, logical_pages, params)
}

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    Ok(Box::new(new(chip, config, start)?))
}

fn new(chip: Chip, config: &FtlConfig, start: Start) -> Result<PagedFtl<Cache>, FtlError> {
    let (shape, max_pending) = own_params(&config.params, chip.geometry(), config.logical_pages)?;
    let settings = Settings {
        max_pending: Some(max_pending),
        ..paged::settings_of(&chip, config)?
    };
    PagedFtl::create(
        SCHEME.name,
        chip,
        config,
        settings,
        Cache::new(shape),
        start,
    )
}
