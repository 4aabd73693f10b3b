//! The cached mapping table: entries in two LRU segments. A new entry is on probation; its next use
//! protects it. Entries that exceed the protected half return to probation. The cache evicts the
//! least recently used entry on probation.

use crate::families::paged::Policy;
use crate::families::paged::map::entry_at;
use crate::families::paged::pending::Pending;
use crate::map_cache::Lists;
use crate::mapping::ram_entry;
use crate::ram::{hash_bytes, hash_most, run_pages, vec_bytes, vec_most};
use crate::stats::{Evictions, RamEntry, RamPart};
use nand_model::Ppn;
use rustc_hash::FxHashMap;

/// Bytes of an entry by the paper's count: logical and physical page.
pub(super) const ENTRY_BYTES: u32 = 8;

const PROBATION: u32 = 0;
const PROTECTED: u32 = 1;

#[derive(Clone, Copy, Debug)]
struct Slot {
    lpn: u32,
    to: Option<Ppn>,
    protected: bool,
}

/// Cached mapping table (see the module).
pub(super) struct Cmt {
    slots: Vec<Slot>,
    index: FxHashMap<u32, u32>,
    unused: Vec<u32>,
    used: Lists,
    protected: u32,
    capacity: u32,
    per_page: u32,
    by_list: bool,
    steps: u64,
    evictions: Evictions,
}

impl Cmt {
    /// Creates a table of `capacity` entries; mapping pages have `per_page`.
    pub(super) fn new(capacity: u32, per_page: u32) -> Self {
        Cmt {
            slots: Vec::new(),
            index: FxHashMap::default(),
            unused: Vec::new(),
            used: Lists::new(2),
            protected: 0,
            capacity,
            per_page,
            by_list: false,
            steps: 0,
            evictions: Evictions::default(),
        }
    }

    /// Sets whether lookup steps are those of a search of the lists.
    pub(super) fn count_by_list(self, by_list: bool) -> Self {
        Cmt { by_list, ..self }
    }

    /// Returns the number of entries that a search of the lists examines, protected ones and the
    /// most recently used ones first; `None`: the entry is not cached.
    fn examined(&self, slot: Option<u32>) -> u64 {
        let Some(slot) = slot else {
            return self.index.len() as u64;
        };
        let lists = [PROTECTED, PROBATION].into_iter();
        let mut entries = lists.flat_map(|list| self.used.newest_first(list));
        let before = entries.position(|other| other == slot);
        1 + before.expect("a cached entry is on a list") as u64
    }

    fn insert(&mut self, lpn: u32, to: Option<Ppn>) {
        let entry = Slot {
            lpn,
            to,
            protected: false,
        };
        let slot = match self.unused.pop() {
            Some(slot) => {
                self.slots[slot as usize] = entry;
                slot
            }
            None => {
                self.slots.push(entry);
                self.slots.len() as u32 - 1
            }
        };
        let other = self.index.insert(lpn, slot);
        debug_assert!(other.is_none(), "logical page {lpn} is cached twice");
        debug_assert_eq!(
            self.index.len() + self.unused.len(),
            self.slots.len(),
            "a slot is used or unused"
        );
        self.used.push(PROBATION, slot);
    }

    #[inline]
    fn touch(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        if entry.protected {
            return self.used.touch(PROTECTED, slot);
        }
        entry.protected = true;
        self.used.remove(slot);
        self.used.push(PROTECTED, slot);
        self.protected += 1;
        if self.protected > self.capacity / 2 {
            let demoted = self
                .used
                .oldest(PROTECTED)
                .expect("the list has the slot just added");
            self.used.remove(demoted);
            self.used.push(PROBATION, demoted);
            self.slots[demoted as usize].protected = false;
            self.protected -= 1;
        }
    }

    fn set(&mut self, lpn: u32, to: Option<Ppn>) -> bool {
        match self.index.get(&lpn) {
            Some(slot) => {
                self.slots[*slot as usize].to = to;
                true
            }
            None => false,
        }
    }
}

impl Policy for Cmt {
    const LOOKS_UP_WRITES: bool = true;

    #[inline]
    fn get(&mut self, lpn: u32, _: bool) -> Option<Option<Ppn>> {
        let slot = self.index.get(&lpn).copied();
        self.steps += if self.by_list { self.examined(slot) } else { 1 };
        let slot = slot?;
        self.touch(slot);
        Some(self.slots[slot as usize].to)
    }

    fn peek(&self, lpn: u32) -> Option<Option<Ppn>> {
        self.index
            .get(&lpn)
            .map(|slot| self.slots[*slot as usize].to)
    }

    fn load(&mut self, _: u32, page: &[u8], lpn: u32, _: u32, _: &Pending) {
        self.insert(lpn, entry_at(page, lpn % self.per_page));
    }

    fn on_relocate(&mut self, lpn: u32, to: Option<Ppn>) -> bool {
        self.set(lpn, to)
    }

    fn on_write(&mut self, lpn: u32, to: Ppn, _: bool, _: &Pending) {
        if !self.set(lpn, Some(to)) {
            self.insert(lpn, Some(to));
        }
    }

    #[inline]
    fn evict(&mut self, pending: &Pending) -> Option<u32> {
        while self.index.len() as u32 > self.capacity {
            let slot = self
                .used
                .oldest(PROBATION)
                .or_else(|| self.used.oldest(PROTECTED))?;
            let Slot { lpn, protected, .. } = self.slots[slot as usize];
            self.used.remove(slot);
            self.protected -= protected as u32;
            self.index.remove(&lpn);
            self.unused.push(slot);
            let is_dirty = pending.has(lpn);
            self.evictions.note(is_dirty);
            if is_dirty {
                return Some(lpn / self.per_page);
            }
        }
        None
    }

    fn on_writeback(&mut self, _: u32, _: &[u8], _: &Pending) {}

    fn dropped(&mut self, vtpn: u32) {
        for lpn in vtpn * self.per_page..(vtpn + 1) * self.per_page {
            self.set(lpn, None);
        }
    }

    fn copy_page(&mut self, _: u32, _: bool, _: &mut [u8]) -> bool {
        false
    }

    /// One entry per lookup, found by its number; or those that a search of the lists examines.
    fn lookup_steps(&self) -> u64 {
        self.steps
    }

    fn evictions(&self) -> Evictions {
        self.evictions
    }

    fn ram(&self) -> Vec<RamEntry> {
        let real = vec_bytes::<Slot>(self.slots.capacity())
            + vec_bytes::<u32>(self.unused.capacity())
            + hash_bytes::<u32, u32>(self.index.capacity())
            + self.used.bytes();
        // A request is looked up before the cache evicts.
        let entries = self.capacity as u64 + run_pages(4 * self.per_page);
        let most = vec_most::<Slot>(entries)
            + vec_most::<u32>(entries)
            + hash_most::<u32, u32>(entries)
            + self.used.bytes_most(entries);
        let paper = self.capacity as u64 * ENTRY_BYTES as u64;
        let cached = self.index.len() as u64;
        vec![ram_entry(RamPart::MapCache, cached, paper, real, most)]
    }
}
