//! FAST: log blocks that all logical blocks share.
//!
//! Lee, Park, Chung, Lee, Park, Song: *A Log Buffer-Based Flash Translation Layer Using
//! Fully-Associative Sector Translation*, ACM Transactions on Embedded Computing Systems 6(3),
//! 2007. Overwrites go to the current random log block, whichever logical block they are of, so
//!       that log blocks are full before they are merged; but the oldest one has pages of many
//!       logical blocks, and each of these is merged then. One log block is kept for sequential
//!       writes: the first page of a logical block begins it, the next ones follow, and it becomes
//!       the data block without or with few copies. All of that is [`crate::families::hybrid`] with
//!       two log streams; here is what counts as sequential, and that random log blocks are merged
//!       in the order in which they were filled.
//!
//! RAM: 4 bytes per logical block and 4 per page of a log block. Ours beside it in the report.
//!
//! Where we deviate, or the paper is silent:
//! - The original is not at hand; this follows how later papers describe it. They do not agree on
//!   what happens to a page that breaks a sequential log block: it is merged and the page goes to
//!   the random ones (`fast.sw_break = merge_then_rw`), or it stays (`keep_sw_then_rw`).
//! - `fast.predict` takes the other ways to tell sequential writes that ROSE's authors compare
//!   (Chen et al., IEEE Transactions on Computers, 2011): by the size of the request, by both, not
//!   at all, and by requests that cover a logical block as a whole (EBW).
//! - There may be as many log blocks as over-provisioning leaves; `log.blocks` sets another number.
//! - Multi-level cells, trims, recovery by all records, wear levelling, refreshing and patrol reads
//!   are ours.
//!
//! What always holds, and what happens if power fails: [`crate::families::hybrid`].

#[cfg(test)]
mod tests;

use crate::addr::Lbn;
use crate::config::{FtlConfig, ParamDoc};
use crate::error::FtlError;
use crate::families::hybrid::{
    self, Due, HybridFtl, LogBlock, LogStream, Logs, Policy, Route, View, Write,
};
use crate::ftl::{Ftl, Start};
use crate::schemes::{MlcUse, Scheme};
use nand_model::{Chip, Pbn, Store};

/// The table's line.
pub(super) const SCHEME: Scheme = Scheme {
    name: Fast::NAME,
    title: "FAST: log blocks that all logical blocks share, one of them for sequential writes",
    about: "Overwrites of all logical blocks go to the same log blocks, so these are full before they are merged; but the oldest \
            one has pages of many logical blocks, and each of these is merged then. One log block is kept for sequential writes \
            and becomes a data block with few copies or none.",
    paper: "Lee, Park, Chung, Lee, Park, Song: FAST, ACM TECS 2007",
    mapping: "block; page in log blocks of any logical blocks",
    ram: "4 B per logical block + 4 B per page of a log block",
    fidelity: 'B',
    mlc: MlcUse::Adapted,
    params: &[
        ParamDoc {
            key: "fast.predict",
            help: "what goes to the sequential log block: fp (default): first pages and their successors; lp: requests of 8 KiB \
                   and more; cp: both at once; np: nothing; ebw: nothing, whole blocks go to data blocks",
        },
        ParamDoc {
            key: "fast.sw_break",
            help: "a page that does not follow in the sequential log block: merge_then_rw (default) or keep_sw_then_rw",
        },
    ],
    shared_params: hybrid::PARAMS,
    overhead_blocks: hybrid::overhead_blocks,
    mem: start,
    file: start,
    oob_only: start,
};

/// The log stream for sequential writes, and that for all others.
const SEQUENTIAL: LogStream = 0;
const RANDOM: LogStream = 1;

/// Bytes from which on a request counts as sequential, where its size tells.
const LARGE_REQUEST: u32 = 8192;

fn start<S: Store>(
    chip: Chip<S>,
    config: &FtlConfig,
    start: Start,
) -> Result<Box<dyn Ftl<S>>, FtlError> {
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

/// How sequential writes are told.
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

/// What FAST decides.
struct Fast {
    predict: Predict,
    merges_broken: bool,
    /// Pages from which on a request is large.
    large: u32,
    /// Logical block of the sequential log block.
    owner: Option<Lbn>,
    /// Page of it that goes on where the last one that went there ended.
    next: u32,
}

impl Fast {
    /// Whether the page follows in the sequential log block.
    fn follows(&self, write: &Write, logs: &Logs) -> bool {
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
            return Route::Retire(SEQUENTIAL);
        }
        if begins {
            self.owner = Some(write.lbn);
        }
        if begins || goes_on {
            self.next = write.offset + 1;
            return Route::Log(SEQUENTIAL);
        }
        if is_used && self.merges_broken && self.owner == Some(write.lbn) {
            return Route::Retire(SEQUENTIAL);
        }
        Route::Log(RANDOM)
    }

    fn due(&mut self, _: LogStream, view: &View) -> Option<Due> {
        if view.logs.len() >= view.limit {
            self.victim(view).map(Due::Merge)
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
