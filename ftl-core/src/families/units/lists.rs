//! The block lists of units: the physical blocks of each unit, and the unit with the longest list.
//!
//! A physical block keeps its *node* number as long as it is on the list. Table entries name pages
//! by node number.

use crate::int::{index, to_u32, to_u64};
use crate::ram::{tree_bytes, tree_most, vec_bytes};
use nand_model::Pbn;
use std::cmp::Reverse;
use std::collections::BTreeSet;

const NONE: u32 = u32::MAX;

pub(crate) struct Lists {
    /// By unit, then by node.
    nodes: Vec<Vec<u32>>,
    /// By unit: blocks on the list, and the epoch of the newest.
    lengths: Vec<(u32, u64)>,
    /// By physical block: unit and node.
    owners: Vec<(u32, u32)>,
    /// Lists of at least two blocks.
    long: BTreeSet<(u32, Reverse<u64>, u32)>,
    max_nodes: u32,
    max_length: u32,
}

impl Lists {
    /// Creates lists of at most `max_length` blocks; GC may extend one to `max_nodes` for a while.
    pub(crate) fn new(units: u32, blocks: u32, max_nodes: u32, max_length: u32) -> Self {
        Lists {
            nodes: vec![Vec::new(); index(units)],
            lengths: vec![(0, 0); index(units)],
            owners: vec![(NONE, NONE); index(blocks)],
            long: BTreeSet::new(),
            max_nodes,
            max_length,
        }
    }

    /// Returns the unit that has this block on its list.
    pub(crate) fn owner(&self, block: Pbn) -> Option<u32> {
        Some(self.owners[block.index()].0).filter(|unit| *unit != NONE)
    }

    /// Returns the block's node number, if it is on the list of `unit`.
    pub(crate) fn node(&self, unit: u32, block: Pbn) -> Option<u32> {
        let (owner, node) = self.owners[block.index()];
        (owner == unit).then_some(node)
    }

    /// Returns the block with this node number.
    pub(crate) fn block(&self, unit: u32, node: u32) -> Option<Pbn> {
        let block = self.nodes[index(unit)]
            .get(index(node))
            .copied()
            .filter(|block| *block != NONE);
        block.map(Pbn::new)
    }

    /// Returns the blocks of a list.
    pub(crate) fn blocks(&self, unit: u32) -> impl Iterator<Item = Pbn> {
        self.nodes[index(unit)]
            .iter()
            .filter(|block| **block != NONE)
            .map(|block| Pbn::new(*block))
    }

    /// Returns the number of blocks on a list.
    pub(crate) fn length(&self, unit: u32) -> u32 {
        self.lengths[index(unit)].0
    }

    /// Returns the number of blocks on all lists.
    pub(crate) fn total(&self) -> u64 {
        self.lengths
            .iter()
            .map(|(length, _)| u64::from(*length))
            .sum()
    }

    /// Returns whether the list has `max_length` blocks.
    pub(crate) fn is_full(&self, unit: u32) -> bool {
        self.length(unit) >= self.max_length
    }

    /// Returns whether a node number is free for another block.
    pub(crate) fn takes_another(&self, unit: u32) -> bool {
        self.length(unit) < self.max_nodes
    }

    /// Puts a block on the list, with node number `wanted` if that is free. Does nothing if the
    /// list has `max_nodes` blocks.
    pub(crate) fn add(&mut self, unit: u32, block: Pbn, epoch: u64, wanted: Option<u32>) {
        if self.owner(block).is_some() || !self.takes_another(unit) {
            return;
        }
        let nodes = &mut self.nodes[index(unit)];
        let is_free = |node: &u32| {
            *node < self.max_nodes && nodes.get(index(*node)).is_none_or(|block| *block == NONE)
        };
        let node = wanted
            .filter(is_free)
            .unwrap_or_else(|| (0..).find(is_free).expect("the list has a free node"));
        if nodes.len() <= index(node) {
            nodes.resize(index(node) + 1, NONE);
        }
        assert!(
            nodes[index(node)] == NONE && node < self.max_nodes,
            "node {node} of unit {unit} is not free"
        );
        nodes[index(node)] = block.raw();
        self.owners[block.index()] = (unit, node);
        let (length, newest) = self.lengths[index(unit)];
        self.set_length(unit, length + 1, newest.max(epoch));
    }

    /// Removes a block from its list.
    pub(crate) fn remove(&mut self, block: Pbn) {
        let (unit, node) = std::mem::replace(&mut self.owners[block.index()], (NONE, NONE));
        assert_ne!(unit, NONE, "block {block} is in no list");
        let nodes = &mut self.nodes[index(unit)];
        assert_eq!(
            nodes[index(node)],
            block.raw(),
            "node {node} of unit {unit} is not block {block}"
        );
        nodes[index(node)] = NONE;
        let kept = nodes
            .iter()
            .rposition(|block| *block != NONE)
            .map_or(0, |last| last + 1);
        nodes.truncate(kept);
        let (length, newest) = self.lengths[index(unit)];
        self.set_length(unit, length - 1, newest);
    }

    fn set_length(&mut self, unit: u32, length: u32, newest: u64) {
        let (old, old_newest) = std::mem::replace(&mut self.lengths[index(unit)], (length, newest));
        if old >= 2 {
            let listed = self.long.remove(&(old, Reverse(old_newest), unit));
            assert!(
                listed,
                "unit {unit}, with {old} blocks, is not in the order of lengths"
            );
        }
        if length >= 2 {
            let new = self.long.insert((length, Reverse(newest), unit));
            assert!(
                new,
                "unit {unit}, with {length} blocks, is already in the order of lengths"
            );
        }
    }

    /// Returns the units with at least two blocks, the longest list first. Of equal lists, the one
    /// whose newest block is oldest comes first.
    pub(crate) fn longest_first(&self) -> impl Iterator<Item = u32> {
        self.long.iter().rev().map(|(.., unit)| *unit)
    }

    /// Returns the bytes of the lists: now, and at most.
    pub(crate) fn ram(&self) -> (u64, u64) {
        type Order = (u32, Reverse<u64>, u32);
        let fixed = vec_bytes::<Vec<u32>>(self.nodes.capacity())
            + vec_bytes::<(u32, u64)>(self.lengths.capacity())
            + vec_bytes::<(u32, u32)>(self.owners.capacity());
        let lists = self.nodes.iter();
        let lists: u64 = lists.map(|nodes| vec_bytes::<u32>(nodes.capacity())).sum();
        let (units, blocks) = (to_u64(self.nodes.len()), to_u64(self.owners.len()));
        // A list is at least 4 nodes long, and grows to twice its length.
        let most = 16 * units + 8 * blocks + tree_most::<Order, ()>(units.min(blocks / 2));
        let now = lists + tree_bytes::<Order, ()>(self.long.len());
        (fixed + now, fixed + most)
    }

    /// Compares lists and owners; returns one line per difference.
    pub(crate) fn audit(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for unit in 0..to_u32(self.nodes.len()) {
            let (listed, counted) = (to_u32(self.blocks(unit).count()), self.length(unit));
            if listed != counted {
                wrong.push(format!(
                    "unit {unit} has {listed} blocks, but {counted} are counted"
                ));
            }
            wrong.extend(
                self.blocks(unit)
                    .filter(|block| self.owner(*block) != Some(unit))
                    .map(|block| {
                        format!(
                            "block {block} is in the list of unit {unit}, but its owner is {:?}",
                            self.owner(block)
                        )
                    }),
            );
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_and_given_again_and_the_longest_list_is_known() {
        let mut lists = Lists::new(3, 20, 4, 4);
        for (unit, block, epoch) in [(0, 5, 1), (0, 6, 2), (1, 7, 3), (1, 8, 4), (0, 9, 5)] {
            lists.add(unit, Pbn::new(block), epoch, None);
        }
        assert_eq!(lists.longest_first().collect::<Vec<_>>(), [0, 1]);
        lists.remove(Pbn::new(6));
        assert_eq!(
            lists.longest_first().collect::<Vec<_>>(),
            [1, 0],
            "of equal lengths, the older newest block comes first"
        );
        assert_eq!(
            (lists.node(0, Pbn::new(9)), lists.node(0, Pbn::new(6))),
            (Some(2), None)
        );
        lists.add(0, Pbn::new(10), 6, Some(2));
        assert_eq!(lists.node(0, Pbn::new(10)), Some(1), "node 2 is not free");
        lists.add(0, Pbn::new(11), 7, Some(3));
        lists.add(0, Pbn::new(12), 8, None);
        assert_eq!(
            (lists.is_full(0), lists.owner(Pbn::new(12)), lists.total()),
            (true, None, 6)
        );
        assert_eq!(lists.audit(), Vec::<String>::new());
    }
}
