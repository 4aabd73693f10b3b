//! Schemes with *data blocks*, one per logical block, and *log blocks* for pages whose offset in
//! the data block is taken. When there are too many log blocks, one is merged: the newest pages of
//! every logical block in it are copied to a new data block. Schemes differ in a [`Policy`]: the
//! log block of a page, the log block to merge, and the time of the merge.
//!
//! On chips that take pages in any order, every page has its own offset in a data block (the
//! schemes were made for such chips). On others, and on chips with paired pages, a data block is
//! appended to, and a table in RAM has the offset of each page. In both cases a data
//! block takes each logical page once, so that blocks fill up and are merged in the same way. This
//! adaptation to multi-level cells is not from the papers.
//!
//! *Common blocks* take trim records and the pages that a mount programs, because a mount cannot
//! continue blocks that a power cut left open. Pages of any logical block in common blocks are log
//! pages. So are all other pages that a mount finds outside data blocks.
//!
//! Invariants: a page is valid if and only if it has the newest content of its logical page; it is
//! on the log map or in the data block. A write is acknowledged when its page is programmed. A
//! merge keeps the versions of the pages that it copies. It releases no block before all copies are
//! programmed and cannot be lost. If power fails, mount takes the newest readable version of every
//! page from any block (`recovery.rs`). It treats source and target of an unfinished merge as log
//! blocks.

mod data;
mod logs;
mod merge;
mod policy;
mod reclaim;
mod recovery;
mod state;
#[cfg(test)]
pub(crate) mod tests;
mod write;

pub(crate) use logs::{LogBlock, LogBlocks, LogStream};
pub(crate) use policy::{LogReclaim, Policy, Route, View, Write};
pub(crate) use state::HybridFtl;

use crate::addr::Lpn;
use crate::checkpoint::Checkpoints;
use crate::config::{FtlConfig, ParamDoc, Params};
use crate::controller::Controller;
use crate::error::FtlError;
use crate::families::unit_settings;
use crate::flash::Flash;
use crate::format::{Role, UNMAPPED};
use crate::ftl::Start;
use crate::gc::{GcState, Settings, docs};
use crate::int::{index, to_u32, to_u64};
use crate::mapping::{Mapping, check_size, ram_entry};
use crate::ram::{RamParam, run_pages, vec_bytes, vec_most};
use crate::recovery::{MountByScan, ShutdownState};
use crate::space::{Space, StreamSpec};
use crate::stats::{RamPart, RamReport, SchemeStats, StreamKind};
use crate::trims::Trims;
use data::DataBlocks;
use nand_model::{Cause, Chip, Geometry, PageOrder, Pairing, Pbn, Ppn, Profile};
use state::{CHECKPOINT, COMMON, FIRST_LOG, Hybrid, MIN_LOGS};

/// Free blocks below which GC no longer delays padding: a merged block, one for a failing block,
/// and one for trim records.
const RESERVE: u32 = 3;
/// GC's own two are enough: a merge opens one block, and one more if a program fails.
const FOR_FAILURES: u32 = 0;

const LOG_BLOCKS: ParamDoc = ParamDoc {
    key: "log.blocks",
    help: "maximum number of log blocks, 0 = all blocks that over-provisioning leaves (default 0)",
};

/// Parameters of all schemes of this family.
pub(crate) const PARAMS: &[ParamDoc] = &[
    LOG_BLOCKS,
    docs::FREE_THRESHOLD,
    docs::WEAR_POLICY,
    docs::WEAR_GAP,
    docs::SCRUB,
    docs::PAIR_POLICY,
];

/// The map of log pages is in RAM.
pub(crate) const RAM_PARAMS: &[RamParam] = &[RamParam {
    key: LOG_BLOCKS.key,
    range: |layout, _| {
        let geometry = &layout.profile.geometry;
        let data = layout.logical_pages.div_ceil(geometry.pages_per_block);
        let left = geometry.blocks.saturating_sub(data);
        Ok((MIN_LOGS.into(), left.max(MIN_LOGS).into()))
    },
    share_percent: 100,
}];

/// Returns the blocks that a device needs beyond data and over-provisioning: three sets of
/// checkpoints; trim pages; open common blocks; a failing block; two blocks waiting for their
/// erase; a partly used data block; the fewest log blocks; the free threshold.
pub(crate) fn overhead_blocks(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    let logical_blocks = logical_pages.div_ceil(profile.geometry.pages_per_block);
    let settings = unit_settings::read(
        params,
        profile,
        logical_blocks,
        logical_blocks,
        FOR_FAILURES,
    )?;
    let log_blocks = params.get(LOG_BLOCKS.key, 0)?;
    Ok(reserved_blocks(profile, logical_pages, &settings) + MIN_LOGS.max(log_blocks))
}

/// Returns the overhead blocks without the log blocks.
fn reserved_blocks(profile: &Profile, logical_pages: u32, settings: &Settings) -> u32 {
    let blocks = logical_pages
        .div_ceil(profile.geometry.pages_per_block)
        .max(64)
        * 2;
    let geometry = Geometry {
        blocks,
        ..profile.geometry
    };
    let checkpoints = Checkpoints::blocks_needed(&geometry, ShutdownState::chunks(&geometry));
    checkpoints + Trims::blocks_needed(&geometry, logical_pages) + 6 + settings.free_threshold
}

impl<P: Policy> HybridFtl<P> {
    /// Starts a scheme on a chip.
    pub(crate) fn create(
        chip: Chip,
        config: &FtlConfig,
        start: Start,
        policy: P,
    ) -> Result<Self, FtlError> {
        let geometry = *chip.geometry();
        let profile = *chip.profile();
        check_size(&geometry, config.logical_pages)?;
        let logical_blocks = config.logical_pages.div_ceil(geometry.pages_per_block);
        let settings = unit_settings::read(
            &config.params,
            &profile,
            logical_blocks,
            logical_blocks,
            FOR_FAILURES,
        )?;
        let log = StreamSpec::new(StreamKind::Log, Role::Log, false);
        let mut fixed = vec![
            StreamSpec::new(StreamKind::Common, Role::Log, true),
            StreamSpec::new(StreamKind::Checkpoint, Role::Checkpoint, false),
        ];
        fixed.extend((0..policy.shared_streams()).map(|_| log));
        let mut space = Space::new(Flash::new(chip), &fixed);
        let groups = policy.group().map_or(0, |size| {
            logical_blocks.div_ceil(size) * policy.streams_per_group()
        });
        space.add_streams(log, index(groups));
        let first_swapped = space.add_streams(log, index(policy.swapped_blocks()));
        let in_place = profile.order == PageOrder::Any && profile.pairing == Pairing::None;
        let data = StreamSpec {
            in_place,
            ..StreamSpec::new(StreamKind::Data, Role::Data, false)
        };
        let first_data = space.add_streams(data, index(logical_blocks));
        space.protect(settings.pair_protection, settings.kept_for_mount);
        let gc = GcState::new(&geometry, &settings, RESERVE);
        let pages = config.logical_pages;
        let map = Hybrid {
            in_place_logs: in_place && policy.logs_in_place(),
            policy,
            logical_pages: pages,
            pages_per_block: geometry.pages_per_block,
            data: DataBlocks::new(&geometry, pages, in_place),
            logs: LogBlocks::new(geometry.pages_per_block),
            trims: Trims::new(&geometry, pages, COMMON),
            reserved_blocks: reserved_blocks(&profile, pages, &settings),
            log_blocks: config.params.get(LOG_BLOCKS.key, 0)?,
            first_swapped,
            first_data,
            emptying: None,
            merged: None,
            ppns: Vec::new(),
        };
        Controller::start(start, space, gc, CHECKPOINT, pages, map)
    }
}

impl<P: Policy> Mapping for HybridFtl<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn read_pages(&mut self, first: Lpn, out: &mut [u8]) -> Result<(), FtlError> {
        let count = to_u32(out.len() / self.space.geometry().page_len());
        self.map.ppns.clear();
        for lpn in first.run(count) {
            let ppn = self.find(lpn)?;
            self.map.ppns.push(ppn.map_or(UNMAPPED, Ppn::raw));
        }
        let ppns = &self.map.ppns;
        let flash = &mut self.space.flash;
        flash.read_logical_pages(first.raw(), ppns.len(), |i| ppns[i], out)
    }

    fn write_pages(&mut self, first: Lpn, data: &[u8]) -> Result<(), FtlError> {
        let page = self.space.geometry().page_len();
        let block = self.space.geometry().pages_per_block;
        let request = to_u32(data.len() / page);
        let mut done = 0;
        while done < request {
            let lpn = first.plus(done);
            let (lbn, offset) = self.map.split(lpn);
            let whole = self.map.policy.whole_blocks() && offset == 0 && request - done >= block;
            let count = if whole { block } else { 1 };
            let bytes = &data[index(done) * page..][..index(count) * page];
            if whole {
                self.write_block(lbn, bytes)?;
            } else {
                self.write_page(lpn, bytes, request)?;
            }
            self.stats.host_pages_written += u64::from(count);
            done += count;
        }
        Ok(())
    }

    fn trim_pages(&mut self, first: Lpn, count: u32) -> Result<(), FtlError> {
        if first.run(count).all(|lpn| !self.map.trims.is_mapped(lpn)) {
            return Ok(());
        }
        self.ensure_blocks(COMMON)?;
        let ver = self.new_version();
        self.map.trims.record(&mut self.space, first, count, ver)?;
        for lpn in first.run(count) {
            self.map.unmap(&mut self.space, lpn);
        }
        self.map.drop_empty_blocks(&mut self.space, first, count)?;
        if self.map.trims.bitmap_due() {
            self.ensure_blocks(COMMON)?;
            let ver = self.new_version();
            self.map.trims.write_bitmap(&mut self.space, ver)?;
        }
        Ok(())
    }

    fn make_durable(&mut self) -> Result<(), FtlError> {
        self.space.make_safe()
    }

    fn shut_down(&mut self) -> Result<(), FtlError> {
        self.write_shutdown_state()
    }

    fn mount(&mut self) -> Result<(), FtlError> {
        self.mount_by_scan()
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
        let (map, pages) = (&self.map, u64::from(geometry.pages_per_block));
        let (logical_blocks, log_blocks) = (
            u64::from(self.map.logical_blocks()),
            u64::from(self.map.log_limit(&self.space)),
        );
        let paper = map.policy.paper_bytes(logical_blocks, log_blocks, pages);
        let real = map.data.bytes() + map.logs.bytes() + map.policy.bytes();
        // A block being merged, and one that a mount or a failure adds.
        let (logs, streams) = (log_blocks + 2, to_u64(map.first_data - FIRST_LOG));
        let most = map.data.bytes()
            + map.logs.bytes_most(logs, streams, logical_blocks)
            + map.policy.bytes_most(streams, logs * pages);
        let offsets = map.data.offset_bytes();
        let (trims, trims_most) = map.trims.ram();
        let work = vec_bytes::<u32>(map.ppns.capacity());
        let work_most = vec_most::<u32>(run_pages(geometry.page_bytes));
        vec![
            ram_entry(RamPart::Map, logical_blocks, paper, real, most),
            // Ours, for chips that need pages in order. The map cannot do without, so it counts.
            ram_entry(RamPart::PageOffsets, offsets / 2, offsets, offsets, offsets),
            ram_entry(
                RamPart::Trims,
                to_u64(map.trims.len()),
                0,
                trims,
                trims_most,
            ),
            ram_entry(RamPart::Work, 1, 0, work, work_most),
        ]
    }

    fn needs_gc(&self, block: Pbn) -> bool {
        self.map.data.owner(block).is_none() && self.map.logs.get(block).is_none()
    }

    fn audit_map(&mut self, wrong: &mut Vec<String>) -> Result<(), FtlError> {
        let geometry = self.space.geometry();
        wrong.extend(self.map.logs.audit(|ppn| geometry.block_of(ppn)));
        for lpn in Lpn::new(0).run(self.logical_pages) {
            if self.map.logs.ppn_of(lpn).is_some() && !self.map.trims.is_mapped(lpn) {
                wrong.push(format!(
                    "logical page {lpn} is in a log block, but not mapped"
                ));
            }
            if !self.map.trims.is_mapped(lpn) {
                continue;
            }
            let Some(ppn) = self
                .map
                .ppn_of(lpn)
                .filter(|ppn| self.space.table.is_valid(*ppn))
            else {
                wrong.push(format!(
                    "logical page {lpn} is at {:?}, which is not valid",
                    self.map.ppn_of(lpn)
                ));
                continue;
            };
            let oob = self.space.flash.read_oob(ppn, Cause::Recovery)?;
            if !oob.is_some_and(|oob| {
                oob.tag.lpn == lpn.raw() && matches!(oob.tag.role, Role::Data | Role::Log)
            }) {
                wrong.push(format!(
                    "logical page {lpn} is at {ppn}, whose record is {oob:?}"
                ));
            }
        }
        let (valid, known) = (
            self.space.table.valid_pages(),
            self.map.trims.mapped_pages() + to_u64(self.map.trims.len()),
        );
        if valid != known {
            wrong.push(format!(
                "{valid} pages are valid, but mapped pages and trim pages are {known}"
            ));
        }
        Ok(())
    }
}
