//! FAST: log blocks that all logical blocks share.
//!
//! Lee, Park, Chung, Lee, Park, Song: *A Log Buffer-Based Flash Translation Layer Using
//! Fully-Associative Sector Translation*, ACM Transactions on Embedded Computing Systems, volume
//! 6(3), 2007. Overwrites of all logical blocks go to the current random log block, so that log
//! blocks are full before they are merged. But the oldest one has pages of many logical blocks, and
//! its reclamation merges each of these. One log block is kept for sequential writes: the first
//! page of a logical block begins it, the next ones follow. It becomes the data block with few
//! copies or none. [`crate::families::hybrid`] implements all that, with two log streams. This
//! module contains the detection of sequential writes. It merges random log blocks in the order in
//! which they were filled.
//!
//! RAM: 4 bytes per logical block and 4 per page of a log block. The report lists the allocated RAM
//! alongside.
//!
//! Deviations, and choices where the paper is silent:
//! - The original was not available; this follows descriptions in later papers. They disagree on a
//!   page that breaks a sequential log block. Either the block is merged and the page goes to the
//!   random log blocks (`fast.sw_break = merge_then_rw`), or the block stays (`keep_sw_then_rw`).
//! - `fast.predict` selects the other detectors of sequential writes that ROSE's authors compare
//!   (Chiao, Chang, IEEE Transactions on Computers, 2011). These are: by request size, by both,
//!   none, and by requests that cover a whole logical block (EBW).
//! - Over-provisioning limits the number of log blocks; `log.blocks` sets another number.
//! - MLC support, trims, mount by scan, wear levelling, refresh and scrub are additions.
//!
//! Invariants and power failure: [`crate::families::hybrid`].

#[cfg(test)]
mod tests;

use crate::addr::Lbn;
use crate::config::{FtlConfig, ParamDoc};
use crate::error::FtlError;
use crate::families::hybrid::{
    self, HybridFtl, LogBlock, LogBlocks, LogReclaim, LogStream, Policy, Route, View, Write,
};
use crate::ftl::{Ftl, Start};
use crate::schemes::scheme::{MlcUse, Scheme};
use nand_model::{Chip, Pbn};

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: Fast::NAME,
    title: "FAST: log blocks that all logical blocks share, one of them for sequential writes",
    about: "All logical blocks share the log blocks, so a log block is full when it is merged. The oldest one is merged first; it \
            has pages of many logical blocks, and each of these is merged then. One log block takes sequential writes and \
            becomes a data block with few copies or none.",
    paper: "Lee, Park, Chung, Lee, Park, Song: FAST, ACM TECS 2007",
    mapping: "block; page in log blocks of any logical blocks",
    ram: "4 B per logical block + 4 B per page of a log block",
    fidelity: 'B',
    mlc: MlcUse::Adapted,
    params: &[
        ParamDoc {
            key: "fast.predict",
            help: "writes that go to the sequential log block: fp (default): first pages and their successors; lp: requests of 8 KiB \
                   and more; cp: both at once; np: nothing; ebw: nothing, whole blocks go to data blocks",
        },
        ParamDoc {
            key: "fast.sw_break",
            help: "handling of a page that is not the next one of the sequential log block: merge_then_rw (default) or keep_sw_then_rw",
        },
    ],
    shared_params: hybrid::PARAMS,
    ram_params: hybrid::RAM_PARAMS,
    overhead_blocks: hybrid::overhead_blocks,
    constructor: start,
};

/// Log stream for sequential writes, and for all others.
const SEQUENTIAL: LogStream = 0;
const RANDOM: LogStream = 1;

/// Minimum size of a sequential request, in bytes, if the detector uses the size.
const LARGE_REQUEST: u32 = 8192;

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    let policy = Fast {
        predict: Predict::from_name(&config.params.get("fast.predict", "fp".to_string())?)?,
        merges_broken: config
            .params
            .choice("fast.sw_break", "merge_then_rw", "keep_sw_then_rw")?,
        large: LARGE_REQUEST.div_ceil(chip.geometry().page_bytes),
        owner: None,
        next: 0,
    };
    Ok(Box::new(HybridFtl::create(chip, config, start, policy)?))
}

/// Detector of sequential writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Predict {
    ByPlace,
    BySize,
    ByBoth,
    Never,
    WholeBlocks,
}

impl Predict {
    fn from_name(name: &str) -> Result<Predict, FtlError> {
        Ok(match name {
            "fp" => Predict::ByPlace,
            "lp" => Predict::BySize,
            "cp" => Predict::ByBoth,
            "np" => Predict::Never,
            "ebw" => Predict::WholeBlocks,
            _ => {
                return Err(FtlError::Config(format!(
                    "parameter fast.predict: {name} is none of fp, lp, cp, np, ebw"
                )));
            }
        })
    }
}

/// FAST's policy.
struct Fast {
    predict: Predict,
    merges_broken: bool,
    /// Minimum size of a large request, in pages.
    large: u32,
    /// Logical block of the sequential log block.
    owner: Option<Lbn>,
    /// Page of it that continues the last one in the sequential log block.
    next: u32,
}

impl Fast {
    /// Returns whether the page follows in the sequential log block.
    fn follows(&self, write: &Write, logs: &LogBlocks) -> bool {
        logs.newest(SEQUENTIAL).is_some()
            && (self.owner, self.next) == (Some(write.lbn), write.offset)
    }
}

impl Policy for Fast {
    const NAME: &'static str = "fast";

    fn shared_streams(&self) -> u32 {
        2
    }

    fn whole_blocks(&self) -> bool {
        self.predict == Predict::WholeBlocks
    }

    fn route(&mut self, write: &Write, view: &View) -> Route {
        let logs = view.logs;
        let (large, follows) = (write.request >= self.large, self.follows(write, logs));
        let begins = match self.predict {
            Predict::ByPlace => write.offset == 0,
            Predict::BySize => large && !follows,
            Predict::ByBoth => large && write.offset == 0,
            Predict::Never | Predict::WholeBlocks => false,
        };
        let goes_on = follows && (self.predict == Predict::ByPlace || large);
        let is_used = logs.newest(SEQUENTIAL).is_some();
        if begins && is_used {
            return Route::MergeNewest(SEQUENTIAL);
        }
        if begins {
            self.owner = Some(write.lbn);
        }
        if begins || goes_on {
            self.next = write.offset + 1;
            return Route::Log(SEQUENTIAL);
        }
        if is_used && self.merges_broken && self.owner == Some(write.lbn) {
            return Route::MergeNewest(SEQUENTIAL);
        }
        Route::Log(RANDOM)
    }

    fn select_reclaim(&mut self, _: LogStream, view: &View) -> Option<LogReclaim> {
        if view.logs.len() >= view.limit {
            self.victim(view).map(LogReclaim::Merge)
        } else {
            None
        }
    }

    fn victim(&mut self, view: &View) -> Option<Pbn> {
        let random = view.logs.iter().find(|log| log.stream != Some(SEQUENTIAL));
        random
            .or_else(|| view.logs.newest(SEQUENTIAL))
            .map(|log| log.block)
    }

    fn may_become_data(&self, block: &LogBlock) -> bool {
        block.stream == Some(SEQUENTIAL)
    }

    fn paper_bytes(&self, logical_blocks: u64, log_blocks: u64, pages_per_block: u64) -> u64 {
        4 * logical_blocks + log_blocks * 4 * pages_per_block
    }
}
