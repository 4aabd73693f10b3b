//! LazyFTL: page-level mapping whose table on flash is updated lazily.
//! Ma, Feng, Li: "LazyFTL: a page-level flash translation layer optimized for NAND flash memory", SIGMOD 2011.
//!
//! The whole table (GMT, one entry per logical page) lies on flash; a directory (GMD) in RAM tells where its pages are. Host writes go to
//! *update* blocks, pages moved by collection to *cold* blocks; a small table in RAM (UMT) knows what lies there. Neither
//! a write nor a move touches the GMT. When the two areas are full, one block is *converted*: the GMT learns of its pages, and in
//! passing of every other page of the mapping pages that are written anyway; then the block is plain data, in place. So a
//! mapping page is written once per many writes, and there is no merge.
//!
//! RAM by the paper: 4 bytes per page of the two areas, two bits of flags each, the directory, and whole mapping pages in a
//! small LRU cache (14 there). Really: the UMT is a hash table with reverse indexes per mapping page and per block; one bit per
//! logical page (is it mapped?) and per physical page (is it live?), and 8 bytes per mapping page (`upto`) come on top.
//!
//! Deviations from the paper, where it is silent or relies on parts that MLC does not have:
//! - a page is marked invalid in its spare area only with `valid_tracking=oob_mark` (default where a page may be programmed
//!   again). A bitmap in RAM decides in every mode; the mark is a hint that nothing reads;
//! - a mapping page never names a page that can still be lost. Such an entry stays dirty when its mapping page is written;
//! - blocks are converted when they get old, the open ones included, so that the youngest `lazy.age_window` blocks always contain every
//!   page that the GMT does not know (the paper's third recovery method); checkpoints name them as well (its second);
//! - recovery compares versions, not only page states (`recovery.rs`); trims leave records (`trims.rs`);
//! - the pages of a data block carry role UPDATE or COLD for ever: conversion is a change in RAM;
//! - when space is short, a filled block with fewer live pages than any collectable one is converted ahead of its turn.
//!
//! On flash (beside docs/FORMAT.md's common record): a mapping page (role MAP, `lpn` = its number) is `page_bytes / 4` entries, 4 bytes
//! each, little endian, all ones = unmapped; its `ver` is `upto`: the page contains every change of its entries whose program number
//! is not larger. The newest readable program of a mapping page rules. A trim record (role TRIM, in mapping blocks) carries in
//! `ver` the program number of the trim itself, which copies of the record keep; the data is one range with its version.
//! Checkpoints: see `checkpoint.rs`.
//!
//! What always holds: every live page of an unconverted block that is newer than the GMT is in the UMT; every other mapped
//! page is where the GMT says. If power fails, mount finds the first kind in the window of young blocks.

mod audit;
mod checkpoint;
mod convert;
mod mapping;
mod reclaim;
mod recovery;
#[cfg(test)]
mod tests;
mod trims;

use crate::addr::Lpn;
use crate::checkpoint::Checkpoints;
use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::flash::Flash;
use crate::format::{Flags, PageTag, Role, UNMAPPED};
use crate::ftl::{Ftl, Start};
use crate::gc::{Collect, Gc, SCRUB_PARAM, Scrub};
use crate::mapping::PageLru;
use crate::schemes::{MlcUse, Scheme};
use crate::space::{Space, StreamId, StreamSpec};
use crate::stats::{MountReport, RamEntry, RamReport, SchemeStats};
use crate::wear::ColdToWorn;
use checkpoint::Writer;
use mapping::{Mapped, Umt};
use nand_model::canary::{Canary, sings};
use nand_model::{Cause, Chip, Geometry, Nanos, Pbn, Ppn, Profile, Store};
use std::collections::VecDeque;
use trims::Trims;

/// The table's line.
pub(super) const SCHEME: Scheme = Scheme {
    name: "lazyftl",
    title: "LazyFTL: page-level table on flash, updated lazily",
    paper: "Ma, Feng, Li: LazyFTL, SIGMOD 2011",
    mapping: "page, on flash; whole mapping pages cached",
    ram: "4 B per page of the update and cold area + 4 B per mapping page + cached mapping pages",
    fidelity: 'A',
    mlc: MlcUse::Adapted,
    params: &[
        ParamDoc {
            key: "lazy.buffer_blocks",
            help: "blocks of the update and cold area together (default 1.5625 %, at least 4)",
        },
        ParamDoc { key: "lazy.cache_pages", help: "mapping pages cached (default 14)" },
        ParamDoc {
            key: "lazy.age_window",
            help: "block allocations after which a block must be converted (default 4 x buffer_blocks)",
        },
        ParamDoc { key: "lazy.max_tombstones", help: "trimmed pages that the map may lag behind (default 1024)" },
        ParamDoc {
            key: "valid_tracking",
            help: "oob_mark (default where NOP > 1) or ram_bitmap: where superseded pages are marked",
        },
        ParamDoc {
            key: "gc.free_threshold",
            help: "free blocks that collection keeps (default 6, on MLC 8, and max(1, 0.5 % of blocks))",
        },
        ParamDoc {
            key: "ckpt.interval",
            help: "programs between checkpoints, 0 = none (default max(65536, 100 x pages))",
        },
        ParamDoc { key: "wear.policy", help: "none, or cold_to_worn (default)" },
        ParamDoc { key: "wear.gap", help: "smallest erase-count gap that moves cold data (default 8)" },
        SCRUB_PARAM,
        ParamDoc { key: "nand.pair_policy", help: "defer_erase (default), or none: unsafe, for demonstrations" },
    ],
    overhead_blocks,
    mem: start,
    file: start,
    oob_only: start,
};

const UPDATE: StreamId = 0;
const COLD: StreamId = 1;
const MAP: StreamId = 2;
const CHECKPOINT: StreamId = 3;
/// Streams that hold pages of the host or the map.
const STREAMS: std::ops::Range<StreamId> = UPDATE..CHECKPOINT;

/// The parameters, validated.
#[derive(Clone, Copy, Debug)]
struct Settings {
    buffer_blocks: u32,
    cache_pages: u32,
    age_window: u64,
    max_tombstones: u32,
    oob_mark: bool,
    /// Free blocks that one collection may need: a cold block, a mapping block, a failing program, and on MLC a pair backup.
    reserve: u32,
    free_threshold: u32,
    checkpoint_interval: u64,
    wear: Option<ColdToWorn>,
    scrub: Scrub,
    pair_protection: bool,
}

impl Settings {
    fn new(params: &Params, profile: &Profile, blocks: u32, checkpoint_pages: u32) -> Result<Settings, FtlError> {
        let refuse = |text: String| Err(FtlError::Config(text));
        let buffer_blocks = params.get("lazy.buffer_blocks", default_buffer(blocks))?;
        if buffer_blocks < 4 {
            return refuse(format!("parameter lazy.buffer_blocks: {buffer_blocks} is too few, need at least 4"));
        }
        let age_window = params.get("lazy.age_window", 4 * buffer_blocks as u64)?;
        if age_window < 2 * buffer_blocks as u64 {
            return refuse(format!(
                "parameter lazy.age_window: {age_window} is too short, need twice the {buffer_blocks} buffer blocks"
            ));
        }
        let cache_pages = params.get("lazy.cache_pages", 14)?;
        if cache_pages == 0 {
            return refuse("parameter lazy.cache_pages: need at least 1".into());
        }
        let marks = profile.nop > 1;
        let tracking = params.get("valid_tracking", if marks { "oob_mark" } else { "ram_bitmap" }.to_string())?;
        let oob_mark = match tracking.as_str() {
            "oob_mark" if marks => true,
            "oob_mark" => {
                return refuse(format!(
                    "parameter valid_tracking: {} programs a page once, use ram_bitmap",
                    profile.name
                ));
            }
            "ram_bitmap" => false,
            other => return refuse(format!("parameter valid_tracking: {other:?} is neither oob_mark nor ram_bitmap")),
        };
        let reserve = if profile.is_mlc() { 5 } else { 3 };
        // Above the reserve, a mount after a cut may need a block per stream.
        let free_threshold = params.get("gc.free_threshold", reserve + 3 + 1.max(blocks / 200))?;
        if free_threshold < reserve {
            return refuse(format!("parameter gc.free_threshold: collection needs a reserve of {reserve} blocks"));
        }
        let level = params.choice("wear.policy", "cold_to_worn", "none")?;
        Ok(Settings {
            buffer_blocks,
            cache_pages,
            age_window,
            max_tombstones: params.get("lazy.max_tombstones", 1024)?,
            oob_mark,
            reserve,
            free_threshold,
            checkpoint_interval: params.get("ckpt.interval", u64::max(65_536, 100 * checkpoint_pages as u64))?,
            wear: if level { Some(ColdToWorn { floor: params.get("wear.gap", 8)? }) } else { None },
            scrub: Scrub::new(params)?,
            pair_protection: params.choice("nand.pair_policy", "defer_erase", "none")?,
        })
    }
}

/// 128 of the paper's 8192.
fn default_buffer(blocks: u32) -> u32 {
    4.max(((blocks as f64) * 0.015_625).round() as u32)
}

/// Mapping pages of a device.
fn map_pages(geometry: &Geometry, logical_pages: u32) -> u32 {
    logical_pages.div_ceil(geometry.page_bytes / 4)
}

/// The areas that are not collected while they are what they are (update and cold), the map twice (its garbage must be cheap to
/// collect), trim records, checkpoints, open blocks, blocks that wait for their erase, the threshold.
fn overhead_blocks(profile: &Profile, logical_pages: u32, params: &Params) -> Result<u32, FtlError> {
    let geometry = &profile.geometry;
    let estimate = logical_pages.div_ceil(geometry.pages_per_block) / 16 * 18 + 32;
    let chunks = Writer::pages(geometry, logical_pages, estimate);
    let settings = Settings::new(params, profile, estimate, chunks)?;
    let map = (2 * map_pages(geometry, logical_pages)).div_ceil(geometry.pages_per_block) + 1;
    let trims = Trims::limit(geometry).div_ceil(geometry.pages_per_block) + 1;
    let checkpoints = Checkpoints::blocks_needed(geometry, chunks);
    Ok(settings.buffer_blocks + map + trims + checkpoints + 4 + 3 + settings.free_threshold)
}

/// The scheme over a chip.
struct Lazy<S: Store> {
    space: Space<S>,
    settings: Settings,
    logical_pages: u32,
    umt: Umt,
    /// Mapping page -> where it is; [`UNMAPPED`] if all its entries are unmapped.
    gmd: Vec<u32>,
    /// Mapping page -> the `upto` of its newest version on flash, also where that version was trimmed as a whole.
    upto: Vec<u64>,
    mapped: Mapped,
    cache: PageLru,
    /// A mapping page being looked at or composed.
    map_page: Vec<u8>,
    /// Converted blocks, by epoch, and the last program before: whoever leaves the recovery window must be safe.
    converted: VecDeque<(u64, u64)>,
    /// A conversion is under way; what it needs comes from the reserve.
    converting: bool,
    next_ver: u64,
    trims: Trims,
    checkpoints: Checkpoints,
    writer: Option<Writer>,
    /// `pseq` at which the last checkpoint began.
    last_checkpoint: u64,
    gc: Gc,
    stats: SchemeStats,
    tags: Vec<PageTag>,
}

fn start<S: Store>(chip: Chip<S>, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl<S>>, FtlError> {
    Ok(Box::new(Lazy::start(chip, config, start)?))
}

impl<S: Store> Ftl<S> for Lazy<S> {
    fn scheme(&self) -> &'static str {
        SCHEME.name
    }

    fn logical_pages(&self) -> u32 {
        self.logical_pages
    }

    fn read(&mut self, at: Nanos, first: Lpn, out: &mut [u8]) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        let page = self.space.geometry().page_bytes as usize;
        let count = (out.len() / page) as u32;
        self.stats.host_pages_read += count as u64;
        let mut done = 0;
        let mut next = None;
        while done < count {
            let from = match next.take() {
                Some(known) => known,
                None => self.locate(first.plus(done))?,
            };
            let start = done;
            done += 1;
            while done < count {
                let found = self.locate(first.plus(done))?;
                if !self.follows(from, found, done - start) {
                    next = Some(found);
                    break;
                }
                done += 1;
            }
            let bytes = &mut out[start as usize * page..done as usize * page];
            match from {
                None => bytes.fill(0),
                Some(ppn) => self.space.flash.read_host(first.raw() + start, ppn, bytes)?,
            }
        }
        Ok(self.space.flash.now())
    }

    fn write(&mut self, at: Nanos, first: Lpn, data: &[u8]) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.gc.refuse_if_read_only()?;
        let page = self.space.geometry().page_bytes as usize;
        let count = (data.len() / page) as u32;
        let mut done = 0;
        while done < count {
            self.make_room(UPDATE)?;
            let wanted = (count - done).min(self.space.geometry().pages_per_block);
            self.tags.clear();
            self.tags.extend((0..wanted).map(|i| PageTag {
                role: Role::Update,
                flags: Flags::NONE,
                lpn: first.raw() + done + i,
                ver: self.next_ver + i as u64,
            }));
            let bytes = &data[done as usize * page..][..wanted as usize * page];
            let seq = self.space.flash.pseq() + 1;
            let (ppn, taken) = self.space.append(UPDATE, &self.tags, bytes, Cause::Host)?;
            self.next_ver += taken as u64;
            self.enlist_block_of(ppn);
            for i in 0..taken {
                let (lpn, to) = (first.raw() + done + i, Ppn::new(ppn.raw() + i));
                if let Some(old) = self.umt.point(lpn, Some(to), true, seq).and_then(|old| old.ppn()) {
                    self.invalidate(old, Cause::Host)?;
                }
                self.mapped.set(lpn, true);
            }
            self.stats.host_pages_written += taken as u64;
            done += taken;
            self.advance_checkpoint(taken)?;
        }
        Ok(self.space.flash.now())
    }

    fn trim(&mut self, at: Nanos, first: Lpn, count: u32) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.gc.refuse_if_read_only()?;
        self.stats.host_pages_trimmed += count as u64;
        if !self.mapped.any(first.raw()..first.raw() + count) {
            return Ok(at);
        }
        self.trim_range(first.raw(), count)?;
        self.advance_checkpoint(1)?;
        Ok(self.space.flash.now())
    }

    fn flush(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        // What replaces something else needs no hurry: moved pages and mapping pages have their source until they are safe.
        if !sings(Canary::UnpaddedFlush) {
            self.space.make_stream_safe(UPDATE)?;
        }
        let trims_wait = !sings(Canary::TrimsLeftOutOfFlush);
        if trims_wait && self.trims.iter().any(|(_, record)| !self.space.is_safe(record.ppn)) {
            self.space.make_stream_safe(MAP)?;
        }
        Ok(self.space.flash.now())
    }

    fn idle(&mut self, at: Nanos, budget: u32) -> Result<bool, FtlError> {
        self.space.flash.begin(at);
        self.work_ahead(budget)
    }

    fn shutdown(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.space.make_safe()?;
        if !self.gc.is_read_only() {
            self.convert_everything()?;
            self.write_whole_checkpoint()?;
        }
        Ok(self.space.flash.now())
    }

    fn is_mapped(&mut self, lpn: Lpn) -> Result<bool, FtlError> {
        Ok(self.mapped.has(lpn.raw()))
    }

    fn stats(&self) -> SchemeStats {
        self.gc.stats(SchemeStats {
            mapped_pages: self.mapped.count(),
            valid_pages: self.space.table.valid_pages(),
            blocks: self.space.table.counts(),
            ..self.stats.clone()
        })
    }

    fn ram_report(&self) -> RamReport {
        let entry = |part, entries: u64, paper_bytes, real_bytes| RamEntry { part, entries, paper_bytes, real_bytes };
        let geometry = self.space.geometry();
        let (bitmap, victims, blocks) = self.space.table.bytes();
        let (entries, table, indexes) = self.umt.bytes();
        let buffered = self.settings.buffer_blocks as u64 * geometry.pages_per_block as u64;
        let (cached, cache_bytes) = self.cache.size();
        let directory = 4 * self.gmd.len() as u64;
        let cache_limit = self.settings.cache_pages as u64 * geometry.page_bytes as u64;
        vec![
            entry("umt", entries, 4 * buffered, table),
            entry("umt indexes", entries, 0, indexes),
            entry("flags", buffered, (2 * buffered).div_ceil(8), 0),
            entry("gmd", self.gmd.len() as u64, directory, 3 * directory),
            entry("map cache", cached, cache_limit, cache_bytes + self.map_page.len() as u64),
            entry("bitmaps", geometry.pages(), 0, bitmap + self.mapped.bytes()),
            entry("gc", geometry.blocks as u64, 0, victims + blocks),
            entry("other", self.trims.len() as u64, 0, self.trims.bytes() + self.space.pool_bytes()),
            entry("buffers", 1, 0, self.gc.pages.bytes()),
        ]
    }

    fn check(&mut self) -> Result<Vec<String>, FtlError> {
        self.audit()
    }

    fn chip(&self) -> &Chip<S> {
        self.space.flash.chip()
    }

    fn chip_mut(&mut self) -> &mut Chip<S> {
        self.space.flash.chip_mut()
    }

    fn into_chip(self: Box<Self>) -> Chip<S> {
        self.space.flash.into_chip()
    }
}

impl<S: Store> Lazy<S> {
    fn start(chip: Chip<S>, config: &FtlConfig, start: Start) -> Result<Self, FtlError> {
        let geometry = *chip.geometry();
        let chunks = Writer::pages(&geometry, config.logical_pages, geometry.blocks);
        let settings = Settings::new(&config.params, chip.profile(), geometry.blocks, chunks)?;
        if config.logical_pages as u64 >= geometry.pages() {
            return Err(FtlError::Config("more logical pages than the flash has".into()));
        }
        let stream = |role, collectable| StreamSpec { role, collectable };
        let streams = [
            stream(Role::Update, false),
            stream(Role::Cold, false),
            stream(Role::Map, true),
            stream(Role::Checkpoint, false),
        ];
        let mut space = Space::new(Flash::new(chip), &streams);
        space.set_pair_protection(settings.pair_protection);
        let vtpns = map_pages(&geometry, config.logical_pages) as usize;
        let mut ftl = Lazy {
            gc: Gc::new(&geometry, settings.free_threshold, settings.reserve, settings.wear, settings.scrub),
            umt: Umt::new(geometry),
            cache: PageLru::new(settings.cache_pages, geometry.page_bytes),
            map_page: vec![0; geometry.page_bytes as usize],
            space,
            settings,
            logical_pages: config.logical_pages,
            gmd: vec![UNMAPPED; vtpns],
            upto: vec![0; vtpns],
            mapped: Mapped::new(config.logical_pages),
            converted: VecDeque::new(),
            converting: false,
            next_ver: 1,
            trims: Trims::default(),
            checkpoints: Checkpoints::new(CHECKPOINT),
            writer: None,
            last_checkpoint: 0,
            stats: SchemeStats::default(),
            tags: Vec::new(),
        };
        match start {
            Start::Format => {
                ftl.space.format();
                ftl.stats.mount = MountReport { clean: true, ..MountReport::default() };
            }
            Start::Mount => ftl.mount()?,
        }
        Ok(ftl)
    }

    /// Whether `found` continues a run that began `distance` pages before at `from`.
    #[inline]
    fn follows(&self, from: Option<Ppn>, found: Option<Ppn>, distance: u32) -> bool {
        match (from, found) {
            (None, None) => true,
            (Some(from), Some(found)) => {
                let geometry = self.space.flash.geometry();
                found.raw() == from.raw().wrapping_add(distance) && geometry.block_of(found) == geometry.block_of(from)
            }
            _ => false,
        }
    }

    /// The block of a page just programmed joins the update or cold area, if it is new there.
    #[inline]
    fn enlist_block_of(&mut self, ppn: Ppn) {
        let block: Pbn = self.space.flash.geometry().block_of(ppn);
        if !self.umt.holds(block) {
            self.umt.enlist(block, self.space.table.epoch(block));
        }
    }
}
