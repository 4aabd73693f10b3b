//! MLAM: multi-level address mapping behind a write buffer.
//!
//! Park, Shin: *Buffer flush and address mapping scheme for flash memory solid-state disk*, Journal
//! of Systems Architecture 56 (2010). The blocks of a *superchip* (chips that work in parallel)
//! form a superblock, and logical superblocks are mapped as a whole. So the table is tiny, and
//! sequential access uses all chips. A buffer gathers random writes. When it is nearly full, the
//! scheme chooses a few old and well-filled logical superblocks, and of these the quarters with new
//! data. It writes four such quarters as a *virtual superblock*, which copies less unchanged data.
//! Two finer tables map quarters and halves that are stored apart from their superblock. When those
//! tables get too large, superblocks are reassembled.
//!
//! `policy.rs` implements sections 4.1 and 4.2 (victim choice), `mapping.rs` 4.3 (the tables),
//! `flush.rs` the write of a superblock and 4.4 (reorganisation). RAM: a few bits per superblock,
//! half and quarter, and the buffer.
//!
//! Additions where the paper is silent ("future work"), and deviations:
//! - *Records decide.* Every page's record contains its logical page and version. A mount takes the
//!   newest of each ([`crate::recovery`]) and finds the quarters that the tables can map. So a page
//!   is committed as soon as it is programmed: an unfinished virtual superblock loses nothing.
//!   Pages stored elsewhere are in the buffer, as pages whose content is on flash.
//! - *The journal* is an ordinary stream: a FLUSH appends the pages that are only in RAM. Its pages
//!   stay in the buffer, and become invalid when their superblock is written. With
//!   `mlam.ack=buffer` a write is acknowledged in RAM, as in the paper. The default acknowledges it
//!   in the journal, because RAM does not outlive the daemon (docs/DURABILITY.md). Trim records,
//!   and pages that a mount or GC relocates one by one, are stored in the same blocks.
//! - *GC* gathers the quarters of the emptiest superblocks; blocks of the journal are emptied one
//!   by one. If there are too few free blocks for a superblock, the blocks of the emptiest one are
//!   emptied one by one, too.
//! - A failing, worn or fading block is copied row by row into another block of its chip.
//! - Weights and the bound of the tables are in `policy.rs` and `settings.rs`, the rule for
//!   `k_empty` in `cost.rs`. Two quarters are reassembled only with their superblock, never as a
//!   half.
//! - |R|, the number of candidates, is 4 as in the paper. If these do not fill a virtual
//!   superblock, up to 16 are examined, instead of a flush with holes.
//! - A superchip is as wide as the paper interleaves, two ways of every channel; one with too few
//!   free blocks borrows from other dies.
//!
//! Invariants: a logical page that is on flash has one valid page: at its buffer entry's location,
//! else where its quarter's mapping points. A superblock is written without interruption, and its
//! blocks take no more programs afterwards: a later cut cannot destroy its pages.

mod buffer;
mod cost;
mod flush;
mod locations;
mod mapping;
mod policy;
mod reclaim;
mod recovery;
mod rows;
mod settings;
mod shape;
mod state;
mod superblocks;
#[cfg(test)]
mod tests;

use crate::addr::Lpn;
use crate::checkpoint::Checkpoints;
use crate::config::{FtlConfig, ParamDoc, Params};
use crate::controller::Controller;
use crate::error::FtlError;
use crate::flash::Flash;
use crate::format::Role;
use crate::ftl::{Ftl, Start};
use crate::gc::{GcState, SCRUB_PARAM, docs};
use crate::int::{index, to_u32, to_u64};
use crate::mapping::{Mapping, check_size, ram_entry};
use crate::ram::RamParam;
use crate::recovery::MountByScan;
use crate::recovery::ShutdownState;
use crate::schemes::scheme::{MlcUse, Scheme};
use crate::space::{Space, StreamSpec};
use crate::stats::{RamPart, RamReport, SchemeStats, StreamKind};
use crate::trims::Trims;
use crate::wear::{WEAR_GAP_PARAM, WEAR_POLICY_PARAM};
use buffer::Buffer;
use cost::Cost;
use mapping::{LevelMap, Location};
use nand_model::{Cause, Chip, Geometry, Pbn, Profile, Store};
use rows::Rows;
use settings::Settings;
use shape::Shape;
use state::{CHECKPOINT, COMMON, Mlam, MlamFtl, SPARE_BYTES, chip_stream};
use superblocks::Superblocks;

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: "mlam",
    title: "MLAM: a write buffer, and superblocks mapped as wholes, halves or quarters",
    about: "A buffer in RAM collects the writes. When it is nearly full, a few logical superblocks are selected that are old and \
            have many buffered pages; their quarters with buffered pages are written together over all chips as one virtual \
            superblock. Quarters stored apart need finer tables; if these become too large, whole superblocks are written again.",
    paper: "Park, Shin: Buffer flush and address mapping scheme for flash memory SSD, JSA 2010",
    mapping: "superblock over the chips of a superchip; halves and quarters where written apart; in RAM",
    ram: "w + 4 bits per superblock, w + 1 per half, w + 2 per quarter apart, + the buffer",
    fidelity: 'A',
    mlc: MlcUse::AsPublished,
    params: &[
        ParamDoc {
            key: "mlam.chips",
            help: "blocks of a superblock, 1 to 64 (default: two ways of every channel)",
        },
        ParamDoc {
            key: "mlam.buffer",
            help: "bytes of the write buffer (default 32 MiB, at most a 16th of the device)",
        },
        ParamDoc {
            key: "mlam.low",
            help: "free share of the buffer below which it is flushed (default 0.1)",
        },
        ParamDoc {
            key: "mlam.high",
            help: "free share above which flushing ends (default 0.5)",
        },
        ParamDoc {
            key: "mlam.policy",
            help: "flush policy: mlam (default), flush_all, lru, size or lru_size; all but mlam flush whole superblocks",
        },
        ParamDoc {
            key: "mlam.candidates",
            help: "number of candidate superblocks for a virtual superblock, 1 to 16 (default 4)",
        },
        ParamDoc {
            key: "mlam.alpha",
            help: "weight of recency against size in the priority, 0 to 1 (default 0.5)",
        },
        ParamDoc {
            key: "mlam.k_empty",
            help: "maximum number of logical blocks without buffered pages in a superblock that is flushed whole: 0 to 7, or auto (default)",
        },
        ParamDoc {
            key: "mlam.smax",
            help: "maximum size of all tables, as a multiple of the coarsest table (default 1.25)",
        },
        ParamDoc {
            key: "mlam.flush",
            help: "what a FLUSH writes: journal (default), or vsb: virtual superblocks",
        },
        ParamDoc {
            key: "mlam.ack",
            help: "where a write is when it is acknowledged: journal (default); buffer: in RAM, as in the paper; a killed daemon loses it",
        },
        docs::FREE_THRESHOLD,
        WEAR_POLICY_PARAM,
        WEAR_GAP_PARAM,
        SCRUB_PARAM,
        docs::PAIR_POLICY,
    ],
    shared_params: &[],
    ram_params: &[RamParam {
        key: "mlam.buffer",
        range: |layout, _| Ok(settings::buffer_range(layout)),
        share_percent: 100,
    }],
    overhead_blocks,
    constructor: start,
};

/// Returns the overhead in blocks: unused parts of the last logical superblock, and rows that
/// quarters leave over; three sets of checkpoints; trim pages. It adds the journal, twice; two
/// superblocks of holes; an open common block, one for a failing block, two that wait for their
/// erase; and the free threshold.
fn overhead_blocks(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    let pages = profile.geometry.pages_per_block;
    let estimate = logical_pages / pages;
    let settings = Settings::new(params, profile, estimate, logical_pages)?;
    let shape = Shape::new(&profile.geometry, settings.chips)?;
    let geometry = Geometry {
        blocks: estimate.max(64) * 2,
        ..profile.geometry
    };
    let left_over =
        shape.superblocks(logical_pages) * shape.chips - estimate.min(logical_pages / pages);
    let journal = 2 * settings.capacity.div_ceil(pages) + 1;
    let checkpoints = Checkpoints::blocks_needed(&geometry, ShutdownState::chunks(&geometry));
    let trims = Trims::blocks_needed(&geometry, logical_pages);
    Ok(
        left_over
            + checkpoints
            + trims
            + journal
            + 2 * shape.chips
            + 4
            + settings.gc.free_threshold,
    )
}

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    Ok(Box::new(create(chip, config, start)?))
}

fn create(chip: Chip, config: &FtlConfig, start: Start) -> Result<MlamFtl, FtlError> {
    let geometry = *chip.geometry();
    let logical_pages = config.logical_pages;
    check_size(&geometry, logical_pages)?;
    let settings = Settings::new(
        &config.params,
        chip.profile(),
        geometry.blocks,
        logical_pages,
    )?;
    let shape = Shape::new(&geometry, settings.chips)?;
    let keeps_data = chip.store().keeps_data();
    let mut flash = Flash::new(chip);
    flash.reserve_spare(SPARE_BYTES)?;
    let superblock = StreamSpec::new(StreamKind::Superblock, Role::Data, false);
    let mut streams = vec![
        StreamSpec::new(StreamKind::Journal, Role::Journal, true),
        StreamSpec::new(StreamKind::Checkpoint, Role::Checkpoint, false),
    ];
    streams.resize(chip_stream(shape.chips), superblock);
    let mut space = Space::new(flash, &streams);
    space.protect(settings.gc.pair_protection, settings.gc.kept_for_mount);
    let logical = shape.superblocks(logical_pages);
    let gc = GcState::new(&geometry, &settings.gc, settings.reserve);
    let map = Mlam {
        logical_pages,
        settings,
        shape,
        mapping: LevelMap::new(logical, geometry.blocks / shape.chips),
        superblocks: Superblocks::new(geometry.blocks),
        buffer: Buffer::new(shape, settings.capacity, geometry.page_bytes, keeps_data),
        trims: Trims::new(&geometry, logical_pages, COMMON),
        unflushed_pages: 0,
        cost: Cost::new(logical, settings.k_empty),
        rows: Rows::new(&geometry, shape.chips),
    };
    Controller::start(start, space, gc, CHECKPOINT, logical_pages, map)
}

impl Mapping for MlamFtl {
    fn name(&self) -> &'static str {
        SCHEME.name
    }

    fn read_pages(&mut self, first: Lpn, out: &mut [u8]) -> Result<(), FtlError> {
        let page = self.space.geometry().page_len();
        let count = to_u32(out.len() / page);
        let (mut lpn, end, mut rest) = (first, first.plus(count), out);
        let at = self.space.flash.now();
        let mut done = at;
        while lpn < end {
            let run = self.map.physical_run(&self.space, lpn, end);
            let (bytes, behind) = rest.split_at_mut(index(run) * page);
            match self.map.buffer.get(lpn).and_then(|entry| entry.slot()) {
                Some(slot) => bytes.copy_from_slice(self.map.buffer.data(slot)),
                None => match self.map.ppn_of(&self.space, lpn) {
                    None if self.map.trims.is_mapped(lpn) => {
                        return Err(FtlError::MediaLost(lpn.raw()));
                    }
                    None => bytes.fill(0),
                    // Chips work in parallel.
                    Some(ppn) => {
                        self.space.flash.begin(at);
                        self.space.flash.read_host(lpn.raw(), ppn, bytes)?;
                        done = done.max(self.space.flash.now());
                    }
                },
            }
            (lpn, rest) = (lpn.plus(run), behind);
        }
        self.space.flash.begin(done);
        Ok(())
    }

    fn write_pages(&mut self, first: Lpn, data: &[u8]) -> Result<(), FtlError> {
        let written = self.buffer_pages(first, data);
        if written.is_err() && self.map.settings.acknowledged_by_journal {
            self.map.discard_unacknowledged();
        }
        written
    }

    fn trim_pages(&mut self, first: Lpn, count: u32) -> Result<(), FtlError> {
        let range = first.run(count);
        if range.clone().any(|lpn| self.map.trims.is_mapped(lpn)) {
            self.ensure_space(COMMON)?;
            let ver = self.new_version();
            self.map.trims.record(&mut self.space, first, count, ver)?;
        }
        for lpn in range {
            self.map.unmap(&mut self.space, lpn);
        }
        if self.map.trims.bitmap_due() {
            self.ensure_space(COMMON)?;
            let ver = self.new_version();
            self.map.trims.write_bitmap(&mut self.space, ver)?;
        }
        Ok(())
    }

    fn make_durable(&mut self) -> Result<(), FtlError> {
        if !self.map.settings.flush_by_journal && !self.gc.is_read_only() {
            match self.drain_all() {
                // The journal takes the remaining pages.
                Err(FtlError::ReadOnly(_)) => {}
                other => other?,
            }
        }
        self.write_journal()?;
        self.space.make_safe()
    }

    fn empty_buffers(&mut self) -> Result<(), FtlError> {
        self.write_journal()
    }

    fn shut_down(&mut self) -> Result<(), FtlError> {
        self.write_shutdown_state()
    }

    fn mount(&mut self) -> Result<(), FtlError> {
        self.mount_by_scan()
    }

    fn is_mapped(&self, lpn: Lpn) -> bool {
        self.map.trims.is_mapped(lpn) || self.map.buffer.get(lpn).is_some()
    }

    fn gauges(&self, common: SchemeStats) -> SchemeStats {
        SchemeStats {
            mapped_pages: self.map.trims.mapped_pages() + self.map.unflushed_pages,
            buffered_pages: u64::from(self.map.buffer.len()),
            buffer_capacity_pages: u64::from(self.map.settings.capacity),
            ..common
        }
    }

    fn ram(&self) -> RamReport {
        let (map, geometry) = (&self.map, self.space.geometry());
        let logical = u64::from(map.shape.superblocks(self.logical_pages));
        let physical = u64::from(geometry.blocks / map.shape.chips);
        let parts = [
            map.mapping.ram(),
            map.superblocks.ram(physical, u64::from(map.shape.chips)),
        ];
        let tables = map.cost.bytes() + parts.iter().map(|(now, _)| now).sum::<u64>();
        let most = map.cost.bytes() + parts.iter().map(|(_, most)| most).sum::<u64>();
        let capacity = u64::from(map.settings.capacity);
        let paper = capacity * u64::from(geometry.page_bytes);
        let (buffer, buffer_most) = map.buffer.ram(logical);
        let (trims, trims_most) = map.trims.ram();
        let (rows, rows_most) = map.rows.ram(map.shape.chips);
        let bits = map.mapping.bits().div_ceil(8);
        vec![
            ram_entry(RamPart::Map, logical, bits, tables, most),
            ram_entry(RamPart::WriteBuffer, capacity, paper, buffer, buffer_most),
            ram_entry(
                RamPart::Trims,
                to_u64(map.trims.len()),
                0,
                trims,
                trims_most,
            ),
            ram_entry(RamPart::Work, 1, 0, rows, rows_most),
        ]
    }

    fn needs_gc(&self, block: Pbn) -> bool {
        self.map.superblocks.owner(block).is_none()
    }

    fn audit_map(&mut self, wrong: &mut Vec<String>) -> Result<(), FtlError> {
        let mut held = std::collections::BTreeMap::new();
        let mut found = 0;
        for lpn in Lpn::new(0).run(self.logical_pages) {
            let ppn = self.map.ppn_of(&self.space, lpn);
            if ppn.is_some() != self.map.trims.is_mapped(lpn) {
                wrong.push(format!(
                    "logical page {lpn} is at {ppn:?}, but mapped: {}",
                    self.map.trims.is_mapped(lpn)
                ));
            }
            let Some(ppn) = ppn else { continue };
            found += 1;
            if !self.space.geometry().contains(ppn) || !self.space.table.is_valid(ppn) {
                wrong.push(format!(
                    "logical page {lpn} is at {ppn}, which is not valid"
                ));
                continue;
            }
            if let Some(location) = self.map.regular_location(&self.space, lpn, ppn) {
                *held.entry(location).or_insert(0) += 1;
            }
            let oob = self.space.flash.read_oob(ppn, Cause::Recovery)?;
            if oob.is_none_or(|oob| oob.tag.lpn != lpn.raw() || !oob.tag.role.is_host_data()) {
                wrong.push(format!(
                    "logical page {lpn} is at {ppn}, whose record is {oob:?}"
                ));
            }
        }
        for (psb, superblock) in self.map.superblocks.iter() {
            for (loc, quarter) in superblock.held() {
                let location = Location { psb, loc };
                let (valid, counted) = (
                    held.remove(&location).unwrap_or(0),
                    self.map.superblocks.valid_pages(location),
                );
                if valid != counted || self.map.mapping.get(quarter) != Some(location) {
                    wrong.push(format!(
                        "quarter {quarter} at {location:?}: {valid} pages are valid, {counted} are counted, or the tables map it elsewhere"
                    ));
                }
            }
        }
        let valid = self.space.table.valid_pages();
        let unflushed_pages = to_u64(
            self.map
                .buffer
                .iter()
                .filter(|(lpn, _)| !self.map.trims.is_mapped(*lpn))
                .count(),
        );
        if found != self.map.trims.mapped_pages()
            || valid != found + to_u64(self.map.trims.len())
            || unflushed_pages != self.map.unflushed_pages
        {
            let (mapped, trims) = (self.map.trims.mapped_pages(), self.map.trims.len());
            wrong.push(format!(
                "{found} pages have a physical page, but {mapped} are mapped; {valid} pages are valid, {trims} are trim pages; {unflushed_pages} are only in RAM, {} are counted",
                self.map.unflushed_pages
            ));
        }
        Ok(())
    }
}

impl Mlam {
    /// Discards content that a failed request left in RAM: it was never acknowledged and must not
    /// be read.
    fn discard_unacknowledged(&mut self) {
        while let Some(lpn) = self.buffer.first_fresh() {
            let gone = self.buffer.discard_unacknowledged(lpn);
            self.unflushed_pages -= u64::from(gone && !self.trims.is_mapped(lpn));
        }
    }
}

impl MlamFtl {
    fn buffer_pages(&mut self, first: Lpn, data: &[u8]) -> Result<(), FtlError> {
        let page = self.space.geometry().page_len();
        let count = to_u32(data.len() / page);
        for (lpn, bytes) in first.run(count).zip(data.chunks_exact(page)) {
            if self.map.buffer.get(lpn).is_none() && !self.map.trims.is_mapped(lpn) {
                self.map.unflushed_pages += 1;
            }
            self.map.buffer.write(lpn, bytes);
            self.stats.host_pages_written += 1;
            if self.map.buffer.free_share() < self.map.settings.low {
                self.drain()?;
            }
        }
        if self.map.settings.acknowledged_by_journal {
            self.write_journal()
        } else {
            Ok(())
        }
    }
}
