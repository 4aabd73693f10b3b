//! Host requests on the cache: read, write, zero.

use super::format::{Kind, RING_BLOCK};
use super::index::Version;
use super::ring::Entry;
use super::{Need, Reason, WriteCache};
use crate::convert::{to_u64, to_usize};
use crate::pages::PageIo;
use crate::volume::{EIO, ENOSPC};
use ftl_core::FtlError;
use nand_model::{Nanos, Store};
use std::io;

/// Returns the error of the host as one of the scheme.
pub(super) fn host_error(error: &io::Error) -> FtlError {
    let full = matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    );
    match error.raw_os_error() {
        _ if full => FtlError::HostFull,
        Some(ENOSPC) => FtlError::HostFull,
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
            drained: false,
            reason: Reason::Pressure,
        }
    }

    /// Returns what a trim needs: an entry, and one for a dirty unit at either end.
    pub(in crate::volume) fn need_of_trim(&self) -> Need {
        let drained = self.trims_drained();
        Need {
            bytes: 3 * RING_BLOCK + 2 * u64::from(self.shape.unit),
            drained,
            reason: if drained {
                Reason::Trim
            } else {
                Reason::Pressure
            },
        }
    }

    /// Returns whether there is what a change needs.
    pub(in crate::volume) fn has(&self, need: Need) -> bool {
        assert!(
            2 * need.bytes <= self.ring.size(),
            "an entry of {} bytes in a ring of {}",
            need.bytes,
            self.ring.size()
        );
        // A frozen cache refuses the change; nothing makes room for it.
        self.is_frozen
            || (self.ring.place(need.bytes).is_some() && !(need.drained && !self.ring.is_done()))
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

    /// Reads an extent: dirty units from the cache, the rest from the flash.
    ///
    /// # Errors
    /// As [`PageIo::read`].
    pub(in crate::volume) fn read<S: Store>(
        &mut self,
        io: &mut PageIo<'_, S>,
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
                let dirty = self.index.next(number).filter(|next| next * unit < end);
                let next = dirty.map_or(end, |next| next * unit);
                let part = &mut buf[place..][..to_usize(next - from)];
                done = done.max(io.read(at, from, part)?);
                from = next;
            }
        }
        Ok(done)
    }

    /// Takes an extent of a write; `None` if the ring has no room for it.
    ///
    /// # Errors
    /// The host cannot write the area, or the flash cannot read the rest of a unit at either end.
    pub(in crate::volume) fn write<S: Store>(
        &mut self,
        io: &mut PageIo<'_, S>,
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
    fn copy_unit<S: Store>(
        &mut self,
        io: &mut PageIo<'_, S>,
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
            // All of it may have arrived; a replay must not find what the host was refused.
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

    /// Makes an extent read as zeros; `None` if the ring has no room, or if an earlier write has to
    /// be written back first. The flash is trimmed before the entry that forgets the units: a kill
    /// between the two leaves the acknowledged contents, and the trim is not acknowledged yet.
    ///
    /// # Errors
    /// As [`PageIo::zero`], or the host cannot write the area.
    pub(in crate::volume) fn zero<S: Store>(
        &mut self,
        io: &mut PageIo<'_, S>,
        at: Nanos,
        offset: u64,
        len: u64,
    ) -> Result<Option<Nanos>, FtlError> {
        self.accepts()?;
        if !self.has(self.need_of_trim()) {
            return Ok(None);
        }
        let unit = u64::from(self.shape.unit);
        let (mut from, mut end) = (offset, offset + len);
        let mut done = io.handled(at);
        // A dirty unit at either end gets a new version. The flash keeps its older content: with a
        // part of it zeroed it would be a content that the unit never had.
        if !from.is_multiple_of(unit) && self.index.get(from / unit).is_some() {
            let next = end.min((from / unit + 1) * unit);
            done = done.max(self.zero_part(io, at, from, next)?);
            from = next;
        }
        if from < end && !end.is_multiple_of(unit) && self.index.get(end / unit).is_some() {
            let before = from.max(end / unit * unit);
            done = done.max(self.zero_part(io, at, before, end)?);
            end = before;
        }
        if from < end {
            done = done.max(io.zero(at, from, end - from)?);
        }
        let units = from.div_ceil(unit)..end / unit;
        if units.start < units.end && !self.ring.is_forgotten() {
            let place = self.ring.place(RING_BLOCK).expect("there is room");
            self.append(place, Kind::Trim, units.start, units.end - units.start)?;
        }
        Ok(Some(done))
    }

    /// Adds a version of one dirty unit with zeros in a part.
    fn zero_part<S: Store>(
        &mut self,
        io: &mut PageIo<'_, S>,
        at: Nanos,
        from: u64,
        end: u64,
    ) -> Result<Nanos, FtlError> {
        let unit = u64::from(self.shape.unit);
        let number = from / unit;
        let place = self.ring.place(RING_BLOCK + unit).expect("there is room");
        let done = self.copy_unit(io, at, number, place + RING_BLOCK)?;
        let entry = self.ring.slice_mut(place + RING_BLOCK, unit);
        entry[to_usize(from - number * unit)..to_usize(end - number * unit)].fill(0);
        self.append(place, Kind::Write, number, 1)?;
        Ok(done)
    }
}
