//! Host requests on the cache: read, write, zero.

use super::format::{Kind, RING_BLOCK};
use super::index::Version;
use super::ring::Entry;
use super::{Need, Reason, WriteCache};
use crate::pages::PageIo;
use crate::volume::{EIO, is_full};
use ftl_core::{FtlError, Lpn};
use ftld_kit::convert::{narrow, to_u64, to_usize};
use nand_model::Nanos;
use std::io;
use std::ops::Range;

/// Returns the error of the host as one of the scheme.
pub(super) fn host_error(error: &io::Error) -> FtlError {
    match error.raw_os_error() {
        _ if is_full(error) => FtlError::HostFull,
        errno => FtlError::Host(errno.unwrap_or(EIO)),
    }
}

impl WriteCache {
    /// Returns what a write of these bytes needs.
    pub(in crate::volume) fn need_of_write(&self, offset: u64, len: u64) -> Need {
        let unit = u64::from(self.shape.unit);
        let units = (offset + len).div_ceil(unit) - offset / unit;
        Need {
            bytes: RING_BLOCK + units * unit,
            clean: None,
            reason: Reason::Pressure,
        }
    }

    /// Returns what a trim of these bytes needs: an entry, one for a part of a unit at either end,
    /// and no dirty unit in between.
    pub(in crate::volume) fn need_of_trim(&self, offset: u64, len: u64) -> Need {
        Need {
            // A trim that fails half way leaves two runs of zeros at most, one at either end.
            bytes: 4 * RING_BLOCK + 2 * u64::from(self.shape.unit),
            clean: Some(self.whole_units(offset, len)),
            reason: Reason::Pressure,
        }
    }

    /// Returns the first of the units that are entirely in these bytes, and the one behind them.
    fn whole_units(&self, offset: u64, len: u64) -> (u64, u64) {
        let unit = u64::from(self.shape.unit);
        let first = offset.div_ceil(unit);
        (first, first.max((offset + len) / unit))
    }

    /// Returns whether a change can begin: the ring has room, and a trim's whole units are clean.
    pub(in crate::volume) fn has(&self, need: Need) -> bool {
        assert!(
            2 * need.bytes <= self.ring.size(),
            "an entry of {} bytes in a ring of {}",
            need.bytes,
            self.ring.size()
        );
        // A frozen cache refuses the change; nothing makes room for it.
        self.is_frozen || (self.ring.place(need.bytes).is_some() && self.dirty_of(need).is_none())
    }

    /// Returns a unit that has to be written back before a trim; all of them, oldest first, if the
    /// cache keeps the order of writes.
    pub(super) fn dirty_of(&self, need: Need) -> Option<u64> {
        let (first, end) = need.clean?;
        if self.shape.options.keeps_order() {
            let entry = self.ring.entries.get(self.ring.done)?;
            return Some(entry.head.first);
        }
        self.index.next(first).filter(|&dirty| dirty < end)
    }

    /// Refuses changes while the entries of an earlier daemon wait, and on a flash that takes no
    /// more writes: what cannot be written back must not be acknowledged.
    fn accepts(&self) -> Result<(), FtlError> {
        match &self.refused {
            Some(error) => Err(error.clone()),
            None if self.is_frozen => Err(FtlError::ReadOnly(
                "the write cache has entries that the flash did not take; restart it",
            )),
            None => Ok(()),
        }
    }

    /// Reads an extent: dirty units from the cache, zeros where a trim is to be repeated, the rest
    /// from the flash.
    ///
    /// # Errors
    /// As [`PageIo::read`].
    pub(in crate::volume) fn read(
        &mut self,
        io: &mut PageIo<'_>,
        at: Nanos,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<Nanos, FtlError> {
        let unit = u64::from(self.shape.unit);
        let end = offset + to_u64(buf.len());
        let (mut done, mut from) = (io.handled(at), offset);
        while from < end {
            let number = from / unit;
            let place = to_usize(from - offset);
            if let Some(version) = self.index.get(number) {
                let next = end.min((number + 1) * unit);
                let part = to_usize(from % unit)..to_usize(next - number * unit);
                let part = &self.ring.unit_at(version.at)[part];
                buf[place..][..part.len()].copy_from_slice(part);
                self.view.read_hit_bytes += to_u64(part.len());
                from = next;
            } else {
                let (is_trimmed, differs) = self.trims.at(number);
                let next = differs.min(self.index.next(number).unwrap_or(u64::MAX));
                let next = end.min(next.saturating_mul(unit));
                let part = &mut buf[place..][..to_usize(next - from)];
                if is_trimmed {
                    part.fill(0);
                } else {
                    done = done.max(io.read(at, from, part)?);
                }
                from = next;
            }
        }
        Ok(done)
    }

    /// Takes an extent of a write; `None` if the ring has no room for it.
    ///
    /// # Errors
    /// The host cannot write the area, or the flash cannot read the rest of a unit at either end.
    pub(in crate::volume) fn write(
        &mut self,
        io: &mut PageIo<'_>,
        at: Nanos,
        offset: u64,
        data: &[u8],
    ) -> Result<Option<Nanos>, FtlError> {
        self.accepts()?;
        let unit = u64::from(self.shape.unit);
        let end = offset + to_u64(data.len());
        let units = offset / unit..end.div_ceil(unit);
        let bytes = (units.end - units.start) * unit;
        let Some(place) = self.ring.place(RING_BLOCK + bytes) else {
            return Ok(None);
        };
        let mut done = io.handled(at);
        let (begin, last) = (units.start * unit, units.end - 1);
        let cuts_first = offset > begin || (last == units.start && end < units.end * unit);
        let cuts_last = last > units.start && end < units.end * unit;
        for (cut, number) in [(cuts_first, units.start), (cuts_last, last)] {
            if cut {
                let to = place + RING_BLOCK + (number - units.start) * unit;
                done = done.max(self.copy_unit(io, at, number, to)?);
            }
        }
        let entry = self.ring.slice_mut(place + RING_BLOCK, bytes);
        entry[to_usize(offset - begin)..][..data.len()].copy_from_slice(data);
        self.append(place, Kind::Write, units.start, units.end - units.start)?;
        Ok(Some(done))
    }

    /// Copies the newest content of a unit to a free position of the ring.
    fn copy_unit(
        &mut self,
        io: &mut PageIo<'_>,
        at: Nanos,
        number: u64,
        to: u64,
    ) -> Result<Nanos, FtlError> {
        let unit = u64::from(self.shape.unit);
        match self.index.get(number) {
            Some(version) => {
                let bytes = self.ring.unit_at(version.at).to_vec();
                self.ring.slice_mut(to, unit).copy_from_slice(&bytes);
                Ok(at)
            }
            None => io.read(at, number * unit, self.ring.slice_mut(to, unit)),
        }
    }

    /// Writes the entry at this position, whose data is in the ring, into the area; then it counts.
    fn append(&mut self, place: u64, kind: Kind, first: u64, units: u64) -> Result<(), FtlError> {
        let head = self.ring.seal(place, kind, first, units);
        let at = self.ring_at() + self.ring.place_of(place);
        let bytes = head.bytes(self.shape.unit);
        if let Err(error) = self.area.write_at(at, self.ring.slice(place, bytes)) {
            // The whole entry may be in the area; a replay must not find a change that failed for
            // the host.
            if let Err(error) = self.area.write_at(at, &[0; 512]) {
                self.area.fail(&error);
            }
            return Err(host_error(&error));
        }
        self.ring.push(head);
        let entry: Entry = *self.ring.entries.back().expect("pushed");
        match kind {
            Kind::Write => {
                for number in entry.units() {
                    let version = Version {
                        at: entry.data_at(number, self.shape.unit),
                        seq: head.seq,
                    };
                    self.index.put(number, version);
                }
            }
            Kind::Trim => self.index.remove_all(entry.units()),
        }
        Ok(())
    }

    /// Makes an extent read as zeros; `None` while [`WriteCache::has`] is false. Parts of units are
    /// written with zeros, whole units are trimmed. Whole units must be clean: a failed trim of a
    /// dirty unit would have to be undone. The flash is trimmed before the entry of the trim is
    /// written. If the daemon is killed between the two, the next start may find the older
    /// contents, as the trim was not acknowledged.
    ///
    /// # Errors
    /// As [`PageIo::zero`] and [`WriteCache::write`].
    pub(in crate::volume) fn zero(
        &mut self,
        io: &mut PageIo<'_>,
        at: Nanos,
        offset: u64,
        len: u64,
    ) -> Result<Option<Nanos>, FtlError> {
        self.accepts()?;
        if !self.has(self.need_of_trim(offset, len)) {
            return Ok(None);
        }
        let unit = u64::from(self.shape.unit);
        let (first, behind) = self.whole_units(offset, len);
        let (begin, end) = (first * unit, behind * unit);
        let parts = match first < behind {
            true => [(offset, begin), (end, offset + len)],
            // Inside one unit, or across the border of two.
            false => {
                let border = begin.clamp(offset, offset + len);
                [(offset, border), (border, offset + len)]
            }
        };
        let mut done = io.handled(at);
        for (from, upto) in parts.into_iter().filter(|(from, upto)| from < upto) {
            done = done.max(self.zero_part(io, at, from, upto - from)?);
        }
        if first < behind {
            // A cut may undo a trim of the flash; only an entry repeats it. A replay may find older
            // entries of these units; only an entry hides them.
            let repeats = self.shape.options.keeps_unflushed() || !self.ring.is_forgotten();
            let mapped = match repeats {
                true => self.mapped_pages(io, first..behind)?,
                false => Vec::new(),
            };
            let trimmed = io.zero(at, begin, end - begin);
            if repeats {
                match &trimmed {
                    Ok(_) => self.append_trim(first..behind)?,
                    Err(FtlError::PowerLost) => {}
                    Err(_) => self.append_zeroed(io, at, first..behind, &mapped)?,
                }
            }
            done = done.max(trimmed?);
        }
        Ok(Some(done))
    }

    /// Returns the page of a unit.
    fn page_of(&self, unit: u64) -> u64 {
        unit / u64::from(self.shape.page_bytes / self.shape.unit)
    }

    /// Returns whether the flash has data of each page of these units.
    fn mapped_pages(&self, io: &mut PageIo<'_>, units: Range<u64>) -> Result<Vec<bool>, FtlError> {
        (self.page_of(units.start)..=self.page_of(units.end - 1))
            .map(|page| io.ftl.is_mapped(Lpn::new(narrow(page))))
            .collect()
    }

    /// Adds entries for the units that a failed trim turned into zeros: reads see them from now on.
    /// Pages that were not mapped before (`mapped`) neither begin nor end a run, so there are few.
    fn append_zeroed(
        &mut self,
        io: &mut PageIo<'_>,
        at: Nanos,
        units: Range<u64>,
        mapped: &[bool],
    ) -> Result<(), FtlError> {
        let (first_page, mut run) = (self.page_of(units.start), None);
        for unit in units.clone() {
            if !mapped[to_usize(self.page_of(unit) - first_page)] {
                continue;
            }
            if self.reads_as_zeros(io, at, unit, &units)? {
                let start = run.map_or(unit, |run: (u64, u64)| run.0);
                run = Some((start, unit + 1));
            } else if let Some((start, end)) = run.take() {
                self.append_trim(start..end)?;
            }
        }
        run.map_or(Ok(()), |(start, end)| self.append_trim(start..end))
    }

    /// Returns whether a clean unit of a trim reads as zeros. Pages that the trim covers in part
    /// were written; of the others the map decides. A page that cannot be read was not written.
    ///
    /// # Errors
    /// Power is lost.
    fn reads_as_zeros(
        &mut self,
        io: &mut PageIo<'_>,
        at: Nanos,
        unit: u64,
        trimmed: &Range<u64>,
    ) -> Result<bool, FtlError> {
        let per_page = u64::from(self.shape.page_bytes / self.shape.unit);
        let page = self.page_of(unit);
        if !io.ftl.is_mapped(Lpn::new(narrow(page)))? {
            return Ok(true);
        }
        if page * per_page >= trimmed.start && (page + 1) * per_page <= trimmed.end {
            return Ok(false);
        }
        let mut bytes = vec![0; to_usize(u64::from(self.shape.unit))];
        match io.read(at, unit * u64::from(self.shape.unit), &mut bytes) {
            Ok(_) => Ok(bytes.iter().all(|byte| *byte == 0)),
            Err(FtlError::PowerLost) => Err(FtlError::PowerLost),
            Err(_) => Ok(false),
        }
    }

    /// Writes zeros into a part of a unit. One that has none but zeros may have been trimmed by a
    /// request that the host refused: the flash has to have that.
    fn zero_part(
        &mut self,
        io: &mut PageIo<'_>,
        at: Nanos,
        offset: u64,
        len: u64,
    ) -> Result<Nanos, FtlError> {
        let unit = u64::from(self.shape.unit);
        let page = narrow(offset / u64::from(self.shape.page_bytes));
        if self.index.get(offset / unit).is_none() && !io.ftl.is_mapped(Lpn::new(page))? {
            return io.zero(at, offset, len);
        }
        let zeros = vec![0; to_usize(len)];
        let done = self.write(io, at, offset, &zeros)?;
        Ok(done.expect("there is room"))
    }

    /// Adds the entry of a trim that the flash has. A replay without it would undo what reads have
    /// seen, so a failed write is repeated once; then the image takes no more changes.
    fn append_trim(&mut self, units: Range<u64>) -> Result<(), FtlError> {
        let (first, count) = (units.start, units.end - units.start);
        let Some(place) = self.ring.place(RING_BLOCK) else {
            return self.unsaved_trim(FtlError::HostFull);
        };
        let once = self.append(place, Kind::Trim, first, count);
        let twice = once.or_else(|_| self.append(place, Kind::Trim, first, count));
        twice.or_else(|error| self.unsaved_trim(error))
    }

    /// Ends all changes of the image: a trim that reads have seen cannot be repeated.
    fn unsaved_trim(&mut self, error: FtlError) -> Result<(), FtlError> {
        tracing::error!("a trim is not in the write cache's area: {error}");
        self.area.fail(&io::Error::from_raw_os_error(EIO));
        Err(error)
    }
}
