//! Mount of schemes without a map on flash, or with a map that would not save reads. The scan of
//! all records finds the newest pages, and the scheme rebuilds its tables from them.
//!
//! Invariants: after a clean shutdown the mount programs nothing, and open blocks continue to be
//! filled. After a cut, the blocks found are never programmed again. If power fails meanwhile, the
//! pages that this mount programmed are not committed ([`crate::space`]), and the next mount starts
//! again.

use super::newest::{ScanResult, scan_newest};
use super::shutdown_state::ShutdownState;
use crate::checkpoint::Checkpoints;
use crate::error::FtlError;
use crate::gc::GarbageCollect;
use crate::scan::scan_heads;
use crate::space::{Space, StreamId};
use crate::stats::MountReport;
use crate::trims::Trims;
use nand_model::Store;

/// Parts of a scheme that a mount fills in and relocations change.
pub(crate) struct CommonParts<'a> {
    pub(crate) space: &'a mut Space,
    pub(crate) trims: &'a mut Trims,
    pub(crate) checkpoints: &'a mut Checkpoints,
    pub(crate) next_ver: &'a mut u64,
    pub(crate) report: &'a mut MountReport,
    pub(crate) logical_pages: u32,
    /// Stream of TRIM pages, and of the pages that a mount programs.
    pub(crate) common: StreamId,
}

/// A scheme that is mounted by a scan of all records.
pub(crate) trait MountByScan: GarbageCollect {
    /// Returns the parts that all schemes of this kind have.
    fn common_parts(&mut self) -> CommonParts<'_>;

    /// Rebuilds the scheme's tables from the scan result.
    fn rebuild_tables(&mut self, newest: &ScanResult) -> Result<(), FtlError>;

    /// Applies the scheme's own rules from now on: the mount has programmed its pages.
    fn finish_mount(&mut self) {}

    /// Mounts the scheme from the flash content.
    fn mount_by_scan(&mut self) -> Result<(), FtlError> {
        let mut parts = self.common_parts();
        let (stop, mut newest) = parts.scan_oob()?;
        match stop {
            Some(stop) => {
                stop.resume(parts.space);
                self.rebuild_tables(&newest)?;
            }
            None => self.repair_after_cut(&mut newest)?,
        }
        self.finish_mount();
        let parts = self.common_parts();
        parts.report.pages_discarded = newest.discarded;
        parts
            .report
            .end_step("rebuild tables", parts.space.flash.now());
        Ok(())
    }

    /// Repairs the state after a cut: rewrites pages, and runs GC until the free blocks are back at
    /// their usual number. Every such mount abandons the rest of the open blocks. If GC ran only at
    /// host writes, repeated cuts would use up the free blocks.
    fn repair_after_cut(&mut self, newest: &mut ScanResult) -> Result<(), FtlError> {
        let CommonParts {
            space,
            trims,
            checkpoints,
            common,
            ..
        } = self.common_parts();
        space.begin_mount();
        let rewritten = newest.rewrite(space, trims, checkpoints, common);
        self.rebuild_tables(newest)?;
        let wanted = self.parts().1.threshold + 1;
        let repaired = rewritten.and_then(|()| self.run_gc_until(wanted));
        let (space, gc) = self.parts();
        gc.stay_readable(repaired)?;
        space.end_mount()
    }
}

impl CommonParts<'_> {
    /// Reads the records, and the state of a clean shutdown if there is one.
    fn scan_oob(&mut self) -> Result<(Option<ShutdownState>, ScanResult), FtlError> {
        let (pages, mut scanned) = (self.logical_pages, 0);
        self.space.flash.chip().store().expect_scan();
        let heads = scan_heads(&mut self.space.flash, &mut scanned)?;
        self.end_step("scan heads");
        let stop = ShutdownState::load(self.space, self.checkpoints, &heads, pages, &mut scanned)?;
        self.end_step("load checkpoint");
        let free = stop.as_ref().map(ShutdownState::free);
        let (space, trims) = (&mut *self.space, &mut *self.trims);
        let newest = scan_newest(
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
