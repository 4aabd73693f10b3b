//! Differences between the schemes of data blocks and log blocks.

use super::data::DataBlocks;
use super::logs::{LogBlock, LogBlocks, LogStream};
use crate::addr::Lbn;
use crate::block_table::{BlockTable, State};
use nand_model::Pbn;

/// A host write whose offset in the data block is taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    /// Logical block.
    pub(crate) lbn: Lbn,
    /// Page in it.
    pub(crate) offset: u32,
    /// Pages of the whole request.
    pub(crate) request: u32,
}

/// Input of a policy.
pub(crate) struct View<'a> {
    pub(crate) logs: &'a LogBlocks,
    /// Maximal number of log blocks.
    pub(crate) limit: usize,
    pub(super) data: &'a DataBlocks,
    pub(super) table: &'a BlockTable,
    pub(super) emptying: Option<Pbn>,
    /// Returns whether the open block of a log stream can take a page at this offset.
    pub(super) takes: &'a dyn Fn(LogStream, u32) -> bool,
    /// Returns the erase count of a block.
    pub(super) erases: &'a dyn Fn(Pbn) -> u32,
}

impl View<'_> {
    /// Returns the valid pages of the logical block in its data block.
    pub(crate) fn valid_in_data_block(&self, lbn: Lbn) -> u32 {
        self.data
            .block(lbn)
            .map_or(0, |block| self.table.valid_count(block))
    }

    /// Returns whether a block takes no more pages, and its pages are not being relocated.
    pub(crate) fn is_full(&self, block: Pbn) -> bool {
        self.table.state(block) == State::Full && !self.is_emptied(block)
    }

    /// Returns whether the open block of a log stream can take a page with this offset.
    pub(crate) fn takes(&self, stream: LogStream, offset: u32) -> bool {
        (self.takes)(stream, offset)
    }

    /// Returns whether a block's pages are being relocated.
    pub(crate) fn is_emptied(&self, block: Pbn) -> bool {
        Some(block) == self.emptying
    }

    /// Returns the erase count of a block.
    pub(crate) fn erases(&self, block: Pbn) -> u32 {
        (self.erases)(block)
    }
}

/// Destination of such a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// The open block of this log stream, or a new one.
    Log(LogStream),
    /// None yet: the newest block of this log stream is merged first.
    MergeNewest(LogStream),
}

/// How a log block is reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogReclaim {
    /// Its pages are merged.
    Merge(Pbn),
    /// Its pages are copied to another log stream, which never reclaims blocks by a move itself.
    Move(Pbn, LogStream),
}

/// Differences between the schemes of data blocks and log blocks.
pub(crate) trait Policy: Send {
    /// Name in the table of schemes.
    const NAME: &'static str;

    /// Returns the number of log streams that all logical blocks share.
    fn shared_streams(&self) -> u32 {
        0
    }

    /// Returns the number of adjacent logical blocks that share a log stream of their own, if any
    /// do.
    fn group(&self) -> Option<u32> {
        None
    }

    /// Returns the number of log streams of such a group.
    fn streams_per_group(&self) -> u32 {
        1
    }

    /// Returns whether pages have their own offsets in log blocks, too, if the chip allows it.
    fn logs_in_place(&self) -> bool {
        false
    }

    /// Returns whether a request that covers a whole logical block goes to a new data block.
    fn whole_blocks(&self) -> bool {
        false
    }

    /// Returns the destination of a page whose offset in the data block is taken.
    fn route(&mut self, write: &Write, view: &View) -> Route;

    /// Returns the reclaim that must precede another block for `stream`; `None` if it may open one.
    fn select_reclaim(&mut self, stream: LogStream, view: &View) -> Option<LogReclaim>;

    /// Returns the log block to merge when blocks are short, if any is left.
    fn victim(&mut self, view: &View) -> Option<Pbn>;

    /// Returns whether this log block may become the data block of the only logical block with
    /// pages in it.
    fn may_become_data(&self, block: &LogBlock) -> bool;

    /// Returns the log block to erase in place of a replaced data block with this many free pages.
    /// The log block's pages are copied there, and it becomes a log block of shared stream 0.
    /// `None`: the data block is erased.
    fn swap(&mut self, _free: u32, _view: &View) -> Option<Pbn> {
        None
    }

    /// Returns how many such blocks may exist that are not full.
    fn swapped_blocks(&self) -> u32 {
        0
    }

    /// Returns whether a read has to search a log block through the OOB areas, because the page's
    /// number is not in RAM.
    fn reads_scan_logs(&self) -> bool {
        false
    }

    /// Returns the RAM of the map as the paper counts it, for these numbers of logical blocks, log
    /// blocks and pages per block.
    fn paper_bytes(&self, logical_blocks: u64, log_blocks: u64, pages_per_block: u64) -> u64;

    /// Returns the bytes of the policy itself.
    fn bytes(&self) -> u64 {
        0
    }

    /// Returns the upper bound of these bytes, for this many log streams and pages of log blocks.
    fn bytes_most(&self, _streams: u64, _log_pages: u64) -> u64 {
        self.bytes()
    }
}
