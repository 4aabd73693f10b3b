//! The state of the family, its streams, and the location of a page.

use super::data::DataBlocks;
use super::logs::{LogBlocks, LogStream};
use super::policy::{Policy, View};
use crate::addr::{Lbn, Lpn};
use crate::controller::Controller;
use crate::error::FtlError;
use crate::format::Role;
use crate::int::index;
use crate::space::StreamId;
use crate::trims::Trims;
use nand_model::{Cause, Pbn, Ppn};

/// Stream of trim records and of pages that a mount programs.
pub(super) const COMMON: StreamId = 0;
pub(super) const CHECKPOINT: StreamId = 1;
/// The first stream of shared log blocks. Then come the streams of groups, those of swapped blocks,
/// and one per data block.
pub(super) const FIRST_LOG: StreamId = 2;

/// Returns the space's stream of a log stream.
#[inline]
pub(super) const fn log_stream(stream: LogStream) -> StreamId {
    FIRST_LOG + index(stream)
}

/// Minimal number of log blocks.
pub(super) const MIN_LOGS: u32 = 2;

/// Data blocks, log blocks, and the physical pages of logical pages.
pub(crate) struct Hybrid<P> {
    pub(crate) policy: P,
    pub(super) data: DataBlocks,
    pub(crate) logs: LogBlocks,
    pub(super) trims: Trims,
    /// Blocks that are neither for data nor for log pages.
    pub(super) reserved_blocks: u32,
    /// Configured number of log blocks; 0 for as many as fit.
    pub(super) log_blocks: u32,
    /// The first stream of data blocks that became log blocks and are not full yet.
    pub(super) first_swapped: StreamId,
    pub(super) first_data: StreamId,
    /// Whether pages have their own offsets in log blocks, too.
    pub(super) in_place_logs: bool,
    /// The block whose pages are being relocated.
    pub(super) emptying: Option<Pbn>,
    /// The block that GC emptied last, if by merges.
    pub(super) merged: Option<Pbn>,
    /// Physical pages of the current read.
    pub(super) ppns: Vec<u32>,
}

/// A scheme of data blocks and log blocks over a chip.
pub(crate) type HybridFtl<P> = Controller<Hybrid<P>>;

impl<P: Policy> HybridFtl<P> {
    pub(super) fn logical_blocks(&self) -> u32 {
        self.logical_pages
            .div_ceil(self.space.geometry().pages_per_block)
    }

    /// Calls `ask` with the policy and its view.
    pub(crate) fn with_policy_view<R>(&mut self, ask: impl FnOnce(&mut P, &View) -> R) -> R {
        let chip = self.space.flash.chip();
        let erases = |block| chip.erase_count(block);
        let takes = |stream: LogStream, offset| {
            let open = self.space.open_block(log_stream(stream));
            let is_free = |block| !chip.is_programmed(chip.geometry().page(block, offset));
            open.is_some_and(|(block, _)| !self.map.in_place_logs || is_free(block))
        };
        let view = View {
            logs: &self.map.logs,
            limit: index(self.log_limit()),
            data: &self.map.data,
            table: &self.space.table,
            emptying: self.map.emptying,
            takes: &takes,
            erases: &erases,
        };
        ask(&mut self.map.policy, &view)
    }

    /// Returns the logical block and the page in it.
    #[inline]
    pub(super) fn split(&self, lpn: Lpn) -> (Lbn, u32) {
        debug_assert!(
            lpn.raw() < self.logical_pages,
            "logical page {lpn} does not exist"
        );
        lpn.split(self.space.geometry().pages_per_block)
    }

    /// Returns the logical pages of a logical block.
    pub(super) fn pages_of(&self, lbn: Lbn) -> impl Iterator<Item = Lpn> + Clone + use<P> {
        let pages = self.space.geometry().pages_per_block;
        let first = lbn.page(pages, 0);
        first.run(pages.min(self.logical_pages - first.raw()))
    }

    pub(super) fn data_stream(&self, lbn: Lbn) -> StreamId {
        debug_assert!(
            lbn.raw() < self.logical_blocks(),
            "logical block {lbn} does not exist"
        );
        self.map.first_data + lbn.index()
    }

    /// Returns the physical page with a logical page's newest content.
    #[inline]
    pub(crate) fn ppn_of(&self, lpn: Lpn) -> Option<Ppn> {
        if !self.map.trims.is_mapped(lpn) {
            return None;
        }
        self.map
            .logs
            .ppn_of(lpn)
            .or_else(|| self.map.data.ppn_of(lpn))
    }

    /// The same for a host read, at the look-up cost of the scheme.
    pub(super) fn find(&mut self, lpn: Lpn) -> Result<Option<Ppn>, FtlError> {
        let ppn = self.ppn_of(lpn);
        let group = self
            .map
            .policy
            .group()
            .filter(|_| self.map.policy.reads_scan_logs());
        if let Some(size) = group {
            let stream = self.map.policy.shared_streams() + self.split(lpn).0.raw() / size;
            let is_hit = ppn.is_none() || self.scan_log(stream, lpn, ppn)? == 0;
            self.stats.lookups_read.note(is_hit);
        }
        Ok(ppn)
    }

    /// Reads the records of a stream's newest block from its end, until the page is found. Returns
    /// their number.
    pub(super) fn scan_log(
        &mut self,
        stream: LogStream,
        lpn: Lpn,
        newest: Option<Ppn>,
    ) -> Result<u32, FtlError> {
        let Some(log) = self.map.logs.newest(stream) else {
            return Ok(0);
        };
        let geometry = self.space.geometry();
        let block = log.block;
        let used = self.space.flash.chip().frontier(block);
        for offset in (0..used).rev() {
            let ppn = geometry.page(block, offset);
            let oob = self.space.flash.read_oob(ppn, Cause::Host)?;
            if Some(ppn) == newest
                || oob.is_some_and(|oob| oob.tag.lpn == lpn.raw() && oob.tag.role == Role::Log)
            {
                return Ok(used - offset);
            }
        }
        Ok(used)
    }

    /// Returns the maximal number of log blocks.
    pub(super) fn log_limit(&self) -> u32 {
        let geometry = self.space.geometry();
        let good = geometry.blocks - self.space.table.counts().bad;
        let left = good.saturating_sub(self.logical_blocks() + self.map.reserved_blocks);
        let wanted = if self.map.log_blocks == 0 {
            left
        } else {
            left.min(self.map.log_blocks)
        };
        wanted.max(MIN_LOGS)
    }
}
