//! The write buffer: pages that are not stored where their superblock's mapping points. The newest
//! content is in RAM, in a page outside the mapping (in the journal, or where a mount or GC put
//! it), or both.
//!
//! Invariants: the newest content of a *fresh* page is only in RAM; that of any other page is on
//! flash at `ppn`. `ppn` of a fresh page is an older content that must stay until a newer one is on
//! flash. If power fails, fresh content is lost.

use super::shape::{QUARTERS, Shape};
use crate::addr::Lpn;
use crate::format::UNMAPPED;
use crate::int::{index, to_u32, to_u64};
use crate::ram::{hash_bytes, hash_most, tree_bytes, tree_most, vec_bytes, vec_most};
use nand_model::Ppn;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

const NO_SLOT: u32 = u32::MAX;

/// A buffered page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    slot: u32,
    /// Its page on flash outside superblocks' mapping, or [`UNMAPPED`].
    ppn: u32,
    /// Whether RAM has a newer content than flash.
    pub(super) fresh: bool,
    /// Version of the content in RAM and on flash.
    pub(super) ver: u64,
}

impl Entry {
    /// Returns the RAM slot of its content, if any.
    pub(super) fn slot(&self) -> Option<u32> {
        Some(self.slot).filter(|slot| *slot != NO_SLOT)
    }

    /// Returns its page on flash outside superblocks' mapping, if any.
    pub(super) fn ppn(&self) -> Option<Ppn> {
        (self.ppn != UNMAPPED).then(|| Ppn::new(self.ppn))
    }
}

/// Buffered pages of a logical superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unit {
    /// Time of its last use.
    used: u64,
    /// Number of pages.
    pub(super) pages: u32,
    /// Pages of each logical block of the superblock.
    pub(super) eighths: [u32; 8],
}

impl Unit {
    #[cfg(test)]
    pub(super) fn holding(eighths: [u32; 8]) -> Unit {
        Unit {
            used: 0,
            pages: eighths.iter().sum(),
            eighths,
        }
    }

    /// Returns the number of pages in one of its quarters.
    pub(super) fn of_quarter(&self, quarter: u32) -> u32 {
        let first = 2 * index(quarter % QUARTERS);
        self.eighths[first] + self.eighths[first + 1]
    }
}

/// RAM slots for the content of pages.
struct Slots {
    data: Vec<u8>,
    free: Vec<u32>,
    page_bytes: usize,
    /// Whether content is stored at all.
    keeps: bool,
}

impl Slots {
    fn new(capacity: u32, page_bytes: usize, keeps: bool) -> Self {
        let bytes = if keeps {
            (index(capacity) + 1) * page_bytes
        } else {
            0
        };
        Slots {
            data: Vec::with_capacity(bytes),
            free: Vec::new(),
            page_bytes,
            keeps,
        }
    }

    fn take(&mut self) -> u32 {
        if !self.keeps {
            self.data.resize(self.page_bytes, 0);
            return 0;
        }
        self.free.pop().unwrap_or_else(|| {
            let slot = to_u32(self.data.len() / self.page_bytes);
            self.data.resize(self.data.len() + self.page_bytes, 0);
            slot
        })
    }

    fn put_back(&mut self, slot: u32) {
        if self.keeps && slot != NO_SLOT {
            debug_assert!(
                self.free.len() < self.data.len() / self.page_bytes,
                "slot {slot} is put back, but all slots are free"
            );
            self.free.push(slot);
        }
    }
}

pub(super) struct Buffer {
    shape: Shape,
    /// Capacity in pages; a mount may find more.
    capacity: u32,
    entries: FxHashMap<Lpn, Entry>,
    fresh: BTreeSet<Lpn>,
    units: FxHashMap<u32, Unit>,
    /// Logical superblocks by time of last use.
    by_use: BTreeMap<u64, u32>,
    clock: u64,
    slots: Slots,
}

impl Buffer {
    pub(super) fn new(shape: Shape, capacity: u32, page_bytes: u32, keeps: bool) -> Self {
        assert!(
            capacity > 0 && page_bytes > 0,
            "a buffer of {capacity} pages of {page_bytes} bytes"
        );
        Buffer {
            shape,
            capacity,
            entries: FxHashMap::default(),
            fresh: BTreeSet::new(),
            units: FxHashMap::default(),
            by_use: BTreeMap::new(),
            clock: 0,
            slots: Slots::new(capacity, index(page_bytes), keeps),
        }
    }

    pub(super) fn get(&self, lpn: Lpn) -> Option<&Entry> {
        self.entries.get(&lpn)
    }

    /// Returns the number of buffered pages.
    pub(super) fn len(&self) -> u32 {
        to_u32(self.entries.len())
    }

    /// Returns the free share of its capacity.
    pub(super) fn free_share(&self) -> f64 {
        f64::from(self.capacity.saturating_sub(self.len())) / f64::from(self.capacity)
    }

    pub(super) fn data(&self, slot: u32) -> &[u8] {
        &self.slots.data[index(slot) * self.slots.page_bytes..][..self.slots.page_bytes]
    }

    /// Returns the first page whose newest content is only in RAM.
    pub(super) fn first_fresh(&self) -> Option<Lpn> {
        self.fresh.first().copied()
    }

    /// Iterates over all buffered pages and their entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Lpn, &Entry)> {
        self.entries.iter().map(|(lpn, entry)| (*lpn, entry))
    }

    fn entry(&mut self, lpn: Lpn) -> &mut Entry {
        let (units, shape) = (&mut self.units, &self.shape);
        self.entries.entry(lpn).or_insert_with(|| {
            let unit = units.entry(shape.superblock_of(lpn)).or_default();
            unit.pages += 1;
            unit.eighths[shape.eighth(lpn)] += 1;
            Entry {
                slot: NO_SLOT,
                ppn: UNMAPPED,
                fresh: false,
                ver: 0,
            }
        })
    }

    /// Makes the page's logical superblock the most recently used one.
    fn touch(&mut self, lpn: Lpn) {
        let logical = self.shape.superblock_of(lpn);
        let unit = self
            .units
            .get_mut(&logical)
            .expect("a superblock with buffered pages is listed");
        if unit.used != self.clock || self.clock == 0 {
            self.by_use.remove(&unit.used);
            self.clock += 1;
            unit.used = self.clock;
            self.by_use.insert(self.clock, logical);
        }
        debug_assert_eq!(
            self.by_use.len(),
            self.units.len(),
            "each buffered superblock has one place in the order of use"
        );
    }

    /// Buffers a page that the host wrote.
    pub(super) fn write(&mut self, lpn: Lpn, data: &[u8]) {
        assert_eq!(
            data.len(),
            self.slots.page_bytes,
            "data of logical page {lpn} is not one page long"
        );
        let slot = match self.entry(lpn).slot() {
            Some(slot) => slot,
            None => self.slots.take(),
        };
        if self.slots.keeps {
            let at = index(slot) * self.slots.page_bytes;
            self.slots.data[at..][..data.len()].copy_from_slice(data);
        }
        let entry = self.entry(lpn);
        (entry.slot, entry.fresh) = (slot, true);
        self.fresh.insert(lpn);
        self.touch(lpn);
    }

    /// Records that a page's newest content is in this flash page, with this version.
    pub(super) fn programmed(&mut self, lpn: Lpn, ppn: Ppn, ver: u64) {
        let entry = self.entry(lpn);
        (entry.ppn, entry.fresh, entry.ver) = (ppn.raw(), false, ver);
        self.fresh.remove(&lpn);
        self.touch(lpn);
    }

    /// Records that the flash copy of a page was relocated to this flash page.
    pub(super) fn on_relocate(&mut self, lpn: Lpn, ppn: Ppn) {
        self.entry(lpn).ppn = ppn.raw();
        self.touch(lpn);
    }

    /// Discards the page's content in RAM, so that the content on flash is the newest. Returns
    /// whether the page is no longer buffered.
    pub(super) fn discard_unacknowledged(&mut self, lpn: Lpn) -> bool {
        let entry = self.entries.get_mut(&lpn).expect("the page is buffered");
        if entry.ppn().is_none() {
            return self.remove(lpn).is_some();
        }
        self.slots
            .put_back(std::mem::replace(&mut entry.slot, NO_SLOT));
        entry.fresh = false;
        self.fresh.remove(&lpn);
        false
    }

    /// Removes the page from the buffer.
    pub(super) fn remove(&mut self, lpn: Lpn) -> Option<Entry> {
        let entry = self.entries.remove(&lpn)?;
        self.slots.put_back(entry.slot);
        self.fresh.remove(&lpn);
        let logical = self.shape.superblock_of(lpn);
        let unit = self
            .units
            .get_mut(&logical)
            .expect("a superblock with buffered pages is listed");
        unit.pages -= 1;
        unit.eighths[self.shape.eighth(lpn)] -= 1;
        if unit.pages == 0 {
            let listed = self.by_use.remove(&unit.used);
            assert_eq!(
                listed,
                Some(logical),
                "superblock {logical} is not in the order of use"
            );
            self.units.remove(&logical);
        }
        Some(entry)
    }

    /// Returns the buffered pages of a logical superblock.
    pub(super) fn unit(&self, logical: u32) -> Option<&Unit> {
        self.units.get(&logical)
    }

    /// Iterates over logical superblocks, least recently used first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = (u32, &Unit)> {
        self.by_use
            .values()
            .map(|logical| (*logical, &self.units[logical]))
    }

    /// Returns the number of buffered logical superblocks.
    pub(super) fn superblocks(&self) -> usize {
        self.units.len()
    }

    /// Returns the bytes of pages and indexes: now, and at most with this many logical superblocks.
    /// A store that keeps no data needs no content of pages; a device does, so it counts.
    pub(super) fn ram(&self, logical: u64) -> (u64, u64) {
        let capacity = u64::from(self.capacity);
        let pages = (capacity + 1) * to_u64(self.slots.page_bytes);
        let now = hash_bytes::<Lpn, Entry>(self.entries.capacity())
            + tree_bytes::<Lpn, ()>(self.fresh.len())
            + hash_bytes::<u32, Unit>(self.units.capacity())
            + tree_bytes::<u64, u32>(self.by_use.len())
            + vec_bytes::<u32>(self.slots.free.capacity());
        let units = logical.min(capacity + 1);
        let most = hash_most::<Lpn, Entry>(capacity + 1)
            + tree_most::<Lpn, ()>(capacity + 1)
            + hash_most::<u32, Unit>(units)
            + tree_most::<u64, u32>(units)
            + vec_most::<u32>(capacity + 1);
        (pages + now, pages + most)
    }
}
