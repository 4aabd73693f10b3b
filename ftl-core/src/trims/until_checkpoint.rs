//! Trim records, each kept until two complete checkpoints have begun after it: one of the two may
//! be lost.

use super::pages::TrimPages;
use crate::space::Space;
use nand_model::{Geometry, Ppn};

/// A valid trim record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InCheckpoint {
    /// Version of the trim, the record's identity: copies keep it.
    pub(crate) ver: u64,
    /// Number of the first checkpoint that surely contains it.
    pub(crate) contained_in: u64,
}

/// Valid records.
#[derive(Debug)]
pub(crate) struct UntilCheckpoint {
    live: TrimPages<InCheckpoint>,
    limit: u32,
}

impl UntilCheckpoint {
    /// Returns the number of records after which a checkpoint is due: as many as a checkpoint has
    /// pages. So a trim record costs at most 3 programs on average.
    pub(crate) fn limit(geometry: &Geometry, checkpoint_pages: u32) -> u32 {
        checkpoint_pages.max(geometry.pages_per_block)
    }

    pub(crate) fn new(limit: u32) -> Self {
        UntilCheckpoint {
            live: TrimPages::new(),
            limit,
        }
    }

    pub(crate) fn limit_of_records(&self) -> u64 {
        self.limit as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// Returns the bytes of the records: now, and at most. A checkpoint is due at the limit, and a
    /// record stays until two have begun after it.
    pub(crate) fn ram(&self) -> (u64, u64) {
        self.live.ram(3 * u64::from(self.limit))
    }

    pub(crate) fn add(&mut self, ppn: Ppn, record: InCheckpoint) {
        self.live.add(ppn, record);
    }

    pub(crate) fn contains(&self, ppn: Ppn) -> bool {
        self.live.contains(ppn)
    }

    pub(crate) fn on_relocate(&mut self, from: Ppn, to: Ppn) {
        self.live.on_relocate(from, to);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Ppn, InCheckpoint)> {
        self.live.iter()
    }

    /// Returns whether too many records would be in a checkpoint for the first time.
    #[inline]
    pub(crate) fn checkpoint_due(&self, next_set: u64) -> bool {
        self.live.len() as u32 >= self.limit && self.is_checkpoint_due(next_set)
    }

    #[cold]
    fn is_checkpoint_due(&self, next_set: u64) -> bool {
        self.live
            .iter()
            .filter(|(_, record)| record.contained_in >= next_set)
            .count() as u32
            >= self.limit
    }

    /// Removes the records whose first containing set is `obsolete`, and invalidates their pages.
    pub(crate) fn expire(&mut self, space: &mut Space, obsolete: impl Fn(u64) -> bool) {
        self.live
            .expire(space, |record| obsolete(record.contained_in));
    }
}
