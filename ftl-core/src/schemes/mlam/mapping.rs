//! The three mapping tables (section 4.3). A row in L0 maps a logical superblock as a whole. An
//! entry in L1 maps a half that is stored elsewhere; a row in L2 maps its quarters. A split
//! superblock has a half in L0 only if that half maps nothing.

use super::shape::QUARTERS;
use crate::int::{index, to_u32, to_u64};
use crate::ram::{vec_bytes, vec_most};

const NONE: u32 = u32::MAX;

/// A quarter of a physical superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Location {
    pub(super) psb: u32,
    pub(super) loc: u32,
}

/// Per half: the table that contains its location (`tab`), and the physical superblock (L0) or the
/// row in that table.
#[derive(Clone, Copy, Debug)]
struct Row {
    tab: [u8; 2],
    psb: [u32; 2],
}

/// A table with reusable rows.
#[derive(Debug)]
struct Slab<T> {
    rows: Vec<T>,
    free: Vec<u32>,
}

impl<T: Copy> Slab<T> {
    fn put(&mut self, row: T) -> u32 {
        match self.free.pop() {
            Some(at) => {
                debug_assert!(!self.free.contains(&at), "row {at} is listed as free twice");
                self.rows[index(at)] = row;
                at
            }
            None => {
                self.rows.push(row);
                to_u32(self.rows.len()) - 1
            }
        }
    }

    fn bytes(&self) -> u64 {
        vec_bytes::<T>(self.rows.capacity()) + vec_bytes::<u32>(self.free.capacity())
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab {
            rows: Vec::new(),
            free: Vec::new(),
        }
    }
}

/// The three tables.
#[derive(Debug)]
pub(super) struct LevelMap {
    l0: Vec<Row>,
    /// Halves: physical superblock, and its half.
    l1: Slab<Location>,
    /// Pairs of quarters.
    l2: Slab<[Option<Location>; 2]>,
    /// Number of bits in a physical superblock's number.
    width: u64,
    s0: u64,
    s1: u64,
    s2: u64,
}

impl LevelMap {
    pub(super) fn new(logical: u32, physical: u32) -> Self {
        let unmapped = Row {
            tab: [0; 2],
            psb: [NONE; 2],
        };
        let width = u64::from(u32::BITS - physical.max(2).saturating_sub(1).leading_zeros());
        let l0 = vec![unmapped; index(logical)];
        LevelMap {
            l0,
            l1: Slab::default(),
            l2: Slab::default(),
            width,
            s0: 0,
            s1: 0,
            s2: 0,
        }
    }

    /// Returns the location that the tables have for a quarter. A superblock mapped as a whole may
    /// have quarters without data.
    pub(super) fn get(&self, quarter: u32) -> Option<Location> {
        let row = &self.l0[index(quarter / QUARTERS)];
        let (half, inside) = (index(quarter / 2 % 2), quarter % 2);
        match (row.tab[half], row.psb[half]) {
            (_, NONE) => None,
            (0, psb) => Some(Location {
                psb,
                loc: quarter % QUARTERS,
            }),
            (1, at) => {
                let Location { psb, loc } = self.l1.rows[index(at)];
                Some(Location {
                    psb,
                    loc: 2 * loc + inside,
                })
            }
            (_, at) => self.l2.rows[index(at)][index(inside)],
        }
    }

    /// Sets the locations of a logical superblock's quarters.
    pub(super) fn set(&mut self, logical: u32, locations: [Option<Location>; 4]) {
        debug_assert!(
            locations
                .iter()
                .flatten()
                .all(|location| location.loc < QUARTERS),
            "a quarter of superblock {logical} has an invalid location: {locations:?}"
        );
        self.clear(logical);
        let Some(first) = locations.iter().flatten().next() else {
            return;
        };
        self.s0 += 1;
        let at_home = |(loc, location): (u32, &Option<Location>)| {
            location.is_none_or(|at| {
                at == Location {
                    psb: first.psb,
                    loc,
                }
            })
        };
        if (0..).zip(&locations).all(at_home) {
            self.l0[index(logical)] = Row {
                tab: [0; 2],
                psb: [first.psb; 2],
            };
            return;
        }
        let mut row = Row {
            tab: [0; 2],
            psb: [NONE; 2],
        };
        for half in 0..2 {
            (row.tab[half], row.psb[half]) = match [locations[2 * half], locations[2 * half + 1]] {
                [None, None] => (0, NONE),
                [Some(a), Some(b)] if a.psb == b.psb && a.loc % 2 == 0 && b.loc == a.loc + 1 => {
                    self.s1 += 1;
                    (
                        1,
                        self.l1.put(Location {
                            psb: a.psb,
                            loc: a.loc / 2,
                        }),
                    )
                }
                quarters => {
                    self.s2 += to_u64(quarters.iter().flatten().count());
                    (2, self.l2.put(quarters))
                }
            };
        }
        self.l0[index(logical)] = row;
        debug_assert!(
            (logical * QUARTERS..)
                .zip(&locations)
                .all(|(quarter, location)| self.get(quarter) == *location),
            "the tables do not map the quarters of superblock {logical} to {locations:?}"
        );
    }

    fn clear(&mut self, logical: u32) {
        let row = std::mem::replace(
            &mut self.l0[index(logical)],
            Row {
                tab: [0; 2],
                psb: [NONE; 2],
            },
        );
        self.s0 -= u64::from(row.psb.iter().any(|psb| *psb != NONE));
        for (tab, at) in row.tab.into_iter().zip(row.psb) {
            match tab {
                1 => {
                    self.s1 -= 1;
                    self.l1.free.push(at);
                }
                2 => {
                    self.s2 -= to_u64(self.l2.rows[index(at)].iter().flatten().count());
                    self.l2.free.push(at);
                }
                _ => {}
            }
        }
    }

    /// Returns the bits saved by mapping this superblock as a whole (Table 1).
    pub(super) fn gain(&self, logical: u32) -> u64 {
        let row = &self.l0[index(logical)];
        let of_half = |(tab, at): (&u8, &u32)| match tab {
            1 => self.width + 1,
            2 => to_u64(self.l2.rows[index(*at)].iter().flatten().count()) * (self.width + 2),
            _ => 0,
        };
        row.tab.iter().zip(&row.psb).map(of_half).sum()
    }

    /// Returns the bits of L0 for the superblocks that hold data (equation 9).
    pub(super) fn base_bits(&self) -> u64 {
        self.s0 * (self.width + 4)
    }

    /// Returns the bits of all tables (equation 12).
    pub(super) fn bits(&self) -> u64 {
        self.base_bits() + self.s1 * (self.width + 1) + self.s2 * (self.width + 2)
    }

    /// Returns the numbers of superblocks that hold data, of halves in L1, and of quarters in L2.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (u64, u64, u64) {
        (self.s0, self.s1, self.s2)
    }

    /// Returns the bytes of the tables: now, and at most. A superblock has two halves, and a half
    /// has one row.
    pub(super) fn ram(&self) -> (u64, u64) {
        let fixed = vec_bytes::<Row>(self.l0.capacity());
        let halves = 2 * to_u64(self.l0.len());
        let most = vec_most::<Location>(halves)
            + vec_most::<[Option<Location>; 2]>(halves)
            + 2 * vec_most::<u32>(halves);
        (fixed + self.l1.bytes() + self.l2.bytes(), fixed + most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::SplitMix;

    fn at(psb: u32, loc: u32) -> Option<Location> {
        Some(Location { psb, loc })
    }

    /// Figure 7: a superblock with two quarters elsewhere and a half at its own location.
    #[test]
    fn the_papers_example_and_its_sizes() {
        let mut mapping = LevelMap::new(8, 64);
        mapping.set(0, [at(10, 0), at(10, 1), at(10, 2), at(10, 3)]);
        assert_eq!((mapping.counts(), mapping.bits()), ((1, 0, 0), 10));
        mapping.set(0, [at(10, 0), at(56, 1), at(10, 2), at(10, 3)]);
        assert_eq!(mapping.counts(), (1, 1, 2));
        assert_eq!(mapping.bits(), 10 + 7 + 2 * 8);
        assert_eq!(
            mapping.gain(0),
            3 * 6 + 5,
            "a half and two quarters to a superblock: 3w + 5"
        );
        assert_eq!(
            [0, 1, 2, 3].map(|q| mapping.get(q)),
            [at(10, 0), at(56, 1), at(10, 2), at(10, 3)]
        );
        mapping.set(1, [at(56, 2), at(56, 3), at(20, 2), at(20, 3)]);
        assert_eq!(mapping.gain(1), 2 * 6 + 2, "two halves: 2w + 2");
        mapping.set(1, [at(56, 2), at(57, 3), at(20, 2), at(21, 3)]);
        assert_eq!(mapping.gain(1), 4 * 6 + 8, "four quarters: 4w + 8");
    }

    #[test]
    fn what_was_set_is_got_and_sizes_follow() {
        let (mut mapping, mut model) = (LevelMap::new(20, 40), vec![[None; 4]; 20]);
        let mut rng = SplitMix::new(3);
        for _ in 0..20_000 {
            let logical = rng.below(20) as u32;
            let psb = rng.below(40) as u32;
            let mut any = || {
                (!rng.one_in(5)).then(|| Location {
                    psb: rng.below(40) as u32,
                    loc: rng.below(QUARTERS as u64) as u32,
                })
            };
            let locations = match psb % 3 {
                0 => [at(psb, 0), at(psb, 1), at(psb, 2), at(psb, 3)],
                1 => [at(psb, 2), at(psb, 3), any(), any()],
                _ => [any(), any(), any(), any()],
            };
            mapping.set(logical, locations);
            model[logical as usize] = locations;
            for (quarter, location) in (0..).zip(model.as_flattened()) {
                assert!(location.is_none() || mapping.get(quarter) == *location);
            }
            let (s0, s1, s2) = mapping.counts();
            assert_eq!(
                s0,
                model
                    .iter()
                    .filter(|locations| locations.iter().any(Option::is_some))
                    .count() as u64
            );
            assert_eq!(
                mapping.bits(),
                (s0 + s1 + s2) * mapping.width + 4 * s0 + s1 + 2 * s2,
                "equation 12"
            );
        }
    }
}
