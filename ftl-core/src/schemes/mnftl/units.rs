//! The block lists of the logical blocks (the paper's block mapping table): which physical blocks each has, and which logical block has
//! the most.
//!
//! A physical block has a *node* number in its list, which it keeps as long as it is there; slots of subtables name pages by it.

use nand_model::Pbn;
use std::cmp::Reverse;
use std::collections::BTreeSet;

const NONE: u32 = u32::MAX;

pub(super) struct Units {
    /// By logical block, then by node.
    nodes: Vec<Vec<u32>>,
    /// By logical block: blocks on the list, and the epoch of the newest.
    lengths: Vec<(u32, u64)>,
    /// By physical block: logical block and node.
    owners: Vec<(u32, u32)>,
    /// The lists of two blocks and more.
    long: BTreeSet<(u32, Reverse<u64>, u32)>,
    max_nodes: u32,
}

impl Units {
    pub(super) fn new(logical_blocks: u32, blocks: u32, max_nodes: u32) -> Self {
        Units {
            nodes: vec![Vec::new(); logical_blocks as usize],
            lengths: vec![(0, 0); logical_blocks as usize],
            owners: vec![(NONE, NONE); blocks as usize],
            long: BTreeSet::new(),
            max_nodes,
        }
    }

    /// The logical block that has this block on its list.
    pub(super) fn owner(&self, block: Pbn) -> Option<u32> {
        Some(self.owners[block.index()].0).filter(|lbn| *lbn != NONE)
    }

    /// The block's number on the list of `lbn`, if it is there.
    pub(super) fn node(&self, lbn: u32, block: Pbn) -> Option<u32> {
        let (owner, node) = self.owners[block.index()];
        (owner == lbn).then_some(node)
    }

    /// The block of this number.
    pub(super) fn block(&self, lbn: u32, node: u32) -> Option<Pbn> {
        let block = self.nodes[lbn as usize].get(node as usize).copied().filter(|block| *block != NONE);
        block.map(Pbn::new)
    }

    /// The blocks of a list.
    pub(super) fn blocks(&self, lbn: u32) -> impl Iterator<Item = Pbn> {
        self.nodes[lbn as usize].iter().filter(|block| **block != NONE).map(|block| Pbn::new(*block))
    }

    /// How many blocks a list has.
    pub(super) fn length(&self, lbn: u32) -> u32 {
        self.lengths[lbn as usize].0
    }

    /// Blocks on all lists.
    pub(super) fn total(&self) -> u64 {
        self.lengths.iter().map(|(length, _)| *length as u64).sum()
    }

    /// Whether the list has no number left for another block.
    pub(super) fn is_full(&self, lbn: u32) -> bool {
        self.length(lbn) >= self.max_nodes
    }

    /// Puts a block on the list, with the number `wanted` if that is free. Not if there are too many.
    pub(super) fn add(&mut self, lbn: u32, block: Pbn, epoch: u64, wanted: Option<u32>) {
        if self.owner(block).is_some() || self.is_full(lbn) {
            return;
        }
        let nodes = &mut self.nodes[lbn as usize];
        let is_free =
            |node: &u32| *node < self.max_nodes && nodes.get(*node as usize).is_none_or(|block| *block == NONE);
        let node = wanted.filter(is_free).unwrap_or_else(|| (0..).find(is_free).expect("the list is not full"));
        if nodes.len() <= node as usize {
            nodes.resize(node as usize + 1, NONE);
        }
        nodes[node as usize] = block.raw();
        self.owners[block.index()] = (lbn, node);
        let (length, newest) = self.lengths[lbn as usize];
        self.set_length(lbn, length + 1, newest.max(epoch));
    }

    /// Takes a block off its list.
    pub(super) fn remove(&mut self, block: Pbn) {
        let (lbn, node) = std::mem::replace(&mut self.owners[block.index()], (NONE, NONE));
        let nodes = &mut self.nodes[lbn as usize];
        nodes[node as usize] = NONE;
        let kept = nodes.iter().rposition(|block| *block != NONE).map_or(0, |last| last + 1);
        nodes.truncate(kept);
        let (length, newest) = self.lengths[lbn as usize];
        self.set_length(lbn, length - 1, newest);
    }

    fn set_length(&mut self, lbn: u32, length: u32, newest: u64) {
        let (old, old_newest) = std::mem::replace(&mut self.lengths[lbn as usize], (length, newest));
        if old >= 2 {
            self.long.remove(&(old, Reverse(old_newest), lbn));
        }
        if length >= 2 {
            self.long.insert((length, Reverse(newest), lbn));
        }
    }

    /// Logical blocks with two blocks or more, the longest list first; of equal ones that whose newest block is the oldest.
    pub(super) fn longest_first(&self) -> impl Iterator<Item = u32> {
        self.long.iter().rev().map(|(.., lbn)| *lbn)
    }

    /// Bytes really allocated.
    pub(super) fn bytes(&self) -> u64 {
        let lists = self.nodes.iter().map(|nodes| nodes.capacity() * 4 + size_of::<Vec<u32>>()).sum::<usize>();
        (lists + self.lengths.len() * 16 + self.owners.len() * 8 + self.long.len() * 24) as u64
    }

    /// Compares lists and owners; one line per difference.
    pub(super) fn audit(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for lbn in 0..self.nodes.len() as u32 {
            let (listed, counted) = (self.blocks(lbn).count() as u32, self.length(lbn));
            if listed != counted {
                wrong.push(format!("logical block {lbn} has {listed} blocks, {counted} counted"));
            }
            wrong.extend(self.blocks(lbn).filter(|block| self.owner(*block) != Some(lbn)).map(|block| {
                format!("block {block} is on the list of logical block {lbn} and belongs to {:?}", self.owner(block))
            }));
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_and_given_again_and_the_longest_list_is_known() {
        let mut units = Units::new(3, 20, 4);
        for (lbn, block, epoch) in [(0, 5, 1), (0, 6, 2), (1, 7, 3), (1, 8, 4), (0, 9, 5)] {
            units.add(lbn, Pbn::new(block), epoch, None);
        }
        assert_eq!(units.longest_first().collect::<Vec<_>>(), [0, 1]);
        units.remove(Pbn::new(6));
        assert_eq!(units.longest_first().collect::<Vec<_>>(), [1, 0], "of equal ones the older");
        assert_eq!((units.node(0, Pbn::new(9)), units.node(0, Pbn::new(6))), (Some(2), None));
        units.add(0, Pbn::new(10), 6, Some(2));
        assert_eq!(units.node(0, Pbn::new(10)), Some(1), "number 2 is taken");
        units.add(0, Pbn::new(11), 7, Some(3));
        units.add(0, Pbn::new(12), 8, None);
        assert_eq!((units.is_full(0), units.owner(Pbn::new(12)), units.total()), (true, None, 6));
        assert_eq!(units.audit(), Vec::<String>::new());
    }
}
