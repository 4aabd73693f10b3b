//! `cat`, cost-age-times: as cost-benefit, but GC prefers blocks with fewer erases.
//!
//! Chiang, Lee, Chang: *Using data clustering to improve cleaning performance for flash memory*,
//! Software: Practice and Experience 29 (1999). The block with the lowest `u / (1 - u) x 1 / age x
//! e` goes first: `u` is the share of valid pages, `e` the number of erases. ROSE compares its own
//! rule with it (Chiao, Chang, IEEE TC 2011, section 2.3: `u e / (age (1 - u))`) and shares
//! [`score`].
//!
//! With the plain erase count every block of a new device has the value 0, whatever `u` and `age`
//! are, and the order of the search would decide. So `e` includes the erase that follows the
//! choice. For worn blocks the ratio of two values is nearly the published one.
//!
//! Deviation: of the blocks with equal valid counts only the one unchanged for longest is compared,
//! although another may have fewer erases.

use super::rule::{Candidates, Policy};
use nand_model::Pbn;

pub(super) struct Cat;

impl Policy for Cat {
    fn choose_victim(&mut self, candidates: &Candidates) -> Option<Pbn> {
        candidates.best(|c| score(c.utilisation, c.age, c.erases))
    }
}

/// Returns the priority of a block: the published value, negated, as the paper selects the minimum.
/// `age` is above 0.
pub(crate) fn score(utilisation: f64, age: f64, erases: u32) -> f64 {
    -utilisation / (1.0 - utilisation) / age * (f64::from(erases) + 1.0)
}
