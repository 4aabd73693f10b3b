//! Trims, which the papers do not cover.
//!
//! A trim is on flash before it is acknowledged: as a record (role TRIM, one range) in the mapping
//! area. In RAM it becomes a pending *tombstone* per mapped page, written into the map like any
//! dirty entry. A mapping page that is covered as a whole is dropped from the directory instead,
//! without a program. It must be readable for that: it names the pages that become invalid.
//!
//! A record is valid while a mapping page needs it. A mapping page that it touches needs it until a
//! version on flash contains the trim. The need also ends when a newer record touches the mapping
//! page and covers it as a whole. A newer record that found no mapped page there does not touch it.
//! The newer record may expire while the tombstones of the older one are still pending; then only
//! the older record restores them at a mount. There are at most as many records as pages in a
//! block. At that limit, the records with the fewest mapping pages to write are made obsolete. If
//! power fails, mount replays the records that a mapping page does not contain.

use super::pending::Change;
use super::policy::Policy;
use super::state::{MAP, PagedFtl};
use crate::error::FtlError;
use crate::format::trim::{self, TrimRange};
use crate::format::{Flags, PageTag, Role};
use crate::ram::{tree_bytes, tree_most, vec_bytes, vec_most};
use nand_model::{Cause, Geometry, Ppn};
use std::collections::BTreeMap;

/// A valid trim record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) ppn: Ppn,
    pub(crate) range: TrimRange,
    /// Mapping pages in which it trimmed a page.
    pub(crate) touched: Vec<u32>,
}

/// Valid records, by the program number of their trim.
#[derive(Debug, Default)]
pub(crate) struct Trims {
    live: BTreeMap<u64, Record>,
}

impl Trims {
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
            tree_bytes::<u64, Record>(self.live.len()) + touched.sum::<u64>(),
            tree_most::<u64, Record>(limit) + limit * vec_most::<u32>(pages),
        )
    }

    pub(crate) fn add(&mut self, seq: u64, record: Record) {
        let known = self.live.insert(seq, record);
        assert!(known.is_none(), "trim record {seq} is already listed");
    }

    pub(crate) fn on_relocate(&mut self, seq: u64, to: Ppn) {
        self.live
            .get_mut(&seq)
            .expect("the trim record is listed")
            .ppn = to;
    }

    pub(crate) fn get(&self, seq: u64) -> Option<&Record> {
        self.live.get(&seq)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Record)> {
        self.live.iter().map(|(seq, record)| (*seq, record))
    }
}

/// Returns whether the range covers all of these pages.
pub(crate) fn covers(range: &TrimRange, pages: &std::ops::Range<u32>) -> bool {
    range.lpn <= pages.start && pages.end <= range.lpn + range.count
}

impl<P: Policy> PagedFtl<P> {
    /// Trims a range, so that it reads as zeros.
    pub(crate) fn trim_range(&mut self, first: u32, count: u32) -> Result<(), FtlError> {
        if self.map.trims.len() as u32 >= Trims::limit(&self.space.geometry()) {
            self.retire_records()?;
        }
        self.ensure_space(MAP)?;
        let ver = self.next_ver;
        self.next_ver += 1;
        let range = TrimRange {
            lpn: first,
            count,
            ver,
        };
        let seq = self.write_record(range)?;
        assert!(
            seq <= self.space.flash.pseq(),
            "trim {seq} is newer than the last program, {}",
            self.space.flash.pseq()
        );
        for vtpn in self
            .map
            .trims
            .get(seq)
            .expect("the trim record has just been added")
            .touched
            .clone()
        {
            let pages = self.pages_of(vtpn);
            let trimmed = first.max(pages.start)..(first + count).min(pages.end);
            if !covers(&range, &pages) {
                self.add_tombstones(trimmed, seq)?;
                continue;
            }
            // The next mount replays the record, so an unreadable mapping page does not fail the
            // trim. It stays in the directory, and its pages become tombstones.
            match self.load_map_page(vtpn, false, Cause::Trim) {
                Ok(()) => self.drop_map_page(vtpn)?,
                Err(FtlError::PowerLost) => return Err(FtlError::PowerLost),
                Err(_) => self.add_tombstones(trimmed, seq)?,
            }
        }
        self.limit_pending()
    }

    /// Programs a record, which is valid from then on.
    fn write_record(&mut self, range: TrimRange) -> Result<u64, FtlError> {
        let mut page = vec![0; self.space.geometry().page_bytes as usize];
        trim::encode(&[range], &mut page);
        let seq = self.space.flash.pseq() + 1;
        let tag = PageTag {
            role: Role::Trim,
            flags: Flags::NONE,
            lpn: range.lpn,
            ver: seq,
        };
        let ppn = self.space.append(MAP, &[tag], &page, Cause::Trim)?.0;
        let end = range.lpn + range.count;
        let mapped = |vtpn: &u32| {
            let pages = self.pages_of(*vtpn);
            self.map
                .mapped
                .any(range.lpn.max(pages.start)..end.min(pages.end))
        };
        let touched = (range.lpn / self.per_page()..end.div_ceil(self.per_page()))
            .filter(mapped)
            .collect();
        self.map.trims.add(
            seq,
            Record {
                ppn,
                range,
                touched,
            },
        );
        Ok(seq)
    }

    fn add_tombstones(&mut self, pages: std::ops::Range<u32>, seq: u64) -> Result<(), FtlError> {
        for lpn in pages {
            if !self.map.mapped.has(lpn) {
                continue;
            }
            self.remap(lpn, None, seq, Cause::Trim)?;
            self.map.policy.on_relocate(lpn, None);
        }
        Ok(())
    }

    /// Drops the mapping page in `map_page`, of which every page was trimmed: the pages that it
    /// names and the mapping page itself become invalid.
    fn drop_map_page(&mut self, vtpn: u32) -> Result<(), FtlError> {
        let pages = self.pages_of(vtpn);
        for lpn in pages.clone() {
            let entry = self.map.pending.get(lpn);
            let superseded = self.loaded_entry(lpn - pages.start);
            if entry.is_none_or(|entry| entry.invalidate) {
                superseded.map_or(Ok(()), |old| self.invalidate(old, Cause::Trim))?;
            }
            if let Some(here) = entry.and_then(|entry| entry.ppn()) {
                self.invalidate(here, Cause::Trim)?;
            }
            self.map.mapped.set(lpn, false);
        }
        self.map.pending.forget_page(vtpn);
        self.set_directory(vtpn, None);
        self.map.policy.dropped(vtpn);
        Ok(())
    }

    /// Returns the mapping pages that still need this record.
    fn unwritten(&self, seq: u64, record: &Record) -> Vec<u32> {
        let open = |vtpn: &u32| {
            let pages = self.pages_of(*vtpn);
            let replaces =
                |newer: &Record| newer.touched.contains(vtpn) && covers(&newer.range, &pages);
            self.map.upto[*vtpn as usize] < seq
                && !self
                    .map
                    .trims
                    .live
                    .range(seq + 1..)
                    .any(|(_, newer)| replaces(newer))
        };
        record.touched.iter().copied().filter(open).collect()
    }

    /// Removes the records that no mapping page needs. Their blocks are erased when their
    /// replacements are safe.
    pub(crate) fn expire_records(&mut self) {
        let expired: Vec<u64> = self
            .map
            .trims
            .iter()
            .filter(|(seq, r)| self.unwritten(*seq, r).is_empty())
            .map(|(seq, _)| seq)
            .collect();
        for seq in expired {
            let record = self
                .map
                .trims
                .live
                .remove(&seq)
                .expect("the trim record is listed");
            self.space.table.set_invalid(record.ppn);
        }
    }

    /// Makes a quarter of the records obsolete: those with the fewest mapping pages to write.
    fn retire_records(&mut self) -> Result<(), FtlError> {
        self.expire_records();
        let keep = (Trims::limit(&self.space.geometry()) * 3 / 4) as usize;
        while self.map.trims.len() > keep {
            let cheapest = self
                .map
                .trims
                .iter()
                .map(|(seq, record)| (self.unwritten(seq, record), seq));
            let Some((pages, _)) = cheapest.min_by_key(|(pages, seq)| (pages.len(), *seq)) else {
                break;
            };
            // An entry left out because its page can still be lost would keep the record.
            self.space.make_safe()?;
            for vtpn in pages {
                self.ensure_space(MAP)?;
                self.write_contained(vtpn)?;
            }
            self.expire_records();
        }
        Ok(())
    }

    /// Writes a mapping page that contains all changes so far.
    fn write_contained(&mut self, vtpn: u32) -> Result<(), FtlError> {
        if self.map.pending.dirty(vtpn) > 0 {
            let unsafe_page =
                |change: Change| (change.entry.ppn()).is_some_and(|ppn| !self.space.is_safe(ppn));
            if self.map.pending.changes(vtpn).any(unsafe_page) {
                self.space.make_safe()?;
            }
            return self.write_back(vtpn, Cause::Trim);
        }
        if self.space.room(MAP) == 0 {
            self.enforce_window()?;
        }
        self.load_map_page(vtpn, false, Cause::Trim)?;
        self.program_map_page(vtpn, self.space.flash.pseq(), Cause::Trim)
    }
}
