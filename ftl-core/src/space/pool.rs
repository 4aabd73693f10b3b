//! Erased blocks, by die, plane and wear.

use crate::int::index;
use crate::ram::{tree_bytes, tree_most, vec_bytes};
use nand_model::{Geometry, Pbn};
use std::collections::BTreeSet;

/// Erased blocks by wear. A block whose erase is unconfirmed is erased again when taken.
#[derive(Debug)]
pub(super) struct FreePool {
    geometry: Geometry,
    /// By die, and by plane if planes operate together: the free blocks with their erase counts,
    /// fewest erases first.
    by_wear: Vec<BTreeSet<(u32, Pbn)>>,
    unconfirmed: BTreeSet<Pbn>,
    len: usize,
}

impl FreePool {
    pub(super) fn new(geometry: Geometry) -> Self {
        let by_wear = vec![BTreeSet::new(); index(geometry.places())];
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
        self.places(die)
            .map(|place| self.by_wear[place].len())
            .sum()
    }

    /// The lists of a die.
    fn places(&self, die: u32) -> impl Iterator<Item = usize> + use<> {
        let planes = self.geometry.joint_planes();
        (die * planes..(die + 1) * planes).map(index)
    }

    pub(super) fn put(&mut self, block: Pbn, erase_count: u32, confirmed: bool) {
        let place = index(self.geometry.place_of(block));
        let new = self.by_wear[place].insert((erase_count, block));
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

    /// Takes the least or the most worn block, of this die and plane if they have any, else of this
    /// die. Returns whether its last erase is known to have ended.
    pub(super) fn take(
        &mut self,
        worn: bool,
        (die, plane): (Option<u32>, Option<u32>),
    ) -> Option<(Pbn, bool)> {
        let planes = index(self.geometry.joint_planes());
        let plane = plane.map(index).filter(|plane| *plane < planes);
        let best_of = |place: usize| {
            let blocks = &self.by_wear[place];
            if worn { blocks.last() } else { blocks.first() }
        };
        let best_in = |from: usize, to: usize, plane: Option<usize>| {
            let places =
                (from..to).filter(|place| plane.is_none_or(|plane| place % planes == plane));
            let best = places.filter_map(best_of);
            if worn { best.max() } else { best.min() }
        };
        let all = self.by_wear.len();
        let of_die = |plane| {
            let from = index(die?) * planes;
            best_in(from, from + planes, plane)
        };
        let best = *of_die(plane)
            .or_else(|| of_die(None))
            .or_else(|| best_in(0, all, plane))
            .or_else(|| best_in(0, all, None))?;
        let place = index(self.geometry.place_of(best.1));
        let taken = self.by_wear[place].remove(&best);
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
            multi_plane: nand_model::MultiPlane::Off,
            blocks: 8,
            pages_per_block: 4,
            page_bytes: 512,
            oob_bytes: 64,
        });
        for (block, erases) in [(5, 3), (4, 3), (6, 2), (1, 2), (2, 3), (7, 3)] {
            pool.put(Pbn::new(block), erases, true);
        }
        let mut take = |worn, die| pool.take(worn, (die, None)).map(|(block, _)| block.raw());
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

    /// Two dies with two planes each: blocks 0 and 1 are on plane 0, 2 and 3 on plane 1, and so on.
    #[test]
    fn a_block_of_the_plane_is_taken_before_one_of_the_die_and_that_before_any_other() {
        let mut pool = FreePool::new(Geometry {
            channels: 2,
            ways: 1,
            planes: 2,
            multi_plane: nand_model::MultiPlane::SamePage,
            blocks: 16,
            pages_per_block: 4,
            page_bytes: 512,
            oob_bytes: 64,
        });
        for block in [0, 4, 1, 3, 7] {
            pool.put(Pbn::new(block), 0, true);
        }
        assert_eq!([pool.on_die(0), pool.on_die(1)], [2, 3]);
        let mut take = |die, plane| pool.take(false, (die, plane)).map(|(block, _)| block.raw());
        assert_eq!(take(Some(0), Some(0)), Some(0));
        assert_eq!(take(Some(0), Some(1)), Some(4), "of the die");
        assert_eq!(take(Some(0), Some(1)), Some(3), "of the plane");
        assert_eq!(take(None, Some(1)), Some(7));
        assert_eq!(take(None, Some(1)), Some(1), "any");
    }
}
