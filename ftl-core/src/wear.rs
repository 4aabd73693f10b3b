//! Static wear levelling: data that never changes keeps its block young while the others age.

use crate::block_table::State;
use crate::config::{ParamDoc, Params};
use crate::error::FtlError;
use crate::format::Role;
use crate::int::{count_up, index};
use crate::space::Space;
use nand_model::Pbn;

/// Relocates cold data into worn blocks. It acts when the gap between the most and the least erased
/// block exceeds `max(floor, 5 % of the mean)`. The floor is at most a quarter of the rated cycles.
/// Then the least erased block in use is relocated into the most worn free one: half the cost of a
/// swap. A block that is filled so slowly that the others age meanwhile is in use, too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColdToWorn {
    /// Smallest gap that triggers.
    pub(crate) floor: u32,
}

/// Policy parameter, for the tables of schemes.
pub(crate) const WEAR_POLICY_PARAM: ParamDoc = ParamDoc {
    key: "wear.policy",
    help: "wear levelling: cold_to_worn (default), or none",
};
/// Gap parameter, for the tables of schemes.
pub(crate) const WEAR_GAP_PARAM: ParamDoc = ParamDoc {
    key: "wear.gap",
    help: "smallest difference of erase counts at which cold data is moved (default 6)",
};

impl ColdToWorn {
    /// Returns the policy that the parameters select, if any.
    pub(crate) fn from_params(params: &Params) -> Result<Option<Self>, FtlError> {
        let wanted = params.choice(WEAR_POLICY_PARAM.key, "cold_to_worn", "none")?;
        let floor = params.get(WEAR_GAP_PARAM.key, 6)?;
        Ok(wanted.then_some(ColdToWorn { floor }))
    }

    /// Returns the block to relocate, if any. Scans every block: call once per many erases.
    pub(crate) fn candidate(&self, space: &Space) -> Option<Pbn> {
        let (chip, table) = (space.flash.chip(), &space.table);
        let in_use = |block: Pbn, state: State| match state {
            State::Full => true,
            State::Open => table.role(block) != Role::Checkpoint,
            _ => false,
        };
        // Blocks in SLC mode have other cycles and take no other data: folding, oldest first, uses
        // them in turn.
        let of_region = index(chip.slc_blocks());
        let counts = || {
            let counts = chip.erase_counts().zip(table.states());
            counts.skip(of_region)
        };
        let (mut blocks, mut sum, mut min, mut max) = (0, 0, u32::MAX, 0);
        for (erases, state) in counts() {
            if state != State::Bad {
                (min, max) = (min.min(erases), max.max(erases));
                count_up(&mut blocks, 1);
                count_up(&mut sum, u64::from(erases));
            }
        }
        let mean = sum / blocks.max(1);
        // A part with few rated cycles needs a small gap.
        let floor = self.floor.min(chip.profile().endurance / 4);
        let gap = u64::max(u64::from(floor), mean / 20);
        // Mostly no block is cold enough, in use or not.
        if u64::from(max.saturating_sub(min)) <= gap {
            return None;
        }
        let mut coldest = (u32::MAX, u64::MAX, Pbn::new(u32::MAX));
        let blocks = space.geometry().all_blocks().skip(of_region);
        for (block, (erases, state)) in blocks.zip(counts()) {
            // For most blocks the erase count alone shows that there are colder ones.
            if erases <= coldest.0 && in_use(block, state) {
                coldest = coldest.min((erases, table.epoch(block), block));
            }
        }
        let (erases, _, block) = coldest;
        let chosen = (u64::from(max.saturating_sub(erases)) > gap).then_some(block);
        assert!(
            chosen.is_none_or(|block| in_use(block, table.state(block))),
            "block {block} is levelled and not in use"
        );
        chosen
    }
}
