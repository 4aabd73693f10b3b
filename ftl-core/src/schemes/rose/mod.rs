//! ROSE: log blocks reclaimed by merge cost, whole blocks written past them, and replaced data
//! blocks reused.
//!
//! Chiao, Chang: *ROSE: A Novel Flash Translation Layer for NAND Flash Memory Based on Hybrid
//! Address Translation*, IEEE Transactions on Computers 60(6), 2011. As in FAST, overwrites go to
//! log blocks that all logical blocks share; three things differ. *Entire-block writing* (EBW): a
//! request that covers a logical block goes to a new data block at once. *Merge-aware round robin*
//! (MARO): the victim is the log block with the highest score, its age minus the cost of its merges
//! (equation 5). The cost is the erases, and the pages to copy for every logical block in it. Pages
//! that are invalid in the data block (so a log block has them) count half: their copy empties a
//! page of a log block, too. *Free page reuse* (FPR) applies to a replaced data block that has more
//! free pages than some full log block has valid ones. These are copied to it, and it becomes a
//! log block; the other log block is erased instead of it.
//!
//! `rose` is the paper's ROSE on parts that take pages in any order. On others it is **ROSE-M**,
//! which the paper leaves to future work: the same decisions over data blocks that are appended to
//! ([`crate::families::hybrid`]). Each decision depends only on the numbers of free, valid and
//! invalid pages of a block, and on whether the data block has the page. So both program and erase
//! the same pages for the same requests; a test compares them.
//!
//! RAM: 4 bytes per logical block and per page of a log block. Each data block adds two counts of 2
//! bytes, and 2 bits per page. Each log block adds score, age stamp and valid count. The report
//! lists the allocated RAM alongside.
//!
//! Deviations, and choices where the paper is silent:
//! - Age is counted in log blocks reclaimed; the paper does not define the unit of cost. With
//!   microseconds (default) both matter: the paper's 16,384 log blocks get that old. With
//!   `maro.cost_unit = page_copy` cost has little weight.
//! - The victim is searched when it is needed, by the same formula, instead of an index of all
//!   scores. A search costs as much as the copies of a few pages. A log block made by FPR has its
//!   age from then.
//! - At most 64 data blocks reused by FPR are partly free at a time; a further one is erased. The
//!   paper has no limit. RAM has an open block for each.
//! - Cheap merges are taken where the paper assumes full ones: `rose.cheap_merge = off` for those.
//! - Over-provisioning determines the log area; `log.blocks` sets it (the paper: 2.5 % of the
//!   blocks).
//! - The paper swaps the data of the least and the most worn block as soon as their erase counts
//!   are more than T_hc = 10 apart. Ours moves the data of the least worn block into the most worn
//!   free one, which is half a swap, and looks every (blocks / 16) erases (`wear.gap = 10` sets
//!   T_hc). So erase counts spread more than in Table 6, at less cost.
//! - Trims, mount by scan, refresh and scrub are additions.
//!
//! Invariants and power failure: [`crate::families::hybrid`]. A swapped block contains invalid data
//! pages besides log pages; versions distinguish them.

#[cfg(test)]
mod tests;

use crate::addr::Lbn;
use crate::config::{FtlConfig, ParamDoc, Params};
use crate::error::FtlError;
use crate::families::hybrid::{
    self, HybridFtl, LogBlock, LogReclaim, LogStream, Policy, Route, View, Write,
};
use crate::ftl::{Ftl, Start};
use crate::gc::policy::cat;
use crate::int::{real, to_u64};
use crate::schemes::scheme::{MlcUse, Scheme};
use nand_model::{Chip, Pbn, Timing};

/// Entry in the table of schemes.
pub(super) const SCHEME: Scheme = Scheme {
    name: Rose::NAME,
    title: "ROSE: log blocks merged by cost and age, whole-block writes, replaced data blocks reused",
    about: "Overwrites go to log blocks that all logical blocks share. Three things are new: a request that covers a whole logical \
            block is written to a new data block; the log block to merge is chosen by its age and the cost of its merge; and a \
            replaced data block with free pages receives the valid pages of a log block, and the log block is erased.",
    paper: "Chiao, Chang: ROSE, IEEE TC 2011",
    mapping: "block; page in log blocks of any logical blocks",
    ram: "(4 + 4 + P / 4) B per logical block + (4 B per page + 12 B) per log block",
    fidelity: 'A',
    mlc: MlcUse::Adapted,
    params: &[
        ParamDoc {
            key: "rose.ebw",
            help: "on (default): requests for whole logical blocks go to new data blocks; or off",
        },
        ParamDoc {
            key: "rose.victim",
            help: "maro (default): highest score; rr: oldest; cat: utilisation and erases by age; last: cheapest merge",
        },
        ParamDoc {
            key: "rose.fpr",
            help: "on (default): replaced data blocks become log blocks if that is cheaper; or off",
        },
        ParamDoc {
            key: "rose.cheap_merge",
            help: "on (default): switch and partial merges; or off",
        },
        ParamDoc {
            key: "maro.age_weight",
            help: "weight of a log block's age, 0 or more, or inf (default 1)",
        },
        ParamDoc {
            key: "maro.alpha",
            help: "weight of the invalid pages of the data block, 0 to 1 (default 0.5)",
        },
        ParamDoc {
            key: "maro.cost_unit",
            help: "unit of the merge cost that is compared with the age: us (default) or page_copy",
        },
    ],
    shared_params: hybrid::PARAMS,
    ram_params: hybrid::RAM_PARAMS,
    overhead_blocks: hybrid::overhead_blocks,
    constructor: start,
};

/// The log stream.
const LOG: LogStream = 0;

/// Maximum number of data blocks reused by FPR that have free pages. They are filled one after
/// another, so more of them hardly ever exist.
const SWAPPED: u32 = 64;

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    let policy = Rose::new(
        &config.params,
        &chip.profile().timing,
        chip.geometry().pages_per_block,
    )?;
    Ok(Box::new(HybridFtl::create(chip, config, start, policy)?))
}

/// Victim policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Maro,
    RoundRobin,
    CostAgeTime,
    Cheapest,
}

/// ROSE's policy.
struct Rose {
    whole_blocks: bool,
    reuses: bool,
    cheap_merges: bool,
    victim: Victim,
    age_weight: f64,
    alpha: f64,
    copy_cost: f64,
    erase_cost: f64,
    pages_per_block: u32,
}

impl Rose {
    fn new(params: &Params, timing: &Timing, pages_per_block: u32) -> Result<Rose, FtlError> {
        let number = |key: &str, default: f64, range: std::ops::RangeInclusive<f64>| {
            let value = params.get(key, default)?;
            let (least, most) = (range.start(), range.end());
            let wrong = || {
                FtlError::Config(format!(
                    "parameter {key}: {value} is not within {least} to {most}"
                ))
            };
            if range.contains(&value) {
                Ok(value)
            } else {
                Err(wrong())
            }
        };
        let victim = match params.get("rose.victim", "maro".to_string())?.as_str() {
            "maro" => Victim::Maro,
            "rr" => Victim::RoundRobin,
            "cat" => Victim::CostAgeTime,
            "last" => Victim::Cheapest,
            other => {
                return Err(FtlError::Config(format!(
                    "parameter rose.victim: {other} is none of maro, rr, cat, last"
                )));
            }
        };
        let copy = real(timing.read_ns[0] + timing.program_ns[0]);
        let unit = if params.choice("maro.cost_unit", "us", "page_copy")? {
            1000.0
        } else {
            copy
        };
        Ok(Rose {
            whole_blocks: params.choice("rose.ebw", "on", "off")?,
            reuses: params.choice("rose.fpr", "on", "off")?,
            cheap_merges: params.choice("rose.cheap_merge", "on", "off")?,
            victim,
            age_weight: number("maro.age_weight", 1.0, 0.0..=f64::INFINITY)?,
            alpha: number("maro.alpha", 0.5, 0.0..=1.0)?,
            copy_cost: copy / unit,
            erase_cost: real(timing.erase_ns) / unit,
            pages_per_block,
        })
    }

    /// Returns the cost of merging the log block: erases and copies. Copies of pages that are
    /// invalid in their data block have weight `alpha`.
    fn merge_cost(&self, log: &LogBlock, view: &View, alpha: f64) -> f64 {
        let copies = |lbn: Lbn| {
            f64::from(view.valid_in_data_block(lbn)) + alpha * f64::from(view.logs.pages_of(lbn))
        };
        let copied: f64 = log.associated.iter().map(|(lbn, _)| copies(*lbn)).sum();
        copied * self.copy_cost + real(to_u64(log.associated.len() + 1)) * self.erase_cost
    }

    /// Returns the merge priority of the log block. Every rule that examines blocks puts blocks
    /// without valid pages first: they cost an erase.
    fn score(&self, log: &LogBlock, view: &View) -> f64 {
        debug_assert!(
            log.valid <= log.written,
            "log block {} has more valid pages than written ones",
            log.block
        );
        let age = real(view.logs.reclaimed() - log.reclaimed_before);
        match self.victim {
            // Ignores even blocks without a page to merge.
            Victim::RoundRobin => 0.0,
            _ if log.valid == 0 => f64::INFINITY,
            Victim::Maro if self.age_weight.is_infinite() => age,
            Victim::Maro => age * self.age_weight - self.merge_cost(log, view, self.alpha),
            // LAST uses neither age nor weight.
            Victim::Cheapest => -self.merge_cost(log, view, 1.0),
            Victim::CostAgeTime => {
                let used = f64::from(log.valid) / f64::from(self.pages_per_block);
                cat::score(used, age + 1.0, view.erases(log.block))
            }
        }
    }
}

impl Policy for Rose {
    const NAME: &'static str = "rose";

    fn shared_streams(&self) -> u32 {
        1
    }

    fn whole_blocks(&self) -> bool {
        self.whole_blocks
    }

    fn route(&mut self, _: &Write, _: &View) -> Route {
        Route::Log(LOG)
    }

    fn select_reclaim(&mut self, _: LogStream, view: &View) -> Option<LogReclaim> {
        if view.logs.len() >= view.limit {
            self.victim(view).map(LogReclaim::Merge)
        } else {
            None
        }
    }

    fn victim(&mut self, view: &View) -> Option<Pbn> {
        let full = view.logs.iter().filter(|log| view.is_full(log.block));
        // Of equal scores the oldest block wins.
        let scored = full.map(|log| (self.score(log, view), log.block));
        scored
            .reduce(|best, next| if next.0 > best.0 { next } else { best })
            .map(|(_, block)| block)
    }

    fn may_become_data(&self, block: &LogBlock) -> bool {
        self.cheap_merges && !block.swapped
    }

    fn swap(&mut self, free: u32, view: &View) -> Option<Pbn> {
        if !self.reuses {
            return None;
        }
        let full = view
            .logs
            .iter()
            .filter(|log| log.stream == Some(LOG) && view.is_full(log.block));
        let emptiest = full.min_by_key(|log| log.valid)?;
        (emptiest.valid < free).then_some(emptiest.block)
    }

    fn swapped_blocks(&self) -> u32 {
        if self.reuses { SWAPPED } else { 0 }
    }

    fn paper_bytes(&self, logical_blocks: u64, log_blocks: u64, pages_per_block: u64) -> u64 {
        logical_blocks * (8 + pages_per_block / 4) + log_blocks * (4 * pages_per_block + 12)
    }
}
