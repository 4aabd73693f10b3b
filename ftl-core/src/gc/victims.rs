//! Full blocks by valid count: one doubly linked list per count, threaded through arrays, so that every change is O(1) and the
//! emptiest block is found without a search (the bucket queue of every greedy collector).

use nand_model::Pbn;

const NONE: u32 = u32::MAX;

/// Blocks that may be collected, in lists by valid count; within a list the longest unchanged comes first.
#[derive(Clone, Debug)]
pub(crate) struct VictimIndex {
    head: Vec<u32>,
    tail: Vec<u32>,
    next: Vec<u32>,
    prev: Vec<u32>,
    /// The list a block is on, or `NONE`.
    list: Vec<u32>,
    /// No list below this one has a block.
    lowest: usize,
}

impl VictimIndex {
    pub(crate) fn new(blocks: u32, pages_per_block: u32) -> Self {
        let (blocks, lists) = (blocks as usize, pages_per_block as usize + 1);
        VictimIndex {
            head: vec![NONE; lists],
            tail: vec![NONE; lists],
            next: vec![NONE; blocks],
            prev: vec![NONE; blocks],
            list: vec![NONE; blocks],
            lowest: lists,
        }
    }

    #[inline]
    pub(crate) fn contains(&self, block: Pbn) -> bool {
        self.list[block.index()] != NONE
    }

    /// Puts the block on the list of this count, last.
    #[inline]
    pub(crate) fn insert(&mut self, block: Pbn, valid: u32) {
        let (b, list) = (block.index(), valid as usize);
        debug_assert!(!self.contains(block));
        self.list[b] = valid;
        self.next[b] = NONE;
        self.prev[b] = self.tail[list];
        match self.tail[list] {
            NONE => self.head[list] = block.raw(),
            last => self.next[last as usize] = block.raw(),
        }
        self.tail[list] = block.raw();
        self.lowest = self.lowest.min(list);
    }

    /// Takes the block off its list, if it is on one.
    #[inline]
    pub(crate) fn remove(&mut self, block: Pbn) {
        let b = block.index();
        let list = self.list[b];
        if list == NONE {
            return;
        }
        let (prev, next) = (self.prev[b], self.next[b]);
        match prev {
            NONE => self.head[list as usize] = next,
            p => self.next[p as usize] = next,
        }
        match next {
            NONE => self.tail[list as usize] = prev,
            n => self.prev[n as usize] = prev,
        }
        self.list[b] = NONE;
    }

    /// The block's valid count changed.
    #[inline]
    pub(crate) fn update(&mut self, block: Pbn, valid: u32) {
        if self.contains(block) {
            self.remove(block);
            self.insert(block, valid);
        }
    }

    /// The block with the fewest valid pages; of several, the one whose count has not changed for longest. Greedy is optimal
    /// for uniform loads (Yang, Misra, Rubenstein 2015).
    pub(crate) fn greedy(&mut self) -> Option<Pbn> {
        while self.lowest < self.head.len() {
            match self.head[self.lowest] {
                NONE => self.lowest += 1,
                block => return Some(Pbn::new(block)),
            }
        }
        None
    }

    /// Bytes really allocated.
    pub(crate) fn bytes(&self) -> u64 {
        4 * (self.head.len() + self.tail.len() + self.next.len() + self.prev.len() + self.list.len()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::SplitMix;

    #[test]
    fn greedy_agrees_with_a_full_search_under_random_changes() {
        let (blocks, pages) = (40, 16);
        let mut index = VictimIndex::new(blocks, pages);
        let mut counts: Vec<Option<u32>> = vec![None; blocks as usize];
        let mut rng = SplitMix::new(7);
        for _ in 0..20_000 {
            let block = Pbn::new(rng.below(blocks as u64) as u32);
            let count = rng.below(pages as u64 + 1) as u32;
            match counts[block.index()] {
                None => index.insert(block, count),
                Some(_) if rng.one_in(3) => index.remove(block),
                Some(_) => index.update(block, count),
            }
            counts[block.index()] = index.contains(block).then_some(count);
            let best = index.greedy().map(|b| counts[b.index()].unwrap());
            assert_eq!(best, counts.iter().flatten().min().copied());
        }
    }

    #[test]
    fn of_equal_blocks_the_oldest_comes_first() {
        let mut index = VictimIndex::new(4, 8);
        for block in [2, 0, 3] {
            index.insert(Pbn::new(block), 5);
        }
        assert_eq!(index.greedy(), Some(Pbn::new(2)));
        index.update(Pbn::new(2), 5);
        assert_eq!(index.greedy(), Some(Pbn::new(0)));
    }
}
