//! Holes of the image file: places that the host has not allocated read as zeros.
//!
//! Invariant: a place is reported as a hole only if the host has said so during this open.

use crate::store::file::disk::Disk;

/// Answers whether places are holes. One question to the host serves all places up to the next
/// data, so a pass over ascending places asks once per hole.
pub(super) struct Holes<'a> {
    disk: &'a dyn Disk,
    /// The bytes from the first to the second are a hole.
    hole: (u64, u64),
}

impl<'a> Holes<'a> {
    pub(super) fn new(disk: &'a dyn Disk) -> Self {
        Holes { disk, hole: (0, 0) }
    }

    /// Whether the place is inside the hole that was found last.
    fn is_known(&self, at: u64, bytes: u64) -> bool {
        self.hole.0 <= at && at + bytes <= self.hole.1
    }

    /// Whether the host has allocated no space for the place.
    pub(super) fn is_hole(&mut self, at: u64, bytes: u64) -> bool {
        if !(self.hole.0 <= at && at < self.hole.1) {
            self.hole = (at, self.disk.next_data(at).unwrap_or(u64::MAX));
        }
        self.is_known(at, bytes)
    }
}
