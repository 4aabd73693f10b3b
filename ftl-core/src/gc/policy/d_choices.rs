//! `d_choices`: the emptiest of `gc.choices` blocks drawn at random.
//!
//! Van Houdt: *A mean field model for a class of garbage collection algorithms in flash-based solid
//! state drives*, SIGMETRICS 2013: about 10 choices come close to greedy, and need no index.

use super::rule::{Candidates, Policy};
use nand_model::{Pbn, SplitMix};

pub(super) struct DChoices {
    choices: u32,
    rng: SplitMix,
}

impl DChoices {
    pub(super) fn new(choices: u32) -> Self {
        let rng = SplitMix::new(choices as u64);
        DChoices { choices, rng }
    }
}

impl Policy for DChoices {
    fn choose_victim(&mut self, candidates: &Candidates) -> Option<Pbn> {
        let valid = |block: &Pbn| candidates.table.valid_count(*block);
        candidates
            .draw(&mut self.rng, self.choices)
            .min_by_key(valid)
    }
}
