//! `cat`, cost-age-times: as cost-benefit, but GC prefers blocks with fewer erases.
//!
//! Chiang, Lee, Chang: *Using data clustering to improve cleaning performance for flash memory*,
//! Software: Practice and Experience 29 (1999): the lowest `u / (1 - u) x 1 / age x erases` goes
//! first. Erases are counted from one, so that blocks that were never erased are ordered, too.

use super::{Candidates, VictimPolicy};
use nand_model::Pbn;

pub(super) struct Cat;

impl VictimPolicy for Cat {
    fn choose(&mut self, candidates: &Candidates) -> Option<Pbn> {
        candidates.best(|c| {
            let cost = c.utilisation / (1.0 - c.utilisation);
            -cost / c.age * (c.erases as f64 + 1.0)
        })
    }
}
