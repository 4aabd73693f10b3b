//! Page maps in RAM: the whole table LPN -> PPN, with checkpoints of it on flash.
//!
//! Invariants: the map contains `ppn` for a page if and only if the page at `ppn` is valid and has
//! its number. A write is acknowledged when its page is programmed. If power fails, mount takes the
//! newest readable version of every page (`recovery.rs`). The map of a scheme may want runs of
//! pages in the order of their addresses: then GC sorts its copies, and a buffer, if there is one,
//! the writes that it acknowledges in RAM (`buffer.rs`, `buffered.rs`). A map may predict locations
//! instead of knowing them: then records decide (`predicted.rs`).

#[cfg(test)]
mod author_tests;
mod buffer;
mod buffered;
#[cfg(debug_assertions)]
mod checked;
mod checkpoint;
mod map;
mod predicted;
mod reclaim;
mod recovery;
mod settings;
#[cfg(test)]
mod slc_tests;
mod state;
#[cfg(test)]
mod tests;

use crate::addr::Lpn;
use crate::checkpoint::{CheckpointWriter, Checkpoints, WriteCheckpoints};
use crate::config::{FtlConfig, Params};
use crate::controller::Controller;
use crate::error::FtlError;
use crate::flash::Flash;
use crate::format::{Flags, PageTag, Role};
use crate::ftl::{Ftl, Start};
use crate::gc::placement::{self, DataStreams};
use crate::gc::policy::{Device, HostWrite};
use crate::gc::{GcState, Own, fold, pace};
use crate::int::{count_up, to_u32};
use crate::mapping::{Mapping, check_size, ram_entry};
use crate::ram::{vec_bytes, vec_most};
use crate::space::{Space, StreamId, StreamSpec};
use crate::stats::{RamPart, RamReport, SchemeStats, StreamKind};
use crate::trims::UntilCheckpoint;
use buffer::WriteBuffer;
#[cfg(debug_assertions)]
use checked::Checked;
pub use map::{PageMap, PageMapScheme};
use nand_model::{Cause, Chip, Geometry, Ppn, Profile, Store};
use settings::Settings;
pub(crate) use settings::{PARAMS, params_of};
use state::{CHECKPOINT, GC, HOST, PageMapFtl, PageRam};

/// Free blocks below which GC no longer waits: a copy target and two more.
const RESERVE: u32 = 3;

/// Returns the blocks beyond data and over-provisioning:
///
/// - three sets of checkpoints;
/// - trim records up to their limit, twice;
/// - three open blocks and those of more streams, two that wait for their erase, and one for a
///   failing block;
/// - the free threshold.
pub(crate) fn overhead_blocks<S: PageMapScheme>(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
) -> Result<u32, FtlError> {
    overhead_with_buffer::<S>(profile, logical_pages, params, None)
}

/// Returns [`overhead_blocks`] of a scheme with a write buffer, which needs free blocks for its
/// acknowledged pages.
pub(crate) fn overhead_with_buffer<S: PageMapScheme>(
    profile: &Profile,
    logical_pages: u32,
    params: &Params,
    buffer_pages: Option<u32>,
) -> Result<u32, FtlError> {
    let geometry = &profile.geometry;
    let chunks = checkpoint::chunks(geometry, logical_pages);
    let estimate = logical_pages / geometry.pages_per_block;
    let streams = placement::from_params(params, &own::<S>(geometry, logical_pages))?.lanes();
    fold::from_params(params, profile, streams)?;
    let buffered = buffered_blocks(geometry, buffer_pages);
    let settings = Settings::new(params, profile, estimate, chunks, streams, buffered)?;
    let trims = 2 * UntilCheckpoint::limit(geometry, chunks).div_ceil(geometry.pages_per_block);
    Ok(Checkpoints::blocks_needed(geometry, chunks)
        + trims
        + 6
        + settings.more_streams
        + settings.gc.free_threshold)
}

/// Returns the free blocks that take the acknowledged writes of a full buffer, besides two blocks
/// that fail.
fn buffered_blocks(geometry: &Geometry, buffer_pages: Option<u32>) -> u32 {
    buffer_pages.map_or(0, |pages| pages.div_ceil(geometry.pages_per_block) + 2)
}

/// Returns the policies of a scheme, for this device.
fn own<S: PageMapScheme>(geometry: &Geometry, logical_pages: u32) -> Own {
    Own {
        list: S::POLICIES,
        device: Device {
            geometry: *geometry,
            logical_pages,
        },
    }
}

/// Starts a scheme.
pub(crate) fn start<S: PageMapScheme>(
    chip: Chip,
    config: &FtlConfig,
    start: Start,
) -> Result<Box<dyn Ftl>, FtlError> {
    start_with_buffer::<S>(chip, config, start, None)
}

/// Starts a scheme whose map is sorted, with a write buffer.
pub(crate) fn start_with_buffer<S: PageMapScheme>(
    chip: Chip,
    config: &FtlConfig,
    start: Start,
    buffer_pages: Option<u32>,
) -> Result<Box<dyn Ftl>, FtlError> {
    let own = own::<S>(chip.geometry(), config.logical_pages);
    Ok(Box::new(create::<S::Map>(
        S::NAME,
        own,
        chip,
        config,
        start,
        buffer_pages,
    )?))
}

/// Starts a scheme of another crate; a debug build checks its map.
pub(crate) fn start_checked<S: PageMapScheme>(
    chip: Chip,
    config: &FtlConfig,
    start: Start,
) -> Result<Box<dyn Ftl>, FtlError> {
    #[cfg(debug_assertions)]
    {
        let own = own::<S>(chip.geometry(), config.logical_pages);
        let ftl = create::<Checked<S::Map>>(S::NAME, own, chip, config, start, None)?;
        Ok(Box::new(ftl))
    }
    #[cfg(not(debug_assertions))]
    self::start::<S>(chip, config, start)
}

fn create<M: PageMap>(
    scheme: &'static str,
    own: Own,
    chip: Chip,
    config: &FtlConfig,
    start: Start,
    buffer_pages: Option<u32>,
) -> Result<PageMapFtl<M>, FtlError> {
    let geometry = *chip.geometry();
    check_size(&geometry, config.logical_pages)?;
    let chunks = checkpoint::chunks(&geometry, config.logical_pages);
    let params = &config.params;
    let placement = placement::from_params(params, &own)?;
    let folding = fold::from_params(params, chip.profile(), placement.lanes())?;
    let settings = Settings::new(
        params,
        chip.profile(),
        geometry.blocks - chip.slc_blocks(),
        chunks,
        placement.lanes(),
        buffered_blocks(&geometry, buffer_pages),
    )?;
    let has_data = chip.store().keeps_data();
    let streams = [
        StreamSpec::new(StreamKind::Host, Role::Data, true).in_slc(folding.is_some()),
        StreamSpec::new(StreamKind::Checkpoint, Role::Checkpoint, false),
        StreamSpec::new(StreamKind::Copies, Role::Data, true),
    ];
    let mut space = Space::new(Flash::new(chip), &streams);
    space.protect(settings.gc.pair_protection, settings.gc.kept_for_mount);
    space.flash.set_ram_step(settings.gc.ram_step_ns);
    let mut gc = GcState::new(&geometry, &settings.gc, RESERVE + settings.buffered);
    let (host, copies) = ((HOST, streams[HOST]), (GC, streams[GC]));
    let streams = DataStreams::new(placement, &mut space, host, copies);
    gc.pace = pace::from_params(params)?;
    gc.fold = folding;
    let map = PageRam {
        scheme,
        logical_pages: config.logical_pages,
        pages: M::new(config.logical_pages, params)?,
        mapped: 0,
        trims: UntilCheckpoint::new(UntilCheckpoint::limit(&geometry, chunks)),
        streams,
        writer: CheckpointWriter::new(settings.checkpoint_interval),
        tags: Vec::new(),
        buffer: buffer_pages.map(|pages| WriteBuffer::new(pages, geometry.page_len(), has_data)),
        replaced: Vec::new(),
        lost: 0,
        order: Vec::new(),
    };
    let pages = config.logical_pages;
    let mut ftl = Controller::start(start, space, gc, CHECKPOINT, pages, map)?;
    ftl.map.pages.begin_service();
    Ok(ftl)
}

impl<M: PageMap> Mapping for PageMapFtl<M> {
    fn name(&self) -> &'static str {
        self.map.scheme
    }

    fn read_pages(&mut self, first: Lpn, out: &mut [u8]) -> Result<(), FtlError> {
        if M::SORTED && self.map.has_buffered() {
            return self.read_buffered(first, out);
        }
        self.read_from_flash(first, out)
    }

    // The most frequent request is one page: no call for it.
    #[inline(always)]
    fn write_pages(&mut self, first: Lpn, data: &[u8]) -> Result<(), FtlError> {
        let page = self.space.flash.geometry().page_bytes as usize;
        if M::SORTED && self.map.buffer.is_some() {
            let count = to_u32(data.len() / page);
            return self.write_buffered(first.run(count), data);
        }
        if data.len() == page {
            self.write_page(first, data)?;
        } else {
            self.write_run(first, data)?;
        }
        self.pace_gc(data.len() / page)
    }

    fn trim_pages(&mut self, first: Lpn, count: u32) -> Result<(), FtlError> {
        if (0..count).all(|i| self.map.pages.predict(first.plus(i)).is_none()) {
            self.drop_buffered(first, count);
            return Ok(());
        }
        self.ensure_space(HOST)?;
        if M::PREDICTS {
            // A look-up may fail: then nothing is trimmed.
            (0..count).try_for_each(|i| self.locate_for(first.plus(i), Cause::Trim).map(drop))?;
        }
        let ver = self.new_version();
        self.write_trim_record(first, count, ver)?;
        self.drop_buffered(first, count);
        for lpn in (0..count).map(|i| first.plus(i)) {
            let old = self.locate_for(lpn, Cause::Trim)?;
            self.map.set_map(&mut self.space, lpn, old, None);
            if self.map.streams.need_every_page() {
                self.note_invalid(lpn, old, true);
            }
        }
        self.advance_checkpoint(1)
    }

    fn make_durable(&mut self) -> Result<(), FtlError> {
        self.program_buffered()?;
        // Copies can wait: until they are safe, their source block is not erased.
        self.space.make_streams_safe(self.map.streams.host())
    }

    fn empty_buffers(&mut self) -> Result<(), FtlError> {
        self.program_buffered()
    }

    fn shut_down(&mut self) -> Result<(), FtlError> {
        self.write_whole_checkpoint()
    }

    fn mount(&mut self) -> Result<(), FtlError> {
        self.mount_from_checkpoint()
    }

    fn is_mapped(&self, lpn: Lpn) -> bool {
        self.map.pages.predict(lpn).is_some() || self.map.is_buffered(lpn)
    }

    /// One entry of the table per page.
    fn lookup_steps(&self) -> u64 {
        self.stats.host_pages_read + self.stats.host_pages_written
    }

    fn gauges(&self, common: SchemeStats) -> SchemeStats {
        let mapped_pages = self.map.mapped;
        match &self.map.buffer {
            None => SchemeStats {
                mapped_pages,
                ..common
            },
            Some(buffer) => SchemeStats {
                mapped_pages: mapped_pages + buffer.new_pages(),
                buffered_pages: u64::from(buffer.len()),
                buffer_capacity_pages: u64::from(buffer.capacity()),
                ..common
            },
        }
    }

    fn ram(&self) -> RamReport {
        let geometry = self.space.geometry();
        let (paper, real) = self.map.pages.bytes();
        let most = self.map.pages.bytes_most();
        let (trims, trims_most) = self.map.trims.ram();
        let blocks = geometry.blocks as u64;
        let (of_policies, placement) = self.map.streams.bytes();
        let head = self.map.writer.bytes();
        let tags = vec_bytes::<PageTag>(self.map.tags.capacity())
            + vec_bytes::<usize>(self.map.order.capacity())
            + vec_bytes::<(Option<Ppn>, bool)>(self.map.replaced.capacity());
        let block_pages = u64::from(geometry.pages_per_block);
        let records = 3 * self.map.trims.limit_of_records();
        let mut work_most =
            checkpoint::head_bytes_most(records, blocks) + vec_most::<PageTag>(block_pages);
        if M::SORTED {
            work_most += vec_most::<usize>(block_pages);
            work_most += vec_most::<(Option<Ppn>, bool)>(block_pages);
        }
        let mut parts = vec![
            ram_entry(RamPart::Map, self.logical_pages as u64, paper, real, most),
            ram_entry(
                RamPart::Placement,
                blocks,
                of_policies,
                placement,
                placement,
            ),
            ram_entry(
                RamPart::Trims,
                self.map.trims.len() as u64,
                0,
                trims,
                trims_most,
            ),
            ram_entry(RamPart::Work, 1, 0, head + tags, work_most),
        ];
        if let Some(buffer) = &self.map.buffer {
            let (paper, now, most) = buffer.ram(block_pages);
            let pages = u64::from(buffer.capacity());
            parts.push(ram_entry(RamPart::WriteBuffer, pages, paper, now, most));
        }
        parts
    }

    fn audit_map(&mut self, wrong: &mut Vec<String>) -> Result<(), FtlError> {
        let pages = (0..self.logical_pages).map(Lpn::new);
        let mapped = pages.clone().filter_map(|lpn| self.map.pages.predict(lpn));
        let mapped = mapped.count() as u64;
        let valid = self.space.table.valid_pages();
        self.audit_buffer(wrong);
        // Where a record near a prediction is lost, a page may have no owner, or the other way
        // round.
        let is_certain = self.map.lost == 0;
        let named = mapped + self.map.trims.len() as u64;
        if mapped != self.map.mapped || is_certain && valid != named {
            wrong.push(format!(
                "{mapped} pages are mapped, {} are counted; {valid} pages are valid, {} are trim pages",
                self.map.mapped,
                self.map.trims.len()
            ));
        }
        for lpn in pages {
            let Some(ppn) = self.locate_for(lpn, Cause::Recovery)? else {
                continue;
            };
            if !self.space.geometry().contains(ppn) || !self.space.table.is_valid(ppn) {
                wrong.push(format!(
                    "logical page {lpn} maps to {ppn}, which is not valid"
                ));
                continue;
            }
            let oob = self.space.flash.read_oob(ppn, Cause::Recovery)?;
            if oob.is_none_or(|oob| oob.tag.lpn != lpn.raw() || oob.tag.role != Role::Data) {
                wrong.push(format!(
                    "logical page {lpn} maps to {ppn}, whose record is {oob:?}"
                ));
            }
        }
        Ok(())
    }
}

impl<M: PageMap> PageRam<M> {
    /// Returns the stream for the host's version of this page, by the old version.
    fn stream_of_write(
        &mut self,
        space: &mut Space,
        (lpn, hint): (Lpn, u64),
        now: u64,
    ) -> StreamId {
        self.streams.pass_block_events(space);
        let old = match self.streams.wants_lifespan() {
            true => self.pages.predict(lpn).map(|(old, _)| old),
            false => None,
        };
        let old = old.filter(|old| !M::PREDICTS || space.geometry().contains(*old));
        let replaces = old.map(|old| space.geometry().block_of(old));
        self.streams.of_write(&HostWrite {
            lpn,
            hint,
            replaces,
            lifespan: replaces.map(|block| space.written_since(space.table.epoch(block))),
            now,
        })
    }
}

impl<M: PageMap> PageMapFtl<M> {
    /// Relocates the pages that are due after a write of `count` pages, if GC is paced.
    #[inline(always)]
    fn pace_gc(&mut self, count: usize) -> Result<(), FtlError> {
        match self.gc.pace {
            None => Ok(()),
            Some(_) => pace::after_write(self, to_u32(count)),
        }
    }

    #[inline(always)]
    fn write_page(&mut self, lpn: Lpn, data: &[u8]) -> Result<(), FtlError> {
        let stream = match self.map.streams.only_for_host() {
            Some(only) => only,
            None => {
                let page = (lpn, self.write_hint);
                (self.map).stream_of_write(&mut self.space, page, self.next_ver)
            }
        };
        if self.space.has_room(stream) {
            self.write_page_to(stream, lpn, data)
        } else {
            self.write_page_after_gc(stream, lpn, data)
        }
    }

    #[cold]
    fn write_page_after_gc(
        &mut self,
        stream: StreamId,
        lpn: Lpn,
        data: &[u8],
    ) -> Result<(), FtlError> {
        self.make_free_blocks(stream)?;
        self.write_page_to(stream, lpn, data)
    }

    /// Writes a page to a stream that can take it.
    #[inline(always)]
    fn write_page_to(&mut self, stream: StreamId, lpn: Lpn, data: &[u8]) -> Result<(), FtlError> {
        let tag = PageTag {
            role: Role::Data,
            flags: Flags::NONE,
            lpn: lpn.raw(),
            ver: self.next_ver,
        };
        // Looked up before the program, which then need not wait: a table of this size is seldom in
        // a near cache.
        let old = self.locate(lpn)?;
        let ppn = self.space.append_page(stream, tag, data, Cause::Host)?;
        let block = self.space.flash.chip().split().block_of(ppn);
        self.map.streams.note(&self.space, block, stream);
        count_up(&mut self.next_ver, 1); // A record has 48 bits of it, and checks that.
        let was_mapped = self.map.was_mapped(lpn, old);
        self.map.pages.set(lpn, Some(ppn));
        self.map
            .invalidate_old(&mut self.space, old, (was_mapped, true));
        if self.map.streams.need_every_page() {
            self.note_invalid(lpn, old, false);
        }
        count_up(&mut self.stats.host_pages_written, 1);
        self.advance_checkpoint(1)
    }

    /// Reports to the policies that a page became invalid, if there was one.
    #[cold]
    fn note_invalid(&mut self, lpn: Lpn, old: Option<Ppn>, is_trim: bool) {
        if let Some(old) = old {
            let (streams, now) = (&mut self.map.streams, self.next_ver);
            streams.invalidated(&mut self.space, (lpn, old), is_trim, now);
        }
    }

    /// Writes any number of pages.
    #[inline(never)]
    fn write_run(&mut self, first: Lpn, data: &[u8]) -> Result<(), FtlError> {
        let page = self.space.geometry().page_bytes as usize;
        let count = data.len() / page;
        if self.map.streams.only_for_host().is_none() {
            let mut parts = self.space.flash.begin_parts();
            for (lpn, bytes) in first.run(count as u32).zip(data.chunks_exact(page)) {
                self.space.flash.next_part(&mut parts);
                self.write_page(lpn, bytes)?;
            }
            self.space.flash.end_parts(parts);
            return Ok(());
        }
        self.append_run(count, |i| first.plus(i as u32), data)
    }

    /// Appends pages in runs; `lpn_of` returns the logical page of each number from 0 on.
    fn append_run(
        &mut self,
        count: usize,
        lpn_of: impl Fn(usize) -> Lpn,
        data: &[u8],
    ) -> Result<(), FtlError> {
        let page = self.space.geometry().page_bytes as usize;
        let mut done = 0;
        while done < count {
            self.ensure_space(HOST)?;
            let mut wanted = (count - done).min(self.space.geometry().pages_per_block as usize);
            if M::PREDICTS && self.space.room(HOST) > 0 {
                wanted = wanted.min(self.space.room(HOST) as usize);
            }
            let tag = |i| PageTag {
                role: Role::Data,
                flags: Flags::NONE,
                lpn: lpn_of(done + i).raw(),
                ver: self.next_ver + i as u64,
            };
            let bytes = &data[done * page..][..wanted * page];
            self.map.tags.clear();
            self.map.tags.extend((0..wanted).map(tag));
            if M::PREDICTS {
                // Before a newer version may be next to them.
                self.locate_run(wanted, |i| lpn_of(done + i))?;
            }
            let (ppn, taken) = self
                .space
                .append(HOST, &self.map.tags, bytes, Cause::Host)?;
            self.next_ver += taken as u64;
            for i in 0..taken {
                let lpn = lpn_of(done + i as usize);
                let old = if M::PREDICTS {
                    let (old, is_hit) = self.map.replaced[i as usize];
                    self.stats.lookups_write.note(is_hit);
                    old
                } else {
                    self.map.pages.get(lpn)
                };
                let to = Some(Ppn::new(ppn.raw() + i));
                self.map.set_map(&mut self.space, lpn, old, to);
            }
            self.stats.host_pages_written += taken as u64;
            done += taken as usize;
            self.advance_checkpoint(taken)?;
        }
        Ok(())
    }
}
