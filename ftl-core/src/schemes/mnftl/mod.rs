//! MNFTL: a page map inside every logical block, and as many physical blocks as it needs.
//!
//! Qin, Wang, Liu, Shao, Guan: *MNFTL: An Efficient Flash Translation Layer for MLC NAND Flash Memory Storage Systems*, DAC 2011. Made
//! for MLC: pages are programmed upwards and once. A logical block appends to its own open block; when that is full it takes
//! another, and blocks are collected only when no free one is left (*postponed reclamation*). Valid pages stay inside their logical
//! block (*concentrated mapping*), so that a block of a logical block with many holds few valid ones. The page map of a
//! logical block is cut into N subtables; each page that is programmed carries in its spare bytes the subtable that it belongs
//! to, as it is from then on. RAM holds a pointer to the newest copy of each. A read costs one read of spare bytes and one of a
//! page, a write one of spare bytes and a program (`tables.rs`, `units.rs`).
//!
//! RAM: 4 + 3 N + 6 M bytes per logical block with M physical ones in the paper; ours beside it in the report. One bit per physical and
//! one per logical page are ours.
//!
//! Where we deviate, or the paper is silent:
//! - Slots have two bytes (number of a block in the list, page) instead of three, so that 16 of them and the record fit into 64 spare bytes. The
//!   charge is the same. A part with too few is refused.
//! - Subtables that one request uses twice are read once. Which pages are valid is known, so a block without any is erased without reading
//!   subtables.
//! - Trims leave records (`crate::trims`) and subtables in RAM until a page of theirs is programmed; beyond a limit one of their pages is copied.
//!   The paper has no trims; a page that carries nothing but a subtable would be another way, and would have to be collected like data.
//! - A mount cannot continue what a cut left, and must not open a block per logical block: what it programs goes to *common blocks*, which hold
//!   trim records and pages of any logical block. From there pages go home when their block is collected and their logical block
//!   has room. Subtables with such a page are in RAM.
//! - When no logical block has two blocks, the emptiest block is collected into the common ones. The paper's rule would find no victim.
//! - Recovery reads all records (`recovery.rs`); wear levelling, refreshing and patrol reads as under the other schemes.
//!
//! What always holds: a subtable on flash names live pages of its logical block's own blocks only; a page is live if and only if the newest
//! content of its logical page is there. A write is acknowledged when its page is programmed. If power fails, mount takes the newest readable
//! version of every page and compares: a subtable that says something else is in RAM from then on.

mod reclaim;
mod recovery;
mod tables;
#[cfg(test)]
mod tests;
mod units;

use crate::addr::Lpn;
use crate::checkpoint::Checkpoints;
use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::flash::Flash;
use crate::format::{Flags, PageTag, Role, UNMAPPED};
use crate::ftl::{Ftl, Start};
use crate::gc::{Collect, Gc, SCRUB_PARAM, Scrub};
use crate::recovery::{CleanStop, rescue_blocks};
use crate::schemes::{MlcUse, Scheme};
use crate::space::{Space, StreamId, StreamSpec};
use crate::stats::{MountReport, RamEntry, RamReport, SchemeStats};
use crate::trims::Trims;
use crate::wear::ColdToWorn;
use nand_model::canary::{Canary, sings};
use nand_model::{Cause, Chip, Nanos, PairTable, Pbn, Ppn, Profile, Store};
use tables::{AtHand, LOST, Place, Shape, Tables};
use units::Units;

/// The table's line.
pub(super) const SCHEME: Scheme = Scheme {
    name: "mnftl",
    title: "MNFTL: a page map per logical block, its parts in the spare bytes of its pages",
    paper: "Qin, Wang, Liu, Shao, Guan: MNFTL, DAC 2011",
    mapping: "page inside a logical block of any number of physical ones; subtables in spare bytes",
    ram: "4 B + 3 B per subtable + 6 B per physical block, for each logical block",
    fidelity: 'A',
    mlc: MlcUse::AsPublished,
    params: &[
        ParamDoc { key: "mnftl.subtables", help: "parts of a logical block's page map, 1 to 64 (default 8)" },
        ParamDoc {
            key: "mnftl.victim",
            help: "max_chain (default): a block of the logical block with the most; or global_min: the emptiest",
        },
        ParamDoc {
            key: "mnftl.idle_min_chain",
            help: "blocks of a logical block from which on it is collected in idle time, 0 = never (default 3)",
        },
        ParamDoc {
            key: "gc.free_threshold",
            help: "free blocks that collection keeps (default max(4, 0.5 % of blocks), and what a mount may need)",
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

/// Trim records, what a mount programs, and what finds no room at home.
const COMMON: StreamId = 0;
const CHECKPOINT: StreamId = 1;
/// The stream of logical block 0.
const FIRST_UNIT: StreamId = 2;

/// Blocks below which collection waits for nothing: a copy target and two more.
const RESERVE: u32 = 3;

/// Subtables in RAM, whatever the size of the device.
const MIN_IN_RAM: u32 = 64;

/// The parameters, validated.
#[derive(Clone, Copy, Debug)]
struct Settings {
    subtables: u32,
    by_chain: bool,
    idle_min_chain: u32,
    free_threshold: u32,
    wear: Option<ColdToWorn>,
    scrub: Scrub,
    pair_protection: bool,
}

impl Settings {
    fn new(params: &Params, profile: &Profile, blocks: u32, logical_pages: u32) -> Result<Settings, FtlError> {
        let pages = profile.geometry.pages_per_block;
        let subtables = params.get("mnftl.subtables", 8)?;
        if !(1..=64).contains(&subtables) {
            return Err(FtlError::Config(format!("parameter mnftl.subtables: {subtables} is not within 1 to 64")));
        }
        let rescued = rescue_blocks(&PairTable::new(profile.pairing, pages), pages, logical_pages.div_ceil(pages));
        let free_threshold = params.get("gc.free_threshold", 4.max(blocks / 200) + rescued)?;
        if free_threshold < 2 {
            return Err(FtlError::Config("parameter gc.free_threshold: collection needs at least 2 blocks".into()));
        }
        let level = params.choice("wear.policy", "cold_to_worn", "none")?;
        Ok(Settings {
            subtables: subtables.min(pages),
            by_chain: params.choice("mnftl.victim", "max_chain", "global_min")?,
            idle_min_chain: params.get("mnftl.idle_min_chain", 3)?,
            free_threshold,
            wear: if level { Some(ColdToWorn { floor: params.get("wear.gap", 8)? }) } else { None },
            scrub: Scrub::new(params)?,
            pair_protection: params.choice("nand.pair_policy", "defer_erase", "none")?,
        })
    }
}

/// Three sets of checkpoints; trim pages; an open common block, one for a failing block, two waiting for their erase, a partly filled logical
/// block, and the free threshold.
fn overhead_blocks(profile: &Profile, logical_pages: u32, params: &Params) -> Result<u32, FtlError> {
    let geometry = &profile.geometry;
    let estimate = logical_pages / geometry.pages_per_block;
    let settings = Settings::new(params, profile, estimate, logical_pages)?;
    let geometry = nand_model::Geometry { blocks: estimate.max(64) * 2, ..*geometry };
    let checkpoints = Checkpoints::blocks_needed(&geometry, CleanStop::chunks(&geometry));
    Ok(checkpoints + Trims::blocks_needed(&geometry, logical_pages) + 6 + settings.free_threshold)
}

/// The scheme over a chip.
struct Mnftl<S: Store> {
    space: Space<S>,
    settings: Settings,
    logical_pages: u32,
    shape: Shape,
    units: Units,
    tables: Tables,
    at_hand: AtHand,
    trims: Trims,
    checkpoints: Checkpoints,
    next_ver: u64,
    gc: Gc,
    /// While a mount runs everything goes to the common blocks.
    mounting: bool,
    /// The logical block being collected, and how many blocks it had: it is worth it when one is free.
    collecting: Option<(u32, u32)>,
    /// Where the search for subtables to take out of RAM goes on.
    next_settled: u32,
    stats: SchemeStats,
    /// Physical pages of the read at hand.
    places: Vec<u32>,
}

fn start<S: Store>(chip: Chip<S>, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl<S>>, FtlError> {
    Ok(Box::new(create(chip, config, start)?))
}

fn create<S: Store>(chip: Chip<S>, config: &FtlConfig, start: Start) -> Result<Mnftl<S>, FtlError> {
    let geometry = *chip.geometry();
    let settings = Settings::new(&config.params, chip.profile(), geometry.blocks, config.logical_pages)?;
    if config.logical_pages as u64 >= geometry.pages() {
        return Err(FtlError::Config("more logical pages than the flash has".into()));
    }
    let shape = Shape::new(&geometry, settings.subtables);
    let mut flash = Flash::new(chip);
    flash.reserve_spare(shape.spare_bytes())?;
    let stream = |role, collectable| StreamSpec { role, collectable };
    let mut space = Space::new(flash, &[stream(Role::Cold, true), stream(Role::Checkpoint, false)]);
    let logical_blocks = config.logical_pages.div_ceil(shape.pages);
    let first = space.add_streams(stream(Role::Data, true), logical_blocks as usize);
    assert_eq!(first, FIRST_UNIT);
    space.set_pair_protection(settings.pair_protection);
    let mut ftl = Mnftl {
        gc: Gc::new(&geometry, settings.free_threshold, RESERVE, settings.wear, settings.scrub),
        space,
        settings,
        logical_pages: config.logical_pages,
        shape,
        units: Units::new(logical_blocks, geometry.blocks, shape.max_nodes()),
        tables: Tables::new(logical_blocks * shape.subtables()),
        at_hand: AtHand::default(),
        trims: Trims::new(&geometry, config.logical_pages, COMMON),
        checkpoints: Checkpoints::new(CHECKPOINT),
        next_ver: 1,
        mounting: false,
        collecting: None,
        next_settled: 0,
        stats: SchemeStats::default(),
        places: Vec::new(),
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

impl<S: Store> Ftl<S> for Mnftl<S> {
    fn scheme(&self) -> &'static str {
        SCHEME.name
    }

    fn logical_pages(&self) -> u32 {
        self.logical_pages
    }

    fn read(&mut self, at: Nanos, first: Lpn, out: &mut [u8]) -> Result<Nanos, FtlError> {
        self.begin(at);
        let page = self.space.geometry().page_bytes as usize;
        let count = (out.len() / page) as u32;
        self.stats.host_pages_read += count as u64;
        self.places.clear();
        for lpn in first.raw()..first.raw() + count {
            let ppn = self.look_up(lpn, Cause::Host)?;
            self.places.push(ppn);
        }
        let mut done = 0;
        while done < count as usize {
            let run = self.physical_run(done);
            let (bytes, lpn) = (&mut out[done * page..][..run * page], first.raw() + done as u32);
            match self.places[done] {
                UNMAPPED => bytes.fill(0),
                LOST => return Err(FtlError::MediaLost(lpn)),
                ppn => self.space.flash.read_host(lpn, Ppn::new(ppn), bytes)?,
            }
            done += run;
        }
        Ok(self.space.flash.now())
    }

    fn write(&mut self, at: Nanos, first: Lpn, data: &[u8]) -> Result<Nanos, FtlError> {
        self.begin(at);
        self.gc.refuse_if_read_only()?;
        let page = self.space.geometry().page_bytes as usize;
        for (lpn, bytes) in (first.raw()..).zip(data.chunks_exact(page)) {
            let stream = self.stream_of(lpn / self.shape.pages);
            self.make_room(stream)?;
            let tag = PageTag { role: Role::Data, flags: Flags::NONE, lpn, ver: self.next_ver };
            self.program_home(tag, bytes, Cause::Host)?;
            self.next_ver += 1;
            self.trims.map(lpn);
            self.stats.host_pages_written += 1;
        }
        Ok(self.space.flash.now())
    }

    fn trim(&mut self, at: Nanos, first: Lpn, count: u32) -> Result<Nanos, FtlError> {
        self.begin(at);
        self.gc.refuse_if_read_only()?;
        self.stats.host_pages_trimmed += count as u64;
        if (first.raw()..first.raw() + count).all(|lpn| !self.trims.is_mapped(lpn)) {
            return Ok(at);
        }
        self.make_room(COMMON)?;
        let ver = self.next_ver;
        self.next_ver += 1;
        self.trims.record(&mut self.space, first.raw(), count, ver)?;
        self.unmap(first.raw(), count)?;
        if self.trims.bitmap_due() {
            self.make_room(COMMON)?;
            let ver = self.next_ver;
            self.next_ver += 1;
            self.trims.write_bitmap(&mut self.space, ver)?;
        }
        self.settle_tables()?;
        Ok(self.space.flash.now())
    }

    fn flush(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
        self.begin(at);
        if !sings(Canary::UnpaddedFlush) {
            self.space.make_safe()?;
        }
        Ok(self.space.flash.now())
    }

    fn idle(&mut self, at: Nanos, budget: u32) -> Result<bool, FtlError> {
        self.begin(at);
        self.work_ahead(budget)
    }

    fn shutdown(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
        self.begin(at);
        self.space.make_safe()?;
        if !self.gc.is_read_only() {
            self.stop_cleanly()?;
        }
        Ok(self.space.flash.now())
    }

    fn is_mapped(&mut self, lpn: Lpn) -> Result<bool, FtlError> {
        Ok(self.trims.is_mapped(lpn.raw()))
    }

    fn stats(&self) -> SchemeStats {
        self.gc.stats(SchemeStats {
            mapped_pages: self.trims.mapped_pages(),
            valid_pages: self.space.table.valid_pages(),
            blocks: self.space.table.counts(),
            ..self.stats.clone()
        })
    }

    fn ram_report(&self) -> RamReport {
        let entry = |part, entries: u64, paper_bytes, real_bytes| RamEntry { part, entries, paper_bytes, real_bytes };
        let geometry = self.space.geometry();
        let (bitmap, victims, blocks) = self.space.table.bytes();
        let logical_blocks = self.logical_pages.div_ceil(self.shape.pages) as u64;
        let paper = logical_blocks * (4 + 3 * self.shape.subtables() as u64) + 6 * self.units.total();
        vec![
            entry("map", logical_blocks, paper, self.units.bytes() + self.tables.bytes()),
            entry("bitmaps", geometry.pages(), 0, bitmap),
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

impl<S: Store> Mnftl<S> {
    fn begin(&mut self, at: Nanos) {
        self.space.flash.begin(at);
        self.at_hand.forget();
    }

    fn stream_of(&self, lbn: u32) -> StreamId {
        FIRST_UNIT + lbn as usize
    }

    /// Logical block, subtable in it, and slot among the block's slots.
    fn split(&self, lpn: u32) -> (u32, u32, usize) {
        let offset = lpn % self.shape.pages;
        (lpn / self.shape.pages, offset / self.shape.slots, offset as usize)
    }

    /// Where the page is: [`UNMAPPED`], [`LOST`] or its physical page.
    fn look_up(&mut self, lpn: u32, cause: Cause) -> Result<u32, FtlError> {
        let (lbn, k, slot) = self.split(lpn);
        self.take_in_hand(lbn, k, cause)?;
        Ok(self.at_hand.slots[slot])
    }

    /// Reads a subtable, unless it is at hand.
    fn take_in_hand(&mut self, lbn: u32, k: u32, cause: Cause) -> Result<(), FtlError> {
        if self.at_hand.turn_to(lbn, k, &self.shape) {
            return Ok(());
        }
        let table = lbn * self.shape.subtables() + k;
        let slots = self.at_hand.table(k, &self.shape);
        match self.tables.place(table) {
            Place::Nowhere => slots.fill(UNMAPPED),
            Place::Ram(kept) => slots.copy_from_slice(kept),
            Place::Flash(ppn) => {
                self.stats.map_cache_misses += 1;
                let (shape, geometry) = (self.shape, *self.space.flash.geometry());
                let is_of = |lpn: u32| lpn / shape.pages == lbn && lpn % shape.pages / shape.slots == k;
                let read = self.space.flash.read_spare(ppn, cause)?.filter(|(oob, _)| is_of(oob.tag.lpn));
                let decoded = read.and_then(|(_, spare)| shape.decode(&geometry, &self.units, lbn, spare, slots));
                if decoded.is_none() {
                    self.rebuild_table(lbn, k, ppn)?;
                }
                self.at_hand.note_read(k);
                return Ok(());
            }
        }
        self.stats.map_cache_hits += 1;
        self.at_hand.note_read(k);
        Ok(())
    }

    /// The page with a subtable cannot be read any more. The live pages of the logical block say where they belong; what is missing is
    /// lost.
    #[cold]
    fn rebuild_table(&mut self, lbn: u32, k: u32, lost: Ppn) -> Result<(), FtlError> {
        let first = lbn * self.shape.pages + k * self.shape.slots;
        let mut live = Vec::new();
        self.units.blocks(lbn).for_each(|block| self.space.table.live_pages(block, &mut live));
        let mut slots = vec![UNMAPPED; self.shape.slots as usize];
        for ppn in live {
            let found = self.space.flash.read_oob(ppn, Cause::Recovery)?.filter(|oob| oob.tag.role == Role::Data);
            let slot = found.and_then(|oob| oob.tag.lpn.checked_sub(first)).filter(|slot| *slot < self.shape.slots);
            if let Some(slot) = slot.filter(|slot| self.trims.is_mapped(first + slot)) {
                slots[slot as usize] = ppn.raw();
            }
        }
        // One of the missing is the page that carried the subtable: it stays the place of an error.
        let mut places = Some(lost.raw()).filter(|lost| !slots.contains(lost)).into_iter();
        for (lpn, slot) in (first..self.logical_pages).zip(&mut slots) {
            if *slot == UNMAPPED && self.trims.is_mapped(lpn) {
                *slot = places.next().unwrap_or(LOST);
            }
        }
        self.tables.set(lbn * self.shape.subtables() + k, &slots, None);
        self.at_hand.table(k, &self.shape).copy_from_slice(&slots);
        Ok(())
    }

    /// Keeps the subtable at hand, and that the page `written` says it, if any does.
    fn keep_table(&mut self, lbn: u32, k: u32, written: Option<Ppn>) {
        let table = lbn * self.shape.subtables() + k;
        self.tables.set(table, self.at_hand.table(k, &self.shape), written);
    }

    /// Programs a page into its logical block's own block, with its subtable, and gives up the place where it was.
    fn program_home(&mut self, tag: PageTag, data: &[u8], cause: Cause) -> Result<(), FtlError> {
        let (lbn, k, slot) = self.split(tag.lpn);
        self.take_in_hand(lbn, k, cause)?;
        let old = self.at_hand.slots[slot];
        let (stream, geometry, shape, epoch) =
            (self.stream_of(lbn), self.space.geometry(), self.shape, self.space.next_epoch());
        let (units, at_hand) = (&mut self.units, &mut self.at_hand);
        let mut all_said = false;
        let programmed = self.space.append_with_spare(stream, tag, data, cause, |ppn, spare| {
            let block = geometry.block_of(ppn);
            // Epochs ascend, so a block that was not on the list before has the latest.
            units.add(lbn, block, epoch, None);
            at_hand.slots[slot] = ppn.raw();
            all_said = shape.encode(&geometry, units, lbn, block, at_hand.table(k, &shape), spare);
        });
        let ppn = match programmed {
            Ok(ppn) => ppn,
            Err(error) => {
                self.at_hand.forget();
                return Err(error);
            }
        };
        self.keep_table(lbn, k, Some(ppn).filter(|_| all_said));
        self.give_up_place(old);
        Ok(())
    }

    /// Programs a copy of a page into the common blocks; its subtable is in RAM from now on.
    fn program_abroad(&mut self, tag: PageTag, data: &[u8], cause: Cause) -> Result<(), FtlError> {
        let (lbn, k, slot) = self.split(tag.lpn);
        self.take_in_hand(lbn, k, cause)?;
        let ppn = self.space.append_page(COMMON, tag, data, cause)?;
        let old = std::mem::replace(&mut self.at_hand.slots[slot], ppn.raw());
        self.keep_table(lbn, k, None);
        self.give_up_place(old);
        Ok(())
    }

    fn give_up_place(&mut self, old: u32) {
        if old != UNMAPPED && old != LOST {
            self.space.table.clear_live(Ppn::new(old));
        }
    }

    /// From the `from`-th of [`Mnftl::places`] on, how many are unmapped together or lie one after the other in one block.
    fn physical_run(&self, from: usize) -> usize {
        let geometry = self.space.geometry();
        let first = self.places[from];
        let same_block = |ppn: u32| geometry.block_of(Ppn::new(ppn)) == geometry.block_of(Ppn::new(first));
        let follows = |(i, ppn): &(usize, &u32)| match first {
            UNMAPPED => **ppn == UNMAPPED,
            LOST => false,
            first => **ppn < LOST && **ppn == first + *i as u32 && same_block(**ppn),
        };
        1 + (1..).zip(&self.places[from + 1..]).take_while(follows).count()
    }

    /// These pages hold nothing from now on; a record says so.
    fn unmap(&mut self, first: u32, count: u32) -> Result<(), FtlError> {
        let (mut lpn, end) = (first, first + count);
        while lpn < end {
            let (lbn, k, offset) = self.split(lpn);
            let unit_end = ((lbn + 1) * self.shape.pages).min(self.logical_pages);
            if offset == 0 && unit_end <= end {
                self.drop_unit(lbn, unit_end)?;
                lpn = unit_end;
                continue;
            }
            let table_end = (lbn * self.shape.pages + (k + 1) * self.shape.slots).min(unit_end).min(end);
            self.unmap_in_table(lbn, k, lpn..table_end)?;
            lpn = table_end;
        }
        Ok(())
    }

    fn unmap_in_table(&mut self, lbn: u32, k: u32, pages: std::ops::Range<u32>) -> Result<(), FtlError> {
        if pages.clone().all(|lpn| !self.trims.is_mapped(lpn)) {
            return Ok(());
        }
        self.take_in_hand(lbn, k, Cause::Trim)?;
        for lpn in pages.filter(|lpn| self.trims.is_mapped(*lpn)).collect::<Vec<_>>() {
            let (.., slot) = self.split(lpn);
            let old = std::mem::replace(&mut self.at_hand.slots[slot], UNMAPPED);
            self.give_up_place(old);
            self.trims.unmap(lpn);
        }
        self.keep_table(lbn, k, None);
        Ok(())
    }

    /// A whole logical block holds nothing from now on: no subtable has to be read for that.
    fn drop_unit(&mut self, lbn: u32, end: u32) -> Result<(), FtlError> {
        self.at_hand.forget();
        let mut gone = Vec::new();
        for k in 0..self.shape.subtables() {
            let table = lbn * self.shape.subtables() + k;
            if let Place::Ram(slots) = self.tables.place(table) {
                let ppns = slots.iter().filter(|slot| **slot < LOST).map(|slot| Ppn::new(*slot));
                gone.extend(ppns.filter(|ppn| self.units.owner(self.space.geometry().block_of(*ppn)) != Some(lbn)));
            }
            self.tables.set(table, &[], None);
        }
        let blocks: Vec<Pbn> = self.units.blocks(lbn).collect();
        blocks.iter().for_each(|block| self.space.table.live_pages(*block, &mut gone));
        gone.into_iter().for_each(|ppn| self.space.table.clear_live(ppn));
        for lpn in lbn * self.shape.pages..end {
            if self.trims.is_mapped(lpn) {
                self.trims.unmap(lpn);
            }
        }
        self.space.seal(self.stream_of(lbn))?;
        blocks.into_iter().for_each(|block| self.give_up(block));
        Ok(())
    }

    /// Takes subtables out of RAM while there are too many: copies a page of theirs that is abroad, or any.
    fn settle_tables(&mut self) -> Result<(), FtlError> {
        let limit = MIN_IN_RAM.max(self.logical_pages / self.shape.slots / 16);
        // A trim leaves at most one at either end.
        for _ in 0..2 {
            if self.tables.in_ram() <= limit as usize {
                break;
            }
            if let Some(table) = self.tables.next_in_ram(self.next_settled) {
                self.next_settled = table + 1;
                self.settle_table(table)?;
            }
        }
        Ok(())
    }

    fn settle_table(&mut self, table: u32) -> Result<(), FtlError> {
        let (lbn, k) = (table / self.shape.subtables(), table % self.shape.subtables());
        let mut data = vec![0; self.space.geometry().page_bytes as usize];
        loop {
            self.make_room(self.stream_of(lbn))?;
            self.take_in_hand(lbn, k, Cause::Trim)?;
            let geometry = self.space.geometry();
            let slots = self.at_hand.table(k, &self.shape);
            let mapped = (0..).zip(&*slots).filter(|(_, slot)| **slot < LOST).map(|(i, slot)| (i, Ppn::new(*slot)));
            let is_abroad = |(_, ppn): &(u32, Ppn)| self.units.owner(geometry.block_of(*ppn)) != Some(lbn);
            let abroad = mapped.clone().filter(is_abroad).count();
            let Some((i, ppn)) = mapped.clone().find(is_abroad).or_else(|| mapped.clone().next()) else {
                return Ok(());
            };
            let lpn = lbn * self.shape.pages + k * self.shape.slots + i;
            let Some(oob) = self.space.flash.read(ppn, &mut data, Cause::Trim)?.filter(|oob| oob.tag.lpn == lpn) else {
                return Ok(());
            };
            self.program_home(PageTag { flags: oob.tag.flags.with(Flags::COPY), ..oob.tag }, &data, Cause::Trim)?;
            if abroad <= 1 {
                return Ok(());
            }
        }
    }

    fn audit(&mut self) -> Result<Vec<String>, FtlError> {
        let mut wrong = self.space.table.audit();
        wrong.extend(self.units.audit());
        let counts = self.space.table.counts();
        let sum = counts.free + counts.open + counts.data + counts.log + counts.map + counts.checkpoint;
        if sum + counts.released + counts.bad != self.space.geometry().blocks {
            wrong.push(format!("blocks do not add up: {counts:?}"));
        }
        self.at_hand.forget();
        let (mut placed, mut lost) = (0, 0);
        for lpn in 0..self.logical_pages {
            let place = self.look_up(lpn, Cause::Recovery)?;
            if (place != UNMAPPED) != self.trims.is_mapped(lpn) {
                wrong.push(format!("logical page {lpn} is at {place:#x}, but mapped: {}", self.trims.is_mapped(lpn)));
            }
            match place {
                UNMAPPED => continue,
                LOST => lost += 1,
                _ => placed += 1,
            }
            if place != LOST {
                wrong.extend(self.audit_place(lpn, Ppn::new(place))?);
            }
        }
        let live = self.space.table.valid_pages();
        if placed + lost != self.trims.mapped_pages() || live != placed + self.trims.len() as u64 {
            let (mapped, trims) = (self.trims.mapped_pages(), self.trims.len());
            wrong.push(format!("{placed} pages placed, {lost} lost, {mapped} mapped; {live} live, {trims} trims"));
        }
        Ok(wrong)
    }

    fn audit_place(&mut self, lpn: u32, ppn: Ppn) -> Result<Option<String>, FtlError> {
        let (lbn, k, _) = self.split(lpn);
        let geometry = self.space.geometry();
        if !geometry.contains(ppn) || !self.space.table.is_live(ppn) {
            return Ok(Some(format!("logical page {lpn} is at {ppn}, which is not live")));
        }
        let at_home = self.units.owner(geometry.block_of(ppn)) == Some(lbn);
        if !at_home && matches!(self.tables.place(lbn * self.shape.subtables() + k), Place::Flash(_)) {
            return Ok(Some(format!("logical page {lpn} is at {ppn}, abroad, and its subtable is on flash")));
        }
        let oob = self.space.flash.read_oob(ppn, Cause::Recovery)?;
        let is_it = oob.is_some_and(|oob| oob.tag.lpn == lpn && oob.tag.role == Role::Data);
        Ok((!is_it).then(|| format!("logical page {lpn} is at {ppn}, which says {oob:?}")))
    }
}
