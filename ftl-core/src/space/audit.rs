//! The check of pool, released blocks and open blocks against the states in the block table.

use super::state::Space;
use crate::block_table::State;
use crate::format::Role;
use nand_model::Pbn;

impl Space {
    /// Compares the lists of blocks with their states; returns one line per difference. A block
    /// that is on no list is lost until the next mount.
    pub(crate) fn audit(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut compare = |state: State, mut listed: Vec<Pbn>| {
            listed.sort_unstable();
            let is_so = |block: &Pbn| self.table.state(*block) == state;
            let blocks: Vec<Pbn> = self.geometry().all_blocks().filter(is_so).collect();
            if blocks != listed {
                wrong.push(format!(
                    "blocks in state {state:?} are {blocks:?}, but {listed:?} are listed"
                ));
            }
        };
        let of_slc = self.slc.iter().flat_map(|slc| slc.pool.blocks());
        compare(State::Free, self.pool.blocks().chain(of_slc).collect());
        let released = self.released.iter().map(|released| released.block);
        compare(State::Released, released.collect());
        let open = self.streams.iter().filter_map(|stream| stream.open);
        compare(State::Open, open.map(|open| open.block).collect());
        for block in self.geometry().all_blocks() {
            let is_victim = self.table.is_collectable(block) || self.table.is_foldable(block);
            if is_victim && self.table.state(block) != State::Full {
                wrong.push(format!(
                    "block {block} of the victim index is in state {:?}",
                    self.table.state(block)
                ));
            }
        }
        wrong
    }

    /// Returns whether the block is full and neither in the victim index, nor among the failing
    /// blocks, nor of a checkpoint.
    pub(crate) fn is_forgotten(&self, block: Pbn) -> bool {
        self.table.state(block) == State::Full
            && self.table.role(block) != Role::Checkpoint
            && !self.table.is_collectable(block)
            && !self.table.is_foldable(block)
            && !self.failing.contains(&block)
    }
}
