//! Trim records until mapping pages contain them.
//!
//! A record is valid while a mapping page needs it. A mapping page in which it trimmed a page needs
//! it until a version on flash contains the trim, or a newer record trims pages there and covers
//! the mapping page as a whole. A newer record that found no mapped page there does not count: it
//! may expire while tombstones of the older one are pending, which a mount then restores from the
//! older one alone. There are at most as many records as pages in a block.

use crate::format::trim::TrimRange;
use crate::ram::{tree_bytes, tree_most, vec_bytes, vec_most};
use nand_model::{Geometry, Ppn};
use std::collections::BTreeMap;
use std::ops::Range;

/// A valid record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OfMapPages {
    pub(crate) ppn: Ppn,
    pub(crate) range: TrimRange,
    /// Mapping pages in which it trimmed a page.
    pub(crate) touched: Vec<u32>,
}

/// Valid records, by the program number of their trim.
#[derive(Debug, Default)]
pub(crate) struct UntilWritten {
    live: BTreeMap<u64, OfMapPages>,
}

impl UntilWritten {
    /// Returns the maximum number of valid records.
    pub(crate) fn limit(geometry: &Geometry) -> u32 {
        geometry.pages_per_block
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    /// Returns the bytes of the records: now, and at most. A trim touches at most `pages` mapping
    /// pages.
    pub(crate) fn ram(&self, geometry: &Geometry, pages: u64) -> (u64, u64) {
        let touched = self.live.values();
        let touched = touched.map(|record| vec_bytes::<u32>(record.touched.capacity()));
        let limit = Self::limit(geometry) as u64 + 1;
        (
            tree_bytes::<u64, OfMapPages>(self.live.len()) + touched.sum::<u64>(),
            tree_most::<u64, OfMapPages>(limit) + limit * vec_most::<u32>(pages),
        )
    }

    pub(crate) fn add(&mut self, seq: u64, record: OfMapPages) {
        let known = self.live.insert(seq, record);
        assert!(known.is_none(), "trim record {seq} is already listed");
    }

    pub(crate) fn on_relocate(&mut self, seq: u64, to: Ppn) {
        self.live
            .get_mut(&seq)
            .expect("the trim record is listed")
            .ppn = to;
    }

    pub(crate) fn get(&self, seq: u64) -> Option<&OfMapPages> {
        self.live.get(&seq)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &OfMapPages)> {
        self.live.iter().map(|(seq, record)| (*seq, record))
    }

    /// Returns the mapping pages that still need this record. By mapping page, `upto` is the last
    /// program whose changes its version on flash contains, and `pages_of` returns its logical
    /// pages.
    pub(crate) fn unwritten(
        &self,
        seq: u64,
        record: &OfMapPages,
        upto: &[u64],
        pages_of: impl Fn(u32) -> Range<u32>,
    ) -> Vec<u32> {
        let open = |vtpn: &u32| {
            let pages = pages_of(*vtpn);
            let replaces =
                |newer: &OfMapPages| newer.touched.contains(vtpn) && covers(&newer.range, &pages);
            upto[*vtpn as usize] < seq
                && !self.live.range(seq + 1..).any(|(_, newer)| replaces(newer))
        };
        record.touched.iter().copied().filter(open).collect()
    }

    /// Returns the records that no mapping page needs.
    pub(crate) fn expired(&self, upto: &[u64], pages_of: impl Fn(u32) -> Range<u32>) -> Vec<u64> {
        let unneeded = |(seq, record): &(u64, &OfMapPages)| {
            self.unwritten(*seq, record, upto, &pages_of).is_empty()
        };
        let expired = self.iter().filter(unneeded);
        expired.map(|(seq, _)| seq).collect()
    }

    /// Removes a record.
    pub(crate) fn remove(&mut self, seq: u64) -> OfMapPages {
        let record = self.live.remove(&seq);
        record.expect("the trim record is listed")
    }
}

/// Returns whether the range covers all of these pages.
pub(crate) fn covers(range: &TrimRange, pages: &Range<u32>) -> bool {
    range.lpn <= pages.start && pages.end <= range.lpn + range.count
}
