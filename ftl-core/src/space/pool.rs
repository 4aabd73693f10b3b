//! Erased blocks, by die and wear.

use crate::int::index;
use crate::ram::{tree_bytes, tree_most, vec_bytes};
use nand_model::{Geometry, Pbn};
use std::collections::BTreeSet;

/// Erased blocks by wear. A block whose erase is unconfirmed is erased again when taken.
#[derive(Debug)]
pub(super) struct FreePool {
    geometry: Geometry,
    /// By die: its free blocks with their erase counts, fewest erases first.
    by_wear: Vec<BTreeSet<(u32, Pbn)>>,
    unconfirmed: BTreeSet<Pbn>,
    len: usize,
}

impl FreePool {
    pub(super) fn new(geometry: Geometry) -> Self {
        let by_wear = vec![BTreeSet::new(); index(geometry.dies())];
        FreePool {
            geometry,
            by_wear,
            unconfirmed: BTreeSet::new(),
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the allocated bytes.
    pub(super) fn bytes(&self) -> u64 {
        let by_wear = self.by_wear.iter().map(BTreeSet::len);
        vec_bytes::<BTreeSet<(u32, Pbn)>>(self.by_wear.capacity())
            + by_wear.map(tree_bytes::<(u32, Pbn), ()>).sum::<u64>()
            + tree_bytes::<Pbn, ()>(self.unconfirmed.len())
    }

    /// Returns the upper bound of the bytes: a new device has all blocks in the pool.
    pub(super) fn bytes_most(&self) -> u64 {
        let blocks = u64::from(self.geometry.blocks);
        vec_bytes::<BTreeSet<(u32, Pbn)>>(self.by_wear.capacity())
            + tree_most::<(u32, Pbn), ()>(blocks)
            + tree_most::<Pbn, ()>(blocks / 8)
    }

    /// Returns the number of blocks of one die.
    pub(super) fn on_die(&self, die: u32) -> usize {
        self.by_wear[index(die)].len()
    }

    pub(super) fn put(&mut self, block: Pbn, erase_count: u32, confirmed: bool) {
        let die = &mut self.by_wear[index(self.geometry.die_of(block))];
        let new = die.insert((erase_count, block));
        assert!(new, "block {block} is already in the pool");
        self.len += 1;
        if !confirmed {
            self.unconfirmed.insert(block);
        }
        debug_assert!(
            self.unconfirmed.len() <= self.len,
            "{} of {} free blocks have an unconfirmed erase",
            self.unconfirmed.len(),
            self.len
        );
    }

    /// Takes the least or the most worn block, of this die if it has any. Returns whether its last
    /// erase is known to have ended.
    pub(super) fn take(&mut self, worn: bool, die: Option<u32>) -> Option<(Pbn, bool)> {
        let best_of = |die: u32| {
            let blocks = &self.by_wear[index(die)];
            if worn { blocks.last() } else { blocks.first() }
        };
        let of_all = || {
            let best = (0..self.geometry.dies()).filter_map(best_of);
            if worn { best.max() } else { best.min() }
        };
        let best = *die.and_then(best_of).or_else(of_all)?;
        let taken = self.by_wear[index(self.geometry.die_of(best.1))].remove(&best);
        assert!(taken, "free block {} is not in the list of its die", best.1);
        self.len -= 1;
        debug_assert_eq!(
            self.by_wear.iter().map(BTreeSet::len).sum::<usize>(),
            self.len,
            "each free block is on one die"
        );
        Some((best.1, !self.unconfirmed.remove(&best.1)))
    }

    /// Returns all blocks.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Pbn> {
        self.by_wear.iter().flatten().map(|(_, block)| *block)
    }

    /// Returns the blocks whose last erase is known to have ended.
    pub(super) fn confirmed(&self) -> impl Iterator<Item = Pbn> {
        self.blocks()
            .filter(|block| !self.unconfirmed.contains(block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Blocks are striped over two dies, so even numbers are on die 0.
    #[test]
    fn the_least_worn_block_is_taken_and_of_equal_ones_the_lowest_number() {
        let mut pool = FreePool::new(Geometry {
            channels: 2,
            ways: 1,
            planes: 1,
            blocks: 8,
            pages_per_block: 4,
            page_bytes: 512,
            oob_bytes: 64,
        });
        for (block, erases) in [(5, 3), (4, 3), (6, 2), (1, 2), (2, 3), (7, 3)] {
            pool.put(Pbn::new(block), erases, true);
        }
        let mut take = |worn, die| pool.take(worn, die).map(|(block, _)| block.raw());
        assert_eq!(take(false, Some(0)), Some(6), "of this die");
        assert_eq!([take(false, None), take(false, None)], [Some(1), Some(2)]);
        assert_eq!(
            take(true, None),
            Some(7),
            "the most worn, the highest number"
        );
        assert_eq!(
            [take(false, None), take(false, Some(0))],
            [Some(4), Some(5)]
        );
        assert_eq!(take(false, None), None);
    }
}
