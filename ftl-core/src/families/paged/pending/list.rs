//! The pending entries of one mapping page.

use crate::format::UNMAPPED;
use crate::ram::vec_bytes;
use nand_model::{PageSplit, Pbn, Ppn};

/// Entries that a mapping page may have: their number fits between the flags.
pub(super) const MOST_ENTRIES: u32 = 1 << ORDER_BITS;

const ORDER_BITS: u32 = 14;
const ORDER: u16 = (1 << ORDER_BITS) - 1;
const UPDATE: u16 = 1 << 15;
const INVALIDATE: u16 = 1 << ORDER_BITS;

/// Entries for which an almost empty list keeps its memory.
const KEPT: usize = 8;

/// Entries of a list from which single ones are removed.
const SHORT: usize = 64;

/// Pending entry of a logical page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(super) ppn: u32,
    /// The map on flash does not contain the entry yet.
    pub(crate) update: bool,
    /// The page that the map on flash names is still counted as valid.
    pub(crate) invalidate: bool,
}

impl Entry {
    /// Returns the location of the page; `None` for a tombstone.
    #[inline]
    pub(crate) fn ppn(&self) -> Option<Ppn> {
        (self.ppn != UNMAPPED).then(|| Ppn::new(self.ppn))
    }
}

/// An entry in 8 bytes.
#[derive(Clone, Copy, Debug)]
struct Slot {
    ppn: u32,
    /// Upper half: number of the entry in the mapping page. Lower half: the two flags and, for a
    /// dirty entry, its number in the order in which entries became dirty. In one word, because a
    /// search compares words of that size fastest.
    key: u32,
}

/// Slots that a search compares without a branch.
const COMPARED: usize = 16;

impl Slot {
    #[inline]
    fn new(index: u16, state: u16, ppn: u32) -> Slot {
        let key = u32::from(index) << 16 | u32::from(state);
        Slot { ppn, key }
    }

    #[inline]
    fn index(self) -> u16 {
        (self.key >> 16) as u16
    }

    #[inline]
    fn state(self) -> u16 {
        self.key as u16
    }

    #[inline]
    fn set_state(&mut self, state: u16) {
        *self = Slot::new(self.index(), state, self.ppn);
    }

    #[inline]
    fn is_dirty(self) -> bool {
        self.state() & UPDATE != 0
    }

    #[inline]
    fn ppn(self) -> Option<Ppn> {
        (self.ppn != UNMAPPED).then(|| Ppn::new(self.ppn))
    }

    #[inline]
    fn entry(self) -> Entry {
        Entry {
            ppn: self.ppn,
            update: self.is_dirty(),
            invalidate: self.state() & INVALIDATE != 0,
        }
    }
}

/// A dirty entry of a mapping page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// Number of the entry in the mapping page.
    pub(crate) index: u16,
    pub(crate) entry: Entry,
    /// Number in the order in which the entries became dirty, from 0 on.
    pub(crate) order: u16,
}

/// Entries in any order, which only additions and removals change. So an addition moves no other
/// entry; a search compares all, many at once.
#[derive(Debug, Default)]
pub(super) struct List {
    slots: Vec<Slot>,
    dirty: u32,
    since: u64,
    /// Number of the last walk that visited the list.
    visited: u64,
}

impl List {
    /// Returns whether this walk visits the list for the first time.
    #[inline]
    pub(super) fn visit(&mut self, walk: u64) -> bool {
        std::mem::replace(&mut self.visited, walk) != walk
    }

    pub(super) fn dirty(&self) -> u32 {
        self.dirty
    }

    pub(super) fn since(&self) -> u64 {
        self.since
    }

    /// Returns the position of an entry.
    #[inline]
    fn find(&self, index: u16) -> Option<usize> {
        let is_it = |slot: &Slot| slot.key >> 16 == u32::from(index);
        let (chunks, rest) = self.slots.as_chunks::<COMPARED>();
        let found = chunks
            .iter()
            .position(|chunk| chunk.iter().fold(false, |any, slot| any | is_it(slot)));
        let (begin, slots) = match found {
            Some(chunk) => (chunk * COMPARED, &chunks[chunk][..]),
            None => (chunks.len() * COMPARED, rest),
        };
        slots.iter().position(is_it).map(|at| begin + at)
    }

    #[inline]
    pub(super) fn get(&self, index: u16) -> Option<Entry> {
        self.find(index).map(|at| self.slots[at].entry())
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = (u16, Entry)> {
        self.slots.iter().map(|slot| (slot.index(), slot.entry()))
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = Change> {
        let dirty = self.slots.iter().filter(|slot| slot.is_dirty());
        dirty.map(|slot| Change {
            index: slot.index(),
            entry: slot.entry(),
            order: slot.state() & ORDER,
        })
    }

    /// Points an entry that is there at its new location, and returns its position and the old
    /// entry. It becomes dirty. `since`: the first program that the mapping page may lack, if no
    /// entry is dirty yet.
    #[inline]
    pub(super) fn replace(&mut self, index: u16, ppn: u32, since: u64) -> (usize, Entry) {
        let at = self.find(index).expect("an entry with its bit is listed");
        let old = self.slots[at];
        let state = match old.is_dirty() {
            true => old.state(),
            false => self.next_dirty(since) | old.state() & INVALIDATE,
        };
        self.slots[at] = Slot::new(index, state, ppn);
        (at, old.entry())
    }

    /// Adds a dirty entry that is not there. `fresh` is its invalidate flag, `since` as in
    /// [`Self::replace`].
    #[inline]
    pub(super) fn add(&mut self, index: u16, ppn: u32, fresh: bool, since: u64) {
        let state = self.next_dirty(since) | if fresh { INVALIDATE } else { 0 };
        self.slots.push(Slot::new(index, state, ppn));
    }

    /// Counts one more dirty entry, and returns its state.
    #[inline]
    fn next_dirty(&mut self, since: u64) -> u16 {
        if self.dirty == 0 {
            self.since = since;
        }
        self.dirty += 1;
        UPDATE | (self.dirty - 1) as u16
    }

    /// Returns whether a dirty entry at another position points into this block. The neighbours
    /// are looked at first, because pages of a block are mostly written together.
    pub(super) fn has_other_in(&self, at: usize, block: Pbn, split: PageSplit) -> bool {
        // No block has the page of a tombstone.
        let is_there = |slot: &Slot| slot.is_dirty() && split.block_of(Ppn::new(slot.ppn)) == block;
        let (before, after) = (&self.slots[..at], &self.slots[at + 1..]);
        after.first().is_some_and(is_there)
            || before.iter().rev().any(is_there)
            || after.iter().any(is_there)
    }

    pub(super) fn clear_invalidate(&mut self, index: u16) {
        let at = (self.find(index)).expect("a superseded page has a pending entry");
        self.slots[at].key &= !u32::from(INVALIDATE);
    }

    /// Marks the dirty entries as clean, except those at the indexes `left`, in the order of
    /// [`Self::changes`]. Calls `written` with index and location of each one, which returns
    /// whether the entry stays. Returns the number of removed entries.
    pub(super) fn clean(
        &mut self,
        left: &[u16],
        mut written: impl FnMut(u16, Option<Ppn>) -> bool,
    ) -> u32 {
        let before = self.slots.len();
        let mut left = left.iter().copied().peekable();
        let mut still_dirty = 0;
        self.slots.retain_mut(|slot| {
            if !slot.is_dirty() {
                return true;
            }
            if left.next_if_eq(&slot.index()).is_some() {
                still_dirty += 1;
                return true;
            }
            slot.set_state(0);
            written(slot.index(), slot.ppn())
        });
        debug_assert!(left.next().is_none(), "an entry that is left is not dirty");
        self.dirty = still_dirty;
        if still_dirty > 0 {
            self.renumber();
        }
        self.release_memory();
        (before - self.slots.len()) as u32
    }

    /// Numbers the dirty entries from 0 on, in their order.
    fn renumber(&mut self) {
        let mut dirty: Vec<&mut Slot> = self.slots.iter_mut().filter(|s| s.is_dirty()).collect();
        dirty.sort_unstable_by_key(|slot| slot.state() & ORDER);
        for (order, slot) in (0..).zip(dirty) {
            slot.set_state(slot.state() & !ORDER | order);
        }
    }

    /// Returns whether removing entries one by one is cheaper than a pass over all.
    pub(super) fn is_short(&self) -> bool {
        self.slots.len() <= SHORT
    }

    /// Removes an entry if it is there, which then is clean. Returns the number of removed entries.
    pub(super) fn remove_one(&mut self, index: u16) -> u32 {
        let Some(at) = self.find(index) else { return 0 };
        let slot = self.slots.swap_remove(at);
        assert!(!slot.is_dirty(), "entry {index} is removed, but dirty");
        self.release_memory();
        1
    }

    /// Removes the clean entries for which `is_gone` returns true for index and location. Returns
    /// their number.
    pub(super) fn remove_clean(&mut self, mut is_gone: impl FnMut(u16, Ppn) -> bool) -> u32 {
        let before = self.slots.len();
        self.slots
            .retain(|slot| slot.is_dirty() || !is_gone(slot.index(), Ppn::new(slot.ppn)));
        self.release_memory();
        (before - self.slots.len()) as u32
    }

    /// Gives memory back when less than a quarter of it is used.
    fn release_memory(&mut self) {
        let (used, capacity) = (self.slots.len(), self.slots.capacity());
        if capacity > KEPT && used < capacity / 4 {
            self.slots.shrink_to(KEPT.max(2 * used));
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        vec_bytes::<Slot>(self.slots.capacity())
    }

    /// Returns the upper bound of the bytes of the slots, for this many entries in this many lists.
    pub(super) fn bytes_most(entries: u64, lists: u64) -> u64 {
        let slot = size_of::<Slot>() as u64;
        (4 * entries + KEPT as u64 * lists) * slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::SplitMix;
    use std::collections::BTreeMap;

    /// Entries and their order agree with a plain model under random changes, and memory follows
    /// their number.
    #[test]
    fn lists_agree_with_a_model() {
        let mut list = List::default();
        // By index: location, whether dirty and invalidate, when it became dirty.
        let mut model: BTreeMap<u16, (u32, bool, bool, u64)> = BTreeMap::new();
        let mut rng = SplitMix::new(5);
        for step in 0..20_000 {
            let index = rng.below(200) as u16;
            match rng.below(100) {
                0 => {
                    let left: Vec<u16> = (list.changes())
                        .map(|change| change.index)
                        .filter(|_| rng.one_in(4))
                        .collect();
                    let mut seen = Vec::new();
                    list.clean(&left, |index, ppn| {
                        seen.push((index, ppn.map_or(UNMAPPED, Ppn::raw)));
                        ppn.is_some_and(|ppn| ppn.raw() % 2 == 0)
                    });
                    seen.sort_unstable();
                    let mut expected = Vec::new();
                    model.retain(|index, entry| {
                        if !entry.1 || left.contains(index) {
                            return true;
                        }
                        expected.push((*index, entry.0));
                        (entry.1, entry.2) = (false, false);
                        entry.0 % 2 == 0
                    });
                    assert_eq!(seen, expected);
                }
                1..5 => {
                    let before = model.len();
                    model.retain(|at, entry| entry.1 || *at % 7 != index % 7);
                    let removed = list.remove_clean(|at, _| at % 7 == index % 7);
                    assert_eq!(removed as usize, before - model.len());
                }
                5 => {
                    if model.get(&index).is_none_or(|entry| !entry.1) {
                        let was_there = model.remove(&index).is_some();
                        assert_eq!(list.remove_one(index), u32::from(was_there));
                    }
                }
                6..15 => {
                    if let Some(entry) = model.get_mut(&index) {
                        list.clear_invalidate(index);
                        entry.2 = false;
                    }
                }
                _ => {
                    let (ppn, fresh) = (rng.below(1000) as u32, rng.one_in(2));
                    let known = model.get(&index).copied();
                    assert_eq!(list.get(index).map(|old| old.ppn), known.map(|old| old.0));
                    match known {
                        None => list.add(index, ppn, fresh, step),
                        Some((old, ..)) => assert_eq!(list.replace(index, ppn, step).1.ppn, old),
                    }
                    let (_, dirty, invalidate, order) = known.unwrap_or((0, false, fresh, 0));
                    let order = if dirty { order } else { step };
                    model.insert(index, (ppn, true, invalidate, order));
                }
            }
            let entries = list.entries();
            let entries = entries.map(|(index, e)| (index, (e.ppn, e.update, e.invalidate)));
            let expected = model.iter().map(|(index, e)| (*index, (e.0, e.1, e.2)));
            assert_eq!(entries.collect::<BTreeMap<_, _>>(), expected.collect());
            assert_eq!(list.slots.len(), model.len());
            let mut changes: Vec<Change> = list.changes().collect();
            changes.sort_unstable_by_key(|change| change.order);
            let mut dirty: Vec<_> = model.iter().filter(|(_, entry)| entry.1).collect();
            dirty.sort_unstable_by_key(|(_, entry)| entry.3);
            assert!(changes.iter().map(|c| c.order).eq(0..list.dirty() as u16));
            assert!(
                changes
                    .iter()
                    .map(|c| &c.index)
                    .eq(dirty.iter().map(|(index, _)| *index))
            );
            assert!(list.bytes() <= List::bytes_most(model.len() as u64, 1));
        }
    }
}
