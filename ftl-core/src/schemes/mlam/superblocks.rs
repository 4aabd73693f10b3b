//! Physical superblocks: their blocks, one per chip of a superchip, and their quarters. A
//! superblock holds a quarter as long as one of its pages is valid there.

use super::mapping::Location;
use super::shape::QUARTERS;
use crate::int::{index, to_u32};
use crate::ram::{vec_bytes, vec_most};
use nand_model::Pbn;

const NONE: u32 = u32::MAX;

/// A physical superblock.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    /// Blocks by chip.
    blocks: Box<[u32]>,
    /// Its superchip, as far as that had free blocks.
    pub(super) superchip: u32,
    /// Serial number, contained in its pages: younger superblocks have larger ones.
    pub(super) serial: u64,
    /// By location: the quarter and its number of valid pages.
    holds: [(u32, u32); 4],
}

impl Superblock {
    /// Iterates over the quarters it holds, with their locations.
    pub(super) fn held(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..)
            .zip(&self.holds)
            .filter(|(_, (quarter, _))| *quarter != NONE)
            .map(|(loc, (quarter, _))| (loc, *quarter))
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = Pbn> {
        self.blocks
            .iter()
            .filter(|block| **block != NONE)
            .map(|block| Pbn::new(*block))
    }
}

/// All physical superblocks.
#[derive(Debug, Default)]
pub(super) struct Superblocks {
    all: Vec<Option<Superblock>>,
    free: Vec<u32>,
    /// By block: its superblock and chip.
    owners: Vec<(u32, u32)>,
}

impl Superblocks {
    pub(super) fn new(blocks: u32) -> Self {
        Superblocks {
            all: Vec::new(),
            free: Vec::new(),
            owners: vec![(NONE, NONE); index(blocks)],
        }
    }

    /// Adds a superblock without blocks; returns its number.
    pub(super) fn open(&mut self, chips: u32, superchip: u32, serial: u64) -> u32 {
        let blocks = vec![NONE; index(chips)].into();
        let new = Some(Superblock {
            blocks,
            superchip,
            serial,
            holds: [(NONE, 0); 4],
        });
        match self.free.pop() {
            Some(psb) => {
                assert!(
                    self.all[index(psb)].is_none(),
                    "superblock {psb} is already in use"
                );
                self.all[index(psb)] = new;
                psb
            }
            None => {
                self.all.push(new);
                to_u32(self.all.len()) - 1
            }
        }
    }

    pub(super) fn get(&self, psb: u32) -> &Superblock {
        self.all[index(psb)].as_ref().expect("a superblock in use")
    }

    fn get_mut(&mut self, psb: u32) -> &mut Superblock {
        self.all[index(psb)].as_mut().expect("a superblock in use")
    }

    /// Iterates over all superblocks in use.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Superblock)> {
        (0..)
            .zip(&self.all)
            .filter_map(|(psb, superblock)| Some((psb, superblock.as_ref()?)))
    }

    /// Returns superblock and chip of a block.
    pub(super) fn owner(&self, block: Pbn) -> Option<(u32, u32)> {
        Some(self.owners[block.index()]).filter(|(psb, _)| *psb != NONE)
    }

    pub(super) fn block(&self, psb: u32, chip: u32) -> Option<Pbn> {
        Some(self.get(psb).blocks[index(chip)])
            .filter(|block| *block != NONE)
            .map(Pbn::new)
    }

    /// Makes the block that of a chip, instead of the previous one.
    pub(super) fn set_block(&mut self, psb: u32, chip: u32, block: Pbn) {
        assert_eq!(
            self.owner(block),
            None,
            "block {block} already belongs to a superblock"
        );
        let old = std::mem::replace(&mut self.get_mut(psb).blocks[index(chip)], block.raw());
        if old != NONE {
            self.owners[index(old)] = (NONE, NONE);
        }
        self.owners[block.index()] = (psb, chip);
    }

    /// Removes the block from its superblock.
    pub(super) fn remove_block(&mut self, block: Pbn) {
        let (psb, chip) = std::mem::replace(&mut self.owners[block.index()], (NONE, NONE));
        if psb != NONE {
            let old = std::mem::replace(&mut self.get_mut(psb).blocks[index(chip)], NONE);
            assert_eq!(
                old,
                block.raw(),
                "superblock {psb} has another block on chip {chip} than {block}"
            );
        }
    }

    /// Returns whether the superblock holds the quarter at this location.
    pub(super) fn holds(&self, location: Location, quarter: u32) -> bool {
        let superblock = self.all.get(index(location.psb)).and_then(Option::as_ref);
        superblock.is_some_and(|superblock| superblock.holds[index(location.loc)].0 == quarter)
    }

    /// Adds a quarter at this location, with `valid` > 0 valid pages.
    pub(super) fn hold(&mut self, location: Location, quarter: u32, valid: u32) {
        assert!(valid > 0, "quarter {quarter} is added without valid pages");
        let old = &mut self.get_mut(location.psb).holds[index(location.loc)];
        assert_eq!(
            old.0, NONE,
            "quarter {quarter} is added at {location:?}, which has another quarter"
        );
        *old = (quarter, valid);
    }

    /// Counts a page of the quarter at this location as invalid. Returns whether no valid page is
    /// left; then the quarter is removed.
    pub(super) fn count_invalid(&mut self, location: Location) -> bool {
        let held = &mut self.get_mut(location.psb).holds[index(location.loc)];
        debug_assert!(
            held.0 != NONE && held.1 > 0,
            "quarter at {location:?} has no valid pages"
        );
        held.1 -= 1;
        let last = held.1 == 0;
        if last {
            *held = (NONE, 0);
        }
        last
    }

    /// Returns the number of valid pages of the quarter at this location.
    pub(super) fn valid_pages(&self, location: Location) -> u32 {
        self.get(location.psb).holds[index(location.loc)].1
    }

    /// Returns the superblock with the fewest valid pages, and their number.
    pub(super) fn fewest_valid(&self) -> Option<(u32, u32)> {
        let sum =
            |superblock: &Superblock| superblock.holds.iter().map(|(_, valid)| valid).sum::<u32>();
        let all = self
            .iter()
            .map(|(psb, superblock)| (sum(superblock), superblock.serial, psb));
        all.min().map(|(valid, _, psb)| (psb, valid))
    }

    /// Dissolves a superblock. Returns its blocks, which have no superblock then.
    pub(super) fn dissolve(&mut self, psb: u32) -> Vec<Pbn> {
        let superblock = self.all[index(psb)].take().expect("a superblock in use");
        assert!(
            superblock.held().next().is_none(),
            "superblock {psb} has quarters when it is dissolved"
        );
        self.free.push(psb);
        let blocks: Vec<Pbn> = superblock.blocks().collect();
        blocks
            .iter()
            .for_each(|block| self.owners[block.index()] = (NONE, NONE));
        blocks
    }

    /// Returns superblocks with free quarters, the emptiest first, of equal ones the oldest.
    pub(super) fn emptiest_first(&self) -> Vec<u32> {
        let mut found: Vec<(usize, u64, u32)> = self
            .iter()
            .map(|(psb, superblock)| (superblock.held().count(), superblock.serial, psb))
            .filter(|(held, ..)| *held < index(QUARTERS))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(.., psb)| psb).collect()
    }

    /// Returns the bytes of all superblocks: now, and at most. Holes may double the number that
    /// fits the flash.
    pub(super) fn ram(&self, physical: u64, chips: u64) -> (u64, u64) {
        let owners = vec_bytes::<(u32, u32)>(self.owners.capacity());
        let blocks = self.iter().map(|(_, superblock)| superblock.blocks.len());
        let now = vec_bytes::<Option<Superblock>>(self.all.capacity())
            + vec_bytes::<u32>(self.free.capacity())
            + blocks.map(vec_bytes::<u32>).sum::<u64>();
        let most = vec_most::<Option<Superblock>>(physical)
            + vec_most::<u32>(physical)
            + 2 * physical * chips * 4;
        (owners + now, owners + most)
    }
}
