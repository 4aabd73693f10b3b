//! Full blocks by valid count: one doubly linked list per count, threaded through arrays. Every
//! change is O(1), and the emptiest block is found without a search (the usual bucket queue of
//! greedy GC).

use crate::ram::vec_bytes;
use nand_model::Pbn;

/// Neighbours on a circular list. A link alone on its list is its own neighbour.
#[derive(Clone, Copy, Debug)]
struct Link {
    prev: u32,
    next: u32,
}

/// Collectable blocks, in lists by valid count. Within a list, the block unchanged for longest
/// comes first.
#[derive(Clone, Debug)]
pub(super) struct VictimIndex {
    /// One link per block, then one per list: its end and its beginning, so that no change needs a
    /// case distinction.
    links: Vec<Link>,
    blocks: u32,
    /// All lists below this one are empty.
    lowest: u32,
    /// All blocks in order of insertion, if [`VictimIndex::keep_order`] was called: a ring, whose
    /// last link is its end and its beginning.
    order: Vec<Link>,
}

impl VictimIndex {
    pub(super) fn new(blocks: u32, pages_per_block: u32) -> Self {
        let links = (0..blocks + pages_per_block + 1)
            .map(|i| Link { prev: i, next: i })
            .collect();
        VictimIndex {
            links,
            blocks,
            lowest: pages_per_block + 1,
            order: Vec::new(),
        }
    }

    /// Keeps the order of insertion from now on. There are no blocks yet.
    pub(super) fn keep_order(&mut self) {
        debug_assert!(
            (0..self.blocks).all(|block| !self.contains(Pbn::new(block))),
            "the order of blocks is kept from the first on"
        );
        self.order = (0..=self.blocks)
            .map(|i| Link { prev: i, next: i })
            .collect();
    }

    #[inline]
    pub(super) fn contains(&self, block: Pbn) -> bool {
        self.links[block.index()].next != block.raw()
    }

    /// Appends the block to the list of this count.
    #[inline]
    pub(super) fn insert(&mut self, block: Pbn, valid: u32) {
        debug_assert!(!self.contains(block));
        self.append(block, valid);
        if !self.order.is_empty() {
            let end = self.blocks as usize;
            let last = self.order[end].prev;
            self.order[block.index()] = Link {
                prev: last,
                next: self.blocks,
            };
            self.order[last as usize].next = block.raw();
            self.order[end].prev = block.raw();
        }
    }

    /// Overwrites the block's link, whatever it was.
    #[inline(always)]
    fn append(&mut self, block: Pbn, valid: u32) {
        let end = self.blocks.wrapping_add(valid); // The index below is checked.
        debug_assert!(
            (end as usize) < self.links.len(),
            "no list for {valid} valid pages of block {block}"
        );
        let last = self.links[end as usize].prev;
        self.links[block.index()] = Link {
            prev: last,
            next: end,
        };
        self.links[last as usize].next = block.raw();
        self.links[end as usize].prev = block.raw();
        self.lowest = self.lowest.min(valid);
    }

    /// Removes the block from its list, if it is on one.
    #[inline]
    pub(super) fn remove(&mut self, block: Pbn) {
        let Link { prev, next } = self.links[block.index()];
        self.links[prev as usize].next = next;
        self.links[next as usize].prev = prev;
        let alone = Link {
            prev: block.raw(),
            next: block.raw(),
        };
        self.links[block.index()] = alone;
        if let Some(Link { prev, next }) = self.order.get(block.index()).copied() {
            self.order[prev as usize].next = next;
            self.order[next as usize].prev = prev;
            self.order[block.index()] = alone;
        }
    }

    /// Moves the block to the list of its new valid count. Inlined, because every overwrite of a
    /// page does it.
    #[inline(always)]
    pub(super) fn update(&mut self, block: Pbn, valid: u32) {
        let Link { prev, next } = self.links[block.index()];
        if next != block.raw() {
            self.links[prev as usize].next = next;
            self.links[next as usize].prev = prev;
            self.append(block, valid);
        }
    }

    /// Returns the block with the fewest valid pages; of several, the one whose count has not
    /// changed for longest. Greedy is optimal for uniform loads (Yang, Misra, Rubenstein 2015).
    pub(super) fn greedy(&mut self) -> Option<Pbn> {
        while let Some(list) = self.links.get((self.blocks + self.lowest) as usize) {
            if list.next < self.blocks {
                debug_assert!(
                    self.contains(Pbn::new(list.next)),
                    "block {} is first on a list, and on none",
                    list.next
                );
                return Some(Pbn::new(list.next));
            }
            self.lowest += 1;
        }
        None
    }

    /// Returns the first block of every list that has one, emptiest first.
    pub(super) fn heads(&self) -> impl Iterator<Item = Pbn> {
        let lists = self.links[self.blocks as usize..].iter();
        let first = lists.skip(self.lowest as usize).map(|list| list.next);
        first.filter(|next| *next < self.blocks).map(Pbn::new)
    }

    /// Returns all blocks in order of insertion, if that is kept.
    pub(super) fn in_order(&self) -> impl Iterator<Item = Pbn> {
        let end = self.blocks;
        let next = move |block: u32| self.order.get(block as usize).map(|link| link.next);
        let is_block = move |block: &u32| *block != end;
        std::iter::successors(next(end).filter(is_block), move |block| {
            next(*block).filter(is_block)
        })
        .map(Pbn::new)
    }

    /// Returns the allocated bytes.
    pub(super) fn bytes(&self) -> u64 {
        vec_bytes::<Link>(self.links.capacity() + self.order.capacity())
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
