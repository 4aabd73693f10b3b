//! Trims, which the papers do not cover.
//!
//! A trim is on flash before it is acknowledged: as a record (role TRIM, one range) in the mapping
//! area. In RAM it becomes a pending *tombstone* per mapped page, written into the map like any
//! dirty entry. A mapping page that is covered as a whole is dropped from the directory instead,
//! without a program. It must be readable for that: it names the pages that become invalid.
//!
//! A record is valid while a mapping page needs it (`trims/until_written.rs`). At the limit of
//! their number, the records with the fewest mapping pages to write are made obsolete. If power
//! fails, mount replays the records that a mapping page does not contain.

use super::pending::Change;
use super::policy::Policy;
use super::state::{MAP, PagedFtl, PagedMap};
use crate::error::FtlError;
use crate::format::trim::TrimRange;
use crate::space::Space;
use crate::trims::{OfMapPages, UntilWritten, covers, program_record};
use nand_model::Cause;

impl<P: Policy> PagedMap<P> {
    /// Programs a record, which is valid from then on.
    fn write_record(&mut self, space: &mut Space, range: TrimRange) -> Result<u64, FtlError> {
        let seq = space.flash.pseq() + 1;
        let ppn = program_record(space, MAP, range, seq)?;
        let end = range.lpn + range.count;
        let mapped = |vtpn: &u32| {
            let pages = self.pages_of(*vtpn);
            self.mapped
                .any(range.lpn.max(pages.start)..end.min(pages.end))
        };
        let touched = (range.lpn / self.per_page()..end.div_ceil(self.per_page()))
            .filter(mapped)
            .collect();
        self.trims.add(
            seq,
            OfMapPages {
                ppn,
                range,
                touched,
            },
        );
        Ok(seq)
    }

    fn add_tombstones(
        &mut self,
        space: &mut Space,
        pages: std::ops::Range<u32>,
        seq: u64,
    ) -> Result<(), FtlError> {
        for lpn in pages {
            if !self.mapped.has(lpn) {
                continue;
            }
            self.remap(space, lpn, None, seq, Cause::Trim)?;
            self.policy.on_relocate(lpn, None);
        }
        Ok(())
    }

    /// Drops the mapping page in `map_page`, of which every page was trimmed: the pages that it
    /// names and the mapping page itself become invalid.
    fn drop_map_page(&mut self, space: &mut Space, vtpn: u32) -> Result<(), FtlError> {
        let pages = self.pages_of(vtpn);
        for lpn in pages.clone() {
            let entry = self.pending.get(lpn);
            let superseded = self.loaded_entry(space, lpn - pages.start);
            if entry.is_none_or(|entry| entry.invalidate) {
                superseded.map_or(Ok(()), |old| self.invalidate(space, old, Cause::Trim))?;
            }
            if let Some(here) = entry.and_then(|entry| entry.ppn()) {
                self.invalidate(space, here, Cause::Trim)?;
            }
            self.mapped.set(lpn, false);
        }
        self.pending.forget_page(vtpn);
        self.set_directory(space, vtpn, None);
        self.policy.dropped(vtpn);
        Ok(())
    }

    /// Removes the records that no mapping page needs. Their blocks are erased when their
    /// replacements are safe.
    pub(crate) fn expire_records(&mut self, space: &mut Space) {
        let expired = self.trims.expired(&self.upto, |vtpn| self.pages_of(vtpn));
        for seq in expired {
            let record = self.trims.remove(seq);
            space.table.set_invalid(record.ppn);
        }
    }
}

impl<P: Policy> PagedFtl<P> {
    /// Trims a range, so that it reads as zeros.
    pub(crate) fn trim_range(&mut self, first: u32, count: u32) -> Result<(), FtlError> {
        if self.map.trims.len() as u32 >= UntilWritten::limit(&self.space.geometry()) {
            self.retire_records()?;
        }
        self.ensure_space(MAP)?;
        let ver = self.version_of_next_program();
        let range = TrimRange {
            lpn: first,
            count,
            ver,
        };
        let seq = self.map.write_record(&mut self.space, range)?;
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
            let pages = self.map.pages_of(vtpn);
            let trimmed = first.max(pages.start)..(first + count).min(pages.end);
            if !covers(&range, &pages) {
                self.map.add_tombstones(&mut self.space, trimmed, seq)?;
                continue;
            }
            // The next mount replays the record, so an unreadable mapping page does not fail the
            // trim. It stays in the directory, and its pages become tombstones.
            match self
                .map
                .load_map_page(&mut self.space, vtpn, false, Cause::Trim)
            {
                Ok(()) => self.map.drop_map_page(&mut self.space, vtpn)?,
                Err(FtlError::PowerLost) => return Err(FtlError::PowerLost),
                Err(_) => self.map.add_tombstones(&mut self.space, trimmed, seq)?,
            }
        }
        self.limit_pending()
    }

    /// Makes a quarter of the records obsolete: those with the fewest mapping pages to write.
    fn retire_records(&mut self) -> Result<(), FtlError> {
        self.map.expire_records(&mut self.space);
        let keep = (UntilWritten::limit(&self.space.geometry()) * 3 / 4) as usize;
        while self.map.trims.len() > keep {
            let (trims, upto) = (&self.map.trims, &self.map.upto);
            let unwritten =
                |seq, record| trims.unwritten(seq, record, upto, |vtpn| self.map.pages_of(vtpn));
            let cheapest = trims
                .iter()
                .map(|(seq, record)| (unwritten(seq, record), seq));
            let Some((pages, _)) = cheapest.min_by_key(|(pages, seq)| (pages.len(), *seq)) else {
                break;
            };
            // An entry left out because its page can still be lost would keep the record.
            self.space.make_safe()?;
            for vtpn in pages {
                self.ensure_space(MAP)?;
                self.write_contained(vtpn)?;
            }
            self.map.expire_records(&mut self.space);
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
        let (map, space) = (&mut self.map, &mut self.space);
        map.load_map_page(space, vtpn, false, Cause::Trim)?;
        let upto = space.flash.pseq();
        map.program_map_page(space, vtpn, upto, Cause::Trim)
    }
}
