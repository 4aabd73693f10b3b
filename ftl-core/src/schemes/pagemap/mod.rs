//! Page-level ideal: the whole table LPN -> PPN in RAM.
//!
//! Not one paper's scheme but everybody's reference: any page may lie anywhere, a lookup costs no
//! flash. Greedy garbage collection at a threshold of free blocks. RAM: 4 bytes per logical page,
//! one bit per physical page, the victim index.
//!
//! Ours, where papers say nothing: trims leave records (role TRIM) that live until two checkpoints
//! contain them; checkpoints of the map bound the scan of a mount (`recovery.rs`); a page whose
//! data is lost while it is moved stays an error.
//!
//! What always holds: `map[lpn] = ppn` if and only if the page at `ppn` is live and carries `lpn`.
//! If power fails, mount takes the newest readable version of every page; a write is acknowledged
//! when its page is programmed.

mod reclaim;
mod recovery;
#[cfg(test)]
mod tests;
mod trims;

use crate::addr::Lpn;
use crate::checkpoint::Checkpoints;
use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::events::EventLog;
use crate::flash::Flash;
use crate::format::{Flags, PageTag, Role, UNMAPPED};
use crate::ftl::{Ftl, Start};
use crate::gc::{Collect, Gc, SCRUB_PARAM, Scrub};
use crate::recovery::rescue_blocks;
use crate::schemes::{MlcUse, Scheme};
use crate::space::{Space, StreamId, StreamSpec};
use crate::stats::{BlockView, MountReport, RamEntry, RamReport, SchemeStats};
use crate::wear::{ColdToWorn, GAP_PARAM, POLICY_PARAM};
use nand_model::{Cause, Chip, Nanos, PairTable, Pbn, Ppn, Profile, Store};
use recovery::MapWriter;
use trims::Trims;

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
    params: &[
        ParamDoc {
            key: "gc.free_threshold",
            help: "free blocks that collection keeps (default max(4, 0.5 % of blocks), and what a mount rescues)",
        },
        ParamDoc {
            key: "page.gc_stream",
            help: "where collected pages go: same block as host writes, or separate (default)",
        },
        ParamDoc {
            key: "ckpt.interval",
            help: "programs between checkpoints, 0 = only when trims need one (default max(65536, 100 x pages))",
        },
        POLICY_PARAM,
        GAP_PARAM,
        SCRUB_PARAM,
        ParamDoc {
            key: "nand.pair_policy",
            help: "defer_erase (default), or none: unsafe, for demonstrations",
        },
    ],
    shared_params: &[],
    overhead_blocks,
    mem: start,
    file: start,
    oob_only: start,
};

const HOST: StreamId = 0;
const CHECKPOINT: StreamId = 1;
const GC: StreamId = 2;

/// Blocks below which collection waits for nothing: a copy target and two more.
const RESERVE: u32 = 3;

/// The parameters, validated.
#[derive(Clone, Copy, Debug)]
struct Settings {
    free_threshold: u32,
    gc_stream: StreamId,
    checkpoint_interval: u64,
    wear: Option<ColdToWorn>,
    scrub: Scrub,
    pair_protection: bool,
}

impl Settings {
    fn new(
        params: &Params,
        profile: &Profile,
        blocks: u32,
        checkpoint_pages: u32,
    ) -> Result<Settings, FtlError> {
        let pair_protection = params.choice("nand.pair_policy", "defer_erase", "none")?;
        let pages = profile.geometry.pages_per_block;
        let rescued = rescue_blocks(&PairTable::new(profile.pairing, pages), pages, 1);
        let least = 2 + if pair_protection { rescued } else { 0 };
        let free_threshold = params.get("gc.free_threshold", 4.max(blocks / 200).max(least))?;
        if free_threshold < least {
            return Err(FtlError::Config(format!(
                "parameter gc.free_threshold: {free_threshold} blocks; collection and a mount need {least} on this device"
            )));
        }
        let separate = params.choice("page.gc_stream", "separate", "same")?;
        Ok(Settings {
            free_threshold,
            gc_stream: if separate { GC } else { HOST },
            checkpoint_interval: params.get(
                "ckpt.interval",
                u64::max(65_536, 100 * checkpoint_pages as u64),
            )?,
            wear: ColdToWorn::from_params(params)?,
            scrub: Scrub::new(params)?,
            pair_protection,
        })
    }
}

/// Three sets of checkpoints; trim records up to their limit, twice; three open blocks, two waiting
/// for their erase, one for a failing block, and the free threshold.
fn overhead_blocks(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    let geometry = &profile.geometry;
    let chunks = MapWriter::chunks(geometry, logical_pages);
    let estimate = logical_pages / geometry.pages_per_block;
    let settings = Settings::new(params, profile, estimate, chunks)?;
    let trims = 2 * Trims::limit(geometry, chunks).div_ceil(geometry.pages_per_block);
    Ok(Checkpoints::blocks_needed(geometry, chunks) + trims + 6 + settings.free_threshold)
}

/// The scheme over a chip.
struct PageMap<S: Store> {
    space: Space<S>,
    settings: Settings,
    map: Vec<u32>,
    mapped: u64,
    next_ver: u64,
    trims: Trims,
    checkpoints: Checkpoints,
    map_writer: Option<MapWriter>,
    /// `pseq` at which the last checkpoint began.
    last_checkpoint: u64,
    gc: Gc,
    stats: SchemeStats,
    tags: Vec<PageTag>,
}

fn start<S: Store>(
    chip: Chip<S>,
    config: &FtlConfig,
    start: Start,
) -> Result<Box<dyn Ftl<S>>, FtlError> {
    let geometry = *chip.geometry();
    let chunks = MapWriter::chunks(&geometry, config.logical_pages);
    let settings = Settings::new(&config.params, chip.profile(), geometry.blocks, chunks)?;
    if config.logical_pages as u64 >= geometry.pages() {
        return Err(FtlError::Config(
            "more logical pages than the flash has".into(),
        ));
    }
    let stream = |role, collectable| StreamSpec {
        role,
        collectable,
        in_place: false,
    };
    let streams = [
        stream(Role::Data, true),
        stream(Role::Checkpoint, false),
        stream(Role::Data, true),
    ];
    let mut space = Space::new(Flash::new(chip), &streams);
    space.set_pair_protection(settings.pair_protection);
    let mut ftl = PageMap {
        gc: Gc::new(
            &geometry,
            settings.free_threshold,
            RESERVE,
            settings.wear,
            settings.scrub,
        ),
        space,
        settings,
        map: vec![UNMAPPED; config.logical_pages as usize],
        mapped: 0,
        next_ver: 1,
        trims: Trims::new(Trims::limit(&geometry, chunks)),
        checkpoints: Checkpoints::new(CHECKPOINT),
        map_writer: None,
        last_checkpoint: 0,
        stats: SchemeStats::default(),
        tags: Vec::new(),
    };
    match start {
        Start::Format => {
            ftl.space.format();
            ftl.stats.mount = MountReport {
                clean: true,
                ..MountReport::default()
            };
        }
        Start::Mount => ftl.mount()?,
    }
    Ok(Box::new(ftl))
}

impl<S: Store> Ftl<S> for PageMap<S> {
    fn scheme(&self) -> &'static str {
        SCHEME.name
    }

    fn logical_pages(&self) -> u32 {
        self.map.len() as u32
    }

    fn read(&mut self, at: Nanos, first: Lpn, out: &mut [u8]) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        let page = self.space.geometry().page_bytes as usize;
        let count = (out.len() / page) as u32;
        self.stats.host_pages_read += count as u64;
        let places = &self.map[first.index()..][..count as usize];
        self.space.flash.read_places(first.raw(), places, out)?;
        Ok(self.space.flash.now())
    }

    fn write(&mut self, at: Nanos, first: Lpn, data: &[u8]) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.gc.refuse_if_read_only()?;
        if data.len() == self.space.flash.geometry().page_bytes as usize {
            self.write_page(first, data)?;
        } else {
            self.write_run(first, data)?;
        }
        Ok(self.space.flash.now())
    }

    fn trim(&mut self, at: Nanos, first: Lpn, count: u32) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.gc.refuse_if_read_only()?;
        let range = first.index()..first.index() + count as usize;
        self.stats.host_pages_trimmed += count as u64;
        if self.map[range].iter().all(|ppn| *ppn == UNMAPPED) {
            return Ok(at);
        }
        self.make_room(HOST)?;
        let ver = self.next_ver;
        self.next_ver += 1;
        self.write_trim_record(first, count, ver)?;
        (0..count).for_each(|i| self.set_map(first.plus(i), None));
        self.advance_checkpoint(1)?;
        Ok(self.space.flash.now())
    }

    fn flush(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        // Copies need no hurry: until they are safe, the block they came from is not erased.
        self.space.make_stream_safe(HOST)?;
        Ok(self.space.flash.wait())
    }

    fn idle(&mut self, at: Nanos, budget: u32) -> Result<bool, FtlError> {
        self.space.flash.begin(at);
        self.work_ahead(budget)
    }

    fn shutdown(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.space.make_safe()?;
        if !self.gc.is_read_only() {
            self.write_whole_checkpoint()?;
        }
        Ok(self.space.flash.now())
    }

    fn is_mapped(&mut self, lpn: Lpn) -> Result<bool, FtlError> {
        Ok(self.map[lpn.index()] != UNMAPPED)
    }

    fn stats(&self) -> SchemeStats {
        self.gc.stats(SchemeStats {
            map_cache_hits: self.stats.host_pages_read,
            checkpoints: self.stats.checkpoints,
            mapped_pages: self.mapped,
            valid_pages: self.space.table.valid_pages(),
            blocks: self.space.table.counts(),
            ..self.stats.clone()
        })
    }

    fn block(&self, block: Pbn) -> BlockView {
        self.space.look_at(block)
    }

    fn events(&self) -> &EventLog {
        &self.space.events
    }

    fn ram_report(&self) -> RamReport {
        let entry = |part, entries: u64, paper_bytes, real_bytes| RamEntry {
            part,
            entries,
            paper_bytes,
            real_bytes,
        };
        let geometry = self.space.geometry();
        let (bitmap, victims, blocks) = self.space.table.bytes();
        let map = 4 * self.map.len() as u64;
        vec![
            entry("map", self.map.len() as u64, map, map),
            entry(
                "bitmaps",
                geometry.pages(),
                geometry.pages().div_ceil(8),
                bitmap,
            ),
            entry(
                "gc",
                geometry.blocks as u64,
                2 * geometry.blocks as u64,
                victims + blocks,
            ),
            entry(
                "other",
                self.trims.len() as u64,
                0,
                self.trims.bytes() + self.space.pool_bytes(),
            ),
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

impl<S: Store> PageMap<S> {
    /// [`Ftl::write`] of one page.
    #[inline]
    fn write_page(&mut self, lpn: Lpn, data: &[u8]) -> Result<(), FtlError> {
        self.make_room(HOST)?;
        let tag = PageTag {
            role: Role::Data,
            flags: Flags::NONE,
            lpn: lpn.raw(),
            ver: self.next_ver,
        };
        // Looked up before the page is programmed: a table this large is seldom in a near cache,
        // and the program need not wait for it.
        let old = self.map[lpn.index()];
        let ppn = self.space.append_page(HOST, tag, data, Cause::Host)?;
        self.next_ver += 1;
        self.map[lpn.index()] = ppn.raw();
        self.give_up(old, true);
        self.stats.host_pages_written += 1;
        self.advance_checkpoint(1)
    }

    /// [`Ftl::write`] of any number of pages.
    fn write_run(&mut self, first: Lpn, data: &[u8]) -> Result<(), FtlError> {
        let page = self.space.geometry().page_bytes as usize;
        let count = (data.len() / page) as u32;
        let mut done = 0;
        while done < count {
            self.make_room(HOST)?;
            let wanted = (count - done).min(self.space.geometry().pages_per_block);
            let tag = |i| PageTag {
                role: Role::Data,
                flags: Flags::NONE,
                lpn: first.raw() + done + i,
                ver: self.next_ver + i as u64,
            };
            let bytes = &data[done as usize * page..][..wanted as usize * page];
            self.tags.clear();
            self.tags.extend((0..wanted).map(tag));
            let (ppn, taken) = self.space.append(HOST, &self.tags, bytes, Cause::Host)?;
            self.next_ver += taken as u64;
            for i in 0..taken {
                self.set_map(first.plus(done + i), Some(Ppn::new(ppn.raw() + i)));
            }
            self.stats.host_pages_written += taken as u64;
            done += taken;
            self.advance_checkpoint(taken)?;
        }
        Ok(())
    }

    /// Points the page at its new place and gives up the old one.
    #[inline]
    fn set_map(&mut self, lpn: Lpn, ppn: Option<Ppn>) {
        let old = std::mem::replace(&mut self.map[lpn.index()], ppn.map_or(UNMAPPED, Ppn::raw));
        self.give_up(old, ppn.is_some());
    }

    /// An entry of the map was replaced: by that of another page, or by none.
    #[inline(always)]
    fn give_up(&mut self, old: u32, mapped: bool) {
        match old {
            UNMAPPED => self.mapped += mapped as u64,
            old => {
                self.mapped -= !mapped as u64;
                self.space.table.clear_live(Ppn::new(old));
            }
        }
    }

    fn audit(&mut self) -> Result<Vec<String>, FtlError> {
        let mut wrong = self.space.table.audit();
        let mapped = self.map.iter().filter(|p| **p != UNMAPPED).count() as u64;
        let live = self.space.table.valid_pages();
        if mapped != self.mapped || live != mapped + self.trims.len() as u64 {
            wrong.push(format!(
                "{mapped} pages mapped ({} counted), {live} live, {} trims",
                self.mapped,
                self.trims.len()
            ));
        }
        let counts = self.space.table.counts();
        let sum =
            counts.free + counts.open + counts.data + counts.log + counts.map + counts.checkpoint;
        if sum + counts.released + counts.bad != self.space.geometry().blocks {
            wrong.push(format!("blocks do not add up: {counts:?}"));
        }
        for lpn in 0..self.map.len() as u32 {
            let Some(ppn) = Some(self.map[lpn as usize])
                .filter(|p| *p != UNMAPPED)
                .map(Ppn::new)
            else {
                continue;
            };
            if !self.space.geometry().contains(ppn) || !self.space.table.is_live(ppn) {
                wrong.push(format!(
                    "logical page {lpn} maps to {ppn}, which is not live"
                ));
                continue;
            }
            let oob = self.space.flash.read_oob(ppn, Cause::Recovery)?;
            if oob.is_none_or(|oob| oob.tag.lpn != lpn || oob.tag.role != Role::Data) {
                wrong.push(format!(
                    "logical page {lpn} maps to {ppn}, which says {oob:?}"
                ));
            }
        }
        Ok(wrong)
    }
}
