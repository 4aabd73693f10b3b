//! Trims, which the papers do not have.
//!
//! A trim is on flash before it is acknowledged: a record (role TRIM, one range) in the mapping
//! area. In RAM it becomes a pending *tombstone* per mapped page, written into the map like any
//! dirty entry; a mapping page that is covered as a whole is dropped from the directory instead,
//! without a program, if it can be read: it names the pages that die.
//!
//! A record counts until every mapping page it touches has a version on flash that contains it, or
//! a newer record that touches that mapping page too covers it as a whole. A newer record that
//! found nothing mapped there does not touch it, and may go while the tombstones of the older one
//! are still pending: then only the older record tells a mount of them. There are never more than a
//! block's worth of records: then the ones with the least work left are made superfluous. If power
//! fails, mount replays the records that a mapping page does not contain.

use super::map::entry_at;
use super::{MAP, Paged, Policy};
use crate::error::FtlError;
use crate::format::trim::{self, TrimRange};
use crate::format::{Flags, PageTag, Role};
use nand_model::{Cause, Geometry, Ppn, Store};
use std::collections::BTreeMap;

/// A record that counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) ppn: Ppn,
    pub(crate) range: TrimRange,
    /// Mapping pages of which it trimmed something.
    pub(crate) touched: Vec<u32>,
}

/// The records that count, by the program number of their trim.
#[derive(Debug, Default)]
pub(crate) struct Trims {
    live: BTreeMap<u64, Record>,
}

impl Trims {
    /// Records that may count at a time.
    pub(crate) fn limit(geometry: &Geometry) -> u32 {
        geometry.pages_per_block
    }

    pub(crate) fn len(&self) -> usize {
        self.live.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.live
            .values()
            .map(|record| 80 + 4 * record.touched.len() as u64)
            .sum()
    }

    pub(crate) fn add(&mut self, seq: u64, record: Record) {
        let known = self.live.insert(seq, record);
        assert!(known.is_none(), "two trims have the number {seq}");
    }

    pub(crate) fn moved(&mut self, seq: u64, to: Ppn) {
        self.live
            .get_mut(&seq)
            .expect("a live trim record is known")
            .ppn = to;
    }

    pub(crate) fn get(&self, seq: u64) -> Option<&Record> {
        self.live.get(&seq)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Record)> {
        self.live.iter().map(|(seq, record)| (*seq, record))
    }
}

/// Whether the range covers all of these pages.
pub(crate) fn covers(range: &TrimRange, pages: &std::ops::Range<u32>) -> bool {
    range.lpn <= pages.start && pages.end <= range.lpn + range.count
}

impl<S: Store, P: Policy> Paged<S, P> {
    /// Makes a range read as zeros.
    pub(crate) fn trim_range(&mut self, first: u32, count: u32) -> Result<(), FtlError> {
        if self.map.trims.len() as u32 >= Trims::limit(&self.space.geometry()) {
            self.retire_records()?;
        }
        self.make_room(MAP)?;
        let ver = self.next_ver;
        self.next_ver += 1;
        let range = TrimRange {
            lpn: first,
            count,
            ver,
        };
        let seq = self.write_record(range)?;
        for vtpn in self
            .map
            .trims
            .get(seq)
            .expect("just written")
            .touched
            .clone()
        {
            let pages = self.pages_of(vtpn);
            let trimmed = first.max(pages.start)..(first + count).min(pages.end);
            if !covers(&range, &pages) {
                self.entomb(trimmed, seq)?;
                continue;
            }
            // The next mount takes the record, so a mapping page that cannot be read does not end
            // the trim: it keeps its place, and its pages become tombstones.
            match self.load_map_page(vtpn, false, Cause::Trim) {
                Ok(()) => self.drop_map_page(vtpn)?,
                Err(FtlError::PowerLost) => return Err(FtlError::PowerLost),
                Err(_) => self.entomb(trimmed, seq)?,
            }
        }
        self.limit_pending()
    }

    /// Programs a record; it counts from the moment it is on flash.
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

    fn entomb(&mut self, pages: std::ops::Range<u32>, seq: u64) -> Result<(), FtlError> {
        for lpn in pages {
            if !self.map.mapped.has(lpn) {
                continue;
            }
            self.repoint(lpn, None, seq, Cause::Trim)?;
            self.map.policy.moved(lpn, None);
        }
        Ok(())
    }

    /// Every page of the mapping page in `map_page` was trimmed: nothing in it lives, and neither
    /// does it.
    fn drop_map_page(&mut self, vtpn: u32) -> Result<(), FtlError> {
        let pages = self.pages_of(vtpn);
        for lpn in pages.clone() {
            let entry = self.map.pending.forget(lpn);
            let superseded = entry_at(&self.map.map_page, lpn - pages.start);
            if entry.is_none_or(|entry| entry.invalidate) {
                superseded.map_or(Ok(()), |old| self.invalidate(old, Cause::Trim))?;
            }
            if let Some(here) = entry.and_then(|entry| entry.ppn()) {
                self.invalidate(here, Cause::Trim)?;
            }
            self.map.mapped.set(lpn, false);
        }
        self.map.pending.forget_dirty(vtpn);
        self.set_directory(vtpn, None);
        self.map.policy.dropped(vtpn);
        Ok(())
    }

    /// Mapping pages without which this record has to stay.
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

    /// Gives up the records that nothing needs any more. Their blocks are erased when what replaced
    /// them is safe.
    pub(crate) fn expire_records(&mut self) {
        let dead: Vec<u64> = self
            .map
            .trims
            .iter()
            .filter(|(seq, r)| self.unwritten(*seq, r).is_empty())
            .map(|(seq, _)| seq)
            .collect();
        for seq in dead {
            let record = self.map.trims.live.remove(&seq).expect("just listed");
            self.space.table.clear_live(record.ppn);
        }
    }

    /// Makes a quarter of the records superfluous, those with the fewest mapping pages to write.
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
            // A page left out because it can still be lost would keep the record.
            self.space.make_safe()?;
            for vtpn in pages {
                self.make_room(MAP)?;
                self.write_contained(vtpn)?;
            }
            self.expire_records();
        }
        Ok(())
    }

    /// Writes a mapping page that contains everything so far.
    fn write_contained(&mut self, vtpn: u32) -> Result<(), FtlError> {
        if let Some(dirty) = self.map.pending.dirty(vtpn) {
            let unsafe_page = |lpn: &u32| {
                self.map
                    .pending
                    .get(*lpn)
                    .and_then(|e| e.ppn())
                    .is_some_and(|p| !self.space.is_safe(p))
            };
            if dirty.lpns.iter().any(unsafe_page) {
                self.space.make_safe()?;
            }
            return self.write_back(vtpn, Cause::Trim);
        }
        if self.space.room(MAP) == 0 {
            self.keep_window()?;
        }
        self.load_map_page(vtpn, false, Cause::Trim)?;
        self.program_map_page(vtpn, self.space.flash.pseq(), Cause::Trim)
    }
}
