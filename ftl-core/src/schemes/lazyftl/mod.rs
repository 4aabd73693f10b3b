//! LazyFTL: page-level mapping whose table on flash is updated lazily. Ma, Feng, Li: "LazyFTL: a
//! page-level flash translation layer optimized for NAND flash memory", SIGMOD 2011.
//!
//! The whole table (GMT, one entry per logical page) is stored on flash; a directory (GMD) in RAM
//! has the locations of its pages. Host writes go to *update* blocks, pages relocated by GC to
//! *cold* blocks; a small table in RAM (UMT) maps the pages there. Neither a write nor a relocation
//! accesses the GMT. When the two areas are full, one block is *converted*: the GMT gets the
//! entries of its pages. It also gets the entries of all other pages of the mapping pages that are
//! written. Then the block is plain data, in place. So a mapping page is written once per many
//! writes, and there is no merge.
//!
//! RAM by the paper: 4 bytes and two flag bits per page of the two areas, the directory, and a
//! small LRU cache of whole mapping pages (14 there). Allocated: the UMT is a list of 8 bytes per
//! entry for each mapping page, with the logical page of every page of the two areas. Added are two
//! bits per logical page (mapped, in the UMT), one per physical page (valid), 4 bytes per block,
//! and 56 bytes per mapping page (its list, `upto`).
//!
//! Deviations from the paper, where it is silent or relies on features that MLC does not have:
//! - A page is marked invalid in its OOB area only with `lazy.valid_tracking=oob_mark` (default if
//!   a page may be programmed again). A bitmap in RAM decides in every mode; the mark is a hint
//!   that nothing reads.
//! - A conversion programs each mapping page first, and then marks the old pages invalid, in the
//!   order in which the entries changed; Algorithm 1 marks them first, in the order of their
//!   addresses. Only the choice among victims with equally few valid pages depends on it.
//! - A mapping page never references a page that can still be lost. Such an entry stays dirty when
//!   its mapping page is written.
//! - Old blocks are converted, including open ones. So the youngest `lazy.age_window` blocks always
//!   contain every page that the GMT does not map (the paper's third recovery method). Checkpoints
//!   list these blocks as well (its second).
//! - Recovery compares versions, not only page states; trims leave records.
//! - The pages of a data block keep role UPDATE or COLD: conversion is a change in RAM.
//! - With another `gc.placement` than the default, which is the paper's, the two areas together
//!   have an open block for each stream. `single` merges both areas. `midas` and `mdc` treat pages
//!   that neither the UMT nor the cache maps as written long ago, because a write looks nothing up.
//! - When every collectable block has 15/16 of its pages valid or more, the invalid pages are in
//!   the two areas: a full block there with fewer valid pages is converted ahead of its turn and
//!   collected. The share is ours.
//!
//! All schemes whose map is stored on flash share the mechanism ([`crate::families::paged`], with
//! invariants and power failure): UMT = pending entries, GMD = directory. Specific to this scheme:
//! writes look nothing up, blocks are converted, whole pages are cached.

#[cfg(test)]
mod tests;

use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::families::paged::map::entry_at;
use crate::families::paged::pending::Pending;
use crate::families::paged::{self, PagedFtl, Policy, Settings, docs};
use crate::format::Role;
use crate::ftl::{Ftl, Start};
use crate::gc::Own;
use crate::gc::placement::{self, more_streams};
use crate::layout::Layout;
use crate::map_cache::PageLru;
use crate::mapping::ram_entry;
use crate::ram::RamParam;
use crate::schemes::scheme::{MlcUse, Scheme};
use crate::stats::{Evictions, RamEntry, RamPart};
use nand_model::{Chip, Geometry, Ppn, Profile};

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: "lazyftl",
    title: "LazyFTL: page-level table on flash, updated lazily",
    about: "A write goes to an update block, a page that GC relocates to a cold block. An update mapping table (UMT) in RAM maps \
            the pages of both areas, so neither writes a mapping page. When the areas are full, one block is converted: its \
            entries are written to mapping pages, and it becomes a data block without a copy. So a mapping page is written once \
            per many writes, and nothing is merged.",
    paper: "Ma, Feng, Li: LazyFTL, SIGMOD 2011",
    mapping: "page, on flash; whole mapping pages cached",
    ram: "4 B per page of the update and cold area + 4 B per mapping page + cached mapping pages",
    fidelity: 'A',
    mlc: MlcUse::Adapted,
    params: &[
        ParamDoc {
            key: "lazy.buffer_blocks",
            help: "blocks of the update and cold area together (default 1.5625 %; at least 4, and one more for each lane beyond two)",
        },
        ParamDoc {
            key: "lazy.cache_pages",
            help: "number of cached mapping pages (default 14)",
        },
        ParamDoc {
            key: "lazy.age_window",
            help: "block allocations after which a block must be converted (default 4 x buffer_blocks)",
        },
        ParamDoc {
            key: "lazy.valid_tracking",
            help: "where invalid pages are marked: oob_mark (default if NOP > 1) or ram_bitmap",
        },
    ],
    shared_params: docs::SHARED,
    ram_params: &[
        RamParam {
            key: "lazy.buffer_blocks",
            range: buffer_range,
            share_percent: 50,
        },
        RamParam {
            key: "lazy.cache_pages",
            range: |layout, _| Ok((1, paged::map_pages_of(layout))),
            share_percent: 90,
        },
        paged::TOMBSTONES_RAM,
    ],
    overhead_blocks,
    constructor: start,
};

/// Returns the validated parameters and the number of cached pages.
fn settings(
    params: &Params,
    profile: &Profile,
    blocks: u32,
    checkpoint: u32,
) -> Result<(Settings, u32), FtlError> {
    let refuse = |text: String| Err(FtlError::Config(text));
    // A cold block, a mapping block, a failing program, and on MLC a pair backup.
    let reserve = if profile.is_mlc() { 5 } else { 3 };
    let own = Own::none(&profile.geometry);
    let common = Settings::new(params, &own, blocks, checkpoint, reserve)?;
    // An open block for each stream, and two full ones.
    let least = 4 + common.more_streams;
    let buffer_blocks = params.get("lazy.buffer_blocks", least.max(default_buffer(blocks)))?;
    if buffer_blocks < least {
        return refuse(format!(
            "parameter lazy.buffer_blocks: {buffer_blocks} is too few, need at least {least} with the open blocks of this gc.placement and alloc.stripe"
        ));
    }
    let age_window = params.get("lazy.age_window", 4 * buffer_blocks as u64)?;
    let shortest = paged::age_window_least(common.more_streams).max(2 * buffer_blocks as u64);
    if age_window < shortest {
        return refuse(format!(
            "parameter lazy.age_window: {age_window} is too short with {buffer_blocks} buffer blocks and the lanes of gc.placement and alloc.stripe, need at least {shortest}"
        ));
    }
    let cache_pages = params.get("lazy.cache_pages", 14)?;
    if cache_pages == 0 {
        return refuse("parameter lazy.cache_pages: need at least 1".into());
    }
    let settings = Settings {
        buffer_blocks: Some(buffer_blocks),
        age_window,
        oob_mark: marks(params, profile)?,
        host_role: Role::Update,
        copy_role: Role::Cold,
        ..common
    };
    Ok((settings, cache_pages))
}

/// Returns whether invalid pages are marked in their OOB area.
fn marks(params: &Params, profile: &Profile) -> Result<bool, FtlError> {
    let marks = profile.nop > 1;
    let tracking = params.get(
        "lazy.valid_tracking",
        if marks { "oob_mark" } else { "ram_bitmap" }.to_string(),
    )?;
    let refuse = |text: String| {
        Err(FtlError::Config(format!(
            "parameter lazy.valid_tracking: {text}"
        )))
    };
    match tracking.as_str() {
        "oob_mark" if marks => Ok(true),
        "oob_mark" => refuse(format!(
            "{} allows one program per page, use ram_bitmap",
            profile.name
        )),
        "ram_bitmap" => Ok(false),
        other => refuse(format!("{other:?} is neither oob_mark nor ram_bitmap")),
    }
}

/// Returns the fewest blocks of the two areas, and the default number.
fn buffer_range(layout: &Layout, params: &Params) -> Result<(u64, u64), FtlError> {
    let geometry = &layout.profile.geometry;
    let streams = placement::from_params(params, &Own::none(geometry))?.lanes();
    let least = 4 + more_streams(streams);
    let most = least.max(default_buffer(layout.profile.geometry.blocks));
    Ok((least as u64, most as u64))
}

/// 128 of the paper's 8192 blocks.
fn default_buffer(blocks: u32) -> u32 {
    ((blocks as f64) * 0.015_625).round() as u32
}

fn overhead_blocks(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    paged::check_region(profile, params)?;
    let geometry = &profile.geometry;
    let blocks = paged::estimate_blocks(geometry, logical_pages);
    let chunks = paged::checkpoint_pages(geometry, logical_pages, blocks);
    let (settings, _) = settings(params, profile, blocks, chunks)?;
    Ok(paged::overhead_blocks(
        profile,
        logical_pages,
        blocks,
        &settings,
    ))
}

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    Ok(Box::new(new(chip, config, start)?))
}

fn new(chip: Chip, config: &FtlConfig, start: Start) -> Result<PagedFtl<WholePages>, FtlError> {
    let geometry = *chip.geometry();
    let chunks = paged::checkpoint_pages(&geometry, config.logical_pages, geometry.blocks);
    let blocks = geometry.blocks - chip.slc_blocks();
    let (settings, cache_pages) = settings(&config.params, chip.profile(), blocks, chunks)?;
    let policy = WholePages::new(&geometry, cache_pages);
    PagedFtl::create(SCHEME.name, chip, config, settings, policy, start)
}

/// LRU cache of mapping pages as they are on flash. Newer entries are in the pending table.
struct WholePages {
    pages: PageLru,
    limit: u32,
    page_bytes: u32,
    steps: u64,
}

impl WholePages {
    fn new(geometry: &Geometry, limit: u32) -> Self {
        WholePages {
            pages: PageLru::new(limit, geometry.page_bytes),
            limit,
            page_bytes: geometry.page_bytes,
            steps: 0,
        }
    }

    fn mapping_entry_of(&self, lpn: u32) -> (u32, u32) {
        let per_page = self.page_bytes / 4;
        (lpn / per_page, lpn % per_page)
    }
}

impl Policy for WholePages {
    const LOOKS_UP_WRITES: bool = false;

    #[inline]
    fn get(&mut self, lpn: u32, pending: bool) -> Option<Option<Ppn>> {
        let (vtpn, index) = self.mapping_entry_of(lpn);
        self.steps += 1;
        if pending {
            return None;
        }
        let found = self.pages.get(vtpn).map(|page| entry_at(page, index));
        self.steps += 1 + u64::from(found.is_some());
        found
    }

    fn peek(&self, lpn: u32) -> Option<Option<Ppn>> {
        let (vtpn, index) = self.mapping_entry_of(lpn);
        self.pages.peek(vtpn).map(|page| entry_at(page, index))
    }

    fn load(&mut self, vtpn: u32, page: &[u8], _: u32, _: u32, _: &Pending) {
        self.pages.put(vtpn, page);
    }

    #[inline]
    fn on_relocate(&mut self, _: u32, _: Option<Ppn>) -> bool {
        true
    }

    #[inline]
    fn on_write(&mut self, _: u32, _: Ppn, _: bool, _: &Pending) {}

    #[inline]
    fn evict(&mut self, _: &Pending) -> Option<u32> {
        None
    }

    fn on_writeback(&mut self, vtpn: u32, page: &[u8], _: &Pending) {
        self.pages.put(vtpn, page);
    }

    fn dropped(&mut self, vtpn: u32) {
        self.pages.remove(vtpn);
    }

    fn copy_page(&mut self, vtpn: u32, _: bool, out: &mut [u8]) -> bool {
        self.pages
            .get(vtpn)
            .map(|page| out.copy_from_slice(page))
            .is_some()
    }

    /// The pending entry (UMT); if there is none, the cached mapping page, and the entry in it.
    fn lookup_steps(&self) -> u64 {
        self.steps
    }

    fn evictions(&self) -> Evictions {
        self.pages.evictions()
    }

    fn ram(&self) -> Vec<RamEntry> {
        let (entries, real, most) = self.pages.size();
        let paper = self.limit as u64 * self.page_bytes as u64;
        vec![ram_entry(RamPart::MapCache, entries, paper, real, most)]
    }
}
