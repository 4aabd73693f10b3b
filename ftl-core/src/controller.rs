//! The controller: what every scheme does alike, around a map of its own.
//!
//! The controller owns the space of the flash, the collector, checkpoints, versions and statistics,
//! and implements [`Ftl`] once. A scheme brings its map and what belongs to it ([`Mapping`]): where
//! a page is, where a write goes, what a trim leaves, what makes it durable, and what a mount makes
//! of what it finds. How a block is emptied is [`Collect`].
//!
//! What always holds: a verb that returned has everything it acknowledged in the store. If power
//! fails, [`Mapping::recover`] finds it again.

use crate::addr::Lpn;
use crate::checkpoint::Checkpoints;
use crate::convert::to_u64;
use crate::error::FtlError;
use crate::events::EventLog;
use crate::ftl::{Ftl, Start};
use crate::gc::{Collect, Gc};
use crate::recovery::CleanStop;
use crate::space::{Space, StreamId};
use crate::stats::{BlockView, MountReport, RamEntry, RamReport, SchemeStats};
use nand_model::{Cause, Chip, Geometry, Nanos, Pbn, Store};

/// A scheme over a chip: the parts that all have, and the map of this one.
pub(crate) struct Controller<S: Store, M> {
    pub(crate) space: Space<S>,
    pub(crate) gc: Gc,
    pub(crate) checkpoints: Checkpoints,
    /// Pages that the host sees.
    pub(crate) logical_pages: u32,
    /// The next version to give.
    pub(crate) next_ver: u64,
    pub(crate) stats: SchemeStats,
    pub(crate) map: M,
}

/// What a scheme says of its pages. Requests have begun, and are refused where the device is
/// read-only, before any of this is called.
pub(crate) trait Mapping<S: Store>: Collect<S> {
    /// Name in the table of schemes.
    fn name(&self) -> &'static str;

    /// A request begins.
    fn begin(&mut self) {}

    /// Reads consecutive pages into `out`.
    fn read_pages(&mut self, first: Lpn, out: &mut [u8]) -> Result<(), FtlError>;

    /// Writes consecutive pages.
    fn write_pages(&mut self, first: Lpn, data: &[u8]) -> Result<(), FtlError>;

    /// Makes `count` pages read as zeros.
    fn trim_pages(&mut self, first: Lpn, count: u32) -> Result<(), FtlError>;

    /// Makes what was acknowledged survive a power cut of the flash.
    fn make_durable(&mut self) -> Result<(), FtlError>;

    /// Programs what is in RAM alone, before the device stops.
    fn empty_buffers(&mut self) -> Result<(), FtlError> {
        Ok(())
    }

    /// Everything is safe and the device is not read-only: writes what lets the next mount be
    /// quick.
    fn stop(&mut self) -> Result<(), FtlError>;

    /// Finds what an earlier run left.
    fn recover(&mut self) -> Result<(), FtlError>;

    /// Whether the page holds data.
    fn is_mapped(&self, lpn: Lpn) -> bool;

    /// `common` with what the map counts.
    fn gauges(&self, common: SchemeStats) -> SchemeStats;

    /// RAM of the tables.
    fn ram(&self) -> RamReport;

    /// Compares the map with the chip; one line for each thing that is wrong.
    fn audit_map(&mut self, wrong: &mut Vec<String>) -> Result<(), FtlError>;
}

/// An error if there are more logical pages than pages of flash.
pub(crate) fn check_size(geometry: &Geometry, logical_pages: u32) -> Result<(), FtlError> {
    if (u64::from(logical_pages)) < geometry.pages() {
        return Ok(());
    }
    let text = "more logical pages than the flash has";
    Err(FtlError::Config(text.into()))
}

/// A line of a RAM report: entries, bytes as the paper counts them, bytes really allocated.
pub(crate) fn ram_entry(part: &'static str, entries: u64, paper: u64, real: u64) -> RamEntry {
    RamEntry {
        part,
        entries,
        paper_bytes: paper,
        real_bytes: real,
    }
}

impl<S: Store, M> Controller<S, M>
where
    Self: Mapping<S>,
{
    /// Puts a device together and formats it, or finds what an earlier run left.
    pub(crate) fn start(
        start: Start,
        space: Space<S>,
        gc: Gc,
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
            stats: SchemeStats::default(),
            map,
        };
        match start {
            Start::Format => {
                controller.space.format();
                controller.stats.mount = MountReport {
                    clean: true,
                    ..MountReport::default()
                };
            }
            Start::Mount => {
                controller.space.flash.begin(0);
                controller.recover()?;
                controller.collect_after_mount()?;
            }
        }
        Ok(controller)
    }

    /// Collects at the end of a mount. Meanwhile pages of every block were reserved for padding, so
    /// that a victim could gain nothing which is worth collecting now.
    fn collect_after_mount(&mut self) -> Result<(), FtlError> {
        if self.stats.mount.clean || self.gc.is_read_only() {
            return Ok(());
        }
        match self.collect_until(self.gc.threshold + 1) {
            // Reading goes on.
            Err(FtlError::ReadOnly(_)) => Ok(()),
            other => other,
        }
    }

    /// Writes what lets a mount by all records go on where the device stopped. Room for it is made
    /// before: nothing is moved once it is written.
    pub(crate) fn write_clean_stop(&mut self) -> Result<(), FtlError> {
        let geometry = self.space.geometry();
        let pages = CleanStop::chunks(&geometry);
        self.collect_until(self.gc.threshold + 1 + pages.div_ceil(geometry.pages_per_block))?;
        self.level_wear()?;
        self.space.make_safe()?;
        self.space.reclaim(Cause::Gc)?;
        let stop = CleanStop::of(&self.space, self.next_ver, self.logical_pages);
        stop.write(&mut self.space, &mut self.checkpoints)?;
        self.stats.checkpoints += 1;
        Ok(())
    }

    /// A step of the mount ends.
    pub(crate) fn end_step(&mut self, name: &'static str) {
        let now = self.space.flash.now();
        self.stats.mount.end_step(name, now);
    }

    pub(crate) fn new_version(&mut self) -> u64 {
        self.next_ver += 1;
        self.next_ver - 1
    }

    /// Callers bring what is on the device, and whole pages.
    fn check_request(&self, first: Lpn, count: u64) {
        assert!(
            u64::from(first.raw()) + count <= u64::from(self.logical_pages),
            "a request of {count} logical pages from {first} on"
        );
    }

    /// How many pages these bytes are.
    fn pages_in(&self, bytes: usize) -> u64 {
        let page = self.space.flash.geometry().page_len();
        assert!(bytes.is_multiple_of(page), "a request of {bytes} bytes");
        to_u64(bytes / page)
    }

    fn audit_blocks(&self) -> Vec<String> {
        let mut wrong = self.space.table.audit();
        let counts = self.space.table.counts();
        let sum =
            counts.free + counts.open + counts.data + counts.log + counts.map + counts.checkpoint;
        if sum + counts.released + counts.bad != self.space.geometry().blocks {
            wrong.push(format!("blocks do not add up: {counts:?}"));
        }
        wrong
    }
}

impl<S: Store, M: Send> Ftl<S> for Controller<S, M>
where
    Self: Mapping<S>,
{
    fn scheme(&self) -> &'static str {
        self.name()
    }

    fn logical_pages(&self) -> u32 {
        self.logical_pages
    }

    fn read(&mut self, at: Nanos, first: Lpn, out: &mut [u8]) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.begin();
        let count = self.pages_in(out.len());
        self.check_request(first, count);
        self.stats.host_pages_read += count;
        self.read_pages(first, out)?;
        Ok(self.space.flash.now())
    }

    fn write(&mut self, at: Nanos, first: Lpn, data: &[u8]) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.begin();
        self.gc.refuse_if_read_only()?;
        self.check_request(first, self.pages_in(data.len()));
        self.write_pages(first, data)?;
        Ok(self.space.flash.now())
    }

    fn trim(&mut self, at: Nanos, first: Lpn, count: u32) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.begin();
        self.gc.refuse_if_read_only()?;
        self.check_request(first, u64::from(count));
        self.stats.host_pages_trimmed += u64::from(count);
        self.trim_pages(first, count)?;
        Ok(self.space.flash.now())
    }

    fn flush(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.begin();
        self.make_durable()?;
        Ok(self.space.flash.wait())
    }

    fn idle(&mut self, at: Nanos, budget: u32) -> Result<bool, FtlError> {
        self.space.flash.begin(at);
        self.begin();
        self.work_ahead(budget)
    }

    fn shutdown(&mut self, at: Nanos) -> Result<Nanos, FtlError> {
        self.space.flash.begin(at);
        self.begin();
        self.empty_buffers()?;
        self.space.make_safe()?;
        if !self.gc.is_read_only() {
            self.stop()?;
        }
        Ok(self.space.flash.now())
    }

    fn is_mapped(&mut self, lpn: Lpn) -> Result<bool, FtlError> {
        Ok(Mapping::is_mapped(self, lpn))
    }

    fn stats(&self) -> SchemeStats {
        self.gc.stats(self.gauges(SchemeStats {
            valid_pages: self.space.table.valid_pages(),
            blocks: self.space.table.counts(),
            ..self.stats.clone()
        }))
    }

    fn block(&self, block: Pbn) -> BlockView {
        self.space.look_at(block)
    }

    fn events(&self) -> &EventLog {
        &self.space.events
    }

    fn ram_report(&self) -> RamReport {
        self.ram()
    }

    fn check(&mut self) -> Result<Vec<String>, FtlError> {
        let mut wrong = self.audit_blocks();
        self.audit_map(&mut wrong)?;
        Ok(wrong)
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
