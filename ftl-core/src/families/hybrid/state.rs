//! The state of the family, its streams, and the location of a page.

use super::data::DataBlocks;
use super::logs::{LogBlocks, LogStream};
use super::policy::{Policy, View};
use crate::addr::{Lbn, Lpn};
use crate::controller::Controller;
use crate::error::FtlError;
use crate::format::Role;
use crate::int::index;
use crate::space::{Space, StreamId};
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
    pub(super) logical_pages: u32,
    pub(super) pages_per_block: u32,
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

impl<P: Policy> Hybrid<P> {
    pub(super) fn logical_blocks(&self) -> u32 {
        self.logical_pages.div_ceil(self.pages_per_block)
    }

    /// Calls `ask` with the policy and its view.
    pub(crate) fn with_policy_view<R>(
        &mut self,
        space: &Space,
        ask: impl FnOnce(&mut P, &View) -> R,
    ) -> R {
        let chip = space.flash.chip();
        let erases = |block| chip.erase_count(block);
        let takes = |stream: LogStream, offset| {
            let open = space.open_block(log_stream(stream));
            let is_free = |block| !chip.is_programmed(chip.geometry().page(block, offset));
            open.is_some_and(|(block, _)| !self.in_place_logs || is_free(block))
        };
        let view = View {
            logs: &self.logs,
            limit: index(self.log_limit(space)),
            data: &self.data,
            table: &space.table,
            emptying: self.emptying,
            takes: &takes,
            erases: &erases,
        };
        ask(&mut self.policy, &view)
    }

    /// Returns the logical block and the page in it.
    #[inline]
    pub(super) fn split(&self, lpn: Lpn) -> (Lbn, u32) {
        debug_assert!(
            lpn.raw() < self.logical_pages,
            "logical page {lpn} does not exist"
        );
        lpn.split(self.pages_per_block)
    }

    /// Returns the logical pages of a logical block.
    pub(super) fn pages_of(&self, lbn: Lbn) -> impl Iterator<Item = Lpn> + Clone + use<P> {
        let pages = self.pages_per_block;
        let first = lbn.page(pages, 0);
        first.run(pages.min(self.logical_pages - first.raw()))
    }

    pub(super) fn data_stream(&self, lbn: Lbn) -> StreamId {
        debug_assert!(
            lbn.raw() < self.logical_blocks(),
            "logical block {lbn} does not exist"
        );
        self.first_data + lbn.index()
    }

    /// Returns the physical page with a logical page's newest content.
    #[inline]
    pub(crate) fn ppn_of(&self, lpn: Lpn) -> Option<Ppn> {
        if !self.trims.is_mapped(lpn) {
            return None;
        }
        self.logs.ppn_of(lpn).or_else(|| self.data.ppn_of(lpn))
    }

    /// Reads the records of a stream's newest block from its end, until the page is found. Returns
    /// how many were read.
    pub(super) fn scan_log(
        &mut self,
        space: &mut Space,
        stream: LogStream,
        lpn: Lpn,
        newest: Option<Ppn>,
    ) -> Result<u32, FtlError> {
        let Some(log) = self.logs.newest(stream) else {
            return Ok(0);
        };
        let geometry = space.geometry();
        let block = log.block;
        let used = space.flash.chip().frontier(block);
        for offset in (0..used).rev() {
            let ppn = geometry.page(block, offset);
            let oob = space.flash.read_oob(ppn, Cause::Host)?;
            if Some(ppn) == newest
                || oob.is_some_and(|oob| oob.tag.lpn == lpn.raw() && oob.tag.role == Role::Log)
            {
                return Ok(used - offset);
            }
        }
        Ok(used)
    }

    /// Returns the maximal number of log blocks.
    pub(super) fn log_limit(&self, space: &Space) -> u32 {
        let geometry = space.geometry();
        let good = geometry.blocks - space.table.counts().bad;
        let left = good.saturating_sub(self.logical_blocks() + self.reserved_blocks);
        let wanted = if self.log_blocks == 0 {
            left
        } else {
            left.min(self.log_blocks)
        };
        wanted.max(MIN_LOGS)
    }
}

impl<P: Policy> HybridFtl<P> {
    /// Returns [`Hybrid::ppn_of`] for a host read, at the look-up cost of the scheme.
    pub(super) fn find(&mut self, lpn: Lpn) -> Result<Option<Ppn>, FtlError> {
        let ppn = self.map.ppn_of(lpn);
        let group = self
            .map
            .policy
            .group()
            .filter(|_| self.map.policy.reads_scan_logs());
        if let Some(size) = group {
            let stream = self.map.policy.shared_streams() + self.map.split(lpn).0.raw() / size;
            let is_hit =
                ppn.is_none() || self.map.scan_log(&mut self.space, stream, lpn, ppn)? == 0;
            self.stats.lookups_read.note(is_hit);
        }
        Ok(ppn)
    }
}
