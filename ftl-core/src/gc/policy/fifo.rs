//! `fifo`: the block that was closed first, whatever its valid count, as in a circular log.
//!
//! Menon, Stockmeyer: *An age-threshold algorithm for garbage collection in log-structured arrays
//! and file systems* (1998) is one of the papers that measured it. Every block has the same time to
//! empty. A fully valid block would free nothing and is skipped.

use super::rule::{Candidates, Policy};
use nand_model::Pbn;

/// Largest number of blocks that are checked, the oldest first.
const MAX_CANDIDATES: usize = 64;

pub(super) struct Fifo;

impl Policy for Fifo {
    fn choose_victim(&mut self, candidates: &Candidates) -> Option<Pbn> {
        let mut oldest = candidates.by_closing().take(MAX_CANDIDATES);
        oldest.find(|block| candidates.table.utilisation(*block) < 1.0)
    }

    fn wants_order(&self) -> bool {
        true
    }
}
