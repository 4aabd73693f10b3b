//! Trim records on flash, and how long each must stay.
//!
//! A record is valid until two complete checkpoints have begun after it, so that either of them may
//! be lost.

use crate::ram::{tree_bytes, tree_most};
use nand_model::{Geometry, Ppn};
use std::collections::BTreeMap;

/// A valid trim record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Version of the trim, the record's identity: copies keep it.
    pub(super) ver: u64,
    /// Number of the first checkpoint that surely contains it.
    pub(super) contained_in: u64,
}

#[derive(Debug)]
pub(super) struct Trims {
    live: BTreeMap<Ppn, Record>,
    limit: u32,
}

impl Trims {
    /// Returns the number of records after which a checkpoint is due: as many as a checkpoint has
    /// pages. So a trim record costs at most 3 programs on average.
    pub(super) fn limit(geometry: &Geometry, checkpoint_pages: u32) -> u32 {
        checkpoint_pages.max(geometry.pages_per_block)
    }

    pub(super) fn new(limit: u32) -> Self {
        Trims {
            live: BTreeMap::new(),
            limit,
        }
    }

    pub(super) fn limit_of_records(&self) -> u64 {
        self.limit as u64
    }

    pub(super) fn len(&self) -> usize {
        self.live.len()
    }

    /// Returns the bytes of the records: now, and at most. A checkpoint is due at the limit, and a
    /// record stays until two have begun after it.
    pub(super) fn ram(&self) -> (u64, u64) {
        (
            tree_bytes::<Ppn, Record>(self.live.len()),
            tree_most::<Ppn, Record>(3 * self.limit as u64),
        )
    }

    pub(super) fn add(&mut self, ppn: Ppn, record: Record) {
        let other = self.live.insert(ppn, record);
        assert!(other.is_none(), "page {ppn} has two trims");
    }

    pub(super) fn on_relocate(&mut self, from: Ppn, to: Ppn) {
        let record = self.live.remove(&from).expect("the trim record is listed");
        let other = self.live.insert(to, record);
        assert!(other.is_none(), "page {to} has two trims");
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Ppn, Record)> {
        self.live.iter().map(|(ppn, record)| (*ppn, *record))
    }

    /// Returns whether too many records would be in a checkpoint for the first time.
    #[inline]
    pub(super) fn checkpoint_due(&self, next_set: u64) -> bool {
        self.live.len() as u32 >= self.limit && self.is_checkpoint_due(next_set)
    }

    #[cold]
    fn is_checkpoint_due(&self, next_set: u64) -> bool {
        self.live
            .values()
            .filter(|record| record.contained_in >= next_set)
            .count() as u32
            >= self.limit
    }

    /// Removes the records whose first containing set is `obsolete`. Returns their pages.
    pub(super) fn expire(&mut self, obsolete: impl Fn(u64) -> bool) -> Vec<Ppn> {
        let gone: Vec<_> = self
            .live
            .iter()
            .filter(|(_, record)| obsolete(record.contained_in))
            .map(|(ppn, _)| *ppn)
            .collect();
        self.live.retain(|_, record| !obsolete(record.contained_in));
        gone
    }
}
