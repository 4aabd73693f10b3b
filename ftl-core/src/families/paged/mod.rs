//! Page-level maps stored on flash: the common part of all schemes of this family. The scheme
//! itself is a [`Policy`]: it decides which part of the map is cached. With [`Settings`] it decides
//! when a mapping page is written: when an entry leaves the cache ([`Policy::evict`]), when there
//! are too many pending entries or blocks, or when a block gets too old (`convert.rs`).
//!
//! The map is an array of mapping pages, one entry per logical page; a directory in RAM contains
//! their locations. Host writes and relocated pages go to separate streams, selected by the
//! placement (`streams.rs`). Their entries reach the map on flash later. Until then they are
//! *pending* in RAM, but only while their blocks are among the youngest `age_window` blocks. After
//! that, or when the policy decides so, the mapping page is written with all its pending entries.
//! This is LazyFTL's conversion, and the batched updates of DFTL and TPFTL.
//!
//! - A mapping page never names a page that can still be lost. Such an entry stays pending when its
//!   mapping page is written;
//! - old blocks are converted, including open blocks. So the youngest `age_window` blocks always
//!   contain every page missing from the map on flash. Checkpoints name these blocks too
//!   (`checkpoint.rs`);
//! - recovery compares versions, not only page states (`recovery.rs`); trims leave records
//!   (`unmap.rs`).
//!
//! On flash, besides docs/FORMAT.md's common record: a mapping page (role MAP, `lpn` = its number)
//! is `page_bytes / 4` entries. An entry has 4 bytes, little endian, all ones = unmapped. The `ver`
//! of the page is `upto`: it contains every change of its entries with a program number up to
//! `upto`. The newest readable program of a mapping page is current. A trim record (role TRIM, in
//! mapping blocks) has the program number of the trim itself in `ver`, and copies of the record
//! keep it. Its data is one range with its version.
//!
//! Invariants: every valid page that is newer than the map on flash is pending. Every other mapped
//! page is where the map on flash names it. If power fails, mount finds the pending pages in the
//! window of young blocks.

mod audit;
pub(crate) mod author;
mod checkpoint;
mod convert;
mod groups;
pub(crate) mod map;
pub(crate) mod pending;
mod policy;
mod reclaim;
mod recovery;
mod settings;
mod state;
mod streams;
#[cfg(test)]
pub(crate) mod tests;
mod unmap;
mod versions;
mod window;

use crate::addr::Lpn;
use crate::checkpoint::{CheckpointWriter, Checkpoints, WriteCheckpoints};
use crate::config::{FtlConfig, Params};
use crate::controller::Controller;
use crate::error::FtlError;
use crate::flash::{Flash, OwnPage};
use crate::format::{Flags, PageTag, Role, UNMAPPED};
use crate::ftl::Start;
use crate::gc::placement::{self, DataStreams};
use crate::gc::{GcState, Own, fold};
use crate::layout::Layout;
use crate::mapping::{Mapping, check_size, ram_entry};
use crate::ram::{RamParam, TRIM_PAGES, vec_bytes, vec_most};
use crate::space::{Space, StreamSpec};
use crate::stats::{RamPart, RamReport, SchemeStats, StreamKind};
use crate::trims::{Mapped, UntilWritten};
pub use author::{CachedMapScheme, MapCache, MapPage};
pub(crate) use checkpoint::checkpoint_pages;
use groups::Groups;
pub(crate) use groups::Placement;
pub(crate) use map::map_pages;
use nand_model::{Cause, Chip, Geometry, PairTable, Pbn, Ppn, Profile};
use pending::Pending;
pub(crate) use policy::Policy;
pub(crate) use settings::{Settings, age_window_least, docs, looks_up_by_list};
use state::{CHECKPOINT, COLD, PagedMap};
pub(crate) use state::{HOST, MAP, PagedFtl};
use std::collections::VecDeque;

/// Estimates the number of blocks of a device before its layout exists.
pub(crate) fn estimate_blocks(geometry: &Geometry, logical_pages: u32) -> u32 {
    logical_pages.div_ceil(geometry.pages_per_block) / 16 * 18 + 32
}

/// Returns the blocks beyond data and over-provisioning:
///
/// - the map twice (GC of its invalid pages must be cheap), trim records and checkpoints;
/// - open blocks, blocks that wait for their erase, and the threshold;
/// - buffer blocks, which GC does not take before their conversion;
/// - padding of short blocks.
pub(crate) fn overhead_blocks(
    profile: &Profile,
    logical_pages: u32,
    blocks: u32,
    settings: &Settings,
) -> u32 {
    let geometry = &profile.geometry;
    let map = (2 * map_pages(geometry, logical_pages)).div_ceil(geometry.pages_per_block) + 1;
    let trims = UntilWritten::limit(geometry).div_ceil(geometry.pages_per_block) + 1;
    let checkpoints =
        Checkpoints::blocks_needed(geometry, checkpoint_pages(geometry, logical_pages, blocks));
    settings.buffer_blocks.unwrap_or(0)
        + map
        + trims
        + checkpoints
        + 4
        + settings.more_streams
        + 3
        + settings.gc.free_threshold
        + padding_blocks(profile, logical_pages, settings)
}

/// Returns the blocks for the padding of short blocks. A conversion may pad every open block.
/// Where padding takes a quarter of a block or more, GC, which pads too, gains too little: such a
/// device gets the lost capacity on top.
fn padding_blocks(profile: &Profile, logical_pages: u32, settings: &Settings) -> u32 {
    let pages = profile.geometry.pages_per_block;
    let padding = PairTable::new(profile.pairing, pages).span();
    if !settings.gc.pair_protection || 4 * padding < pages {
        return 0;
    }
    logical_pages.div_ceil(pages - padding) - logical_pages.div_ceil(pages)
}

/// Tombstones are pending changes. Few are of use without trims, so the cache comes first.
pub(crate) const TOMBSTONES_RAM: RamParam = RamParam {
    key: docs::TOMBSTONES.key,
    range: |_, _| Ok((16, 1024)),
    share_percent: 50,
};

/// Every block of the window has a list of its logical pages in RAM.
pub(crate) const AGE_WINDOW_RAM: RamParam = RamParam {
    key: docs::AGE_WINDOW.key,
    range: |layout, params| window_range(params, &Own::none(&layout.profile.geometry)),
    share_percent: 100,
};

/// Returns the shortest age window of a scheme with these policies, and the longest of use.
pub(crate) fn window_range(params: &Params, own: &Own) -> Result<(u64, u64), FtlError> {
    let lanes = placement::from_params(params, own)?.lanes();
    let least = age_window_least(placement::more_streams(lanes)).max(32);
    Ok((least, least.max(512)))
}

/// Returns the minimum bytes of a cache by the paper's count, and the bytes of all entries.
pub(crate) fn cache_range(layout: &Layout, least: u32, entry_bytes: u32) -> (u64, u64) {
    let all = layout.logical_pages as u64 * entry_bytes as u64;
    (least as u64, all.clamp(least as u64, 1 << 31))
}

/// Returns the number of mapping pages of a device.
pub(crate) fn map_pages_of(layout: &Layout) -> u64 {
    map_pages(&layout.profile.geometry, layout.logical_pages) as u64
}

/// Returns the default bytes of a cache of single entries: 1/16 of the table, which is 64 KiB per
/// GiB in pages of 4 KiB.
pub(crate) fn default_cache(logical_pages: u32) -> u32 {
    (logical_pages / 4).max(256)
}

/// Returns the free blocks that one GC run may need where relocated pages may be uncached. These
/// are a cold block; a mapping block each for a conversion and for the relocated pages; one whose
/// program fails; on MLC a pair backup. A second that fails is in `for_failures`.
fn reserve(profile: &Profile) -> u32 {
    if profile.is_mlc() { 6 } else { 4 }
}

/// Returns the common parameters of a scheme that looks up writes, on this chip.
pub(crate) fn settings_of(chip: &Chip, config: &FtlConfig) -> Result<Settings, FtlError> {
    settings_under(chip, config, &Own::none(chip.geometry()))
}

/// Returns the common parameters of a scheme with policies of its own.
pub(crate) fn settings_under(
    chip: &Chip,
    config: &FtlConfig,
    own: &Own,
) -> Result<Settings, FtlError> {
    let geometry = chip.geometry();
    let checkpoint = checkpoint_pages(geometry, config.logical_pages, geometry.blocks);
    Settings::new(
        &config.params,
        own,
        geometry.blocks - chip.slc_blocks(),
        checkpoint,
        reserve(chip.profile()),
    )
}

/// Returns an error if the parameters of folding make no sense on this device.
pub(crate) fn check_region(profile: &Profile, params: &Params) -> Result<(), FtlError> {
    check_region_under(profile, params, &Own::none(&profile.geometry))
}

fn check_region_under(profile: &Profile, params: &Params, own: &Own) -> Result<(), FtlError> {
    let lanes = placement::from_params(params, own)?.lanes();
    fold::from_params(params, profile, lanes).map(drop)
}

/// Returns [`overhead_blocks`] for the parameters of a scheme that looks up the map for writes.
pub(crate) fn overhead_of_params(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    let own = Own::none(&profile.geometry);
    overhead_under(profile, logical_pages, params, &own)
}

/// Returns these blocks of a scheme with policies of its own.
pub(crate) fn overhead_under(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
    own: &Own,
) -> Result<u32, FtlError> {
    check_region_under(profile, params, own)?;
    let geometry = &profile.geometry;
    let blocks = estimate_blocks(geometry, logical_pages);
    let checkpoint = checkpoint_pages(geometry, logical_pages, blocks);
    let settings = Settings::new(params, own, blocks, checkpoint, reserve(profile))?;
    Ok(overhead_blocks(profile, logical_pages, blocks, &settings))
}

impl<P: Policy> Mapping for PagedFtl<P> {
    fn name(&self) -> &'static str {
        self.map.scheme
    }

    fn read_pages(&mut self, first: Lpn, out: &mut [u8]) -> Result<(), FtlError> {
        let page = self.space.geometry().page_bytes as usize;
        let count = (out.len() / page) as u32;
        let mut done = 0;
        let mut next = None;
        let mut parts = self.space.flash.begin_parts();
        while done < count {
            self.space.flash.next_part(&mut parts);
            let from = match next.take() {
                Some(known) => known,
                None => self.locate(first.plus(done), count - done - 1, |stats| {
                    &mut stats.lookups_read
                })?,
            };
            let start = done;
            done += 1;
            while done < count {
                let found = self.locate(first.plus(done), count - done - 1, |stats| {
                    &mut stats.lookups_read
                })?;
                if !self.is_contiguous(from, found, done - start) {
                    next = Some(found);
                    break;
                }
                done += 1;
            }
            self.space.flash.delay_parts(&mut parts);
            let bytes = &mut out[start as usize * page..done as usize * page];
            match from {
                None => bytes.fill(0),
                Some(ppn) => self
                    .space
                    .flash
                    .read_host(first.raw() + start, ppn, bytes)?,
            }
        }
        self.space.flash.end_parts(parts);
        match self.settle_cache() {
            // The entries that leave the cache are pending as well: the read succeeded.
            Err(
                FtlError::HostFull
                | FtlError::Host(_)
                | FtlError::ReadOnly(_)
                | FtlError::MediaLost(_),
            ) => {}
            other => other?,
        }
        Ok(())
    }

    fn write_pages(&mut self, first: Lpn, data: &[u8]) -> Result<(), FtlError> {
        let page = self.space.geometry().page_bytes as usize;
        let count = (data.len() / page) as u32;
        let mut done = 0;
        let mut parts = self.space.flash.begin_parts();
        while done < count {
            self.space.flash.next_part(&mut parts);
            let (stream, most, is_known) = self.stream_of_write(first.plus(done), count - done)?;
            self.ensure_space(stream)?;
            let room = match self.space.room(stream) {
                0 => self.space.geometry().pages_per_block,
                room => room,
            };
            let wanted = most.min(room);
            if P::LOOKS_UP_WRITES && !is_known {
                for i in 0..wanted {
                    self.locate(first.plus(done + i), wanted - i - 1, |stats| {
                        &mut stats.lookups_write
                    })?;
                }
            }
            self.space.flash.delay_parts(&mut parts);
            let bytes = &data[done as usize * page..][..wanted as usize * page];
            let seq = self.space.flash.pseq() + 1;
            let (role, lpn, ver) = (
                self.map.settings.host_role,
                first.raw() + done,
                self.next_ver,
            );
            let tag = |i: u32| PageTag {
                role,
                flags: Flags::NONE,
                lpn: lpn + i,
                ver: ver + u64::from(i),
            };
            let (ppn, taken) = if wanted == 1 {
                let ppn = (self.space).append_page(stream, tag(0), bytes, Cause::Host)?;
                (ppn, 1)
            } else {
                let tags = &mut self.map.tags;
                tags.clear();
                tags.extend((0..wanted).map(tag));
                self.space.append(stream, tags, bytes, Cause::Host)?
            };
            self.next_ver += taken as u64;
            self.map.track_buffer_block(&self.space, ppn, stream);
            let block = self.space.flash.geometry().block_of(ppn);
            self.map.groups.note(&mut self.space.table, block, lpn);
            for i in 0..taken {
                let (lpn, to) = (first.raw() + done + i, Ppn::new(ppn.raw() + i));
                self.map
                    .remap(&mut self.space, lpn, Some(to), seq, Cause::Host)?;
                let is_new = self.map.directory[(lpn / self.map.per_page()) as usize] == UNMAPPED;
                self.map.policy.on_write(lpn, to, is_new, &self.map.pending);
            }
            self.stats.host_pages_written += taken as u64;
            done += taken;
            self.settle_cache()?;
            if self.map.settings.max_pending.is_some() {
                self.limit_pending()?;
            }
            self.advance_checkpoint(taken)?;
        }
        self.space.flash.end_parts(parts);
        Ok(())
    }

    fn trim_pages(&mut self, first: Lpn, count: u32) -> Result<(), FtlError> {
        if !self.map.mapped.any(first.raw()..first.raw() + count) {
            return Ok(());
        }
        self.trim_range(first.raw(), count)?;
        self.advance_checkpoint(1)
    }

    fn make_durable(&mut self) -> Result<(), FtlError> {
        // Relocated pages and mapping pages can wait: their source exists until they are safe.
        self.space.make_streams_safe(self.map.streams.host())?;
        let mut records = self.map.trims.iter();
        if records.any(|(_, record)| !self.space.is_safe(record.ppn)) {
            self.space.make_stream_safe(MAP)?;
        }
        Ok(())
    }

    fn shut_down(&mut self) -> Result<(), FtlError> {
        self.convert_everything()?;
        self.write_whole_checkpoint()
    }

    fn mount(&mut self) -> Result<(), FtlError> {
        self.mount_from_map()
    }

    fn is_mapped(&self, lpn: Lpn) -> bool {
        self.map.mapped.has(lpn.raw())
    }

    fn lookup_steps(&self) -> u64 {
        self.map.policy.lookup_steps()
    }

    fn gauges(&self, common: SchemeStats) -> SchemeStats {
        SchemeStats {
            mapped_pages: self.map.mapped.count(),
            map_cache_evictions: self.map.policy.evictions(),
            ..common
        }
    }

    fn ram(&self) -> RamReport {
        let geometry = self.space.geometry();
        let (map, pages) = (&self.map, self.map.directory.len() as u64);
        let bounds = map.settings.bounds(&geometry);
        let pending = &map.pending;
        let (table, indexes) = pending.bytes();
        // A logical page has at most one pending entry.
        let logical = u64::from(self.logical_pages);
        let (most, counted) = (bounds.entries.min(logical), bounds.counted.min(logical));
        let (table_most, indexes_most) = pending.bytes_most(most, bounds.blocks);
        let touched = TRIM_PAGES / self.map.per_page() as u64 + 2;
        let (trims, trims_most) = map.trims.ram(&geometry, touched.min(pages));
        let directory = vec_bytes::<u32>(map.directory.capacity());
        let tables = directory + vec_bytes::<u64>(map.upto.capacity());
        let (mapped, (of_policies, placement)) = (map.mapped.bytes(), map.streams.bytes());
        let (list, list_most) = map.groups.bytes(geometry.pages_per_block);
        let placement = placement + self.space.table.group_bytes();
        let work = map.map_page.ram()
            + vec_bytes::<PageTag>(map.tags.capacity())
            + vec_bytes::<(u64, u64)>(map.converted.capacity())
            + vec_bytes::<u32>(map.to_write.capacity())
            + vec_bytes::<u16>(map.left.capacity())
            + vec_bytes::<u32>(map.superseded.capacity())
            + vec_bytes::<u32>(map.relocated.0.capacity())
            + vec_bytes::<bool>(map.relocated.1.capacity())
            + vec_bytes::<usize>(map.order.capacity())
            + map.writer.bytes();
        // Buffers for the pages of a block, and for the entries of a mapping page.
        let (block, entries) = (geometry.pages_per_block.into(), self.map.per_page().into());
        let work_most = u64::from(geometry.page_bytes)
            + vec_most::<(u32, u32)>(entries)
            + vec_most::<PageTag>(block)
            + vec_most::<u32>(2 * block)
            + vec_most::<bool>(block)
            + vec_most::<u32>(entries)
            + vec_most::<u16>(entries)
            + vec_most::<(u64, u64)>(bounds.blocks)
            + checkpoint::bytes_most(&geometry, self.logical_pages);
        let order_most = match P::SORTS_COPIES {
            true => vec_most::<usize>(block),
            false => 0,
        };
        let entries = pending.len() as u64;
        let mut report = vec![
            ram_entry(RamPart::Pending, entries, 4 * counted, table, table_most),
            ram_entry(RamPart::PendingIndexes, entries, 0, indexes, indexes_most),
            ram_entry(RamPart::Directory, pages, 4 * pages, tables, tables),
        ];
        if let Some(buffer) = map.settings.buffer_blocks {
            // Two flags per page, in the entries.
            let pages = (buffer * geometry.pages_per_block) as u64;
            let flags = (2 * pages).div_ceil(8);
            report.push(ram_entry(RamPart::Flags, pages, flags, 0, 0));
        }
        report.extend(map.policy.ram());
        let (logical, blocks) = (self.logical_pages as u64, u64::from(geometry.blocks));
        report.extend([
            ram_entry(RamPart::Mapped, logical, 0, mapped, mapped),
            ram_entry(
                RamPart::Placement,
                blocks,
                of_policies,
                placement + list,
                placement + list_most,
            ),
            ram_entry(RamPart::Trims, map.trims.len() as u64, 0, trims, trims_most),
            ram_entry(RamPart::Work, 1, 0, work, work_most + order_most),
        ]);
        report
    }

    fn needs_gc(&self, block: Pbn) -> bool {
        self.map.settings.buffer_blocks.is_none() || !self.map.pending.holds(block)
    }

    fn audit_map(&mut self, wrong: &mut Vec<String>) -> Result<(), FtlError> {
        self.map.audit(&mut self.space, wrong)
    }
}

impl<P: Policy> PagedFtl<P> {
    /// Starts a scheme of this family.
    pub(crate) fn create(
        scheme: &'static str,
        chip: Chip,
        config: &FtlConfig,
        settings: Settings,
        policy: P,
        start: Start,
    ) -> Result<Self, FtlError> {
        let own = Own::none_of(chip.geometry(), config.logical_pages);
        Self::create_under(scheme, &own, chip, config, (settings, policy), start)
    }

    /// Starts a scheme of this family with policies of its own.
    pub(crate) fn create_under(
        scheme: &'static str,
        own: &Own,
        chip: Chip,
        config: &FtlConfig,
        (settings, policy): (Settings, P),
        start: Start,
    ) -> Result<Self, FtlError> {
        let (geometry, logical_pages) = (*chip.geometry(), config.logical_pages);
        check_size(&geometry, logical_pages)?;
        let at_once = settings.buffer_blocks.is_none();
        let placement = placement::from_params(&config.params, own)?;
        let folding = fold::from_params(&config.params, chip.profile(), placement.lanes())?;
        let streams = [
            StreamSpec::new(StreamKind::Host, settings.host_role, at_once)
                .in_slc(folding.is_some()),
            StreamSpec::new(StreamKind::Copies, settings.copy_role, at_once),
            StreamSpec::new(StreamKind::Map, Role::Map, true),
            StreamSpec::new(StreamKind::Checkpoint, Role::Checkpoint, false),
        ];
        let mut space = Space::new(Flash::new(chip), &streams);
        space.protect(settings.gc.pair_protection, settings.gc.kept_for_mount);
        space.flash.set_ram_step(settings.gc.ram_step_ns);
        let (host, copies) = ((HOST, streams[HOST]), (COLD, streams[COLD]));
        let streams = DataStreams::new(placement, &mut space, host, copies);
        let mut gc = GcState::new(&geometry, &settings.gc, settings.reserve);
        gc.fold = folding;
        let vtpns = map_pages(&geometry, logical_pages) as usize;
        let groups = Groups::new(&geometry, logical_pages, settings.groups);
        if groups.are_on() {
            space.table.count_groups();
        }
        let map = PagedMap {
            scheme,
            pending: Pending::new(geometry, map_pages(&geometry, logical_pages), !at_once),
            logical_pages,
            per_page: geometry.page_bytes / 4,
            map_page: OwnPage::new(geometry.page_len()),
            settings,
            policy,
            streams,
            directory: vec![UNMAPPED; vtpns],
            upto: vec![0; vtpns],
            mapped: Mapped::new(logical_pages),
            converted: VecDeque::new(),
            converting: false,
            trims: UntilWritten::default(),
            writer: CheckpointWriter::new(settings.checkpoint_interval),
            tags: Vec::new(),
            to_write: Vec::new(),
            left: Vec::new(),
            superseded: Vec::new(),
            relocated: Default::default(),
            groups,
            order: Vec::new(),
        };
        Controller::start(start, space, gc, CHECKPOINT, logical_pages, map)
    }

    /// Returns whether `found` continues a run that began `distance` pages before at `from`.
    #[inline]
    fn is_contiguous(&self, from: Option<Ppn>, found: Option<Ppn>, distance: u32) -> bool {
        match (from, found) {
            (None, None) => true,
            (Some(from), Some(found)) => {
                let geometry = self.space.flash.geometry();
                found.raw() == from.raw().wrapping_add(distance)
                    && geometry.block_of(found) == geometry.block_of(from)
            }
            _ => false,
        }
    }
}
