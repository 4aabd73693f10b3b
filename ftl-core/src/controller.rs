//! The controller: the part that all schemes share, around a scheme's own map.
//!
//! The controller owns the space of the flash, the GC, checkpoints, versions and statistics, and
//! implements [`Ftl`] once. A scheme implements [`Mapping`]: page lookup, target of a write, effect
//! of a trim, durability, and the rebuild of its tables at mount. [`GarbageCollect`] defines how a
//! block is emptied.
//!
//! Invariants: when a verb returns, everything it acknowledged is in the store. If power fails,
//! [`Mapping::mount`] finds it again.

use crate::addr::Lpn;
use crate::checkpoint::Checkpoints;
use crate::error::FtlError;
use crate::events::{EventKind, EventLog};
use crate::flash::DeferredRead;
use crate::ftl::{Ftl, Start};
use crate::gc::{GarbageCollect, GcState};
use crate::int::to_u64;
use crate::mapping::{Mapping, ram_entry};
use crate::recovery::{CommonParts, ShutdownState};
use crate::space::{Space, StreamId};
use crate::stats::{
    BlockView, Lookups, MountReport, RamEntry, RamPart, RamReport, SchemeStats, StreamView,
};
use crate::trims::Trims;
use nand_model::{Cause, Chip, Nanos, Pbn, Ppn};

/// A scheme over a chip: the shared parts and the scheme's map.
pub(crate) struct Controller<M> {
    pub(crate) space: Space,
    pub(crate) gc: GcState,
    pub(crate) checkpoints: Checkpoints,
    /// Pages visible to the host.
    pub(crate) logical_pages: u32,
    /// Next version to assign.
    pub(crate) next_ver: u64,
    /// Hint of the host for the next writes.
    pub(crate) write_hint: u64,
    pub(crate) stats: SchemeStats,
    pub(crate) map: M,
}

impl<M> Controller<M>
where
    Self: Mapping,
{
    /// Assembles a device, then formats or mounts it.
    pub(crate) fn start(
        start: Start,
        space: Space,
        gc: GcState,
        checkpoints: StreamId,
        logical_pages: u32,
        map: M,
    ) -> Result<Self, FtlError> {
        let mut controller = Controller {
            space,
            gc,
            checkpoints: Checkpoints::new(checkpoints),
            logical_pages,
            next_ver: 1,
            write_hint: 0,
            stats: SchemeStats::default(),
            map,
        };
        assert!(
            checkpoints < controller.space.streams(),
            "checkpoints go to stream {checkpoints} of {}",
            controller.space.streams()
        );
        controller.gc.begin_session(&controller.space);
        match start {
            Start::Format => {
                controller.space.format();
                let counts = controller.space.table.counts();
                assert_eq!(
                    counts.free + counts.bad,
                    controller.space.geometry().blocks,
                    "a new device has free and bad blocks only: {counts:?}"
                );
                controller.stats.mount = MountReport {
                    clean: true,
                    ..MountReport::default()
                };
            }
            Start::Mount => {
                controller.space.flash.begin(0);
                controller.space.let_mount_borrow(true);
                controller.mount()?;
                assert!(
                    !controller.space.is_mounting(),
                    "scheme {} did not end its mount",
                    controller.name()
                );
                controller.gc_after_mount()?;
                controller.space.let_mount_borrow(false);
                controller.report_findings();
            }
        }
        Ok(controller)
    }

    /// Runs GC until `wanted` blocks are free and no bad block has valid pages.
    pub(crate) fn gc_until(&mut self, wanted: u32) -> Result<(), FtlError> {
        self.stalled_by(Cause::Gc, |ftl| ftl.run_gc_until(wanted))
    }

    /// Returns the RAM of the parts that all schemes share. No paper counts it.
    fn shared_ram(&self) -> [RamEntry; 4] {
        let geometry = self.space.geometry();
        let (bitmap, victims, blocks) = self.space.table.bytes();
        let (lists, lists_most) = self.space.ram();
        let (copies, copies_most) = self.gc.pages.ram(&geometry);
        let (runs, runs_most) = self.space.flash.ram();
        let (chunk, chunk_most) = self.checkpoints.ram(&geometry);
        let blocks_now = u64::from(geometry.blocks);
        let (buffers, most) = (copies + runs + chunk, copies_most + runs_most + chunk_most);
        let table = victims + blocks;
        [
            ram_entry(RamPart::Bitmaps, geometry.pages(), 0, bitmap, bitmap),
            ram_entry(RamPart::Gc, blocks_now, 0, table, table),
            ram_entry(RamPart::Blocks, blocks_now, 0, lists, lists_most),
            ram_entry(RamPart::Buffers, 1, 0, buffers, most),
        ]
    }

    /// Runs GC at the end of a mount. During the mount, pages of every block were reserved for
    /// padding: a victim that was not worth collecting then may be worth it now.
    fn gc_after_mount(&mut self) -> Result<(), FtlError> {
        if self.stats.mount.clean || self.gc.is_read_only() {
            return Ok(());
        }
        match self.gc_until(self.gc.threshold + 1) {
            // Reads still work.
            Err(FtlError::ReadOnly(_)) => Ok(()),
            other => other,
        }
    }

    /// Completes the report of the mount.
    fn report_findings(&mut self) {
        let findings = std::mem::take(&mut self.space.flash.findings);
        findings.report(&self.space.geometry(), &mut self.stats.mount);
        self.stats.mount.pages_kept = self.gauges(SchemeStats::default()).mapped_pages;
    }

    /// Writes the state from which a mount by scan resumes. Space for it is made before: no page is
    /// relocated once it is written.
    pub(crate) fn write_shutdown_state(&mut self) -> Result<(), FtlError> {
        let geometry = self.space.geometry();
        let pages = ShutdownState::chunks(&geometry);
        self.gc_until(self.gc.threshold + 1 + pages.div_ceil(geometry.pages_per_block))?;
        self.level_wear()?;
        self.space.make_safe()?;
        self.space.erase_released(Cause::Gc)?;
        let stop = ShutdownState::of(&self.space, self.next_ver, self.logical_pages);
        stop.write(&mut self.space, &mut self.checkpoints)?;
        self.stats.checkpoints += 1;
        Ok(())
    }

    /// Returns the parts that a mount by scan fills in. It programs pages in the stream `common`.
    pub(crate) fn common_parts_with(
        &mut self,
        common: StreamId,
        trims_of: impl FnOnce(&mut M) -> &mut Trims,
    ) -> CommonParts<'_> {
        CommonParts {
            space: &mut self.space,
            trims: trims_of(&mut self.map),
            checkpoints: &mut self.checkpoints,
            next_ver: &mut self.next_ver,
            report: &mut self.stats.mount,
            logical_pages: self.logical_pages,
            common,
        }
    }

    /// Ends a step of the mount.
    pub(crate) fn end_step(&mut self, name: &'static str) {
        let now = self.space.flash.now();
        self.stats.mount.end_step(name, now);
    }

    pub(crate) fn new_version(&mut self) -> u64 {
        self.next_ver += 1;
        self.next_ver - 1
    }

    /// Asserts that the request is inside the device and consists of whole pages.
    fn check_request(&self, first: Lpn, count: u64) {
        assert!(
            u64::from(first.raw()) + count <= u64::from(self.logical_pages),
            "request of {count} logical pages from {first} on exceeds the device: {} logical pages",
            self.logical_pages
        );
    }

    /// Returns the number of pages in these bytes.
    #[inline]
    fn pages_in(&self, bytes: usize) -> u64 {
        let page = self.space.flash.geometry().page_len();
        if bytes == page {
            return 1; // No division for the most frequent request.
        }
        assert!(
            bytes.is_multiple_of(page),
            "request of {bytes} bytes is not a multiple of the page size, {page} bytes"
        );
        to_u64(bytes / page)
    }

    /// Returns the steps in RAM so far if they take time.
    #[inline]
    fn timed_steps(&self) -> u64 {
        if self.space.flash.times_ram() {
            self.lookup_steps()
        } else {
            0
        }
    }

    /// Adds the time of the lookups in RAM to the current request; `before`: the steps before it.
    #[inline]
    fn add_ram_time(&mut self, before: u64) {
        if self.space.flash.times_ram() {
            self.space.flash.add_ram_steps(self.lookup_steps() - before);
        }
    }

    /// Runs a verb that programs pages: those of a run are written to the store together.
    #[inline(always)]
    fn in_batch<R>(
        &mut self,
        verb: impl FnOnce(&mut Self) -> Result<R, FtlError>,
    ) -> Result<R, FtlError> {
        self.space.flash.chip_mut().begin_batch();
        let outcome = verb(self);
        let written = self.space.flash.chip_mut().end_batch();
        let result = outcome?;
        written?;
        Ok(result)
    }

    /// Reads pages for the host, copied or deferred.
    fn read_host_pages(
        &mut self,
        at: Nanos,
        first: Lpn,
        out: &mut [u8],
    ) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.begin();
        let count = self.pages_in(out.len());
        self.check_request(first, count);
        let steps = self.timed_steps();
        self.stats.host_pages_read += count;
        self.read_pages(first, out)?;
        self.add_ram_time(steps);
        debug_assert!(
            self.space.flash.now() >= at,
            "a read that began at {at} ns ended at {} ns",
            self.space.flash.now()
        );
        Ok(self.space.flash.now())
    }

    fn audit_blocks(&self) -> Vec<String> {
        let mut wrong = self.space.table.audit();
        wrong.extend(self.space.audit());
        // A read-only device runs no GC.
        if !self.gc.is_read_only() {
            let lost = |block: &Pbn| {
                self.space.is_forgotten(*block)
                    && !self.checkpoints.owns(*block)
                    && self.needs_gc(*block)
            };
            let blocks = self.space.geometry().all_blocks().filter(lost);
            wrong.extend(blocks.map(|block| {
                let valid = self.space.table.valid_count(block);
                format!("full block {block} with {valid} valid pages is not in the victim index")
            }));
        }
        let counts = self.space.table.counts();
        let sum =
            counts.free + counts.open + counts.data + counts.log + counts.map + counts.checkpoint;
        if sum + counts.released + counts.bad != self.space.geometry().blocks {
            wrong.push(format!(
                "the sum of the block counts is not the number of blocks, {}: {counts:?}",
                self.space.geometry().blocks
            ));
        }
        wrong
    }
}

impl<M: Send> Ftl for Controller<M>
where
    Self: Mapping,
{
    fn scheme(&self) -> &'static str {
        self.name()
    }

    fn logical_pages(&self) -> u32 {
        self.logical_pages
    }

    fn read(&mut self, at: Nanos, first: Lpn, out: &mut [u8]) -> Result<Nanos, FtlError> {
        // A panic may have left a deferred read without its end.
        self.space.flash.copy_reads();
        self.read_host_pages(at, first, out)
    }

    fn read_deferred(
        &mut self,
        at: Nanos,
        first: Lpn,
        out: &mut [u8],
        deferred: &mut DeferredRead,
    ) -> Result<Nanos, FtlError> {
        self.space.flash.defer_reads(deferred);
        let done = self.read_host_pages(at, first, out);
        self.space.flash.end_deferring(deferred);
        done
    }

    fn set_write_hint(&mut self, hint: u64) {
        self.write_hint = hint;
    }

    fn write(&mut self, at: Nanos, first: Lpn, data: &[u8]) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.begin();
        self.gc.refuse_if_read_only()?;
        self.check_request(first, self.pages_in(data.len()));
        let steps = self.timed_steps();
        self.space.stalls.begin_write();
        let outcome = self.in_batch(|ftl| ftl.write_pages(first, data));
        self.space.stalls.end_write();
        outcome?;
        self.add_ram_time(steps);
        debug_assert!(
            self.space.flash.now() >= at,
            "a write that began at {at} ns ended at {} ns",
            self.space.flash.now()
        );
        Ok(self.space.flash.now())
    }

    fn trim(&mut self, at: Nanos, first: Lpn, count: u32) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.begin();
        self.gc.refuse_if_read_only()?;
        self.check_request(first, u64::from(count));
        self.stats.host_pages_trimmed += u64::from(count);
        self.in_batch(|ftl| ftl.trim_pages(first, count))?;
        Ok(self.space.flash.now())
    }

    fn flush(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.begin();
        self.in_batch(Self::make_durable)?;
        let done = self.space.flash.wait();
        assert!(
            done >= at,
            "a FLUSH that began at {at} ns ended at {done} ns"
        );
        Ok(done)
    }

    fn idle(&mut self, at: Nanos, budget: u32) -> Result<bool, FtlError> {
        self.space.flash.begin(at);
        self.begin();
        self.in_batch(|ftl| ftl.background_work(budget))
    }

    fn shutdown(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.begin();
        self.empty_buffers()?;
        self.space.make_safe()?;
        if !self.gc.is_read_only() {
            // The end of life found here fails no stop: what was acknowledged is durable.
            let written = self.shut_down();
            self.gc.stay_readable(written)?;
        }
        Ok(self.space.flash.now())
    }

    fn is_mapped(&mut self, lpn: Lpn) -> Result<bool, FtlError> {
        Ok(Mapping::is_mapped(self, lpn))
    }

    fn stats(&self) -> SchemeStats {
        let events = |kind: EventKind| self.space.events.by_kind()[kind.index()].count;
        let stats = self.gc.stats(self.gauges(SchemeStats {
            valid_pages: self.space.table.valid_pages(),
            blocks: self.space.table.counts(),
            write_stalls: self.space.stalls.by_cause(),
            map_lookup_steps: self.lookup_steps(),
            free_threshold_blocks: self.gc.threshold + self.space.kept_for_mount(),
            pages_since_checkpoint: self.space.pages_since_checkpoint(),
            switch_merges: events(EventKind::SwitchMerge),
            partial_merges: events(EventKind::PartialMerge),
            full_merges: events(EventKind::FullMerge),
            ..self.stats.clone()
        }));
        assert!(
            stats.mapped_pages <= u64::from(self.logical_pages),
            "{} of {} logical pages are mapped",
            stats.mapped_pages,
            self.logical_pages
        );
        assert!(
            stats.valid_pages <= self.space.geometry().pages(),
            "{} of {} physical pages are valid",
            stats.valid_pages,
            self.space.geometry().pages()
        );
        stats
    }

    fn lookups_read(&self) -> Lookups {
        self.stats.lookups_read
    }

    fn block(&self, block: Pbn) -> BlockView {
        self.space.block_view(block)
    }

    fn is_valid(&self, page: Ppn) -> bool {
        self.space.table.is_valid(page)
    }

    fn events(&self) -> &EventLog {
        &self.space.events
    }

    fn streams(&self) -> &[StreamView] {
        self.space.stream_views()
    }

    fn ram_report(&self) -> RamReport {
        let mut report = self.ram();
        report.extend(self.shared_ram());
        report
    }

    fn check(&mut self) -> Result<Vec<String>, FtlError> {
        let mut wrong = self.audit_blocks();
        self.audit_map(&mut wrong)?;
        Ok(wrong)
    }

    fn chip(&self) -> &Chip {
        self.space.flash.chip()
    }

    fn chip_mut(&mut self) -> &mut Chip {
        self.space.flash.chip_mut()
    }

    fn into_chip(self: Box<Self>) -> Chip {
        self.space.flash.into_chip()
    }
}
