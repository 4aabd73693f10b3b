//! A cache of whole, clean mapping pages, which evicts the least recently used one.

use super::lists::Lists;
use crate::int::{index, to_u32, to_u64};
use crate::ram::{hash_bytes, hash_most, vec_bytes, vec_most};
use crate::stats::Evictions;
use rustc_hash::FxHashMap;

struct Slot {
    vtpn: u32,
    page: Box<[u8]>,
}

/// Mapping pages by number, with the same content as on flash: the caller that writes a mapping
/// page also updates the cache.
pub(crate) struct PageLru {
    slots: Vec<Slot>,
    index: FxHashMap<u32, u32>,
    /// Slots in order of use.
    used: Lists,
    capacity: u32,
    page_bytes: usize,
    evictions: Evictions,
}

impl PageLru {
    /// Creates a cache of `capacity` > 0 pages.
    pub(crate) fn new(capacity: u32, page_bytes: u32) -> Self {
        assert!(capacity > 0);
        let page_bytes = index(page_bytes);
        PageLru {
            slots: Vec::new(),
            index: FxHashMap::default(),
            used: Lists::new(1),
            capacity,
            page_bytes,
            evictions: Evictions::default(),
        }
    }

    /// Returns the page, if it is cached, and makes it the most recently used.
    #[inline]
    pub(crate) fn get(&mut self, vtpn: u32) -> Option<&[u8]> {
        let slot = *self.index.get(&vtpn)?;
        self.used.touch(0, slot);
        Some(&self.slots[index(slot)].page)
    }

    /// Returns the page, if it is cached, without a change of the order.
    pub(crate) fn peek(&self, vtpn: u32) -> Option<&[u8]> {
        self.index
            .get(&vtpn)
            .map(|slot| &*self.slots[index(*slot)].page)
    }

    /// Inserts a page, or replaces its content.
    pub(crate) fn put(&mut self, vtpn: u32, page: &[u8]) {
        debug_assert_eq!(
            page.len(),
            self.page_bytes,
            "data of mapping page {vtpn} is not one page long"
        );
        let slot = match self.index.get(&vtpn) {
            Some(slot) => *slot,
            None => self.slot_for(vtpn),
        };
        self.slots[index(slot)].page.copy_from_slice(page);
        self.used.touch(0, slot);
    }

    /// Removes a page.
    pub(crate) fn remove(&mut self, vtpn: u32) {
        let Some(slot) = self.index.remove(&vtpn) else {
            return;
        };
        debug_assert_eq!(
            self.slots[index(slot)].vtpn,
            vtpn,
            "slot {slot} holds another mapping page"
        );
        self.used.remove(slot);
        let last = to_u32(self.slots.len()) - 1;
        self.slots.swap_remove(index(slot));
        if slot != last {
            // The last slot moved here and keeps its position in the order.
            self.index.insert(self.slots[index(slot)].vtpn, slot);
            self.used.rename(last, slot);
        }
    }

    /// Returns the number of cached pages, the allocated bytes, and their upper bound.
    pub(crate) fn size(&self) -> (u64, u64, u64) {
        let (pages, capacity) = (to_u64(self.slots.len()), u64::from(self.capacity));
        let page = to_u64(self.page_bytes);
        let real = pages * page
            + vec_bytes::<Slot>(self.slots.capacity())
            + hash_bytes::<u32, u32>(self.index.capacity())
            + self.used.bytes();
        let most = capacity * page
            + vec_most::<Slot>(capacity)
            + hash_most::<u32, u32>(capacity)
            + self.used.bytes_most(capacity);
        (pages, real, most)
    }

    /// Returns the pages that left the cache to make room; none is dirty.
    pub(crate) fn evictions(&self) -> Evictions {
        self.evictions
    }

    fn slot_for(&mut self, vtpn: u32) -> u32 {
        let slot = if self.slots.len() < index(self.capacity) {
            let page = vec![0; self.page_bytes].into();
            self.slots.push(Slot { vtpn, page });
            to_u32(self.slots.len()) - 1
        } else {
            let slot = self
                .used
                .oldest(0)
                .expect("a full cache has a least recently used page");
            self.used.remove(slot);
            self.evictions.note(false);
            self.index.remove(&self.slots[index(slot)].vtpn);
            self.slots[index(slot)].vtpn = vtpn;
            slot
        };
        self.index.insert(vtpn, slot);
        debug_assert_eq!(
            self.index.len(),
            self.slots.len(),
            "number of indexed mapping pages is not that of cached ones"
        );
        self.used.push(0, slot);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nand_model::SplitMix;

    #[test]
    fn it_agrees_with_a_list_in_order_of_use() {
        let mut cache = PageLru::new(5, 4);
        let mut model: Vec<(u32, [u8; 4])> = Vec::new();
        let mut rng = SplitMix::new(3);
        for step in 0..20_000u32 {
            let vtpn = rng.below(12) as u32;
            let known = model
                .iter()
                .position(|(v, _)| *v == vtpn)
                .map(|i| model.remove(i));
            match rng.below(10) {
                0 => cache.remove(vtpn),
                1..5 => {
                    cache.put(vtpn, &step.to_le_bytes());
                    model.insert(0, (vtpn, step.to_le_bytes()));
                    model.truncate(5);
                }
                _ => {
                    assert_eq!(
                        cache.get(vtpn),
                        known.as_ref().map(|(_, page)| &page[..]),
                        "at {step}"
                    );
                    known.into_iter().for_each(|entry| model.insert(0, entry));
                }
            }
            assert_eq!(cache.size().0, model.len() as u64);
        }
    }
}
