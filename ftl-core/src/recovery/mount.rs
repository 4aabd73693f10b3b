//! The mount of schemes that keep no map on flash, or none that would save reading: the records of
//! all pages say which are newest, and the scheme draws its tables from that.
//!
//! What always holds: after a clean stop nothing is programmed, and blocks go on being filled;
//! after a cut blocks that it found are never programmed again. If power fails meanwhile, what this
//! mount programmed does not count ([`crate::space`]), and the next one begins again.

use super::{CleanStop, Newest, find_newest, scan_heads};
use crate::checkpoint::Checkpoints;
use crate::error::FtlError;
use crate::gc::Collect;
use crate::space::{Space, StreamId};
use crate::stats::MountReport;
use crate::trims::Trims;
use nand_model::Store;

/// What such a mount fills in.
pub(crate) struct Unmounted<'a, S> {
    pub(crate) space: &'a mut Space<S>,
    pub(crate) trims: &'a mut Trims,
    pub(crate) checkpoints: &'a mut Checkpoints,
    pub(crate) next_ver: &'a mut u64,
    pub(crate) report: &'a mut MountReport,
    pub(crate) logical_pages: u32,
    /// Takes what the mount programs.
    pub(crate) common: StreamId,
}

/// A scheme that is mounted by all records.
pub(crate) trait MountByRecords<S: Store>: Collect<S> {
    fn unmounted(&mut self) -> Unmounted<'_, S>;

    /// Draws the scheme's tables from what was found.
    fn adopt(&mut self, newest: &Newest) -> Result<(), FtlError>;

    /// What the mount programs is there; from now on the scheme's own rules hold.
    fn settle(&mut self) {}

    /// Finds what an earlier run left.
    fn mount(&mut self) -> Result<(), FtlError> {
        let mut parts = self.unmounted();
        let (stop, mut newest) = parts.read_records()?;
        match stop {
            Some(stop) => {
                stop.resume(parts.space);
                self.adopt(&newest)?;
            }
            None => self.put_right(&mut newest)?,
        }
        self.settle();
        let parts = self.unmounted();
        parts.report.pages_discarded = newest.discarded;
        parts
            .report
            .end_step("rebuild tables", parts.space.flash.now());
        Ok(())
    }

    /// After a cut: rescues, and collects until the free blocks are back at their usual number.
    /// Every such mount gives up the rest of the blocks that were open; were they collected only
    /// when the host writes, cuts in a row would use the free blocks up.
    fn put_right(&mut self, newest: &mut Newest) -> Result<(), FtlError> {
        let Unmounted {
            space,
            trims,
            checkpoints,
            common,
            ..
        } = self.unmounted();
        space.begin_mount();
        let rescued = newest.rescue(space, trims, checkpoints, common);
        self.adopt(newest)?;
        let wanted = self.parts().1.threshold + 1;
        match rescued.and_then(|()| self.collect_until(wanted)) {
            // Reading goes on.
            Err(FtlError::ReadOnly(reason)) => self.parts().1.set_read_only(reason),
            other => other?,
        }
        self.parts().0.end_mount()
    }
}

impl<S: Store> Unmounted<'_, S> {
    /// Reads the records, and what a clean stop left if there was one.
    fn read_records(&mut self) -> Result<(Option<CleanStop>, Newest), FtlError> {
        let (pages, mut scanned) = (self.logical_pages, 0);
        let heads = scan_heads(&mut self.space.flash, &mut scanned)?;
        self.end_step("scan heads");
        let stop = CleanStop::load(self.space, self.checkpoints, &heads, pages, &mut scanned)?;
        self.end_step("load checkpoint");
        let free = stop.as_ref().map(CleanStop::free);
        let (space, trims) = (&mut *self.space, &mut *self.trims);
        let newest = find_newest(
            space,
            &heads,
            trims,
            self.checkpoints,
            pages,
            free.as_ref(),
            &mut scanned,
        )?;
        self.end_step("scan pages");
        *self.next_ver = newest
            .next_ver
            .max(stop.as_ref().map_or(0, |stop| stop.next_ver));
        self.space.check_counters(*self.next_ver)?;
        self.report.pages_scanned = scanned;
        self.report.clean = stop.is_some();
        self.report.free_blocks = self.space.free_blocks() + self.space.released_blocks();
        Ok((stop, newest))
    }

    fn end_step(&mut self, name: &'static str) {
        let now = self.space.flash.now();
        self.report.end_step(name, now);
    }
}
