//! Schemes whose logical units (one or several logical blocks) own physical blocks. A unit appends
//! to an open block of its own. The page map of a unit is cut into tables, which are stored in the
//! OOB areas of its pages (`tables.rs`). The block lists of the units are in RAM (`lists.rs`).
//! Schemes differ in a [`Policy`]: the shape, the maximal list length, and the unit that GC
//! chooses.
//!
//! *Common blocks* take pages of any unit: trim records and the pages that a mount programs. A
//! mount cannot continue blocks that a power cut left open, and must not open a block per unit.
//! When GC selects a common block, its pages return to their units' blocks where these have room. A
//! group of tables that maps a page in a common block is in RAM. If no unit can shrink, GC moves
//! the emptiest block into the common blocks.
//!
//! Invariants: tables on flash name only valid pages of their unit's own blocks. A page is valid if
//! and only if it has the newest content of its logical page. A write is acknowledged when its page
//! is programmed. If power fails, mount takes the newest readable version of every page and
//! compares it with the tables: a group that differs is kept in RAM (`recovery.rs`).

mod lists;
mod lookup;
mod policy;
mod program;
mod reclaim;
mod recovery;
mod slices;
mod state;
mod tables;
mod unmap;

pub(crate) use lists::Lists;
pub(crate) use policy::Policy;
pub(crate) use slices::Slicing;
pub(crate) use state::UnitFtl;
#[cfg(test)]
pub(crate) use state::stream_of;
pub(crate) use tables::Shape;

use crate::addr::Lpn;
use crate::checkpoint::Checkpoints;
use crate::config::{FtlConfig, Params};
use crate::controller::Controller;
use crate::error::FtlError;
use crate::families::unit_settings;
use crate::flash::Flash;
use crate::format::{Flags, LOST, PageTag, Role, UNMAPPED};
use crate::ftl::Start;
use crate::gc::GcState;
use crate::int::{index, to_u32, to_u64};
use crate::mapping::{Mapping, check_size, ram_entry};
use crate::ram::{run_pages, vec_bytes, vec_most};
use crate::recovery::{MountByScan, ShutdownState};
use crate::space::{Space, StreamSpec};
use crate::stats::{RamPart, RamReport, SchemeStats, StreamKind};
use crate::trims::Trims;
use nand_model::{Cause, Chip, Geometry, Ppn, Profile};
use slices::Slices;
use state::{CHECKPOINT, COMMON, FIRST_UNIT, Units};
use tables::{GroupLocation, Tables, UnitCache};

/// Free blocks below which GC no longer delays padding: a copy target and two more.
const RESERVE: u32 = 3;
/// A GC run may open a block of a unit and a common one; each may fail.
const FOR_FAILURES: u32 = 2;

/// Returns the blocks that a device with units of `unit_pages` pages needs beyond data and
/// over-provisioning: three sets of checkpoints; trim pages; an open common block; a failing block;
/// two blocks waiting for their erase; a partly filled unit; the free threshold.
pub(crate) fn overhead_blocks(
    profile: &Profile,
    logical_pages: u32,
    unit_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    let estimate = logical_pages / profile.geometry.pages_per_block;
    let settings = unit_settings::read(
        params,
        profile,
        estimate,
        logical_pages.div_ceil(unit_pages),
        FOR_FAILURES,
    )?;
    let geometry = Geometry {
        blocks: estimate.max(64) * 2,
        ..profile.geometry
    };
    let checkpoints = Checkpoints::blocks_needed(&geometry, ShutdownState::chunks(&geometry));
    Ok(checkpoints + Trims::blocks_needed(&geometry, logical_pages) + 6 + settings.free_threshold)
}

impl<P: Policy> Units<P> {
    fn audit_page(
        &mut self,
        space: &mut Space,
        lpn: Lpn,
        ppn: Ppn,
    ) -> Result<Option<String>, FtlError> {
        let (unit, k, _) = self.split(lpn);
        let geometry = space.geometry();
        if !geometry.contains(ppn) || !space.table.is_valid(ppn) {
            return Ok(Some(format!(
                "logical page {lpn} is at {ppn}, which is not valid"
            )));
        }
        let at_home = self.lists.owner(geometry.block_of(ppn)) == Some(unit);
        if !at_home
            && matches!(
                self.tables.location(self.group_number(unit, k)),
                GroupLocation::Flash(_)
            )
        {
            return Ok(Some(format!(
                "logical page {lpn} is at {ppn}, in a common block, but its table is on flash"
            )));
        }
        let oob = space.flash.read_oob(ppn, Cause::Recovery)?;
        let is_it = oob.is_some_and(|oob| oob.tag.lpn == lpn.raw() && oob.tag.role == Role::Data);
        Ok((!is_it).then(|| format!("logical page {lpn} is at {ppn}, whose record is {oob:?}")))
    }
}

impl<P: Policy> UnitFtl<P> {
    /// Starts a scheme on a chip.
    pub(crate) fn create(
        chip: Chip,
        config: &FtlConfig,
        start: Start,
        shape: Shape,
        policy: P,
    ) -> Result<Self, FtlError> {
        let (geometry, logical_pages) = (*chip.geometry(), config.logical_pages);
        check_size(&geometry, logical_pages)?;
        let units = logical_pages.div_ceil(shape.pages);
        let settings = unit_settings::read(
            &config.params,
            chip.profile(),
            geometry.blocks,
            units,
            FOR_FAILURES,
        )?;
        let mut flash = Flash::new(chip);
        flash.reserve_spare(shape.spare_bytes())?;
        let mut space = Space::new(
            flash,
            &[
                StreamSpec::new(StreamKind::Common, Role::Cold, true),
                StreamSpec::new(StreamKind::Checkpoint, Role::Checkpoint, false),
            ],
        );
        let unit = StreamSpec::new(StreamKind::Unit, Role::Data, true);
        let first = space.add_streams(unit, index(units));
        assert_eq!(first, FIRST_UNIT);
        space.protect(settings.pair_protection, settings.kept_for_mount);
        space.flash.set_ram_step(settings.ram_step_ns);
        let gc = GcState::new(&geometry, &settings, RESERVE);
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
            logical_pages,
            shape,
            tables: Tables::new(units * shape.groups()),
            cached_unit: UnitCache::default(),
            trims: Trims::new(&geometry, logical_pages, COMMON),
            collecting: None,
            next_settled: 0,
            table_reads: 0,
            ppns: Vec::new(),
        };
        Controller::start(start, space, gc, CHECKPOINT, logical_pages, map)
    }
}

impl<P: Policy> Mapping for UnitFtl<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn begin(&mut self) {
        self.map.cached_unit.forget();
    }

    fn read_pages(&mut self, first: Lpn, out: &mut [u8]) -> Result<(), FtlError> {
        self.take_slice_of_read()?;
        let count = to_u32(out.len() / self.space.geometry().page_len());
        self.map.ppns.clear();
        for lpn in first.run(count) {
            let before = self.map.table_reads;
            let ppn = self.map.look_up(&mut self.space, lpn, Cause::Host)?;
            let is_hit = self.map.table_reads == before;
            self.stats.lookups_read.note(is_hit);
            self.map.ppns.push(ppn);
        }
        let ppns = &self.map.ppns;
        let flash = &mut self.space.flash;
        flash.read_logical_pages(first.raw(), ppns.len(), |i| ppns[i], out)
    }

    fn write_pages(&mut self, first: Lpn, data: &[u8]) -> Result<(), FtlError> {
        let page = self.space.geometry().page_len();
        let count = to_u32(data.len() / page);
        for (lpn, bytes) in first.run(count).zip(data.chunks_exact(page)) {
            self.take_slice()?;
            let (unit, ..) = self.map.split(lpn);
            let stream = self.stream_of_write(unit);
            self.ensure_space(stream)?;
            self.map.policy.on_write(unit);
            let tag = PageTag {
                role: Role::Data,
                flags: Flags::NONE,
                lpn: lpn.raw(),
                ver: self.next_ver,
            };
            let before = self.map.table_reads;
            if stream == COMMON {
                self.map
                    .program_in_common(&mut self.space, tag, bytes, Cause::Host)?;
            } else {
                self.map
                    .program_in_unit(&mut self.space, tag, bytes, Cause::Host)?;
            }
            let is_hit = self.map.table_reads == before;
            self.stats.lookups_write.note(is_hit);
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
        self.ensure_space(COMMON)?;
        self.map
            .read_tables_at_ends(&mut self.space, first, count)?;
        let ver = self.next_ver;
        self.next_ver += 1;
        self.map.trims.record(&mut self.space, first, count, ver)?;
        self.unmap(first, count)?;
        if self.map.trims.bitmap_due() {
            self.ensure_space(COMMON)?;
            let ver = self.next_ver;
            self.next_ver += 1;
            self.map.trims.write_bitmap(&mut self.space, ver)?;
        }
        self.write_back_groups()
    }

    fn make_durable(&mut self) -> Result<(), FtlError> {
        self.space.make_safe()
    }

    fn shut_down(&mut self) -> Result<(), FtlError> {
        self.write_shutdown_state()
    }

    fn mount(&mut self) -> Result<(), FtlError> {
        self.mount_by_scan()?;
        self.map.note_all_blocks(&self.space);
        Ok(())
    }

    fn is_mapped(&self, lpn: Lpn) -> bool {
        self.map.trims.is_mapped(lpn)
    }

    /// A lookup has two steps: the location of the page's table, and the entry in it.
    fn lookup_steps(&self) -> u64 {
        2 * (self.stats.lookups_read.total + self.stats.lookups_write.total)
    }

    fn gauges(&self, common: SchemeStats) -> SchemeStats {
        SchemeStats {
            mapped_pages: self.map.trims.mapped_pages(),
            ..common
        }
    }

    fn ram(&self) -> RamReport {
        let (map, shape) = (&self.map, &self.map.shape);
        let units = u64::from(self.logical_pages.div_ceil(shape.pages));
        let paper = map.policy.paper_bytes(shape, &map.lists, units);
        // Two more groups at the ends of a trim, and those with a page in a common block.
        let groups = u64::from(self.map.most_groups_in_ram());
        let groups = (groups + 2 + u64::from(self.space.geometry().pages_per_block))
            .min(units * u64::from(shape.groups()));
        let parts = [
            map.lists.ram(),
            map.tables.ram(shape, groups),
            map.cached_unit.ram(shape),
        ];
        let policy = map.policy.bytes();
        let real = policy + parts.iter().map(|(now, _)| now).sum::<u64>();
        let most = policy + parts.iter().map(|(_, most)| most).sum::<u64>();
        let (trims, trims_most) = map.trims.ram();
        let records = to_u64(map.trims.len());
        let mut report = vec![
            ram_entry(RamPart::Map, units, paper, real, most),
            ram_entry(RamPart::Trims, records, 0, trims, trims_most),
        ];
        let work = vec_bytes::<u32>(map.ppns.capacity());
        let pages = run_pages(self.space.geometry().page_bytes);
        report.push(ram_entry(RamPart::Work, 1, 0, work, vec_most::<u32>(pages)));
        if let Some(slices) = &map.slices {
            let (queue, queue_most) = slices.ram();
            let blocks = u64::from(self.space.geometry().blocks);
            report.push(ram_entry(RamPart::Slices, blocks, 0, queue, queue_most));
        }
        report
    }

    fn audit_map(&mut self, wrong: &mut Vec<String>) -> Result<(), FtlError> {
        wrong.extend(self.map.lists.audit());
        self.map.cached_unit.forget();
        let (mut found, mut lost) = (0, 0);
        for lpn in Lpn::new(0).run(self.logical_pages) {
            let ppn = self.map.look_up(&mut self.space, lpn, Cause::Recovery)?;
            if (ppn != UNMAPPED) != self.map.trims.is_mapped(lpn) {
                wrong.push(format!(
                    "logical page {lpn}: table entry is {ppn:#x}, mapped: {}",
                    self.map.trims.is_mapped(lpn)
                ));
            }
            match ppn {
                UNMAPPED => continue,
                LOST => lost += 1,
                _ => found += 1,
            }
            if ppn != LOST {
                wrong.extend(self.map.audit_page(&mut self.space, lpn, Ppn::new(ppn))?);
            }
        }
        let valid = self.space.table.valid_pages();
        if found + lost != self.map.trims.mapped_pages()
            || valid != found + to_u64(self.map.trims.len())
        {
            let (mapped, trims) = (self.map.trims.mapped_pages(), self.map.trims.len());
            wrong.push(format!(
                "{found} pages have a physical page and {lost} are lost, but {mapped} are mapped; {valid} pages are valid, {trims} are trim pages"
            ));
        }
        Ok(())
    }
}
