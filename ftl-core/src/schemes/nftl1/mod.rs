//! NFTL-1: a replacement block for each overwritten logical block, searched from its end.
//!
//! Ban, Hasharon: *Flash File System Optimized for Page-Mode Flash Technologies*, US patent
//! 5,937,425, 1999, the scheme for flash with OOB areas; Ma, Feng, Li (LazyFTL, SIGMOD 2011) call
//! it NFTL-1, and the one without OOB areas NFTL-N. The first write of a page goes to its offset in
//! the primary block. Later ones are appended to the replacement block, whose OOB areas identify
//! the pages. A read searches them from the newest to the oldest, and finds the page there or else
//! in the primary block. When a replacement block is full, or blocks are short, the two are folded
//! into one new block. [`crate::families::hybrid`] implements all that, with a log stream per
//! logical block. This module contains the choice of the pair to fold, and the cost of the search
//! in reads.
//!
//! RAM: 9 bytes per logical block (two block numbers and the next free page). The report lists the
//! allocated RAM alongside: the engine has the locations of log pages, for merges and recovery. A
//! host read still costs the reads of the search up to the page that it finds.
//!
//! Deviations, and choices where the paper is silent:
//! - The pair with the most pages in its replacement block is folded when blocks are short, as by
//!   Ma, Feng, Li.
//! - Over-provisioning limits the number of replacement blocks; `log.blocks` sets another number.
//! - A replacement block that has all pages in order becomes the primary block (`fold`, `switch`),
//!   as in later descriptions.
//! - MLC support, trims, mount by scan, wear levelling, refresh and scrub are additions.
//!
//! Invariants and power failure: [`crate::families::hybrid`].

#[cfg(test)]
mod tests;

use crate::config::FtlConfig;
use crate::error::FtlError;
use crate::families::hybrid::{
    self, HybridFtl, LogBlock, LogReclaim, LogStream, Policy, Route, View, Write,
};
use crate::ftl::{Ftl, Start};
use crate::schemes::scheme::{MlcUse, Scheme};
use nand_model::{Chip, Pbn};

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: Nftl1::NAME,
    title: "NFTL-1: a replacement block per logical block, searched through its spare bytes",
    about: "A page is first written to its offset in the primary block; later versions are appended to a replacement block. A read \
            searches that block from its end, by the spare bytes. When the replacement block is full, or free blocks are few, \
            both blocks are folded into a new one.",
    paper: "Ban, Hasharon: Flash File System Optimized for Page-Mode Flash Technologies, US patent 5,937,425, 1999",
    mapping: "block; page in a replacement block, found by its spare bytes",
    ram: "9 B per logical block",
    fidelity: 'A',
    mlc: MlcUse::Adapted,
    params: &[],
    shared_params: hybrid::PARAMS,
    ram_params: hybrid::RAM_PARAMS,
    overhead_blocks: hybrid::overhead_blocks,
    constructor: start,
};

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    Ok(Box::new(HybridFtl::create(chip, config, start, Nftl1)?))
}

/// NFTL-1's policy.
struct Nftl1;

impl Policy for Nftl1 {
    const NAME: &'static str = "nftl1";

    fn group(&self) -> Option<u32> {
        Some(1)
    }

    fn route(&mut self, write: &Write, _: &View) -> Route {
        Route::Log(write.lbn.raw())
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
        // Log blocks found by a mount go first.
        let used = |log: &&LogBlock| (log.stream.is_none(), log.written);
        view.logs.iter().rev().max_by_key(used).map(|log| log.block)
    }

    fn may_become_data(&self, _: &LogBlock) -> bool {
        true
    }

    fn reads_scan_logs(&self) -> bool {
        true
    }

    fn paper_bytes(&self, logical_blocks: u64, _: u64, _: u64) -> u64 {
        9 * logical_blocks
    }
}
