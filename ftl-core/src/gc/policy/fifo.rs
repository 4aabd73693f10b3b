//! `fifo`: the block that was closed first, whatever is valid in it, as a circular log is cleaned.
//!
//! Menon, Stockmeyer: *An age-threshold algorithm for garbage collection in log-structured arrays
//! and file systems* (1998) is among those who measured it; every block then has the same time to
//! empty. A block of which every page is valid would give nothing: it is passed over.

use super::{Candidates, VictimPolicy};
use nand_model::Pbn;

/// Blocks at the old end that are looked at.
const LOOKED_AT: usize = 64;

pub(super) struct Fifo;

impl VictimPolicy for Fifo {
    fn choose(&mut self, candidates: &Candidates) -> Option<Pbn> {
        let mut oldest = candidates.by_closing().take(LOOKED_AT);
        oldest.find(|block| candidates.table.utilisation(*block) < 1.0)
    }

    fn wants_order(&self) -> bool {
        true
    }
}
