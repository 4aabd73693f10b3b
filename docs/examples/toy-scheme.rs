//! A toy: one log that all logical blocks share, merged in the order in which it was filled.
//!
//! Invariants and power failure: [`crate::families::hybrid`].

use crate::config::FtlConfig;
use crate::error::FtlError;
use crate::families::hybrid::{
    self, HybridFtl, LogBlock, LogReclaim, LogStream, Policy, Route, View, Write,
};
use crate::ftl::{Ftl, Start};
use crate::schemes::{MlcUse, Scheme};
use nand_model::{Chip, Pbn};

/// The table's line.
pub(super) const SCHEME: Scheme = Scheme {
    name: Toy::NAME,
    title: "a toy: one log, merged in the order in which it was filled",
    about: "Writes go to log blocks that all logical blocks share; when there are too many, the oldest one is merged.",
    paper: "docs/SCHEMES.md",
    mapping: "block; page in log blocks of any logical blocks",
    ram: "4 B per logical block + 4 B per page of a log block",
    fidelity: 'A',
    mlc: MlcUse::Adapted,
    params: &[],
    shared_params: hybrid::PARAMS,
    ram_params: hybrid::RAM_PARAMS,
    overhead_blocks: hybrid::overhead_blocks,
    constructor: start,
};

/// The one log stream.
const LOG: LogStream = 0;

fn start(chip: Chip, config: &FtlConfig, start: Start) -> Result<Box<dyn Ftl>, FtlError> {
    Ok(Box::new(HybridFtl::create(chip, config, start, Toy)?))
}

struct Toy;

impl Policy for Toy {
    const NAME: &'static str = "toy";

    fn shared_streams(&self) -> u32 {
        1
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
        view.logs.iter().next().map(|log| log.block)
    }

    fn may_become_data(&self, _: &LogBlock) -> bool {
        true
    }

    fn paper_bytes(&self, logical_blocks: u64, log_blocks: u64, pages_per_block: u64) -> u64 {
        4 * logical_blocks + 4 * log_blocks * pages_per_block
    }
}
