//! A disk in memory: the one that a run is recorded on, and the one that a power cut has left.
//!
//! Invariants: requests of all handles take the lock one after the other, so their moments never
//! overlap. A write is recorded before it returns. Nothing is recorded after the closure ended.

use ftld_kit::convert::{index, to_u64, to_usize};
use ftld_lab::crashes::Snapshot;
use ftld_traces::recording::{Entry, Kind, Moment};
use std::collections::{HashMap, hash_map};
use std::fmt;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A disk of fixed length, as a device or a preallocated file.
///
/// It implements [`FileExt`] and, at a position, [`Read`], [`Write`] and [`Seek`]. A clone has the
/// same content and a position of its own, 0 at first. On the disk of a [`State`](crate::State),
/// writes change that state alone, and syncs and marks do nothing.
pub struct Disk {
    content: Arc<Content>,
    position: Mutex<u64>,
    flushing: bool,
}

struct Content {
    size: u64,
    unit: u32,
    /// Content after a power cut; `None` for zeros.
    base: Option<Snapshot>,
    now: Mutex<Now>,
}

struct Now {
    /// Units that were written.
    units: HashMap<u64, Box<[u8]>>,
    recording: Recording,
    /// Calls of [`Write::flush`] that made nothing durable.
    flushes_without_sync: u64,
}

enum Recording {
    /// The disk of a state.
    None,
    Runs(Vec<Entry>),
    Ended,
}

impl Now {
    fn note(&mut self, kind: Kind, offset: u64, data: &[u8]) -> io::Result<()> {
        let entries = match &mut self.recording {
            Recording::None => return Ok(()),
            Recording::Runs(entries) => entries,
            Recording::Ended => {
                let why = "the recorded closure has ended; this disk takes nothing more";
                return Err(io::Error::other(why));
            }
        };
        let seq = 2 * to_u64(entries.len());
        let moment = |seq| Moment { seq, ns: 0 };
        entries.push(Entry {
            kind,
            fua: false,
            errno: 0,
            offset,
            length: if kind == Kind::Write {
                to_u64(data.len())
            } else {
                0
            },
            begin: moment(seq + 1),
            end: moment(seq + 2),
            data: data.to_vec(),
        });
        Ok(())
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// Returns a disk of zeros that records its requests.
    pub(crate) fn recorded(size: u64, unit: u32) -> Disk {
        Disk::of(size, unit, None, Recording::Runs(Vec::new()))
    }

    /// Returns a disk with the content after a power cut.
    pub(crate) fn left(size: u64, unit: u32, base: Snapshot) -> Disk {
        Disk::of(size, unit, Some(base), Recording::None)
    }

    fn of(size: u64, unit: u32, base: Option<Snapshot>, recording: Recording) -> Disk {
        let now = Now {
            units: HashMap::new(),
            recording,
            flushes_without_sync: 0,
        };
        let content = Content {
            size,
            unit,
            base,
            now: Mutex::new(now),
        };
        Disk {
            content: Arc::new(content),
            position: Mutex::new(0),
            flushing: false,
        }
    }

    /// Ends the recording. Returns its entries, and the calls of [`Write::flush`] that made nothing
    /// durable.
    pub(crate) fn end(&self) -> (Vec<Entry>, u64) {
        let mut now = self.now();
        match std::mem::replace(&mut now.recording, Recording::Ended) {
            Recording::Runs(entries) => (entries, now.flushes_without_sync),
            Recording::None | Recording::Ended => (Vec::new(), 0),
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        lock(&self.content.now)
    }

    /// Returns the length in bytes.
    pub fn size(&self) -> u64 {
        self.content.size
    }

    /// Makes all writes so far durable, as `File::sync_data` and a FLUSH do.
    ///
    /// # Errors
    /// The recorded closure has ended.
    pub fn sync_data(&self) -> io::Result<()> {
        self.now().note(Kind::Flush, 0, &[])
    }

    /// The same as [`Disk::sync_data`].
    ///
    /// # Errors
    /// As [`Disk::sync_data`].
    pub fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }

    /// Sets a mark: what the store has promised so far. The check gets the last one before the cut.
    ///
    /// # Errors
    /// The text is empty, or the recorded closure has ended.
    pub fn mark(&self, text: impl fmt::Display) -> io::Result<()> {
        let text = text.to_string();
        if text.is_empty() {
            let why = "a mark without a text; say what the store has promised";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.now().note(Kind::Mark, 0, text.as_bytes())
    }

    /// Returns a handle whose [`Write::flush`] is [`Disk::sync_data`]: for a store that knows no
    /// other sync, if that of its file in production makes data durable. That of
    /// [`File`](std::fs::File) does not.
    pub fn flushing(&self) -> Disk {
        Disk {
            flushing: true,
            ..self.clone()
        }
    }

    /// Calls `each` for the units of a range: number, first byte in it, range in the request.
    fn parts(
        &self,
        offset: u64,
        length: usize,
        mut each: impl FnMut(u64, usize, std::ops::Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let unit = index(self.content.unit);
        let mut done = 0;
        while done < length {
            let at = offset + to_u64(done);
            let from = to_usize(at % to_u64(unit));
            let part = (unit - from).min(length - done);
            each(at / to_u64(unit), from, done..done + part)?;
            done += part;
        }
        Ok(())
    }

    /// Fills `buf` with a unit as the power cut left it.
    fn base(&self, unit: u64, buf: &mut [u8]) -> io::Result<()> {
        match &self.content.base {
            Some(base) => base.read_unit(unit, buf),
            None => {
                buf.fill(0);
                Ok(())
            }
        }
    }
}

impl FileExt for Disk {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let left = self.content.size.saturating_sub(offset);
        let length = to_usize(left.min(to_u64(buf.len())));
        let now = self.now();
        let mut whole = vec![0; index(self.content.unit)];
        self.parts(offset, length, |unit, from, range| {
            let to = from + range.len();
            match now.units.get(&unit) {
                Some(bytes) => buf[range].copy_from_slice(&bytes[from..to]),
                None => {
                    self.base(unit, &mut whole)?;
                    buf[range].copy_from_slice(&whole[from..to]);
                }
            }
            Ok(())
        })?;
        Ok(length)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        let end = offset.checked_add(to_u64(buf.len()));
        if end.is_none_or(|end| end > self.content.size) {
            let why = format!(
                "write of {} bytes at {offset}: beyond the end of the disk, which has {} bytes",
                buf.len(),
                self.content.size
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        if buf.is_empty() {
            return Ok(0);
        }
        let mut now = self.now();
        now.note(Kind::Write, offset, buf)?;
        self.parts(offset, buf.len(), |unit, from, range| {
            let bytes = match now.units.entry(unit) {
                hash_map::Entry::Occupied(written) => written.into_mut(),
                hash_map::Entry::Vacant(place) => {
                    let mut whole = vec![0; index(self.content.unit)];
                    self.base(unit, &mut whole)?;
                    place.insert(whole.into_boxed_slice())
                }
            };
            bytes[from..from + range.len()].copy_from_slice(&buf[range]);
            Ok(())
        })?;
        Ok(buf.len())
    }
}

impl Read for &Disk {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut position = lock(&self.position);
        let read = self.read_at(buf, *position)?;
        *position += to_u64(read);
        Ok(read)
    }
}

impl Write for &Disk {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let mut position = lock(&self.position);
        let written = self.write_at(buf, *position)?;
        *position += to_u64(written);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.flushing {
            return self.sync_data();
        }
        self.now().flushes_without_sync += 1;
        Ok(())
    }
}

impl Seek for &Disk {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let mut position = lock(&self.position);
        let to = match to {
            SeekFrom::Start(to) => Some(to),
            SeekFrom::End(by) => self.content.size.checked_add_signed(by),
            SeekFrom::Current(by) => position.checked_add_signed(by),
        };
        let before = || io::Error::new(io::ErrorKind::InvalidInput, "seek before the first byte");
        *position = to.ok_or_else(before)?;
        Ok(*position)
    }
}

impl Read for Disk {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }
}

impl Write for Disk {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl Seek for Disk {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

impl Clone for Disk {
    fn clone(&self) -> Disk {
        Disk {
            content: self.content.clone(),
            position: Mutex::new(0),
            flushing: self.flushing,
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Disk of {} bytes", self.content.size)
    }
}
