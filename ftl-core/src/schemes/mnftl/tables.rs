//! Subtables: where the pages of a logical block lie. The newest of each is in the spare bytes of the page that was programmed last of
//! those it maps; here is the pointer to that page.
//!
//! A subtable that no page on flash says is kept in RAM: one that a trim changed, or one with a page among the common blocks
//! ([`super`]). There are few: each program of a page of the subtable puts it on flash again, and trims see to it that their
//! number stays below a limit.

use super::units::Units;
use crate::format::UNMAPPED;
use nand_model::{Geometry, Pbn, Ppn};
use std::collections::BTreeMap;

/// A page that is mapped and gone: reading it is an error.
pub(super) const LOST: u32 = UNMAPPED - 1;

/// Pointer of a subtable that is in RAM.
const IN_RAM: u32 = UNMAPPED - 1;

/// Slots on flash that name no page: none, and one that cannot be said.
const NO_PAGE: u16 = u16::MAX;
const UNSAID: u16 = u16::MAX - 1;

/// How logical blocks are cut into subtables, and how those lie in the spare bytes: the number of the page's own block in the list
/// (2), then the slots (2 each): number of a block above, page in it below.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Pages of a block.
    pub(super) pages: u32,
    /// Slots of a subtable.
    pub(super) slots: u32,
    page_shift: u32,
}

impl Shape {
    pub(super) fn new(geometry: &Geometry, subtables: u32) -> Self {
        let pages = geometry.pages_per_block;
        Shape { pages, slots: pages.div_ceil(subtables), page_shift: geometry.page_shift() }
    }

    /// Subtables of a logical block.
    pub(super) fn subtables(&self) -> u32 {
        self.pages.div_ceil(self.slots)
    }

    /// Bytes in the spare area.
    pub(super) fn spare_bytes(&self) -> usize {
        2 + 2 * self.slots as usize
    }

    /// Blocks of a list that slots can tell apart.
    pub(super) fn max_nodes(&self) -> u32 {
        UNSAID as u32 >> self.page_shift
    }

    /// The block's own number, as a page of it says.
    pub(super) fn own_node(spare: &[u8]) -> Option<u32> {
        let node = u16::from_le_bytes([spare[0], spare[1]]);
        (node != NO_PAGE).then_some(node as u32)
    }

    /// Writes the part of a page in block `own` whose subtable says `slots`. Returns whether all of it can be said.
    pub(super) fn encode(
        &self,
        geometry: &Geometry,
        units: &Units,
        lbn: u32,
        own: Pbn,
        slots: &[u32],
        spare: &mut [u8],
    ) -> bool {
        let (head, rest) = spare.split_at_mut(2);
        let node = units.node(lbn, own);
        head.copy_from_slice(&node.map_or(NO_PAGE, |node| node as u16).to_le_bytes());
        let mut all = node.is_some();
        for (slot, out) in slots.iter().zip(rest.as_chunks_mut().0) {
            let said = match *slot {
                UNMAPPED => NO_PAGE,
                LOST => UNSAID,
                ppn => {
                    let (block, offset) = (geometry.block_of(Ppn::new(ppn)), geometry.offset_of(Ppn::new(ppn)));
                    units.node(lbn, block).map_or(UNSAID, |node| (node << self.page_shift | offset) as u16)
                }
            };
            all &= said != UNSAID;
            *out = said.to_le_bytes();
        }
        all
    }

    /// The pages that a subtable says, or `None` where it says what cannot be, or not all.
    pub(super) fn decode(
        &self,
        geometry: &Geometry,
        units: &Units,
        lbn: u32,
        spare: &[u8],
        slots: &mut [u32],
    ) -> Option<()> {
        for (slot, said) in slots.iter_mut().zip(spare[2..].as_chunks().0) {
            *slot = match u16::from_le_bytes(*said) {
                NO_PAGE => UNMAPPED,
                UNSAID => return None,
                said => {
                    let (node, offset) = (said as u32 >> self.page_shift, said as u32 & ((1 << self.page_shift) - 1));
                    let block = units.block(lbn, node).filter(|_| offset < self.pages)?;
                    geometry.page(block, offset).raw()
                }
            };
        }
        Some(())
    }
}

/// Where a subtable is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// It maps nothing.
    Nowhere,
    Ram(&'a [u32]),
    /// In this page's spare bytes.
    Flash(Ppn),
}

/// Pointers to all subtables, by number.
pub(super) struct Tables {
    pointers: Vec<u32>,
    in_ram: BTreeMap<u32, Box<[u32]>>,
}

impl Tables {
    pub(super) fn new(tables: u32) -> Self {
        Tables { pointers: vec![UNMAPPED; tables as usize], in_ram: BTreeMap::new() }
    }

    pub(super) fn place(&self, table: u32) -> Place<'_> {
        match self.pointers[table as usize] {
            UNMAPPED => Place::Nowhere,
            IN_RAM => Place::Ram(&self.in_ram[&table]),
            ppn => Place::Flash(Ppn::new(ppn)),
        }
    }

    /// The subtable says `slots` from now on, and so does the page `written`, if any.
    pub(super) fn set(&mut self, table: u32, slots: &[u32], written: Option<Ppn>) {
        let pointer = match written {
            _ if slots.iter().all(|slot| *slot == UNMAPPED) => UNMAPPED,
            Some(ppn) => ppn.raw(),
            None => IN_RAM,
        };
        let before = std::mem::replace(&mut self.pointers[table as usize], pointer);
        if pointer == IN_RAM {
            self.in_ram.insert(table, slots.into());
        } else if before == IN_RAM {
            self.in_ram.remove(&table);
        }
    }

    /// Subtables in RAM.
    pub(super) fn in_ram(&self) -> usize {
        self.in_ram.len()
    }

    /// The first subtable in RAM from this number on, round and round.
    pub(super) fn next_in_ram(&self, from: u32) -> Option<u32> {
        self.in_ram.range(from..).chain(&self.in_ram).next().map(|(table, _)| *table)
    }

    /// Bytes really allocated.
    pub(super) fn bytes(&self) -> u64 {
        let in_ram: usize = self.in_ram.values().map(|slots| 4 * slots.len() + 48).sum();
        (4 * self.pointers.len() + in_ram) as u64
    }
}

/// The slots of one logical block at hand, as far as they were read.
#[derive(Default)]
pub(super) struct AtHand {
    lbn: Option<u32>,
    read: u64,
    pub(super) slots: Vec<u32>,
}

impl AtHand {
    pub(super) fn forget(&mut self) {
        self.lbn = None;
    }

    /// Turns to a logical block. Returns whether subtable `k` is at hand.
    pub(super) fn turn_to(&mut self, lbn: u32, k: u32, shape: &Shape) -> bool {
        if self.lbn != Some(lbn) {
            self.slots.resize((shape.subtables() * shape.slots) as usize, UNMAPPED);
            (self.lbn, self.read) = (Some(lbn), 0);
        }
        self.read >> k & 1 == 1
    }

    pub(super) fn note_read(&mut self, k: u32) {
        self.read |= 1 << k;
    }

    pub(super) fn table(&mut self, k: u32, shape: &Shape) -> &mut [u32] {
        &mut self.slots[(k * shape.slots) as usize..][..shape.slots as usize]
    }
}
