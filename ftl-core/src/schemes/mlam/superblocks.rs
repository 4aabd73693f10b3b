//! Physical superblocks: which blocks each has, one per chip of a superchip, and which quarters it
//! holds. A quarter is held as long as one of its pages is live there.

use super::mapping::Place;
use super::shape::QUARTERS;
use crate::convert::{index, to_u32, to_u64};
use nand_model::Pbn;

const NONE: u32 = u32::MAX;

/// A physical superblock.
#[derive(Clone, Debug)]
pub(super) struct Superblock {
    /// By chip.
    blocks: Box<[u32]>,
    /// Where it is, as far as there were blocks.
    pub(super) superchip: u32,
    /// Its number, which its pages carry: younger ones have larger ones.
    pub(super) serial: u64,
    /// By location: the quarter, and how many of its pages are live.
    holds: [(u32, u32); 4],
}

impl Superblock {
    /// The quarters it holds, with their locations.
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

/// All of them.
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

    /// A new one without blocks.
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
                assert!(self.all[index(psb)].is_none(), "superblock {psb} is in use");
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

    /// All in use.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Superblock)> {
        (0..)
            .zip(&self.all)
            .filter_map(|(psb, superblock)| Some((psb, superblock.as_ref()?)))
    }

    /// Superblock and chip of a block.
    pub(super) fn owner(&self, block: Pbn) -> Option<(u32, u32)> {
        Some(self.owners[block.index()]).filter(|(psb, _)| *psb != NONE)
    }

    pub(super) fn block(&self, psb: u32, chip: u32) -> Option<Pbn> {
        Some(self.get(psb).blocks[index(chip)])
            .filter(|block| *block != NONE)
            .map(Pbn::new)
    }

    /// The block is that of a chip from now on, instead of another.
    pub(super) fn set_block(&mut self, psb: u32, chip: u32, block: Pbn) {
        assert_eq!(self.owner(block), None, "block {block} has a superblock");
        let old = std::mem::replace(&mut self.get_mut(psb).blocks[index(chip)], block.raw());
        if old != NONE {
            self.owners[index(old)] = (NONE, NONE);
        }
        self.owners[block.index()] = (psb, chip);
    }

    /// The block is no part of a superblock any more.
    pub(super) fn remove_block(&mut self, block: Pbn) {
        let (psb, chip) = std::mem::replace(&mut self.owners[block.index()], (NONE, NONE));
        if psb != NONE {
            let old = std::mem::replace(&mut self.get_mut(psb).blocks[index(chip)], NONE);
            assert_eq!(old, block.raw(), "superblock {psb} has another block");
        }
    }

    /// Whether the quarter is where the tables say.
    pub(super) fn holds(&self, place: Place, quarter: u32) -> bool {
        let superblock = self.all.get(index(place.psb)).and_then(Option::as_ref);
        superblock.is_some_and(|superblock| superblock.holds[index(place.loc)].0 == quarter)
    }

    /// A quarter lies here from now on, with so many live pages.
    pub(super) fn hold(&mut self, place: Place, quarter: u32, live: u32) {
        assert!(live > 0, "quarter {quarter} is held without live pages");
        let old = &mut self.get_mut(place.psb).holds[index(place.loc)];
        assert_eq!(
            old.0, NONE,
            "{place:?} holds another quarter than {quarter}"
        );
        *old = (quarter, live);
    }

    /// A page of the quarter that is held here is live no more. Returns whether it was the last
    /// one: it is held no longer.
    pub(super) fn page_died(&mut self, place: Place) -> bool {
        let held = &mut self.get_mut(place.psb).holds[index(place.loc)];
        debug_assert!(
            held.0 != NONE && held.1 > 0,
            "{place:?} holds no live pages"
        );
        held.1 -= 1;
        let last = held.1 == 0;
        if last {
            *held = (NONE, 0);
        }
        last
    }

    /// Live pages of the quarter held here.
    pub(super) fn live(&self, place: Place) -> u32 {
        self.get(place.psb).holds[index(place.loc)].1
    }

    /// The superblock with the fewest live pages, and how many those are.
    pub(super) fn fewest_live(&self) -> Option<(u32, u32)> {
        let live =
            |superblock: &Superblock| superblock.holds.iter().map(|(_, live)| live).sum::<u32>();
        let all = self
            .iter()
            .map(|(psb, superblock)| (live(superblock), superblock.serial, psb));
        all.min().map(|(live, _, psb)| (psb, live))
    }

    /// Dissolves a superblock. Returns its blocks, which belong to nobody now.
    pub(super) fn dissolve(&mut self, psb: u32) -> Vec<Pbn> {
        let superblock = self.all[index(psb)].take().expect("a superblock in use");
        assert!(
            superblock.held().next().is_none(),
            "superblock {psb} is dissolved with quarters"
        );
        self.free.push(psb);
        let blocks: Vec<Pbn> = superblock.blocks().collect();
        blocks
            .iter()
            .for_each(|block| self.owners[block.index()] = (NONE, NONE));
        blocks
    }

    /// Superblocks that hold fewer quarters than they could, the emptiest first, of equal ones the
    /// oldest.
    pub(super) fn emptiest_first(&self) -> Vec<u32> {
        let mut found: Vec<(usize, u64, u32)> = self
            .iter()
            .map(|(psb, superblock)| (superblock.held().count(), superblock.serial, psb))
            .filter(|(held, ..)| *held < index(QUARTERS))
            .collect();
        found.sort_unstable();
        found.into_iter().map(|(.., psb)| psb).collect()
    }

    /// Bytes really allocated.
    pub(super) fn bytes(&self) -> u64 {
        let blocks: usize = self
            .iter()
            .map(|(_, superblock)| 4 * superblock.blocks.len())
            .sum();
        to_u64(
            self.all.capacity() * size_of::<Option<Superblock>>() + blocks + 8 * self.owners.len(),
        )
    }
}
