//! A-SAST: log blocks for groups of adjacent logical blocks; group sizes follow the load.
//!
//! Koo, Shin: *Adaptive Log Block Mapping Scheme for Log Buffer-based FTL*, IWSSPS 2009 (as cited
//! by Ma, Feng, Li: LazyFTL, SIGMOD 2011); based on SAST: Park, Cheon, Kang, Reh, Cho, Kim: *A
//! Reconfigurable FTL Architecture for NAND Flash-Based Applications*, ACM TECS 7(4), 2008. BAST
//! gives every logical block log blocks of its own, which are merged half empty. In FAST all
//! logical blocks share them, and each merge involves many logical blocks. In SAST, N adjacent
//! logical blocks share up to K log blocks. A-SAST starts with groups of one logical block, without
//! K, and grows and shrinks them. [`crate::families::hybrid`] implements the rest, with a log
//! stream per group: the stream of the group's first logical block. This module contains the groups
//! and the choice of the log block to merge.
//!
//! RAM: 4 bytes per logical block, a byte for its group, and per log block 4 bytes for its group
//! and 4 per page. The report lists the allocated RAM alongside.
//!
//! Deviations, and choices where the papers are silent: **A-SAST is reconstructed.**
//! - The originals were not available; this follows descriptions in later papers. The rules when
//!   groups merge and split, and how far, are this implementation's:
//! - A group that needs a log block merges with its neighbour of the same size, up to 16 logical
//!   blocks, if all log blocks are in use, and those of both are less than half full on average. A
//!   group with two or more log blocks is halved when the log block to be merged has pages of more
//!   than 4 logical blocks. Two such changes are at least as many reclamations apart as there may
//!   be log blocks.
//! - `asast.adapt = off` is SAST, with `asast.group` logical blocks (N = 4) and `asast.logs` log
//!   blocks (K = 4) per group.
//! - The victim is the log block with the fewest valid pages of the group, if the group has K. Else
//!   it is that of the group not written for longest, or with `asast.victim = least_valid` (Ma,
//!   Feng, Li: LazyFTL, SIGMOD 2011) that of all groups.
//! - Over-provisioning limits the number of log blocks; `log.blocks` sets another number.
//! - MLC support, trims, mount by scan, wear levelling, refresh and scrub are additions. A mount
//!   does not restore groups: it starts with the initial ones.
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
use crate::int::{index, to_u32, to_u64};
use crate::ram::{hash_bytes, hash_most, vec_bytes};
use crate::schemes::scheme::{MlcUse, Scheme};
use nand_model::{Chip, Pbn};
use rustc_hash::FxHashMap;

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: Asast::NAME,
    title: "A-SAST: log blocks shared by groups of logical blocks, which grow and shrink",
    about: "Groups of adjacent logical blocks share log blocks; in BAST a group is one logical block, in FAST it is all. A group \
            grows if its log blocks would be merged half empty, and shrinks if a log block has pages of too many logical blocks.",
    paper: "Koo, Shin: Adaptive Log Block Mapping, IWSSPS 2009; Park et al.: SAST, ACM TECS 2008",
    mapping: "block; page in log blocks of a group of logical blocks",
    ram: "5 B per logical block + (4 + 4 B per page) per log block",
    fidelity: 'C',
    mlc: MlcUse::Adapted,
    params: &[
        ParamDoc {
            key: "asast.adapt",
            help: "on (default): groups grow and shrink; off: SAST",
        },
        ParamDoc {
            key: "asast.group",
            help: "initial number of logical blocks of a group: 1, 2, 4, 8 or 16 (default 1, SAST 4)",
        },
        ParamDoc {
            key: "asast.logs",
            help: "maximum number of log blocks of a group, 0 = no limit (default 0, SAST 4)",
        },
        ParamDoc {
            key: "asast.victim",
            help: "lru (default): a log block of the least recently written group; least_valid: the one with the fewest valid pages",
        },
    ],
    shared_params: hybrid::PARAMS,
    ram_params: hybrid::RAM_PARAMS,
    overhead_blocks: hybrid::overhead_blocks,
    constructor: start,
};

/// Maximum number of logical blocks in a group, as a power of two.
const LARGEST: u8 = 4;

/// Number of logical blocks in a victim above which its group is halved.
const MANY_OWNERS: usize = 4;

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    let params = &config.params;
    let adapts = params.choice("asast.adapt", "on", "off")?;
    let group: u32 = params.get("asast.group", if adapts { 1 } else { 4 })?;
    if !group.is_power_of_two() || group.ilog2() > u32::from(LARGEST) {
        return Err(FtlError::Config(format!(
            "parameter asast.group: {group} is none of 1, 2, 4, 8, 16"
        )));
    }
    let geometry = chip.geometry();
    let logical_blocks = config.logical_pages.div_ceil(geometry.pages_per_block);
    let policy = Asast {
        adapts,
        most_logs: params.get("asast.logs", if adapts { 0 } else { 4 })?,
        pages_per_block: geometry.pages_per_block,
        sizes: vec![group.ilog2() as u8; index(logical_blocks)],
        changed: 0,
        by_use: params.choice("asast.victim", "lru", "least_valid")?,
        used: FxHashMap::default(),
        writes: 0,
    };
    Ok(Box::new(HybridFtl::create(chip, config, start, policy)?))
}

/// A-SAST's policy.
struct Asast {
    adapts: bool,
    /// Maximum number of log blocks of a group, or 0.
    most_logs: usize,
    pages_per_block: u32,
    /// By logical block: size of its group, as a power of two. Groups begin at a multiple of their
    /// size.
    sizes: Vec<u8>,
    /// Number of log blocks reclaimed at the last change of a group.
    changed: u64,
    by_use: bool,
    /// By log stream with log blocks: its last write, in log pages.
    used: FxHashMap<LogStream, u64>,
    writes: u64,
}

impl Asast {
    /// Returns the log stream of a logical block's group: the group's first logical block.
    fn stream(&self, lbn: Lbn) -> LogStream {
        let size = self.sizes[lbn.index()];
        lbn.raw() >> size << size
    }

    fn may_change(&self, view: &View) -> bool {
        self.adapts && view.logs.reclaimed() >= self.changed + to_u64(view.limit)
    }

    fn resize(&mut self, first: u32, size: u8, view: &View) {
        assert!(
            size <= LARGEST && first.is_multiple_of(1 << size),
            "a group cannot have {} logical blocks from {first} on",
            1 << size
        );
        let end = (index(first) + (1 << size)).min(self.sizes.len());
        self.sizes[index(first)..end].fill(size);
        self.changed = view.logs.reclaimed();
    }

    /// Returns whether a group's log blocks are less than half full on average.
    fn underuses_log_blocks(&self, stream: LogStream, view: &View) -> bool {
        let blocks = view.logs.of_stream(stream);
        let written: u32 = blocks
            .iter()
            .filter_map(|block| view.logs.get(*block))
            .map(|log| log.written)
            .sum();
        2 * written < to_u32(blocks.len()) * self.pages_per_block
    }

    /// Merges two neighbouring groups, of which one needs a log block and both underuse their log
    /// blocks.
    fn merge_groups(&mut self, stream: LogStream, view: &View) {
        let size = self.sizes[index(stream)];
        let other = stream ^ 1 << size;
        let fits = size < LARGEST && self.sizes.get(index(other)) == Some(&size);
        let wants_first = view.logs.of_stream(stream).is_empty();
        if fits
            && (wants_first || self.underuses_log_blocks(stream, view))
            && self.underuses_log_blocks(other, view)
        {
            self.resize(stream.min(other), size + 1, view);
        }
    }

    /// Halves the group whose log block needs more than [`MANY_OWNERS`] merges.
    fn split_group(&mut self, victim: Pbn, view: &View) {
        let Some(log) = view
            .logs
            .get(victim)
            .filter(|log| log.associated.len() > MANY_OWNERS)
        else {
            return;
        };
        let Some(stream) = log
            .stream
            .filter(|stream| view.logs.of_stream(*stream).len() >= 2)
        else {
            return;
        };
        let size = self.sizes[index(stream)];
        // The block may be from a time when the group was larger.
        if self.stream(Lbn::new(stream)) == stream && size > 0 {
            self.resize(stream, size - 1, view);
            self.resize(stream + (1 << (size - 1)), size - 1, view);
        }
    }
}

impl Policy for Asast {
    const NAME: &'static str = "asast";

    fn group(&self) -> Option<u32> {
        Some(1)
    }

    fn route(&mut self, write: &Write, view: &View) -> Route {
        let mut stream = self.stream(write.lbn);
        if !view.takes(stream, write.offset)
            && view.logs.len() >= view.limit
            && self.may_change(view)
        {
            self.merge_groups(stream, view);
            stream = self.stream(write.lbn);
        }
        self.writes += 1;
        self.used.insert(stream, self.writes);
        Route::Log(stream)
    }

    fn select_reclaim(&mut self, stream: LogStream, view: &View) -> Option<LogReclaim> {
        let own = view.logs.of_stream(stream);
        if self.most_logs > 0 && own.len() >= self.most_logs {
            let logs = own.iter().filter_map(|block| view.logs.get(*block));
            return logs
                .min_by_key(|log| log.valid)
                .map(|log| LogReclaim::Merge(log.block));
        }
        if view.logs.len() < view.limit {
            return None;
        }
        let victim = self.victim(view)?;
        if self.may_change(view) {
            self.split_group(victim, view);
        }
        Some(LogReclaim::Merge(victim))
    }

    fn victim(&mut self, view: &View) -> Option<Pbn> {
        self.used
            .retain(|stream, _| !view.logs.of_stream(*stream).is_empty());
        let used = |stream: LogStream| self.used.get(&stream).copied().unwrap_or(0);
        // Log blocks found by a mount count as never used.
        let cost = |log: &&LogBlock| {
            (
                log.stream.filter(|_| self.by_use).map_or(0, used),
                log.valid,
            )
        };
        view.logs
            .iter()
            .filter(|log| !view.is_emptied(log.block))
            .min_by_key(cost)
            .map(|log| log.block)
    }

    fn may_become_data(&self, _: &LogBlock) -> bool {
        true
    }

    fn paper_bytes(&self, logical_blocks: u64, log_blocks: u64, pages_per_block: u64) -> u64 {
        5 * logical_blocks + log_blocks * (4 + 4 * pages_per_block)
    }

    fn bytes(&self) -> u64 {
        vec_bytes::<u8>(self.sizes.capacity()) + hash_bytes::<LogStream, u64>(self.used.capacity())
    }

    fn bytes_most(&self, streams: u64, _: u64) -> u64 {
        vec_bytes::<u8>(self.sizes.capacity()) + hash_most::<LogStream, u64>(streams)
    }
}
