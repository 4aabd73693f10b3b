//! Schemes whose logical units (a logical block, or some together) own physical blocks and append
//! to a block of their own. The page map of a unit is cut into tables, which travel in the spare
//! bytes of the pages that are programmed (`tables.rs`); which blocks a unit has is in RAM
//! (`lists.rs`). What the schemes differ in (the shape, how long a list may be, which unit is
//! collected) is a [`Policy`].
//!
//! Beside them there are *common blocks*, for pages of any unit: trim records, and what a mount
//! programs, because that cannot continue what a cut left and must not open a block per unit. From
//! there pages go home when their block is collected and their unit has room. A group of tables
//! that maps such a page is in RAM. When no unit can do with fewer blocks, the emptiest block is
//! collected into the common ones.
//!
//! What always holds: tables on flash name live pages of their unit's own blocks only; a page is
//! live if and only if the newest content of its logical page is there. A write is acknowledged
//! when its page is programmed. If power fails, mount takes the newest readable version of every
//! page and compares: a group that says something else is in RAM from then on (`recovery.rs`).

mod lists;
mod reclaim;
mod recovery;
mod slices;
mod tables;

pub(crate) use lists::Lists;
pub(crate) use slices::Slicing;
pub(crate) use tables::Shape;

use crate::addr::Lpn;
use crate::checkpoint::Checkpoints;
use crate::config::{FtlConfig, Params};
use crate::error::FtlError;
use crate::events::EventLog;
use crate::flash::Flash;
use crate::format::{Flags, LOST, PageTag, Role, UNMAPPED};
use crate::ftl::{Ftl, Start};
use crate::gc::{Collect, Gc, Settings};
use crate::recovery::{CleanStop, MountByRecords};
use crate::space::{Space, StreamId, StreamSpec};
use crate::stats::{BlockView, MountReport, RamEntry, RamReport, SchemeStats};
use crate::trims::Trims;
use nand_model::{Cause, Chip, Geometry, Nanos, Pbn, Ppn, Profile, Store};
use slices::Slices;
use tables::{AtHand, Place, Tables};

/// What schemes of units differ in.
pub(crate) trait Policy: Send {
    /// Name in the table of schemes.
    const NAME: &'static str;

    /// Blocks of a unit from which on its list is collected before another is opened.
    fn max_length(&self, shape: &Shape) -> u32;

    /// The unit to collect when blocks are short, of those that can do with fewer; `None` to take
    /// the emptiest block of all.
    fn choose(&self, lists: &Lists, can_shrink: &dyn Fn(u32) -> bool) -> Option<u32>;

    /// Whether the emptiest block of all is collected rather than one of the unit that was chosen.
    fn takes_emptiest(&self) -> bool {
        false
    }

    /// Whether a unit has to be collected although there are free blocks.
    fn has_too_many(&self, _lists: &Lists) -> bool {
        false
    }

    /// The unit to collect in idle time, if one is worth it.
    fn choose_idle(&self, lists: &Lists) -> Option<u32>;

    /// Whether a collection reads all tables of the unit, as the paper finds out which pages are
    /// valid.
    fn reads_all_tables(&self) -> bool;

    /// How blocks are cleaned while requests come, where they are not collected when free ones are
    /// short (`slices.rs`).
    fn slicing(&self) -> Option<Slicing> {
        None
    }

    /// The host wrote a page of this unit.
    fn wrote(&mut self, _unit: u32) {}

    /// RAM of the map as the paper counts it.
    fn paper_bytes(&self, shape: &Shape, lists: &Lists, units: u64) -> u64;

    /// Bytes that the policy itself takes.
    fn bytes(&self) -> u64 {
        0
    }
}

/// Trim records, what a mount programs, and what finds no room at home.
const COMMON: StreamId = 0;
const CHECKPOINT: StreamId = 1;
/// The stream of unit 0.
const FIRST_UNIT: StreamId = 2;

/// Blocks below which collection waits for nothing: a copy target and two more.
const RESERVE: u32 = 3;

/// Groups in RAM, whatever the size of the device.
const MIN_IN_RAM: u32 = 64;

/// Blocks beyond data and over-provisioning of a device with units of so many pages: three sets of
/// checkpoints; trim pages; an open common block, one for a failing block, two waiting for their
/// erase, a partly filled unit, and the free threshold.
pub(crate) fn overhead_blocks(
    profile: &Profile,
    logical_pages: u32,
    unit_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    let estimate = logical_pages / profile.geometry.pages_per_block;
    let settings = Settings::new(
        params,
        profile,
        estimate,
        logical_pages.div_ceil(unit_pages),
    )?;
    let geometry = Geometry {
        blocks: estimate.max(64) * 2,
        ..profile.geometry
    };
    let checkpoints = Checkpoints::blocks_needed(&geometry, CleanStop::chunks(&geometry));
    Ok(checkpoints + Trims::blocks_needed(&geometry, logical_pages) + 6 + settings.free_threshold)
}

/// A scheme of units over a chip.
pub(crate) struct UnitFtl<S: Store, P> {
    pub(crate) space: Space<S>,
    policy: P,
    logical_pages: u32,
    shape: Shape,
    pub(crate) lists: Lists,
    tables: Tables,
    at_hand: AtHand,
    trims: Trims,
    checkpoints: Checkpoints,
    next_ver: u64,
    gc: Gc,
    /// The unit being collected, how many blocks it had, and how often that was tried: it was worth
    /// it when one is free.
    collecting: Option<(u32, u32, u32)>,
    /// Where blocks are cleaned in slices.
    slices: Option<Slices>,
    /// Where the search for groups to take out of RAM goes on.
    next_settled: u32,
    stats: SchemeStats,
    /// Physical pages of the read at hand.
    places: Vec<u32>,
}

impl<S: Store, P: Policy> UnitFtl<S, P> {
    /// Starts a scheme on a chip.
    pub(crate) fn create(
        chip: Chip<S>,
        config: &FtlConfig,
        start: Start,
        shape: Shape,
        policy: P,
    ) -> Result<Self, FtlError> {
        let geometry = *chip.geometry();
        let units = config.logical_pages.div_ceil(shape.pages);
        let settings = Settings::new(&config.params, chip.profile(), geometry.blocks, units)?;
        if config.logical_pages as u64 >= geometry.pages() {
            return Err(FtlError::Config(
                "more logical pages than the flash has".into(),
            ));
        }
        let mut flash = Flash::new(chip);
        flash.reserve_spare(shape.spare_bytes())?;
        let stream = |role, collectable| StreamSpec {
            role,
            collectable,
            in_place: false,
        };
        let mut space = Space::new(
            flash,
            &[stream(Role::Cold, true), stream(Role::Checkpoint, false)],
        );
        let first = space.add_streams(stream(Role::Data, true), units as usize);
        assert_eq!(first, FIRST_UNIT);
        space.set_pair_protection(settings.pair_protection);
        let mut ftl = UnitFtl {
            gc: Gc::new(
                &geometry,
                settings.free_threshold,
                RESERVE,
                settings.wear,
                settings.scrub,
            ),
            space,
            logical_pages: config.logical_pages,
            shape,
            lists: Lists::new(
                units,
                geometry.blocks,
                shape.max_nodes(),
                policy.max_length(&shape),
            ),
            policy,
            tables: Tables::new(units * shape.groups()),
            at_hand: AtHand::default(),
            trims: Trims::new(&geometry, config.logical_pages, COMMON),
            checkpoints: Checkpoints::new(CHECKPOINT),
            next_ver: 1,
            collecting: None,
            slices: None,
            next_settled: 0,
            stats: SchemeStats::default(),
            places: Vec::new(),
        };
        ftl.slices = ftl
            .policy
            .slicing()
            .map(|how| Slices::new(how, geometry.blocks));
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
        ftl.note_all_blocks();
        Ok(ftl)
    }
}

impl<S: Store, P: Policy> Ftl<S> for UnitFtl<S, P> {
    fn scheme(&self) -> &'static str {
        P::NAME
    }

    fn logical_pages(&self) -> u32 {
        self.logical_pages
    }

    fn read(&mut self, at: Nanos, first: Lpn, out: &mut [u8]) -> Result<Nanos, FtlError> {
        self.begin(at);
        self.take_slice_of_read()?;
        let page = self.space.geometry().page_bytes as usize;
        let count = (out.len() / page) as u32;
        self.stats.host_pages_read += count as u64;
        self.places.clear();
        for lpn in first.raw()..first.raw() + count {
            let ppn = self.look_up(lpn, Cause::Host)?;
            self.places.push(ppn);
        }
        self.space
            .flash
            .read_places(first.raw(), &self.places, out)?;
        Ok(self.space.flash.now())
    }

    fn write(&mut self, at: Nanos, first: Lpn, data: &[u8]) -> Result<Nanos, FtlError> {
        self.begin(at);
        self.gc.refuse_if_read_only()?;
        let page = self.space.geometry().page_bytes as usize;
        for (lpn, bytes) in (first.raw()..).zip(data.chunks_exact(page)) {
            self.take_slice()?;
            let unit = lpn / self.shape.pages;
            let stream = self.stream_of_write(unit);
            self.make_room(stream)?;
            self.policy.wrote(unit);
            let tag = PageTag {
                role: Role::Data,
                flags: Flags::NONE,
                lpn,
                ver: self.next_ver,
            };
            if stream == COMMON {
                self.program_abroad(tag, bytes, Cause::Host)?;
            } else {
                self.program_home(tag, bytes, Cause::Host)?;
            }
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
        self.take_slice()?;
        self.make_room(COMMON)?;
        self.read_tables_at_ends(first.raw(), count)?;
        let ver = self.next_ver;
        self.next_ver += 1;
        self.trims
            .record(&mut self.space, first.raw(), count, ver)?;
        self.unmap(first.raw(), count)?;
        if self.trims.bitmap_due() {
            self.make_room(COMMON)?;
            let ver = self.next_ver;
            self.next_ver += 1;
            self.trims.write_bitmap(&mut self.space, ver)?;
        }
        self.settle_groups()?;
        Ok(self.space.flash.now())
    }

    fn flush(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
        self.begin(at);
        self.space.make_safe()?;
        Ok(self.space.flash.wait())
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
        let units = self.logical_pages.div_ceil(self.shape.pages) as u64;
        let paper = self.policy.paper_bytes(&self.shape, &self.lists, units);
        let real = self.lists.bytes() + self.tables.bytes() + self.policy.bytes();
        let queue = self.slices.as_ref().map_or(0, Slices::bytes);
        vec![
            entry("map", units, paper, real),
            entry("bitmaps", geometry.pages(), 0, bitmap),
            entry("gc", geometry.blocks as u64, 0, victims + blocks + queue),
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

impl<S: Store, P: Policy> UnitFtl<S, P> {
    pub(crate) fn begin(&mut self, at: Nanos) {
        self.space.flash.begin(at);
        self.at_hand.forget();
    }

    pub(crate) fn stream_of(&self, unit: u32) -> StreamId {
        FIRST_UNIT + unit as usize
    }

    /// Unit, table in it, and slot among the unit's.
    fn split(&self, lpn: u32) -> (u32, u32, usize) {
        let offset = lpn % self.shape.pages;
        (
            lpn / self.shape.pages,
            offset / self.shape.slots,
            offset as usize,
        )
    }

    /// Where the page is: [`UNMAPPED`], [`LOST`] or its physical page.
    pub(crate) fn look_up(&mut self, lpn: u32, cause: Cause) -> Result<u32, FtlError> {
        let (unit, k, slot) = self.split(lpn);
        self.take_table(unit, k, cause)?;
        Ok(self.at_hand.slots[slot])
    }

    /// The page that has the directory of a table's group, if the group is on flash.
    #[cfg(test)]
    pub(crate) fn head_of(&self, unit: u32, k: u32) -> Option<Ppn> {
        match self.tables.place(self.group_number(unit, k)) {
            Place::Flash(ppn) => Some(ppn),
            _ => None,
        }
    }

    /// Groups in RAM, and trim pages.
    #[cfg(test)]
    pub(crate) fn left_behind(&self) -> (usize, usize) {
        (self.tables.in_ram(), self.trims.len())
    }

    fn group_number(&self, unit: u32, k: u32) -> u32 {
        unit * self.shape.groups() + k / self.shape.fan
    }

    /// Reads a table, unless it is at hand.
    fn take_table(&mut self, unit: u32, k: u32, cause: Cause) -> Result<(), FtlError> {
        if self.at_hand.turn_to(unit, k, &self.shape) {
            self.stats.map_cache_hits += (cause == Cause::Host) as u64;
            return Ok(());
        }
        let group = k / self.shape.fan;
        match self.tables.place(self.group_number(unit, k)) {
            Place::Nowhere => {
                self.at_hand.group_slots(group, &self.shape).fill(UNMAPPED);
                self.at_hand
                    .group_carriers(group, &self.shape)
                    .fill(UNMAPPED);
            }
            Place::Ram(kept) => {
                self.at_hand
                    .group_slots(group, &self.shape)
                    .copy_from_slice(&kept.slots);
                self.at_hand
                    .group_carriers(group, &self.shape)
                    .copy_from_slice(&kept.carriers);
            }
            Place::Flash(head) => {
                self.stats.map_cache_misses += (cause == Cause::Host) as u64;
                return self.read_table(unit, k, head, cause);
            }
        }
        self.stats.map_cache_hits += (cause == Cause::Host) as u64;
        self.at_hand.note_group(group, &self.shape);
        Ok(())
    }

    /// Reads a table by the directory of its group.
    fn read_table(&mut self, unit: u32, k: u32, head: Ppn, cause: Cause) -> Result<(), FtlError> {
        let group = k / self.shape.fan;
        if !self.at_hand.has_directory(group) {
            if self.shape.fan == 1 {
                self.at_hand.carriers[k as usize] = head.raw();
            } else if !self.read_spare(unit, group, head, true, cause)? {
                return self.rebuild_group(unit, group, head);
            }
            self.at_hand.note_directory(group);
        }
        if self.at_hand.turn_to(unit, k, &self.shape) {
            return Ok(());
        }
        match self.at_hand.carriers[k as usize] {
            UNMAPPED => self.at_hand.table(k, &self.shape).fill(UNMAPPED),
            carrier => {
                let carrier = Ppn::new(carrier);
                if !self.read_spare(unit, group, carrier, false, cause)?
                    || !self.at_hand.turn_to(unit, k, &self.shape)
                {
                    return self.rebuild_group(unit, group, carrier);
                }
            }
        }
        self.at_hand.note_table(k);
        Ok(())
    }

    /// Reads what a page of this group has in its spare bytes: its table, and the directory if that
    /// is wanted. False if it says nothing.
    fn read_spare(
        &mut self,
        unit: u32,
        group: u32,
        ppn: Ppn,
        directory: bool,
        cause: Cause,
    ) -> Result<bool, FtlError> {
        let shape = self.shape;
        let Some((oob, spare)) = self.space.flash.read_spare(ppn, cause)? else {
            return Ok(false);
        };
        let k = oob.tag.lpn % shape.pages / shape.slots;
        if oob.tag.lpn / shape.pages != unit || k / shape.fan != group {
            return Ok(false);
        }
        if directory {
            let carriers = self.at_hand.group_carriers(group, &shape);
            if shape
                .decode_directory(&self.lists, unit, spare, carriers)
                .is_none()
            {
                return Ok(false);
            }
            if self.at_hand.carriers[k as usize] != ppn.raw() {
                return Ok(false);
            }
        }
        let slots = self.at_hand.table(k, &shape);
        if shape
            .decode_table(&self.lists, unit, spare, slots)
            .is_none()
        {
            return Ok(false);
        }
        // What a part tells that lies may be of another life.
        let is_live = |page: &u32| *page == UNMAPPED || self.space.table.is_live(Ppn::new(*page));
        if !slots.iter().all(is_live)
            || !self
                .at_hand
                .group_carriers(group, &shape)
                .iter()
                .all(is_live)
        {
            return Ok(false);
        }
        self.at_hand.note_table(k);
        Ok(true)
    }

    /// Reads all tables of a group.
    fn take_group(&mut self, unit: u32, group: u32, cause: Cause) -> Result<(), FtlError> {
        self.shape
            .tables_of(group)
            .try_for_each(|k| self.take_table(unit, k, cause))
    }

    /// A page with a table cannot be read any more. The live pages of the unit say where they
    /// belong; what is missing is lost.
    #[cold]
    fn rebuild_group(&mut self, unit: u32, group: u32, lost: Ppn) -> Result<(), FtlError> {
        let tables = self.shape.tables_of(group);
        let first = unit * self.shape.pages + tables.start * self.shape.slots;
        let mut slots = vec![UNMAPPED; self.at_hand.group_slots(group, &self.shape).len()];
        let mut live = Vec::new();
        self.lists
            .blocks(unit)
            .for_each(|block| self.space.table.live_pages(block, &mut live));
        for ppn in live {
            let found = self
                .space
                .flash
                .read_oob(ppn, Cause::Recovery)?
                .filter(|oob| oob.tag.role == Role::Data);
            let slot = found
                .and_then(|oob| oob.tag.lpn.checked_sub(first))
                .filter(|slot| (*slot as usize) < slots.len());
            if let Some(slot) = slot.filter(|slot| self.trims.is_mapped(first + slot)) {
                slots[slot as usize] = ppn.raw();
            }
        }
        // One of the missing is the page that carried the table: it stays the place of an error.
        let is_free = |ppn: &u32| self.space.table.is_live(lost) && !slots.contains(ppn);
        let mut places = Some(lost.raw()).filter(is_free).into_iter();
        for (lpn, slot) in (first..self.logical_pages).zip(&mut slots) {
            if *slot == UNMAPPED && self.trims.is_mapped(lpn) {
                *slot = places.next().unwrap_or(LOST);
            }
        }
        self.at_hand
            .group_slots(group, &self.shape)
            .copy_from_slice(&slots);
        self.at_hand
            .group_carriers(group, &self.shape)
            .fill(UNMAPPED);
        self.at_hand.note_group(group, &self.shape);
        self.keep_group(unit, group);
        Ok(())
    }

    /// Keeps a group that is at hand in RAM.
    fn keep_group(&mut self, unit: u32, group: u32) {
        let (slots, carriers) = (self.shape.tables_of(group), self.shape.tables_of(group));
        let slots =
            (slots.start * self.shape.slots) as usize..(slots.end * self.shape.slots) as usize;
        let carriers = carriers.start as usize..carriers.end as usize;
        let number = unit * self.shape.groups() + group;
        self.tables.keep(
            number,
            &self.at_hand.slots[slots],
            &self.at_hand.carriers[carriers],
        );
    }

    /// Whether the table maps nothing but pages of its unit's own blocks.
    fn is_at_home(&mut self, unit: u32, k: u32) -> bool {
        let geometry = self.space.geometry();
        let lists = &self.lists;
        let at_home = |slot: &u32| match *slot {
            UNMAPPED => true,
            LOST => false,
            ppn => lists.owner(geometry.block_of(Ppn::new(ppn))) == Some(unit),
        };
        self.at_hand.table(k, &self.shape).iter().all(at_home)
    }

    /// Programs a page into its unit's own block, with its table and directory, and gives up the
    /// place where it was.
    fn program_home(&mut self, tag: PageTag, data: &[u8], cause: Cause) -> Result<(), FtlError> {
        let (unit, k, slot) = self.split(tag.lpn);
        let group = k / self.shape.fan;
        self.take_table(unit, k, cause)?;
        let on_flash = !matches!(self.tables.place(self.group_number(unit, k)), Place::Ram(_));
        if on_flash && !self.is_at_home(unit, k) {
            self.take_group(unit, group, cause)?;
        }
        let old = self.at_hand.slots[slot];
        let (stream, geometry, shape, epoch) = (
            self.stream_of(unit),
            self.space.geometry(),
            self.shape,
            self.space.next_epoch(),
        );
        let (lists, at_hand) = (&mut self.lists, &mut self.at_hand);
        let mut said = false;
        let programmed = self
            .space
            .append_with_spare(stream, tag, data, cause, |ppn, spare| {
                let block = geometry.block_of(ppn);
                // Epochs ascend, so a block that was not on the list before has the latest.
                lists.add(unit, block, epoch, None);
                at_hand.slots[slot] = ppn.raw();
                at_hand.carriers[k as usize] = ppn.raw();
                let tables = shape.tables_of(group);
                let carriers = &at_hand.carriers[tables.start as usize..tables.end as usize];
                let slots = &at_hand.slots[(k * shape.slots) as usize..][..shape.slots as usize];
                said = shape.encode(lists, unit, block, slots, carriers, spare);
            });
        let ppn = match programmed {
            Ok(ppn) => ppn,
            Err(error) => {
                self.at_hand.forget();
                return Err(error);
            }
        };
        // Before anything else is read: should a table have to be rebuilt, one live page of each
        // must be left.
        self.give_up_place(old);
        self.note_block(geometry.block_of(ppn));
        if !said {
            self.at_hand.carriers[k as usize] = UNMAPPED;
        }
        // What was on flash before is carried but for this table.
        if said && (on_flash || self.at_hand.is_carried(group, &self.shape)) {
            self.tables.set_on_flash(self.group_number(unit, k), ppn);
        } else {
            self.take_group(unit, group, cause)?;
            self.keep_group(unit, group);
        }
        Ok(())
    }

    /// Programs a copy of a page into the common blocks; its group is in RAM from now on.
    fn program_abroad(&mut self, tag: PageTag, data: &[u8], cause: Cause) -> Result<(), FtlError> {
        let (unit, k, slot) = self.split(tag.lpn);
        self.take_group(unit, k / self.shape.fan, cause)?;
        let ppn = self.space.append_page(COMMON, tag, data, cause)?;
        let old = std::mem::replace(&mut self.at_hand.slots[slot], ppn.raw());
        self.at_hand.carriers[k as usize] = UNMAPPED;
        self.keep_group(unit, k / self.shape.fan);
        self.give_up_place(old);
        self.note_block(self.space.geometry().block_of(ppn));
        Ok(())
    }

    fn give_up_place(&mut self, old: u32) {
        if old != UNMAPPED && old != LOST {
            self.give_up_page(Ppn::new(old));
        }
    }

    fn give_up_page(&mut self, ppn: Ppn) {
        self.space.table.clear_live(ppn);
        self.note_block(self.space.geometry().block_of(ppn));
    }

    /// Reads what [`Self::unmap`] will have to read: once a record says that pages are gone, they
    /// must not come back because a table could not be read.
    fn read_tables_at_ends(&mut self, first: u32, count: u32) -> Result<(), FtlError> {
        let (mut lpn, end) = (first, first + count);
        while lpn < end {
            let (unit, k, offset) = self.split(lpn);
            let unit_end = ((unit + 1) * self.shape.pages).min(self.logical_pages);
            if offset == 0 && unit_end <= end {
                lpn = unit_end;
                continue;
            }
            let table_end = (unit * self.shape.pages + (k + 1) * self.shape.slots)
                .min(unit_end)
                .min(end);
            if (lpn..table_end).any(|lpn| self.trims.is_mapped(lpn)) {
                self.take_group(unit, k / self.shape.fan, Cause::Trim)?;
            }
            lpn = table_end;
        }
        Ok(())
    }

    /// These pages hold nothing from now on; a record says so.
    fn unmap(&mut self, first: u32, count: u32) -> Result<(), FtlError> {
        let (mut lpn, end) = (first, first + count);
        while lpn < end {
            let (unit, k, offset) = self.split(lpn);
            let unit_end = ((unit + 1) * self.shape.pages).min(self.logical_pages);
            if offset == 0 && unit_end <= end {
                self.drop_unit(unit, unit_end)?;
                lpn = unit_end;
                continue;
            }
            let table_end = (unit * self.shape.pages + (k + 1) * self.shape.slots)
                .min(unit_end)
                .min(end);
            self.unmap_in_table(unit, k, lpn..table_end)?;
            lpn = table_end;
        }
        Ok(())
    }

    fn unmap_in_table(
        &mut self,
        unit: u32,
        k: u32,
        pages: std::ops::Range<u32>,
    ) -> Result<(), FtlError> {
        if pages.clone().all(|lpn| !self.trims.is_mapped(lpn)) {
            return Ok(());
        }
        self.take_group(unit, k / self.shape.fan, Cause::Trim)?;
        for lpn in pages
            .filter(|lpn| self.trims.is_mapped(*lpn))
            .collect::<Vec<_>>()
        {
            let (.., slot) = self.split(lpn);
            let old = std::mem::replace(&mut self.at_hand.slots[slot], UNMAPPED);
            self.give_up_place(old);
            self.trims.unmap(lpn);
        }
        self.at_hand.carriers[k as usize] = UNMAPPED;
        self.keep_group(unit, k / self.shape.fan);
        Ok(())
    }

    /// A whole unit holds nothing from now on: no table has to be read for that.
    fn drop_unit(&mut self, unit: u32, end: u32) -> Result<(), FtlError> {
        self.at_hand.forget();
        let mut gone = Vec::new();
        for group in unit * self.shape.groups()..(unit + 1) * self.shape.groups() {
            if let Place::Ram(kept) = self.tables.place(group) {
                let ppns = kept
                    .slots
                    .iter()
                    .filter(|slot| **slot < LOST)
                    .map(|slot| Ppn::new(*slot));
                gone.extend(ppns.filter(|ppn| {
                    self.lists.owner(self.space.geometry().block_of(*ppn)) != Some(unit)
                }));
            }
            self.tables.clear(group);
        }
        let blocks: Vec<Pbn> = self.lists.blocks(unit).collect();
        blocks
            .iter()
            .for_each(|block| self.space.table.live_pages(*block, &mut gone));
        gone.into_iter().for_each(|ppn| self.give_up_page(ppn));
        for lpn in unit * self.shape.pages..end {
            if self.trims.is_mapped(lpn) {
                self.trims.unmap(lpn);
            }
        }
        self.space.seal(self.stream_of(unit))?;
        blocks.into_iter().for_each(|block| self.give_up(block));
        Ok(())
    }

    /// Takes groups out of RAM while there are too many: copies pages of theirs that are abroad, or
    /// any.
    fn settle_groups(&mut self) -> Result<(), FtlError> {
        let limit = MIN_IN_RAM.max(self.logical_pages / (self.shape.slots * self.shape.fan) / 16);
        // A trim leaves at most one at either end.
        for _ in 0..2 {
            if self.tables.in_ram() <= limit as usize {
                break;
            }
            if let Some(group) = self.tables.next_in_ram(self.next_settled) {
                self.next_settled = group + 1;
                self.settle_group(group / self.shape.groups(), group % self.shape.groups())?;
            }
        }
        Ok(())
    }

    fn settle_group(&mut self, unit: u32, group: u32) -> Result<(), FtlError> {
        let mut data = vec![0; self.space.geometry().page_bytes as usize];
        while let Place::Ram(_) = self.tables.place(unit * self.shape.groups() + group) {
            if self.stream_of_write(unit) == COMMON {
                // Its pages come home when its block is cleaned.
                return Ok(());
            }
            self.make_room(self.stream_of(unit))?;
            self.take_group(unit, group, Cause::Trim)?;
            let Some((lpn, ppn)) = self.page_to_settle(unit, group) else {
                return Ok(());
            };
            let Some(oob) = self
                .space
                .flash
                .read(ppn, &mut data, Cause::Trim)?
                .filter(|oob| oob.tag.lpn == lpn)
            else {
                return Ok(());
            };
            self.program_home(
                PageTag {
                    flags: oob.tag.flags.with(Flags::COPY),
                    ..oob.tag
                },
                &data,
                Cause::Trim,
            )?;
        }
        Ok(())
    }

    /// A page of a table without carrier: one abroad, or if all are at home, any. None of a table
    /// that cannot have one.
    fn page_to_settle(&mut self, unit: u32, group: u32) -> Option<(u32, Ppn)> {
        let geometry = self.space.geometry();
        for k in self.shape.tables_of(group) {
            if self.at_hand.carriers[k as usize] != UNMAPPED {
                continue;
            }
            let slots = self.at_hand.table(k, &self.shape);
            if slots.contains(&LOST) {
                return None;
            }
            let first = unit * self.shape.pages + k * self.shape.slots;
            let mapped = (first..)
                .zip(&*slots)
                .filter(|(_, slot)| **slot != UNMAPPED);
            let mapped = mapped.map(|(lpn, slot)| (lpn, Ppn::new(*slot)));
            let is_abroad =
                |(_, ppn): &(u32, Ppn)| self.lists.owner(geometry.block_of(*ppn)) != Some(unit);
            if let Some(page) = mapped
                .clone()
                .find(is_abroad)
                .or_else(|| mapped.clone().next())
            {
                return Some(page);
            }
        }
        None
    }

    fn audit(&mut self) -> Result<Vec<String>, FtlError> {
        let mut wrong = self.space.table.audit();
        wrong.extend(self.lists.audit());
        let counts = self.space.table.counts();
        let sum =
            counts.free + counts.open + counts.data + counts.log + counts.map + counts.checkpoint;
        if sum + counts.released + counts.bad != self.space.geometry().blocks {
            wrong.push(format!("blocks do not add up: {counts:?}"));
        }
        self.at_hand.forget();
        let (mut placed, mut lost) = (0, 0);
        for lpn in 0..self.logical_pages {
            let place = self.look_up(lpn, Cause::Recovery)?;
            if (place != UNMAPPED) != self.trims.is_mapped(lpn) {
                wrong.push(format!(
                    "logical page {lpn} is at {place:#x}, but mapped: {}",
                    self.trims.is_mapped(lpn)
                ));
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
            wrong.push(format!(
                "{placed} pages placed, {lost} lost, {mapped} mapped; {live} live, {trims} trims"
            ));
        }
        Ok(wrong)
    }

    fn audit_place(&mut self, lpn: u32, ppn: Ppn) -> Result<Option<String>, FtlError> {
        let (unit, k, _) = self.split(lpn);
        let geometry = self.space.geometry();
        if !geometry.contains(ppn) || !self.space.table.is_live(ppn) {
            return Ok(Some(format!(
                "logical page {lpn} is at {ppn}, which is not live"
            )));
        }
        let at_home = self.lists.owner(geometry.block_of(ppn)) == Some(unit);
        if !at_home
            && matches!(
                self.tables.place(self.group_number(unit, k)),
                Place::Flash(_)
            )
        {
            return Ok(Some(format!(
                "logical page {lpn} is at {ppn}, abroad, and its table is on flash"
            )));
        }
        let oob = self.space.flash.read_oob(ppn, Cause::Recovery)?;
        let is_it = oob.is_some_and(|oob| oob.tag.lpn == lpn && oob.tag.role == Role::Data);
        Ok((!is_it).then(|| format!("logical page {lpn} is at {ppn}, which says {oob:?}")))
    }
}
