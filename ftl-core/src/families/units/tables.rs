//! Tables: the physical page of each page of a unit. A table is stored in the OOB area of the last
//! programmed page that it maps, its *carrier*. Tables form groups. A group of several tables has a
//! directory of their carriers, in the OOB area of the last programmed page of the group. RAM has a
//! pointer to that page. In a group of one table, that page is the carrier.
//!
//! RAM keeps a group that is on no page of the flash: a trim changed it, or it maps a page in a
//! common block ([`super`]). Such groups are few: each program of a page of a table writes that
//! table to flash again, and trims write groups back above a limit.

use super::lists::Lists;
use crate::format::{LOST, UNMAPPED};
use crate::int::{index, low_u8};
use crate::ram::{tree_bytes, tree_most, vec_bytes};
use nand_model::{Geometry, Pbn, Ppn};
use std::collections::BTreeMap;
use std::ops::Range;

/// Pointer of a group that is in RAM.
const IN_RAM: u32 = UNMAPPED - 1;

/// Layout of tables and groups in a unit and in the OOB area. An OOB area has entries of `bits`
/// bits, the lowest first: the page's own block, the slots of its table, the directory of its group
/// if there is one. An entry is a node number in the upper bits and a page offset in the lower
/// ones. All ones means no page; one less means a page that cannot be encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Pages of a unit.
    pub(crate) pages: u32,
    /// Pages of a table.
    pub(crate) slots: u32,
    /// Tables of a group.
    pub(crate) tables_per_group: u32,
    geometry: Geometry,
    bits: u32,
}

impl Shape {
    pub(crate) fn new(
        geometry: &Geometry,
        pages: u32,
        slots: u32,
        tables_per_group: u32,
        bits: u32,
    ) -> Self {
        let tables_per_group = tables_per_group.min(pages.div_ceil(slots));
        Shape {
            pages,
            slots,
            tables_per_group,
            geometry: *geometry,
            bits,
        }
    }

    /// Returns the tables of a unit.
    pub(crate) fn tables(&self) -> u32 {
        self.pages.div_ceil(self.slots)
    }

    /// Returns the groups of a unit.
    pub(crate) fn groups(&self) -> u32 {
        self.tables().div_ceil(self.tables_per_group)
    }

    /// Returns the tables of a group.
    pub(super) fn tables_of(&self, group: u32) -> Range<u32> {
        group * self.tables_per_group..((group + 1) * self.tables_per_group).min(self.tables())
    }

    /// Returns the bytes that a scheme needs in the OOB area.
    pub(crate) fn spare_bytes(&self) -> usize {
        let directory = if self.tables_per_group > 1 {
            self.tables_per_group
        } else {
            0
        };
        index(((1 + self.slots + directory) * self.bits).div_ceil(8))
    }

    /// Returns the number of blocks of a list that entries can name.
    pub(crate) fn max_nodes(&self) -> u32 {
        self.unencodable() >> self.geometry.page_shift()
    }

    fn none(&self) -> u32 {
        (1 << self.bits) - 1
    }

    fn unencodable(&self) -> u32 {
        self.none() - 1
    }

    fn put(&self, spare: &mut [u8], entry: u32, value: u32) {
        debug_assert!(
            value <= self.none(),
            "entry {entry} has value {value}, which needs more than {} bits",
            self.bits
        );
        let at = entry * self.bits;
        let (mask, value) = (
            u64::from(self.none()) << (at % 8),
            u64::from(value) << (at % 8),
        );
        let window = &mut spare[index(at) / 8..];
        for (i, byte) in (0..4).zip(window) {
            *byte = *byte & !low_u8(mask >> (8 * i)) | low_u8(value >> (8 * i));
        }
    }

    fn get(&self, spare: &[u8], entry: u32) -> u32 {
        let at = entry * self.bits;
        let window = &spare[index(at) / 8..];
        let word = window.first_chunk().map_or_else(
            || {
                let bytes = window.iter().rev();
                bytes.fold(0, |word, byte| word << 8 | u32::from(*byte))
            },
            |bytes| u32::from_le_bytes(*bytes),
        );
        word >> (at % 8) & self.none()
    }

    fn encode_entry(&self, lists: &Lists, unit: u32, ppn: u32) -> u32 {
        match ppn {
            UNMAPPED => self.none(),
            LOST => self.unencodable(),
            ppn => {
                let (block, offset) = (
                    self.geometry.block_of(Ppn::new(ppn)),
                    self.geometry.offset_of(Ppn::new(ppn)),
                );
                lists.node(unit, block).map_or(self.unencodable(), |node| {
                    node << self.geometry.page_shift() | offset
                })
            }
        }
    }

    /// Returns the block's own node number, from the OOB area of one of its pages.
    pub(super) fn own_node(&self, spare: &[u8]) -> Option<u32> {
        Some(self.get(spare, 0))
            .filter(|own| *own < self.unencodable())
            .map(|own| own >> self.geometry.page_shift())
    }

    /// Encodes this table and directory for a page in block `own`. Returns whether all entries of
    /// the table could be encoded.
    pub(super) fn encode(
        &self,
        lists: &Lists,
        unit: u32,
        own: Pbn,
        slots: &[u32],
        carriers: &[u32],
        spare: &mut [u8],
    ) -> bool {
        debug_assert_eq!(
            slots.len(),
            index(self.slots),
            "number of slots is not that of a table"
        );
        let own = lists
            .node(unit, own)
            .map(|node| node << self.geometry.page_shift());
        let mut all = own.is_some();
        self.put(spare, 0, own.unwrap_or(self.none()));
        for (entry, slot) in (1..).zip(slots) {
            let said = self.encode_entry(lists, unit, *slot);
            all &= said != self.unencodable();
            self.put(spare, entry, said);
        }
        if self.tables_per_group > 1 {
            for (entry, carrier) in (1 + self.slots..).zip(carriers) {
                self.put(spare, entry, self.encode_entry(lists, unit, *carrier));
            }
        }
        all
    }

    /// Decodes the pages of the entries from `first` on. Returns `None` if an entry is impossible
    /// or [`Shape::unencodable`].
    fn decode(
        &self,
        lists: &Lists,
        unit: u32,
        spare: &[u8],
        first: u32,
        pages: &mut [u32],
    ) -> Option<()> {
        for (entry, page) in (first..).zip(pages) {
            *page = match self.get(spare, entry) {
                none if none == self.none() => UNMAPPED,
                unencodable if unencodable == self.unencodable() => return None,
                said => {
                    let (node, offset) = (
                        said >> self.geometry.page_shift(),
                        said & ((1 << self.geometry.page_shift()) - 1),
                    );
                    let block = lists
                        .block(unit, node)
                        .filter(|_| offset < self.geometry.pages_per_block)?;
                    self.geometry.page(block, offset).raw()
                }
            };
        }
        Some(())
    }

    /// Decodes the table in a page's OOB area.
    pub(super) fn decode_table(
        &self,
        lists: &Lists,
        unit: u32,
        spare: &[u8],
        slots: &mut [u32],
    ) -> Option<()> {
        self.decode(lists, unit, spare, 1, slots)
    }

    /// Decodes the directory in a page's OOB area.
    pub(super) fn decode_directory(
        &self,
        lists: &Lists,
        unit: u32,
        spare: &[u8],
        carriers: &mut [u32],
    ) -> Option<()> {
        self.decode(lists, unit, spare, 1 + self.slots, carriers)
    }
}

/// A group in RAM.
#[derive(Clone, Debug)]
pub(super) struct RamGroup {
    pub(super) slots: Box<[u32]>,
    /// Pages on flash with a current table.
    pub(super) carriers: Box<[u32]>,
}

/// Location of a group.
#[derive(Clone, Copy, Debug)]
pub(super) enum GroupLocation<'a> {
    /// It maps nothing.
    Nowhere,
    Ram(&'a RamGroup),
    /// This page's OOB area has the directory, or the only table.
    Flash(Ppn),
}

/// Pointers to all groups, by number.
pub(super) struct Tables {
    pointers: Vec<u32>,
    in_ram: BTreeMap<u32, RamGroup>,
}

impl Tables {
    pub(super) fn new(groups: u32) -> Self {
        Tables {
            pointers: vec![UNMAPPED; index(groups)],
            in_ram: BTreeMap::new(),
        }
    }

    pub(super) fn location(&self, group: u32) -> GroupLocation<'_> {
        match self.pointers[index(group)] {
            UNMAPPED => GroupLocation::Nowhere,
            IN_RAM => GroupLocation::Ram(&self.in_ram[&group]),
            ppn => GroupLocation::Flash(Ppn::new(ppn)),
        }
    }

    /// Records that the group maps nothing.
    pub(super) fn clear(&mut self, group: u32) {
        self.set(group, UNMAPPED);
    }

    /// Records that this page has the directory, or the only table, of the group.
    pub(super) fn set_on_flash(&mut self, group: u32, head: Ppn) {
        assert!(
            head.raw() < IN_RAM,
            "page {head} cannot have the directory of group {group}"
        );
        self.set(group, head.raw());
    }

    pub(super) fn keep(&mut self, group: u32, slots: &[u32], carriers: &[u32]) {
        if slots.iter().all(|slot| *slot == UNMAPPED) {
            return self.clear(group);
        }
        debug_assert!(
            slots.len() >= carriers.len(),
            "group {group} has {} tables, but {} slots",
            carriers.len(),
            slots.len()
        );
        self.set(group, IN_RAM);
        self.in_ram.insert(
            group,
            RamGroup {
                slots: slots.into(),
                carriers: carriers.into(),
            },
        );
    }

    fn set(&mut self, group: u32, pointer: u32) {
        if std::mem::replace(&mut self.pointers[index(group)], pointer) == IN_RAM {
            let kept = self.in_ram.remove(&group);
            assert!(
                kept.is_some(),
                "group {group} is marked as in RAM, but not there"
            );
        }
    }

    /// Returns the number of groups in RAM.
    pub(super) fn in_ram(&self) -> usize {
        self.in_ram.len()
    }

    /// Returns the first group in RAM from this number on; wraps around.
    pub(super) fn next_in_ram(&self, from: u32) -> Option<u32> {
        self.in_ram
            .range(from..)
            .chain(&self.in_ram)
            .next()
            .map(|(group, _)| *group)
    }

    /// Returns the bytes of pointers and groups: now, and at most with this many groups in RAM.
    pub(super) fn ram(&self, shape: &Shape, groups: u64) -> (u64, u64) {
        let group = |slots: usize, carriers: usize| vec_bytes::<u32>(slots + carriers);
        let kept = self.in_ram.values();
        let kept = kept.map(|kept| group(kept.slots.len(), kept.carriers.len()));
        let tables = index(shape.tables_per_group);
        let largest = group(tables * index(shape.slots), tables);
        let pointers = vec_bytes::<u32>(self.pointers.capacity());
        (
            pointers + tree_bytes::<u32, RamGroup>(self.in_ram.len()) + kept.sum::<u64>(),
            pointers + tree_most::<u32, RamGroup>(groups) + groups * largest,
        )
    }
}

/// The loaded tables of one unit.
#[derive(Default)]
pub(super) struct UnitCache {
    unit: Option<u32>,
    tables: Vec<bool>,
    directories: Vec<bool>,
    /// By page of the unit: its flash page, or [`UNMAPPED`].
    pub(super) slots: Vec<u32>,
    /// By table: the page on flash that carries it, or [`UNMAPPED`].
    pub(super) carriers: Vec<u32>,
}

impl UnitCache {
    /// Returns the bytes of the tables: now, and at most.
    pub(super) fn ram(&self, shape: &Shape) -> (u64, u64) {
        let bytes = |slots: usize, tables: usize, flags: usize| {
            vec_bytes::<u32>(slots + tables) + vec_bytes::<bool>(flags)
        };
        let now = bytes(
            self.slots.capacity(),
            self.carriers.capacity(),
            self.tables.capacity() + self.directories.capacity(),
        );
        let (tables, groups) = (index(shape.tables()), index(shape.groups()));
        let slots = tables * index(shape.slots);
        (
            now,
            bytes(slots.max(4), tables.max(4), (tables + groups).max(16)),
        )
    }

    pub(super) fn forget(&mut self) {
        self.unit = None;
    }

    /// Returns whether this unit is selected.
    pub(super) fn is_of(&self, unit: u32) -> bool {
        self.unit == Some(unit)
    }

    /// Selects a unit. Returns whether table `k` is loaded.
    pub(super) fn select_unit(&mut self, unit: u32, k: u32, shape: &Shape) -> bool {
        if self.unit != Some(unit) {
            self.unit = Some(unit);
            self.slots
                .resize(index(shape.tables() * shape.slots), UNMAPPED);
            self.carriers.resize(index(shape.tables()), UNMAPPED);
            self.tables.clear();
            self.tables.resize(index(shape.tables()), false);
            self.directories.clear();
            self.directories.resize(index(shape.groups()), false);
        }
        self.tables[index(k)]
    }

    pub(super) fn has_directory(&self, group: u32) -> bool {
        self.directories[index(group)]
    }

    pub(super) fn note_directory(&mut self, group: u32) {
        self.directories[index(group)] = true;
    }

    pub(super) fn note_table(&mut self, k: u32) {
        self.tables[index(k)] = true;
    }

    /// Marks the whole group as loaded.
    pub(super) fn note_group(&mut self, group: u32, shape: &Shape) {
        self.note_directory(group);
        shape.tables_of(group).for_each(|k| self.note_table(k));
    }

    pub(super) fn table(&mut self, k: u32, shape: &Shape) -> &mut [u32] {
        &mut self.slots[index(k * shape.slots)..][..index(shape.slots)]
    }

    pub(super) fn group_slots(&mut self, group: u32, shape: &Shape) -> &mut [u32] {
        let tables = shape.tables_of(group);
        &mut self.slots[index(tables.start * shape.slots)..index(tables.end * shape.slots)]
    }

    pub(super) fn group_carriers(&mut self, group: u32, shape: &Shape) -> &mut [u32] {
        let tables = shape.tables_of(group);
        &mut self.carriers[index(tables.start)..index(tables.end)]
    }

    /// Returns whether every table of the group that maps a page has a carrier.
    pub(super) fn is_carried(&self, group: u32, shape: &Shape) -> bool {
        shape.tables_of(group).all(|k| {
            let slots = &self.slots[index(k * shape.slots)..][..index(shape.slots)];
            self.carriers[index(k)] != UNMAPPED || slots.iter().all(|slot| *slot == UNMAPPED)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::SplitMix;

    #[test]
    fn entries_of_any_width_survive_beside_each_other() {
        let geometry = Geometry {
            channels: 1,
            ways: 1,
            planes: 1,
            multi_plane: nand_model::MultiPlane::Off,
            blocks: 9,
            pages_per_block: 64,
            page_bytes: 512,
            oob_bytes: 64,
        };
        for bits in [9, 10, 13, 16] {
            let shape = Shape::new(&geometry, 256, 16, 16, bits);
            let mut spare = vec![0xFF; shape.spare_bytes()];
            let mut rng = SplitMix::new(bits as u64);
            let mut values = [0; 33];
            for _ in 0..2_000 {
                let entry = rng.below(33) as usize;
                values[entry] = rng.below(1 << bits) as u32;
                shape.put(&mut spare, entry as u32, values[entry]);
                let read: Vec<u32> = (0..33).map(|entry| shape.get(&spare, entry)).collect();
                let written = (0..33).filter(|entry| values[*entry] > 0);
                written.for_each(|entry| {
                    assert_eq!(read[entry], values[entry], "{bits} bits, entry {entry}")
                });
            }
        }
    }
}
