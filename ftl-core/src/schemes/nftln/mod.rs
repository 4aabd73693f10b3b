//! NFTL-N: a list of blocks for each logical block, every page at its own offset.
//!
//! Ban, Hasharon: *Flash File System Optimized for Page-Mode Flash Technologies*, US patent
//! 5,937,425, 1999, the scheme for flash without OOB areas. A page goes into the first block of the
//! list whose page at its offset is free; if there is none, a block is added. The newest content is
//! in the last block whose page at that offset is programmed. When a list has its maximum length,
//! or free blocks are few, the longest list is folded. The pages missing in the last block are
//! copied into it from the previous ones, which are erased. [`crate::families::hybrid`] implements
//! all that, with as many log streams for each logical block as the list is long. This module
//! contains the choice of the block, and of the list to fold.
//!
//! RAM: 4 bytes per logical block and 8 per block in a list. The report lists the allocated RAM
//! alongside.
//!
//! Deviations, and choices where the paper is silent:
//! - RAM contains which offsets are free, so no read is needed. Pages have OOB areas, which a mount
//!   reads.
//! - Over-provisioning limits the number of blocks in lists; `log.blocks` sets another number.
//! - Of equally long lists, the one whose last block is oldest is folded. Mostly all lists have two
//!   blocks, so this rule decides. A rule by number would fold a list again as soon as it grows.
//! - If pages must be programmed in order, a list's blocks are appended to, so that the first one
//!   with room takes any page: an adaptation, and a cheaper scheme.
//! - Trims, mount by scan, wear levelling, refresh and scrub are additions.
//!
//! Invariants and power failure: [`crate::families::hybrid`].

#[cfg(test)]
mod tests;

use crate::addr::Lbn;
use crate::config::{FtlConfig, ParamDoc};
use crate::error::FtlError;
use crate::families::hybrid::{
    self, HybridFtl, LogBlock, LogReclaim, LogStream, Policy, Route, View, Write,
};
use crate::ftl::{Ftl, Start};
use crate::schemes::scheme::{MlcUse, Scheme};
use nand_model::{Chip, Pbn};

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: Nftln::NAME,
    title: "NFTL-N: a list of blocks per logical block, every page at its own offset",
    about: "Every logical block has a list of blocks, and a page goes to the first of them whose page at its offset is free. When \
            a list has its maximum length, or free blocks are few, it is folded: the pages missing in the last block are copied \
            into it, and the others are erased.",
    paper: "Ban, Hasharon: Flash File System Optimized for Page-Mode Flash Technologies, US patent 5,937,425, 1999",
    mapping: "block; a list of blocks per logical block",
    ram: "4 B per logical block + 8 B per block in a list",
    fidelity: 'A',
    mlc: MlcUse::Adapted,
    params: &[ParamDoc {
        key: "nftln.max_length",
        help: "maximum number of blocks of a list, 2 to 64 (default 16)",
    }],
    shared_params: hybrid::PARAMS,
    ram_params: hybrid::RAM_PARAMS,
    overhead_blocks: hybrid::overhead_blocks,
    constructor: start,
};

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    let max_length = config.params.within("nftln.max_length", 16, 2..=64)?;
    let policy = Nftln {
        added: max_length - 1,
        folded: None,
    };
    Ok(Box::new(HybridFtl::create(chip, config, start, policy)?))
}

/// NFTL-N's policy.
struct Nftln {
    /// Maximum number of blocks of a list, besides its first.
    added: u32,
    /// The logical block whose list was folded last; its remaining blocks are erased first.
    folded: Option<Lbn>,
}

impl Nftln {
    /// Returns the log streams of a logical block, in the order of its list.
    fn streams(&self, lbn: Lbn) -> std::ops::Range<LogStream> {
        lbn.raw() * self.added..(lbn.raw() + 1) * self.added
    }

    /// Returns a remaining block of the list that was folded last.
    fn leftover(&mut self, view: &View) -> Option<(LogStream, Pbn)> {
        let streams = self.streams(self.folded?);
        let left = streams
            .into_iter()
            .find_map(|stream| Some((stream, view.logs.newest(stream)?.block)));
        if left.is_none() {
            self.folded = None;
        }
        left
    }
}

impl Policy for Nftln {
    const NAME: &'static str = "nftln";

    fn group(&self) -> Option<u32> {
        Some(1)
    }

    fn streams_per_group(&self) -> u32 {
        self.added
    }

    fn logs_in_place(&self) -> bool {
        true
    }

    fn route(&mut self, write: &Write, view: &View) -> Route {
        if let Some((stream, _)) = self.leftover(view) {
            return Route::MergeNewest(stream);
        }
        let usable = |stream: &LogStream| {
            view.logs.newest(*stream).is_none() || view.takes(*stream, write.offset)
        };
        if let Some(stream) = self.streams(write.lbn).find(usable) {
            return Route::Log(stream);
        }
        self.folded = Some(write.lbn);
        Route::MergeNewest(self.streams(write.lbn).end - 1)
    }

    fn select_reclaim(&mut self, _: LogStream, view: &View) -> Option<LogReclaim> {
        if view.logs.len() >= view.limit {
            self.victim(view).map(LogReclaim::Merge)
        } else {
            None
        }
    }

    fn victim(&mut self, view: &View) -> Option<Pbn> {
        if let Some((_, block)) = self.leftover(view) {
            return Some(block);
        }
        if let Some(found) = view.logs.iter().find(|log| log.stream.is_none()) {
            // Log blocks found by a mount.
            return Some(found.block);
        }
        let place = |log: &&LogBlock| log.stream.map(|stream| stream % self.added);
        // The newest block comes first here, and of equal places the last one is taken.
        let last = view.logs.iter().rev().max_by_key(place)?;
        self.folded = Some(Lbn::new(last.stream? / self.added));
        Some(last.block)
    }

    fn may_become_data(&self, _: &LogBlock) -> bool {
        true
    }

    fn paper_bytes(&self, logical_blocks: u64, log_blocks: u64, _: u64) -> u64 {
        4 * logical_blocks + 8 * (logical_blocks + log_blocks)
    }
}
