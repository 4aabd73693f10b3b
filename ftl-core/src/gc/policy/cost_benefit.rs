//! `cost_benefit`: the space that GC frees, times its expected duration, over the cost to read and
//! write the valid pages: `age (1 - u) / 2u`.
//!
//! Kawaguchi, Nishioka, Motoda: *A Flash-Memory Based File System*, USENIX 1995, after Rosenblum
//! and Ousterhout's log-structured file system (SOSP 1991). Age is the time since a page of the
//! block was last superseded, as in Kawaguchi's paper, counted in blocks opened.

use super::rule::{Candidates, Policy};
use nand_model::Pbn;

pub(super) struct CostBenefit;

impl Policy for CostBenefit {
    fn choose_victim(&mut self, candidates: &Candidates) -> Option<Pbn> {
        candidates.best(|c| c.age * (1.0 - c.utilisation) / (2.0 * c.utilisation))
    }
}
