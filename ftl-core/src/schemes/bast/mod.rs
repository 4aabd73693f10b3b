//! BAST: a log block for each overwritten logical block.
//!
//! Kim, Kim, Noh, Min, Cho: *A Space-Efficient Flash Translation Layer for CompactFlash Systems*,
//! IEEE Transactions on Consumer Electronics 48(2), 2002. The first write of a page goes to its
//! offset in the data block. Overwrites go to the log block of their logical block, in order of
//! arrival. A log block is merged when it is full, or when another logical block needs a log block.
//! It *becomes* the data block if it has all pages in order (switch), also after the missing ones
//! were copied behind them (partial merge). Otherwise the newest pages are gathered in a new data
//! block (full merge). [`crate::families::hybrid`] implements all that, with a log stream per
//! logical block. This module contains the choice of the log block to merge.
//!
//! RAM: 4 bytes per logical block, and per log block 4 bytes for its owner and 4 per page. The
//! report lists the allocated RAM alongside: a hash map for log pages. Parts with a page order add
//! 2 bytes per logical page for its offset in the data block.
//!
//! Deviations, and choices where the paper is silent:
//! - The original was not available; this follows descriptions in later papers. These also give the
//!   two victim policies: least recently used, or fewest valid pages (Ma, Feng, Li: LazyFTL, SIGMOD
//!   2011).
//! - Over-provisioning limits the number of log blocks; `log.blocks` sets another number.
//! - MLC support, trims, mount by scan, wear levelling, refresh and scrub are additions.
//!
//! Invariants and power failure: [`crate::families::hybrid`].

#[cfg(test)]
mod tests;

use crate::config::{FtlConfig, ParamDoc};
use crate::error::FtlError;
use crate::families::hybrid::{
    self, HybridFtl, LogBlock, LogReclaim, LogStream, Policy, Route, View, Write,
};
use crate::ftl::{Ftl, Start};
use crate::ram::{hash_bytes, hash_most};
use crate::schemes::scheme::{MlcUse, Scheme};
use nand_model::{Chip, Pbn};
use rustc_hash::FxHashMap;

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: Bast::NAME,
    title: "BAST: a log block per logical block that is overwritten",
    about: "A page is first written to its offset in the data block of its logical block; overwrites go to a log block that belongs \
            to this logical block alone. A log block is merged when it is full or another one is needed: it becomes the data block \
            if it has all pages in order (switch), or after the missing ones are copied to it (partial); else all newest pages are \
            copied to another block (full). Random writes merge log blocks that are nearly empty.",
    paper: "Kim, Kim, Noh, Min, Cho: A Space-Efficient Flash Translation Layer for CompactFlash Systems, IEEE TCE 2002",
    mapping: "block; page in log blocks of one logical block each",
    ram: "4 B per logical block + (4 + 4 B per page) per log block",
    fidelity: 'B',
    mlc: MlcUse::Adapted,
    params: &[ParamDoc {
        key: "bast.victim",
        help: "lru (default): the least recently written log block; least_valid: the one with the fewest valid pages",
    }],
    shared_params: hybrid::PARAMS,
    ram_params: hybrid::RAM_PARAMS,
    overhead_blocks: hybrid::overhead_blocks,
    constructor: start,
};

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    let policy = Bast {
        by_use: config.params.choice("bast.victim", "lru", "least_valid")?,
        used: FxHashMap::default(),
        writes: 0,
    };
    Ok(Box::new(HybridFtl::create(chip, config, start, policy)?))
}

/// BAST's policy.
struct Bast {
    by_use: bool,
    /// By log stream with a log block: its last write, in log pages.
    used: FxHashMap<LogStream, u64>,
    writes: u64,
}

impl Policy for Bast {
    const NAME: &'static str = "bast";

    fn group(&self) -> Option<u32> {
        Some(1)
    }

    fn route(&mut self, write: &Write, _: &View) -> Route {
        self.writes += 1;
        let stream = write.lbn.raw();
        self.used.insert(stream, self.writes);
        Route::Log(stream)
    }

    fn select_reclaim(&mut self, stream: LogStream, view: &View) -> Option<LogReclaim> {
        let own = view.logs.of_stream(stream).first().copied();
        own.or_else(|| {
            if view.logs.len() >= view.limit {
                self.victim(view)
            } else {
                None
            }
        })
        .map(LogReclaim::Merge)
    }

    fn victim(&mut self, view: &View) -> Option<Pbn> {
        let logs = view.logs;
        self.used
            .retain(|stream, _| !logs.of_stream(*stream).is_empty());
        let cost = |log: &&LogBlock| match (log.stream, self.by_use) {
            // Log blocks found by a mount.
            (None, _) => 0,
            (Some(stream), true) => self.used.get(&stream).copied().unwrap_or(0),
            (Some(_), false) => 1 + u64::from(log.valid),
        };
        logs.iter().min_by_key(cost).map(|log| log.block)
    }

    fn may_become_data(&self, _: &LogBlock) -> bool {
        true
    }

    fn paper_bytes(&self, logical_blocks: u64, log_blocks: u64, pages_per_block: u64) -> u64 {
        4 * logical_blocks + log_blocks * (4 + 4 * pages_per_block)
    }

    fn bytes(&self) -> u64 {
        hash_bytes::<LogStream, u64>(self.used.capacity())
    }

    fn bytes_most(&self, streams: u64, _: u64) -> u64 {
        hash_most::<LogStream, u64>(streams)
    }
}
