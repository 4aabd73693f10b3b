//! The ring of entries in RAM, which the cache area repeats byte for byte.
//!
//! Terms: a *position* grows forever; its remainder by the ring's size is the place. An entry never
//! crosses the end of the ring: it begins at the next multiple of the size instead.

use super::format::{EntryHead, Kind, RING_BLOCK};
use ftld_kit::convert::{to_u64, to_usize};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

/// An entry in the ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) head: EntryHead,
    /// Units before this one need no write-back on account of this entry.
    pub(super) next: u64,
    /// Whether a write-back of its units has begun.
    pub(super) begun: bool,
    pub(super) born: Instant,
}

impl Entry {
    pub(super) fn units(&self) -> Range<u64> {
        self.head.first..self.head.first + self.head.units
    }

    /// Returns the position of the data of its unit `number`.
    pub(super) fn data_at(&self, number: u64, unit: u32) -> u64 {
        self.head.at + RING_BLOCK + (number - self.head.first) * u64::from(unit)
    }
}

/// The ring.
pub(super) struct Ring {
    bytes: Vec<u8>,
    unit: u32,
    salt: u64,
    pub(super) entries: VecDeque<Entry>,
    /// Entries at the front whose units are written back or superseded.
    pub(super) done: usize,
    next_at: u64,
    next_seq: u64,
    /// The tail in the area's header: space before it is free.
    pub(super) freed: u64,
}

impl Ring {
    pub(super) fn new(bytes: u64, unit: u32, salt: u64, tail: u64, seq: u64) -> Ring {
        Ring {
            bytes: vec![0; to_usize(bytes)],
            unit,
            salt,
            entries: VecDeque::new(),
            done: 0,
            next_at: tail,
            next_seq: seq,
            freed: tail,
        }
    }

    pub(super) fn size(&self) -> u64 {
        to_u64(self.bytes.len())
    }

    pub(super) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Returns position and number of the first entry that a replay needs.
    pub(super) fn tail(&self) -> (u64, u64) {
        let front = self.entries.front();
        front.map_or((self.next_at, self.next_seq), |entry| {
            (entry.head.at, entry.head.seq)
        })
    }

    /// Returns whether no entry needs a write-back.
    pub(super) fn is_done(&self) -> bool {
        self.done == self.entries.len()
    }

    /// Returns whether a replay would find no entry.
    pub(super) fn is_forgotten(&self) -> bool {
        self.freed == self.next_at
    }

    /// Returns the first position from `at` on at which an entry of `bytes` does not cross the end.
    pub(super) fn fit(&self, at: u64, bytes: u64) -> u64 {
        if at % self.size() + bytes > self.size() {
            at.next_multiple_of(self.size())
        } else {
            at
        }
    }

    /// Returns the position of the next entry if the ring has room for its bytes.
    pub(super) fn place(&self, bytes: u64) -> Option<u64> {
        let at = self.fit(self.next_at, bytes);
        (at + bytes - self.freed <= self.size()).then_some(at)
    }

    pub(super) fn place_of(&self, at: u64) -> u64 {
        at % self.size()
    }

    pub(super) fn slice(&self, at: u64, bytes: u64) -> &[u8] {
        &self.bytes[to_usize(at % self.size())..][..to_usize(bytes)]
    }

    pub(super) fn slice_mut(&mut self, at: u64, bytes: u64) -> &mut [u8] {
        let place = to_usize(at % self.size());
        &mut self.bytes[place..][..to_usize(bytes)]
    }

    /// Returns the content of a unit at its position.
    pub(super) fn unit_at(&self, at: u64) -> &[u8] {
        self.slice(at, u64::from(self.unit))
    }

    /// Makes the header of the next entry, whose data is in place, and returns it.
    pub(super) fn seal(&mut self, at: u64, kind: Kind, first: u64, units: u64) -> EntryHead {
        let head = EntryHead {
            at,
            seq: self.next_seq,
            kind,
            first,
            units,
        };
        let (bytes, salt) = (head.bytes(self.unit), self.salt);
        head.encode(salt, self.slice_mut(at, bytes));
        head
    }

    /// Adds an entry that is in the area.
    pub(super) fn push(&mut self, head: EntryHead) {
        assert_eq!(head.seq, self.next_seq, "entries are numbered without gaps");
        self.next_at = head.at + head.bytes(self.unit);
        self.next_seq += 1;
        self.entries.push_back(Entry {
            head,
            next: head.first,
            begun: false,
            born: Instant::now(),
        });
        debug_assert!(
            self.next_at - self.tail().0 <= self.size(),
            "more live entries than the ring has room for"
        );
    }

    /// Removes the entries at the front that are done.
    pub(super) fn release(&mut self) {
        self.entries.drain(..self.done);
        self.done = 0;
    }

    /// Returns the bytes of the entries at the front that are done.
    pub(super) fn done_bytes(&self) -> u64 {
        let next = self.entries.get(self.done);
        next.map_or(self.next_at, |entry| entry.head.at) - self.tail().0
    }
}
