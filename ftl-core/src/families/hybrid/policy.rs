//! What schemes with data blocks and log blocks differ in.

use super::data::DataBlocks;
use super::logs::{LogBlock, LogStream, Logs};
use crate::addr::Lbn;
use crate::block_table::{BlockTable, State};
use nand_model::Pbn;

/// A page that the host writes and that cannot go into its data block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Write {
    /// Logical block.
    pub(crate) lbn: Lbn,
    /// Page in it.
    pub(crate) offset: u32,
    /// Pages of the whole request.
    pub(crate) request: u32,
}

/// What a policy sees.
pub(crate) struct View<'a> {
    pub(crate) logs: &'a Logs,
    /// Log blocks that there may be.
    pub(crate) limit: usize,
    pub(super) data: &'a DataBlocks,
    pub(super) table: &'a BlockTable,
    pub(super) emptying: Option<Pbn>,
    /// Whether the open block of a log stream can take a page at this offset.
    pub(super) takes: &'a dyn Fn(LogStream, u32) -> bool,
    /// Erases of a block so far.
    pub(super) erases: &'a dyn Fn(Pbn) -> u32,
}

impl View<'_> {
    /// Newest pages that the logical block has in its data block.
    pub(crate) fn live_in_data(&self, lbn: Lbn) -> u32 {
        self.data
            .block(lbn)
            .map_or(0, |block| self.table.valid(block))
    }

    /// Whether a block takes no more pages, and its own are not being moved.
    pub(crate) fn is_full(&self, block: Pbn) -> bool {
        self.table.state(block) == State::Full && !self.is_emptied(block)
    }

    /// Whether the open block of a log stream can take a page that has this offset.
    pub(crate) fn takes(&self, stream: LogStream, offset: u32) -> bool {
        (self.takes)(stream, offset)
    }

    /// Whether a block's pages are being moved.
    pub(crate) fn is_emptied(&self, block: Pbn) -> bool {
        Some(block) == self.emptying
    }

    /// How often a block was erased.
    pub(crate) fn erases(&self, block: Pbn) -> u32 {
        (self.erases)(block)
    }
}

/// Where such a page goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// To the open block of this log stream, or a new one.
    Log(LogStream),
    /// Nowhere yet: what this log stream's newest block holds is merged first.
    Retire(LogStream),
}

/// How there comes to be one log block less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// What this one holds is merged.
    Merge(Pbn),
    /// What this one holds is copied to another log stream, which is never what itself moves.
    Move(Pbn, LogStream),
}

/// What schemes of data blocks and log blocks differ in.
pub(crate) trait Policy: Send {
    /// Name in the table of schemes.
    const NAME: &'static str;

    /// Log streams that all logical blocks share.
    fn shared_streams(&self) -> u32 {
        0
    }

    /// Adjacent logical blocks that have a log stream of their own together, if any do.
    fn group(&self) -> Option<u32> {
        None
    }

    /// How many log streams such a group has.
    fn streams_per_group(&self) -> u32 {
        1
    }

    /// Whether pages go to their own offsets also in log blocks, where the part allows it.
    fn logs_in_place(&self) -> bool {
        false
    }

    /// Whether a request that covers a whole logical block goes to a new data block.
    fn whole_blocks(&self) -> bool {
        false
    }

    /// Where a page goes whose place in the data block is taken.
    fn route(&mut self, write: &Write, view: &View) -> Route;

    /// What has to be done before `stream` takes another block; `None` when it may.
    fn due(&mut self, stream: LogStream, view: &View) -> Option<Due>;

    /// The log block that is merged when blocks are short, if any is left.
    fn victim(&mut self, view: &View) -> Option<Pbn>;

    /// Whether this log block may become the data block of the only logical block it has pages of.
    fn may_become_data(&self, block: &LogBlock) -> bool;

    /// Whether a data block that was replaced becomes a log block of shared stream 0 if it has this
    /// many pages left: then the log block whose pages are to be copied there, which is erased in
    /// its place.
    fn swap(&mut self, _free: u32, _view: &View) -> Option<Pbn> {
        None
    }

    /// How many such blocks there may be before they are filled.
    fn swapped_blocks(&self) -> u32 {
        0
    }

    /// Whether a read has to look for a page in a log block through the spare bytes, because its
    /// number is not in RAM.
    fn reads_scan_logs(&self) -> bool {
        false
    }

    /// RAM of the map as the paper counts it, for so many logical blocks and log blocks of so many
    /// pages.
    fn paper_bytes(&self, logical_blocks: u64, log_blocks: u64, pages_per_block: u64) -> u64;

    /// Bytes that the policy itself takes.
    fn bytes(&self) -> u64 {
        0
    }
}
