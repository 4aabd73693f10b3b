//! Write-back in bounded runs, oldest entry first.
//!
//! A unit of the oldest entry that a later entry superseded is skipped, unless a FLUSH has to cover
//! the entry: then the newest content is written. Otherwise a FLUSH could end while the flash has
//! neither. Dirty neighbours are written with it. With [`super::CacheOptions::keeps_order`] each
//! entry writes its own content, in order and alone.

use super::format::{Kind, State};
use super::{Need, Reason, WriteCache};
use crate::pages::PageIo;
use ftl_core::FtlError;
use ftld_kit::convert::to_u64;
use nand_model::Nanos;
use std::ops::Range;
use std::time::Duration;

/// Maximum bytes of one write-back.
const RUN_BYTES: u64 = 256 << 10;

impl WriteCache {
    /// Returns the maximum units of a run.
    fn run_units(&self) -> u64 {
        RUN_BYTES.max(u64::from(self.shape.page_bytes)) / u64::from(self.shape.unit)
    }

    /// Returns the run to write back next; `None` if nothing is left.
    fn next_run(&mut self) -> Option<Range<u64>> {
        let most = self.run_units();
        while let Some(entry) = self.ring.entries.get_mut(self.ring.done) {
            let units = entry.units();
            let of_flush = entry.head.seq <= self.flush_to;
            while entry.head.kind == Kind::Write && entry.next < units.end {
                if self.shape.options.keeps_order() && !self.is_frozen {
                    entry.begun = true;
                    return Some(entry.next..units.end.min(entry.next + most));
                }
                let version = self.index.get(entry.next);
                if version.is_some_and(|version| of_flush || version.seq == entry.head.seq) {
                    let found = entry.next;
                    return Some(self.neighbours(found, most));
                }
                entry.next += 1;
            }
            self.ring.done += 1;
        }
        None
    }

    /// Returns the dirty units around `found`: from the begin of its page on.
    fn neighbours(&self, found: u64, most: u64) -> Range<u64> {
        let per_page = u64::from(self.shape.page_bytes / self.shape.unit);
        let mut first = found;
        while !first.is_multiple_of(per_page) && self.index.get(first - 1).is_some() {
            first -= 1;
        }
        let mut end = first;
        for (number, _) in self.index.range(first..first + most.max(found - first + 1)) {
            if number != end {
                break;
            }
            end = number + 1;
        }
        assert!(first <= found && found < end, "unit {found} is dirty");
        first..end
    }

    /// Writes the next run back. Without one, and if entries wait for a flush of the flash,
    /// flushes.
    ///
    /// # Errors
    /// As [`PageIo::write`]; the units stay dirty.
    pub(in crate::volume) fn write_back(
        &mut self,
        io: &mut PageIo<'_>,
        at: Nanos,
        reason: Reason,
    ) -> Result<Nanos, FtlError> {
        let unit = u64::from(self.shape.unit);
        // As many pages as one extent of a trim has.
        let most = u64::from(super::super::EXTENT_PAGES) * u64::from(self.shape.page_bytes) / unit;
        if let Some(units) = self.trims.first(most) {
            let bytes = (units.end - units.start) * unit;
            let done = io.zero(at, units.start * unit, bytes)?;
            self.trims.remove(units);
            return Ok(done);
        }
        match self.next_run() {
            Some(run) => self.write_run(io, at, run, reason),
            None => {
                self.release();
                Ok(at)
            }
        }
    }

    fn write_run(
        &mut self,
        io: &mut PageIo<'_>,
        at: Nanos,
        run: Range<u64>,
        reason: Reason,
    ) -> Result<Nanos, FtlError> {
        let unit = u64::from(self.shape.unit);
        let own = self.shape.options.keeps_order() && !self.is_frozen;
        let mut bytes = std::mem::take(&mut self.scratch);
        bytes.clear();
        for number in run.clone() {
            let entry = &self.ring.entries[self.ring.done];
            let place = if own {
                entry.data_at(number, self.shape.unit)
            } else {
                self.index.get(number).expect("a run is dirty").at
            };
            bytes.extend_from_slice(self.ring.unit_at(place));
        }
        let written = io.write(at, run.start * unit, &bytes);
        let length = to_u64(bytes.len());
        self.scratch = bytes;
        match written {
            Ok(done) => {
                self.view.written_back_bytes[reason as usize] += length;
                self.refused = None;
                self.note_written(run, own);
                Ok(done)
            }
            Err(error) => {
                self.view.failed_write_backs += 1;
                if matches!(error, FtlError::ReadOnly(_)) {
                    self.refused = Some(error.clone());
                }
                Err(error)
            }
        }
    }

    fn note_written(&mut self, run: Range<u64>, own: bool) {
        let entry = &mut self.ring.entries[self.ring.done];
        if own {
            entry.next = run.end;
        }
        let seq = entry.head.seq;
        for number in run {
            if !own
                || self
                    .index
                    .get(number)
                    .is_some_and(|version| version.seq == seq)
            {
                self.index.remove(number);
            }
        }
        // Moves past entries without a dirty unit.
        if !own {
            self.skip_done();
        } else if entry_is_over(self) {
            self.ring.done += 1;
        }
        self.release();
    }

    fn skip_done(&mut self) {
        while let Some(entry) = self.ring.entries.get_mut(self.ring.done) {
            let units = entry.next..entry.units().end;
            let of_flush = entry.head.seq <= self.flush_to;
            let needed = self
                .index
                .range(units)
                .find(|(_, version)| of_flush || version.seq == entry.head.seq);
            if let Some((number, _)) = needed.filter(|_| entry.head.kind == Kind::Write) {
                entry.next = number;
                return;
            }
            self.ring.done += 1;
        }
    }

    /// Frees the entries that are done, unless they wait for a flush of the flash.
    fn release(&mut self) {
        if !self.shape.options.keeps_unflushed() && !self.is_frozen {
            self.ring.release();
        }
    }

    /// Notes that the flash has been flushed: it keeps everything that was written back. The header
    /// then names no entry that a FLUSH covers, even if newer ones wait.
    pub(in crate::volume) fn note_flushed(&mut self) {
        if self.is_frozen || self.is_cut {
            return;
        }
        self.ring.release();
        if self.ring.tail().0 > self.ring.freed
            && let Err(error) = self.save(State::Live)
        {
            tracing::debug!("the tail of the write cache stays where it is: {error}");
        }
    }

    /// Does a bounded step towards what a change needs.
    ///
    /// # Errors
    /// As [`WriteCache::write_back`], or the host cannot write the area.
    pub(in crate::volume) fn make_room(
        &mut self,
        io: &mut PageIo<'_>,
        at: Nanos,
        need: Need,
    ) -> Result<Nanos, FtlError> {
        if let Some(dirty) = self.dirty_of(need) {
            if self.shape.options.keeps_order() {
                return self.write_back(io, at, Reason::Trim);
            }
            let run = self.neighbours(dirty, self.run_units());
            return self.write_run(io, at, run, Reason::Trim);
        }
        if self.ring.tail().0 > self.ring.freed {
            self.save(State::Live)
                .map_err(|error| Self::store_error(&error))?;
            return Ok(at);
        }
        let waiting = self.ring.done > 0
            && (self.ring.is_done() || self.ring.done_bytes() >= self.ring.size() / 4);
        if waiting {
            let done = io.ftl.flush(at)?;
            self.note_flushed();
            return Ok(done);
        }
        self.write_back(io, at, need.reason)
    }

    /// Begins a FLUSH: returns the number that [`WriteCache::has_flushed`] takes.
    pub(in crate::volume) fn begin_flush(&mut self) -> u64 {
        let target = self.ring.next_seq();
        self.flush_to = self.flush_to.max(target - 1);
        target
    }

    /// Returns whether everything that a FLUSH has to cover is written back.
    pub(in crate::volume) fn has_flushed(&self, target: u64) -> bool {
        let next = self.ring.entries.get(self.ring.done);
        self.trims.is_empty() && next.is_none_or(|entry| entry.head.seq >= target)
    }

    /// Returns whether a write-back by age is due. A cache that loses everything at a power cut has
    /// none: data written back would survive.
    pub(in crate::volume) fn is_aged(&self, age: Duration) -> bool {
        let next = self.ring.entries.get(self.ring.done);
        !self.loses_all() && next.is_some_and(|entry| entry.born.elapsed() >= age)
    }

    fn loses_all(&self) -> bool {
        self.shape.options.model == super::Model::Lost && !self.shape.options.protected
    }
}

/// Returns whether the entry that is written back has no unit left.
fn entry_is_over(cache: &WriteCache) -> bool {
    let entry = &cache.ring.entries[cache.ring.done];
    entry.next == entry.units().end
}
