//! The write buffer of a map that is smaller if runs of pages are in the order of their addresses
//! ([`PageMap::SORTED`](super::PageMap::SORTED)): it sorts pages before they are programmed.
//!
//! It acknowledges writes in RAM, until it is full or a FLUSH empties it.
//!
//! Invariants: a buffered page is newer than every version on flash. It leaves the buffer when it
//! is programmed or trimmed. If power fails, it is lost: no FLUSH has covered it.

use crate::addr::Lpn;
use crate::int::{index, to_u32, to_u64};
use crate::ram::{tree_bytes, tree_most, vec_bytes};
use std::collections::BTreeMap;

#[derive(Clone, Copy)]
struct Entry {
    /// Its place in the data.
    place: u32,
    /// Whether the map has no version of the page.
    is_new: bool,
}

/// Pages in the order of their addresses, with their newest content.
pub(super) struct WriteBuffer {
    /// Pages that fit.
    capacity: u32,
    page_bytes: usize,
    /// Whether content is stored at all.
    has_data: bool,
    pages: BTreeMap<u32, Entry>,
    data: Vec<u8>,
    /// Places of `data` without a page.
    free: Vec<u32>,
    /// Buffered pages that the map lacks.
    new_pages: u64,
    /// The run that is programmed next: addresses and content.
    pub(super) run: Vec<Lpn>,
    pub(super) content: Vec<u8>,
    /// Set while the pages are programmed: their blocks come from the reserve.
    pub(super) is_emptying: bool,
}

impl WriteBuffer {
    /// Creates an empty buffer. Without `has_data` it keeps addresses alone.
    pub(super) fn new(capacity: u32, page_bytes: usize, has_data: bool) -> Self {
        WriteBuffer {
            capacity,
            page_bytes,
            has_data,
            pages: BTreeMap::new(),
            data: Vec::new(),
            free: Vec::new(),
            new_pages: 0,
            run: Vec::new(),
            content: Vec::new(),
            is_emptying: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Returns whether it has no room for another page.
    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.capacity
    }

    pub(super) fn len(&self) -> u32 {
        to_u32(self.pages.len())
    }

    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns the number of buffered pages that the map does not contain.
    pub(super) fn new_pages(&self) -> u64 {
        self.new_pages
    }

    pub(super) fn has(&self, lpn: Lpn) -> bool {
        self.pages.contains_key(&lpn.raw())
    }

    /// Returns the number of consecutive pages from `first` on, at most `most`, that are all
    /// buffered, or all not.
    pub(super) fn run_from(&self, first: Lpn, most: u32) -> (u32, bool) {
        let is_here = self.has(first);
        let next = self.pages.range(first.raw()..first.raw() + most);
        let run = match is_here {
            true => to_u32(
                next.zip(first.raw()..)
                    .take_while(|((lpn, _), wanted)| **lpn == *wanted)
                    .count(),
            ),
            false => next
                .map(|(lpn, _)| lpn - first.raw())
                .next()
                .unwrap_or(most),
        };
        (run, is_here)
    }

    /// Buffers a page. `is_new`: the map lacks it.
    pub(super) fn put(&mut self, lpn: Lpn, bytes: &[u8], is_new: bool) {
        let place = match self.pages.get(&lpn.raw()) {
            Some(entry) => entry.place,
            None => {
                self.new_pages += u64::from(is_new);
                let place = self.new_place();
                self.pages.insert(lpn.raw(), Entry { place, is_new });
                place
            }
        };
        if self.has_data {
            let at = index(place) * self.page_bytes;
            self.data[at..][..self.page_bytes].copy_from_slice(bytes);
        }
    }

    fn new_place(&mut self) -> u32 {
        if !self.has_data {
            return 0;
        }
        self.free.pop().unwrap_or_else(|| {
            let place = to_u32(self.data.len() / self.page_bytes);
            self.data.resize(self.data.len() + self.page_bytes, 0);
            place
        })
    }

    /// Returns the content of a buffered page; zeros without data.
    pub(super) fn read(&self, lpn: Lpn, out: &mut [u8]) {
        match self.pages.get(&lpn.raw()) {
            Some(entry) if self.has_data => {
                out.copy_from_slice(
                    &self.data[index(entry.place) * self.page_bytes..][..out.len()],
                );
            }
            _ => out.fill(0),
        }
    }

    /// Drops a page, if it is buffered.
    pub(super) fn remove(&mut self, lpn: Lpn) {
        if let Some(entry) = self.pages.remove(&lpn.raw()) {
            self.new_pages -= u64::from(entry.is_new);
            if self.has_data {
                self.free.push(entry.place);
            }
        }
    }

    /// Makes the first pages, at most `most`, the [run](Self::run).
    pub(super) fn prepare_run(&mut self, most: usize) {
        self.run.clear();
        self.content.clear();
        for (lpn, entry) in self.pages.iter().take(most) {
            self.run.push(Lpn::new(*lpn));
            if self.has_data {
                let at = index(entry.place) * self.page_bytes;
                self.content
                    .extend_from_slice(&self.data[at..][..self.page_bytes]);
            }
        }
        self.content.resize(self.run.len() * self.page_bytes, 0);
    }

    /// Returns bytes by the paper's count, allocated bytes, and the most that they become.
    pub(super) fn ram(&self, block_pages: u64) -> (u64, u64, u64) {
        let (pages, page) = (u64::from(self.capacity()), to_u64(self.page_bytes));
        let paper = pages * page;
        let now = vec_bytes::<u8>(self.data.capacity() + self.content.capacity())
            + vec_bytes::<u32>(self.free.capacity())
            + vec_bytes::<Lpn>(self.run.capacity())
            + tree_bytes::<u32, Entry>(self.pages.len());
        // A vector that grows by doubling has at most twice what it needs: the pages of the buffer,
        // and a run of at most a block.
        let most = (2 * pages + 2 * block_pages) * (page + 4)
            + 8 * pages
            + tree_most::<u32, Entry>(pages)
            + 4 * page;
        (paper, now, most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer() -> WriteBuffer {
        WriteBuffer::new(4, 2, true)
    }

    #[test]
    fn a_run_is_in_the_order_of_addresses_with_the_newest_content() {
        let mut buffer = buffer();
        for (lpn, byte) in [(9, 1), (3, 2), (9, 3), (7, 4)] {
            buffer.put(Lpn::new(lpn), &[byte; 2], lpn != 7);
        }
        assert_eq!((buffer.len(), buffer.new_pages()), (3, 2));
        buffer.prepare_run(2);
        assert_eq!(buffer.run, [Lpn::new(3), Lpn::new(7)]);
        assert_eq!(buffer.content, [2, 2, 4, 4]);
        buffer.remove(Lpn::new(3));
        buffer.remove(Lpn::new(4));
        buffer.put(Lpn::new(5), &[5; 2], true);
        assert_eq!((buffer.len(), buffer.new_pages()), (3, 2));
        let mut out = [0; 2];
        buffer.read(Lpn::new(9), &mut out);
        assert_eq!(out, [3, 3]);
    }

    #[test]
    fn runs_of_a_read_are_all_buffered_or_all_not() {
        let mut buffer = buffer();
        for lpn in [4, 5, 8] {
            buffer.put(Lpn::new(lpn), &[0; 2], true);
        }
        let run = |first, most| buffer.run_from(Lpn::new(first), most);
        assert_eq!(
            (run(2, 9), run(4, 9), run(4, 1)),
            ((2, false), (2, true), (1, true))
        );
        assert_eq!(
            (run(6, 9), run(8, 9), run(9, 9)),
            ((2, false), (1, true), (9, false))
        );
        assert_eq!(run(6, 1), (1, false));
    }
}
