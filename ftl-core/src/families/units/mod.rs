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
mod lookup;
mod reclaim;
mod recovery;
mod slices;
mod tables;
mod trims;

pub(crate) use lists::Lists;
pub(crate) use slices::Slicing;
pub(crate) use tables::Shape;

use crate::addr::Lpn;
use crate::checkpoint::Checkpoints;
use crate::config::{FtlConfig, Params};
use crate::controller::{Controller, Mapping, check_size, ram_entry};
use crate::convert::{index, to_u32, to_u64};
use crate::error::FtlError;
use crate::flash::Flash;
use crate::format::{Flags, LOST, PageTag, Role, UNMAPPED};
use crate::ftl::Start;
use crate::gc::{Gc, Settings};
use crate::recovery::{CleanStop, MountByRecords};
use crate::space::{Space, StreamId, StreamSpec};
use crate::stats::{RamReport, SchemeStats};
use crate::trims::Trims;
use nand_model::{Cause, Chip, Geometry, Ppn, Profile, Store};
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

/// Units, their tables and lists.
pub(crate) struct Units<P> {
    policy: P,
    shape: Shape,
    pub(crate) lists: Lists,
    tables: Tables,
    at_hand: AtHand,
    trims: Trims,
    /// The unit being collected, how many blocks it had, and how often that was tried: it was worth
    /// it when one is free.
    collecting: Option<(u32, u32, u32)>,
    /// Where blocks are cleaned in slices.
    slices: Option<Slices>,
    /// Where the search for groups to take out of RAM goes on.
    next_settled: u32,
    /// Physical pages of the read at hand.
    places: Vec<u32>,
}

/// A scheme of units over a chip.
pub(crate) type UnitFtl<S, P> = Controller<S, Units<P>>;

impl<S: Store, P: Policy> UnitFtl<S, P> {
    /// Starts a scheme on a chip.
    pub(crate) fn create(
        chip: Chip<S>,
        config: &FtlConfig,
        start: Start,
        shape: Shape,
        policy: P,
    ) -> Result<Self, FtlError> {
        let (geometry, logical_pages) = (*chip.geometry(), config.logical_pages);
        check_size(&geometry, logical_pages)?;
        let units = logical_pages.div_ceil(shape.pages);
        let settings = Settings::new(&config.params, chip.profile(), geometry.blocks, units)?;
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
        let first = space.add_streams(stream(Role::Data, true), index(units));
        assert_eq!(first, FIRST_UNIT);
        space.set_pair_protection(settings.pair_protection);
        let gc = Gc::new(
            &geometry,
            settings.free_threshold,
            RESERVE,
            settings.wear,
            settings.scrub,
        );
        let map = Units {
            lists: Lists::new(
                units,
                geometry.blocks,
                shape.max_nodes(),
                policy.max_length(&shape),
            ),
            slices: policy
                .slicing()
                .map(|how| Slices::new(how, geometry.blocks)),
            policy,
            shape,
            tables: Tables::new(units * shape.groups()),
            at_hand: AtHand::default(),
            trims: Trims::new(&geometry, logical_pages, COMMON),
            collecting: None,
            next_settled: 0,
            places: Vec::new(),
        };
        Controller::start(start, space, gc, CHECKPOINT, logical_pages, map)
    }
}

impl<S: Store, P: Policy> Mapping<S> for UnitFtl<S, P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn begin(&mut self) {
        self.map.at_hand.forget();
    }

    fn read_pages(&mut self, first: Lpn, out: &mut [u8]) -> Result<(), FtlError> {
        self.take_slice_of_read()?;
        let count = to_u32(out.len() / self.space.geometry().page_len());
        self.map.places.clear();
        for lpn in first.run(count) {
            let ppn = self.look_up(lpn, Cause::Host)?;
            self.map.places.push(ppn);
        }
        let places = &self.map.places;
        let flash = &mut self.space.flash;
        flash.read_places(first.raw(), places.len(), |i| places[i], out)
    }

    fn write_pages(&mut self, first: Lpn, data: &[u8]) -> Result<(), FtlError> {
        let page = self.space.geometry().page_len();
        let count = to_u32(data.len() / page);
        for (lpn, bytes) in first.run(count).zip(data.chunks_exact(page)) {
            self.take_slice()?;
            let (unit, ..) = self.split(lpn);
            let stream = self.stream_of_write(unit);
            self.make_room(stream)?;
            self.map.policy.wrote(unit);
            let tag = PageTag {
                role: Role::Data,
                flags: Flags::NONE,
                lpn: lpn.raw(),
                ver: self.next_ver,
            };
            if stream == COMMON {
                self.program_abroad(tag, bytes, Cause::Host)?;
            } else {
                self.program_home(tag, bytes, Cause::Host)?;
            }
            self.next_ver += 1;
            self.stats.host_pages_written += 1;
        }
        Ok(())
    }

    fn trim_pages(&mut self, first: Lpn, count: u32) -> Result<(), FtlError> {
        if first.run(count).all(|lpn| !self.map.trims.is_mapped(lpn)) {
            return Ok(());
        }
        self.take_slice()?;
        self.make_room(COMMON)?;
        self.read_tables_at_ends(first, count)?;
        let ver = self.next_ver;
        self.next_ver += 1;
        self.map.trims.record(&mut self.space, first, count, ver)?;
        self.unmap(first, count)?;
        if self.map.trims.bitmap_due() {
            self.make_room(COMMON)?;
            let ver = self.next_ver;
            self.next_ver += 1;
            self.map.trims.write_bitmap(&mut self.space, ver)?;
        }
        self.settle_groups()
    }

    fn make_durable(&mut self) -> Result<(), FtlError> {
        self.space.make_safe()
    }

    fn stop(&mut self) -> Result<(), FtlError> {
        self.write_clean_stop()
    }

    fn recover(&mut self) -> Result<(), FtlError> {
        MountByRecords::mount(self)?;
        self.note_all_blocks();
        Ok(())
    }

    fn is_mapped(&self, lpn: Lpn) -> bool {
        self.map.trims.is_mapped(lpn)
    }

    fn gauges(&self, common: SchemeStats) -> SchemeStats {
        SchemeStats {
            mapped_pages: self.map.trims.mapped_pages(),
            ..common
        }
    }

    fn ram(&self) -> RamReport {
        let geometry = self.space.geometry();
        let (bitmap, victims, blocks) = self.space.table.bytes();
        let units = u64::from(self.logical_pages.div_ceil(self.map.shape.pages));
        let paper = self
            .map
            .policy
            .paper_bytes(&self.map.shape, &self.map.lists, units);
        let real = self.map.lists.bytes() + self.map.tables.bytes() + self.map.policy.bytes();
        let queue = self.map.slices.as_ref().map_or(0, Slices::bytes);
        vec![
            ram_entry("map", units, paper, real),
            ram_entry("bitmaps", geometry.pages(), 0, bitmap),
            ram_entry(
                "gc",
                u64::from(geometry.blocks),
                0,
                victims + blocks + queue,
            ),
            ram_entry(
                "other",
                to_u64(self.map.trims.len()),
                0,
                self.map.trims.bytes() + self.space.pool_bytes(),
            ),
            ram_entry("buffers", 1, 0, self.gc.pages.bytes()),
        ]
    }

    fn audit_map(&mut self, wrong: &mut Vec<String>) -> Result<(), FtlError> {
        wrong.extend(self.map.lists.audit());
        self.map.at_hand.forget();
        let (mut placed, mut lost) = (0, 0);
        for lpn in Lpn::new(0).run(self.logical_pages) {
            let place = self.look_up(lpn, Cause::Recovery)?;
            if (place != UNMAPPED) != self.map.trims.is_mapped(lpn) {
                wrong.push(format!(
                    "logical page {lpn} is at {place:#x}, but mapped: {}",
                    self.map.trims.is_mapped(lpn)
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
        if placed + lost != self.map.trims.mapped_pages()
            || live != placed + to_u64(self.map.trims.len())
        {
            let (mapped, trims) = (self.map.trims.mapped_pages(), self.map.trims.len());
            wrong.push(format!(
                "{placed} pages placed, {lost} lost, {mapped} mapped; {live} live, {trims} trims"
            ));
        }
        Ok(())
    }
}

impl<S: Store, P: Policy> UnitFtl<S, P> {
    pub(crate) fn stream_of(&self, unit: u32) -> StreamId {
        FIRST_UNIT + index(unit)
    }

    /// Unit, table in it, and slot among the unit's.
    fn split(&self, lpn: Lpn) -> (u32, u32, usize) {
        debug_assert!(lpn.raw() < self.logical_pages, "no logical page {lpn}");
        let Shape { pages, slots, .. } = self.map.shape;
        let offset = lpn.raw() % pages;
        (lpn.raw() / pages, offset / slots, index(offset))
    }

    /// Groups in RAM, and trim pages.
    #[cfg(test)]
    pub(crate) fn left_behind(&self) -> (usize, usize) {
        (self.map.tables.in_ram(), self.map.trims.len())
    }

    /// Programs a page into its unit's own block, with its table and directory, and gives up the
    /// place where it was.
    fn program_home(&mut self, tag: PageTag, data: &[u8], cause: Cause) -> Result<(), FtlError> {
        let (unit, k, slot) = self.split(Lpn::new(tag.lpn));
        let group = k / self.map.shape.fan;
        self.take_table(unit, k, cause)?;
        let on_flash = !matches!(
            self.map.tables.place(self.group_number(unit, k)),
            Place::Ram(_)
        );
        if on_flash && !self.is_at_home(unit, k) {
            self.take_group(unit, group, cause)?;
        }
        let old = self.map.at_hand.slots[slot];
        let (stream, geometry, shape, epoch) = (
            self.stream_of(unit),
            self.space.geometry(),
            self.map.shape,
            self.space.next_epoch(),
        );
        let (lists, at_hand) = (&mut self.map.lists, &mut self.map.at_hand);
        let mut said = false;
        let programmed = self
            .space
            .append_with_spare(stream, tag, data, cause, |ppn, spare| {
                let block = geometry.block_of(ppn);
                // Epochs ascend, so a block that was not on the list before has the latest.
                lists.add(unit, block, epoch, None);
                at_hand.slots[slot] = ppn.raw();
                at_hand.carriers[index(k)] = ppn.raw();
                let tables = shape.tables_of(group);
                let carriers = &at_hand.carriers[index(tables.start)..index(tables.end)];
                let slots = &at_hand.slots[index(k * shape.slots)..][..index(shape.slots)];
                said = shape.encode(lists, unit, block, slots, carriers, spare);
            });
        let ppn = match programmed {
            Ok(ppn) => ppn,
            Err(error) => {
                self.map.at_hand.forget();
                return Err(error);
            }
        };
        // Before anything else is read: should a table have to be rebuilt, one live page of each
        // must be left, and only mapped ones are searched for.
        self.map.trims.map(Lpn::new(tag.lpn));
        self.give_up_place(old);
        self.note_block(geometry.block_of(ppn));
        if !said {
            self.map.at_hand.carriers[index(k)] = UNMAPPED;
        }
        // What was on flash before is carried but for this table.
        if said && (on_flash || self.map.at_hand.is_carried(group, &self.map.shape)) {
            self.map
                .tables
                .set_on_flash(self.group_number(unit, k), ppn);
        } else {
            self.take_group(unit, group, cause)?;
            self.keep_group(unit, group);
        }
        Ok(())
    }

    /// Programs a copy of a page into the common blocks; its group is in RAM from now on.
    fn program_abroad(&mut self, tag: PageTag, data: &[u8], cause: Cause) -> Result<(), FtlError> {
        let (unit, k, slot) = self.split(Lpn::new(tag.lpn));
        self.take_group(unit, k / self.map.shape.fan, cause)?;
        let ppn = self.space.append_page(COMMON, tag, data, cause)?;
        self.map.trims.map(Lpn::new(tag.lpn));
        let block = self.space.geometry().block_of(ppn);
        let owner = self.map.lists.owner(block);
        assert_eq!(owner, None, "common block {block} has a unit");
        let old = std::mem::replace(&mut self.map.at_hand.slots[slot], ppn.raw());
        self.map.at_hand.carriers[index(k)] = UNMAPPED;
        self.keep_group(unit, k / self.map.shape.fan);
        self.give_up_place(old);
        self.note_block(block);
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

    fn audit_place(&mut self, lpn: Lpn, ppn: Ppn) -> Result<Option<String>, FtlError> {
        let (unit, k, _) = self.split(lpn);
        let geometry = self.space.geometry();
        if !geometry.contains(ppn) || !self.space.table.is_live(ppn) {
            return Ok(Some(format!(
                "logical page {lpn} is at {ppn}, which is not live"
            )));
        }
        let at_home = self.map.lists.owner(geometry.block_of(ppn)) == Some(unit);
        if !at_home
            && matches!(
                self.map.tables.place(self.group_number(unit, k)),
                Place::Flash(_)
            )
        {
            return Ok(Some(format!(
                "logical page {lpn} is at {ppn}, abroad, and its table is on flash"
            )));
        }
        let oob = self.space.flash.read_oob(ppn, Cause::Recovery)?;
        let is_it = oob.is_some_and(|oob| oob.tag.lpn == lpn.raw() && oob.tag.role == Role::Data);
        Ok((!is_it).then(|| format!("logical page {lpn} is at {ppn}, which says {oob:?}")))
    }
}
