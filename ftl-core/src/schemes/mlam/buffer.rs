//! The write buffer: pages that are not where their superblock's mapping says. The newest content
//! is in RAM, in a page of its own on flash (the journal, or where a mount or a collection left
//! it), or both.
//!
//! What always holds: a page that is *fresh* has its newest content in RAM alone; one that is not
//! has it on flash at `ppn`. `ppn` of a fresh page is an older content that has to stay until a
//! newer one is on flash. If power fails, what is fresh is lost.

use super::shape::{QUARTERS, Shape};
use crate::addr::Lpn;
use crate::convert::{index, to_u32, to_u64};
use crate::format::UNMAPPED;
use nand_model::Ppn;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

const NO_SLOT: u32 = u32::MAX;

/// A buffered page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    slot: u32,
    /// Its place on flash outside superblocks' mapping, or [`UNMAPPED`].
    ppn: u32,
    /// Whether RAM has something newer than flash.
    pub(super) fresh: bool,
    /// Version of what is in RAM and on flash.
    pub(super) ver: u64,
}

impl Entry {
    /// Where its content is in RAM, if it is.
    pub(super) fn slot(&self) -> Option<u32> {
        Some(self.slot).filter(|slot| *slot != NO_SLOT)
    }

    /// Its place on flash outside superblocks' mapping, if it is there.
    pub(super) fn place(&self) -> Option<Ppn> {
        (self.ppn != UNMAPPED).then(|| Ppn::new(self.ppn))
    }
}

/// What is buffered of a logical superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unit {
    /// When it was used last.
    used: u64,
    /// Pages.
    pub(super) pages: u32,
    /// Of these, by logical block.
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

    /// Pages of one of its quarters.
    pub(super) fn of_quarter(&self, quarter: u32) -> u32 {
        let first = 2 * index(quarter % QUARTERS);
        self.eighths[first] + self.eighths[first + 1]
    }
}

/// RAM for the content of pages.
struct Slots {
    data: Vec<u8>,
    free: Vec<u32>,
    page_bytes: usize,
    /// Whether content is kept at all.
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
                "slot {slot} is put back twice"
            );
            self.free.push(slot);
        }
    }
}

pub(super) struct Buffer {
    shape: Shape,
    /// Pages that it takes; a mount may find more.
    capacity: u32,
    entries: FxHashMap<Lpn, Entry>,
    fresh: BTreeSet<Lpn>,
    units: FxHashMap<u32, Unit>,
    /// Logical superblocks by when they were used last.
    by_use: BTreeMap<u64, u32>,
    clock: u64,
    slots: Slots,
}

impl Buffer {
    pub(super) fn new(shape: Shape, capacity: u32, page_bytes: u32, keeps: bool) -> Self {
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

    /// Pages in it.
    pub(super) fn len(&self) -> u32 {
        to_u32(self.entries.len())
    }

    /// Free share of its pages.
    pub(super) fn free_share(&self) -> f64 {
        f64::from(self.capacity.saturating_sub(self.len())) / f64::from(self.capacity)
    }

    pub(super) fn data(&self, slot: u32) -> &[u8] {
        &self.slots.data[index(slot) * self.slots.page_bytes..][..self.slots.page_bytes]
    }

    /// The first page whose newest content is in RAM alone.
    pub(super) fn first_fresh(&self) -> Option<Lpn> {
        self.fresh.first().copied()
    }

    /// All pages and what is known of them.
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

    /// The logical superblock of this page is the one used last.
    fn touch(&mut self, lpn: Lpn) {
        let logical = self.shape.superblock_of(lpn);
        let unit = self.units.get_mut(&logical).expect("it has a page");
        if unit.used != self.clock || self.clock == 0 {
            self.by_use.remove(&unit.used);
            self.clock += 1;
            unit.used = self.clock;
            self.by_use.insert(self.clock, logical);
        }
    }

    /// The host wrote a page.
    pub(super) fn write(&mut self, lpn: Lpn, data: &[u8]) {
        assert_eq!(
            data.len(),
            self.slots.page_bytes,
            "bytes of logical page {lpn}"
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

    /// The newest content of a page is on flash now, at this place, as this version.
    pub(super) fn programmed(&mut self, lpn: Lpn, ppn: Ppn, ver: u64) {
        let entry = self.entry(lpn);
        (entry.ppn, entry.fresh, entry.ver) = (ppn.raw(), false, ver);
        self.fresh.remove(&lpn);
        self.touch(lpn);
    }

    /// What is on flash of a page was copied to this place.
    pub(super) fn moved(&mut self, lpn: Lpn, ppn: Ppn) {
        self.entry(lpn).ppn = ppn.raw();
        self.touch(lpn);
    }

    /// What the host wrote last of a page does not count: what is on flash does. Returns whether
    /// the page is buffered no more.
    pub(super) fn take_back(&mut self, lpn: Lpn) -> bool {
        let entry = self
            .entries
            .get_mut(&lpn)
            .expect("what is taken back is buffered");
        if entry.place().is_none() {
            return self.remove(lpn).is_some();
        }
        self.slots
            .put_back(std::mem::replace(&mut entry.slot, NO_SLOT));
        entry.fresh = false;
        self.fresh.remove(&lpn);
        false
    }

    /// The page is buffered no more.
    pub(super) fn remove(&mut self, lpn: Lpn) -> Option<Entry> {
        let entry = self.entries.remove(&lpn)?;
        self.slots.put_back(entry.slot);
        self.fresh.remove(&lpn);
        let logical = self.shape.superblock_of(lpn);
        let unit = self.units.get_mut(&logical).expect("it had a page");
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

    /// What is buffered of a logical superblock.
    pub(super) fn unit(&self, logical: u32) -> Option<&Unit> {
        self.units.get(&logical)
    }

    /// Logical superblocks, the one that was not used for longest first.
    pub(super) fn oldest_first(&self) -> impl Iterator<Item = (u32, &Unit)> {
        self.by_use
            .values()
            .map(|logical| (*logical, &self.units[logical]))
    }

    /// How many there are.
    pub(super) fn superblocks(&self) -> usize {
        self.units.len()
    }

    /// Bytes of the buffer as the paper counts them, and of what finds a page in it.
    pub(super) fn bytes(&self) -> (u64, u64) {
        let entries = self.entries.capacity() * (size_of::<Entry>() + 5) + 16 * self.fresh.len();
        let units = self.units.capacity() * (size_of::<Unit>() + 5) + 24 * self.by_use.len();
        (to_u64(self.slots.data.capacity()), to_u64(entries + units))
    }
}
