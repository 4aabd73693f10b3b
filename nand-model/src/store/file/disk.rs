//! The file under a store, with few methods, so that tests can record calls and make them fail.
//!
//! Invariants: [`FileDisk`] holds its lock until it is dropped or until [`Disk::unlock`]; an
//! [`Overlay`] never writes to the disk below it. A map of the file serves reads only, and only
//! until it has lost a page: writes have to return an errno when the host is full, and a lost page
//! has one, too, which `pread` returns.

use crate::convert::{to_u64, to_usize};
use crate::image::{ImageError, PAGE, PAGE_LEN};
use ftld_mapped_file::MappedFile;
use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom};
use std::collections::btree_map::{BTreeMap, Entry};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSliceMut};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Maximum number of buffers per system call (limits.h).
const IOV_MAX: usize = 1024;

/// A write that ended early.
#[derive(Debug)]
pub struct WriteError {
    /// Bytes written before the error.
    pub done: usize,
    /// The host's error.
    pub error: io::Error,
}

impl From<WriteError> for io::Error {
    fn from(failed: WriteError) -> Self {
        failed.error
    }
}

/// Random access to the bytes of an image file: what the host does for a store.
pub trait Disk: Send + Sync {
    /// Prepares for reads of the first `bytes` bytes, if that makes them faster.
    fn map(&self, _bytes: u64) {}

    /// Fills the buffer; bytes that were never written are zero.
    ///
    /// # Errors
    ///
    /// The host cannot read them, or the file ends before.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Fills the buffers in sequence from contiguous bytes of the file.
    ///
    /// # Errors
    ///
    /// As [`Disk::read_at`].
    fn read_vectored_at(&self, mut at: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        for buf in bufs {
            self.read_at(at, buf)?;
            at += to_u64(buf.len());
        }
        Ok(())
    }

    /// Writes the bytes.
    ///
    /// # Errors
    ///
    /// The host refused the write, perhaps after a part of it.
    fn write_at(&self, at: u64, buf: &[u8]) -> Result<(), WriteError>;

    /// Makes everything written before the call durable.
    ///
    /// # Errors
    ///
    /// Anything written since the last sync may be lost.
    fn sync(&self) -> io::Result<()>;

    /// Releases the host's space; the bytes read as zero.
    ///
    /// # Errors
    ///
    /// The host refused it, and nothing has changed.
    fn punch(&self, at: u64, bytes: u64) -> io::Result<()>;

    /// Returns the first byte from `at` on that may be nonzero, or `None` if there is none.
    fn next_data(&self, at: u64) -> Option<u64>;

    /// Sets the length of the file; new bytes are zero.
    ///
    /// # Errors
    ///
    /// The host refused the length.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Allocates the host's space for these bytes, if its file system can.
    ///
    /// # Errors
    ///
    /// The host has no space for them.
    fn allocate(&self, at: u64, bytes: u64) -> io::Result<()>;

    /// Releases the lock although handles to the file remain.
    fn unlock(&self) {}
}

/// A locked file.
pub(crate) struct FileDisk {
    file: File,
    /// The first bytes of the file, if they are mapped.
    map: OnceLock<MappedFile>,
}

/// Purpose of opening a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Create,
    ReadWrite,
    ReadOnly,
    /// Without a lock.
    Peek,
}

impl FileDisk {
    /// Opens and locks a file; nothing is read before the lock is held.
    pub(crate) fn open(path: &Path, mode: Mode) -> Result<FileDisk, ImageError> {
        let fail = |action, source| ImageError::Io {
            path: path.into(),
            action,
            source,
        };
        // O_NONBLOCK: opening a pipe must not wait for its other end.
        let flags = rustix::fs::OFlags::NOFOLLOW
            | rustix::fs::OFlags::CLOEXEC
            | rustix::fs::OFlags::NONBLOCK;
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(matches!(mode, Mode::Create | Mode::ReadWrite))
            .create_new(mode == Mode::Create);
        options.mode(0o600).custom_flags(flags.bits().cast_signed());
        let file = options.open(path).map_err(|error| match error.kind() {
            ErrorKind::NotFound if mode != Mode::Create => ImageError::NotFound(path.into()),
            ErrorKind::AlreadyExists => ImageError::Exists(path.into()),
            ErrorKind::IsADirectory => ImageError::NotRegular(path.into()),
            _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                ImageError::NotRegular(path.into())
            }
            _ => fail("open it", error),
        })?;
        if !file
            .metadata()
            .map_err(|e| fail("look at it", e))?
            .is_file()
        {
            return Err(ImageError::NotRegular(path.into()));
        }
        let lock = match mode {
            Mode::Peek => return Ok(FileDisk::new(file)),
            Mode::ReadOnly => FlockOperation::NonBlockingLockShared,
            Mode::Create | Mode::ReadWrite => FlockOperation::NonBlockingLockExclusive,
        };
        match rustix::fs::flock(&file, lock) {
            Ok(()) => Ok(FileDisk::new(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Err(ImageError::InUse(path.into())),
            Err(errno) => Err(fail("lock it", errno.into())),
        }
    }

    fn new(file: File) -> Self {
        FileDisk {
            file,
            map: OnceLock::new(),
        }
    }

    /// Copies mapped bytes; returns whether that was possible.
    #[inline]
    fn read_mapped(&self, at: u64, buf: &mut [u8]) -> bool {
        self.map
            .get()
            .is_some_and(|map| map.covers(at, buf.len()) && map.read_at(at, buf).is_ok())
    }

    /// Returns the length and the bytes allocated by the host.
    pub(crate) fn sizes(&self) -> io::Result<(u64, u64)> {
        let meta = self.file.metadata()?;
        Ok((meta.len(), meta.blocks().saturating_mul(512)))
    }
}

/// Bytes of the host's RAM.
fn ram_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

impl Disk for FileDisk {
    /// Does nothing for a file larger than the host's RAM: `pread` reads ahead and evicts better
    /// than page faults do.
    fn map(&self, bytes: u64) {
        if bytes <= ram_bytes()
            && let Ok(map) = MappedFile::new(&self.file, bytes)
        {
            // A store maps once, when it is created or opened.
            let _ = self.map.set(map);
        }
    }

    #[inline]
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.read_mapped(at, buf) {
            return Ok(());
        }
        self.file.read_exact_at(buf, at)
    }

    fn read_vectored_at(&self, mut at: u64, mut bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut place = at;
        let mapped = bufs.iter_mut().all(|buf| {
            let from = place;
            place = place.saturating_add(to_u64(buf.len()));
            self.read_mapped(from, buf)
        });
        if mapped {
            return Ok(());
        }
        while !bufs.is_empty() {
            let most = bufs.len().min(IOV_MAX);
            match rustix::io::preadv(&self.file, &mut bufs[..most], at) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    IoSliceMut::advance_slices(&mut bufs, count);
                    at += to_u64(count);
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    #[inline]
    fn write_at(&self, at: u64, buf: &[u8]) -> Result<(), WriteError> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.write_at(&buf[done..], at + to_u64(done)) {
                Ok(0) => {
                    return Err(WriteError {
                        done,
                        error: ErrorKind::WriteZero.into(),
                    });
                }
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(WriteError { done, error }),
            }
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.file)?)
    }

    fn punch(&self, at: u64, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(
            &self.file,
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            at,
            bytes,
        )?)
    }

    fn next_data(&self, at: u64) -> Option<u64> {
        match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
            Ok(data) => Some(data),
            Err(rustix::io::Errno::NXIO) => None,
            // The file system has no such query: everything may be data.
            Err(_) => Some(at),
        }
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn allocate(&self, at: u64, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at, bytes) {
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
            allocated => Ok(allocated?),
        }
    }

    fn unlock(&self) {
        // Closing the file unlocks too; a failure here only delays the unlock.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

/// A disk without syncs, for an image that has no name yet.
pub(crate) struct Unsynced(pub(crate) FileDisk);

impl Disk for Unsynced {
    fn map(&self, bytes: u64) {
        self.0.map(bytes);
    }
    #[inline]
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_at(at, buf)
    }
    fn read_vectored_at(&self, at: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.0.read_vectored_at(at, bufs)
    }
    #[inline]
    fn write_at(&self, at: u64, buf: &[u8]) -> Result<(), WriteError> {
        self.0.write_at(at, buf)
    }
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
    fn punch(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.0.punch(at, bytes)
    }
    fn next_data(&self, at: u64) -> Option<u64> {
        self.0.next_data(at)
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }
    fn allocate(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.0.allocate(at, bytes)
    }
    fn unlock(&self) {
        self.0.unlock();
    }
}

/// A part of a disk, with offsets of its own. Slices of one disk unlock it together, when each of
/// them has been unlocked.
pub(crate) struct Slice {
    below: Arc<dyn Disk>,
    begin: u64,
    bytes: u64,
    /// Slices in use.
    users: Arc<AtomicUsize>,
}

impl Slice {
    /// Splits the first bytes of a disk into `count` slices of `bytes` each.
    pub(crate) fn split(disk: &Arc<dyn Disk>, count: usize, bytes: u64) -> Vec<Slice> {
        let users = Arc::new(AtomicUsize::new(count));
        let begins = (0..to_u64(count)).map(|index| index * bytes);
        let slice = |begin| Slice {
            below: disk.clone(),
            begin,
            bytes,
            users: users.clone(),
        };
        begins.map(slice).collect()
    }

    fn place(&self, at: u64, bytes: u64) -> u64 {
        debug_assert!(
            at + bytes <= self.bytes,
            "bytes {at} to {} of a slice of {} bytes",
            at + bytes,
            self.bytes
        );
        self.begin + at
    }
}

impl Disk for Slice {
    /// Whoever made the slices has mapped the whole disk.
    fn map(&self, _bytes: u64) {}
    #[inline]
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.below.read_at(self.place(at, to_u64(buf.len())), buf)
    }
    fn read_vectored_at(&self, at: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.below.read_vectored_at(self.place(at, 0), bufs)
    }
    #[inline]
    fn write_at(&self, at: u64, buf: &[u8]) -> Result<(), WriteError> {
        self.below.write_at(self.place(at, to_u64(buf.len())), buf)
    }
    /// Syncs the whole disk.
    fn sync(&self) -> io::Result<()> {
        self.below.sync()
    }
    fn punch(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.below.punch(self.place(at, bytes), bytes)
    }
    fn next_data(&self, at: u64) -> Option<u64> {
        let data = self.below.next_data(self.place(at, 0))? - self.begin;
        Some(data).filter(|data| *data < self.bytes)
    }
    /// A slice keeps its length.
    fn set_len(&self, _bytes: u64) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }
    fn allocate(&self, at: u64, bytes: u64) -> io::Result<()> {
        self.below.allocate(self.place(at, bytes), bytes)
    }
    fn unlock(&self) {
        if self.users.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.below.unlock();
        }
    }
}

/// A disk whose changes stay in memory: recovery and a mount write to it on an image opened
/// read-only.
pub(crate) struct Overlay {
    below: Arc<dyn Disk>,
    pages: Mutex<BTreeMap<u64, Box<[u8]>>>,
}

impl Overlay {
    pub(crate) fn new(below: Arc<dyn Disk>) -> Self {
        Overlay {
            below,
            pages: Mutex::default(),
        }
    }

    /// Calls `each(page number, offset in page, range of a buffer of `bytes`)` for every piece.
    fn pieces(at: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let place = at + to_u64(from);
            let (page, offset) = (place / PAGE, to_usize(place % PAGE));
            let upto = bytes.min(from + PAGE_LEN - offset);
            let piece = (from < bytes).then_some((page, offset, from..upto));
            from = upto;
            piece
        })
    }
}

impl Disk for Overlay {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.below.read_at(at, buf)?;
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        for (page, offset, range) in Self::pieces(at, buf.len()) {
            if let Some(own) = pages.get(&page) {
                let length = range.len();
                buf[range].copy_from_slice(&own[offset..offset + length]);
            }
        }
        Ok(())
    }

    fn write_at(&self, at: u64, buf: &[u8]) -> Result<(), WriteError> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        for (page, offset, range) in Self::pieces(at, buf.len()) {
            let done = range.start;
            let own = match pages.entry(page) {
                Entry::Occupied(own) => own.into_mut(),
                Entry::Vacant(none) => {
                    let mut fresh = vec![0; PAGE_LEN].into_boxed_slice();
                    self.below
                        .read_at(page * PAGE, &mut fresh)
                        .map_err(|error| WriteError { done, error })?;
                    none.insert(fresh)
                }
            };
            own[offset..offset + range.len()].copy_from_slice(&buf[range]);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn punch(&self, _at: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn next_data(&self, at: u64) -> Option<u64> {
        let below = self.below.next_data(at);
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let own = pages
            .range(at / PAGE..)
            .next()
            .map(|(page, _)| (page * PAGE).max(at));
        below.into_iter().chain(own).min()
    }

    fn allocate(&self, _at: u64, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    /// The file keeps its length.
    fn set_len(&self, _bytes: u64) -> io::Result<()> {
        Ok(())
    }

    fn unlock(&self) {
        self.below.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_reads_its_own_writes_and_leaves_the_file_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let disk = FileDisk::open(&path, Mode::Create).unwrap();
        disk.set_len(5 * PAGE).unwrap();
        disk.write_at(0, &[1; 20480]).unwrap();
        let overlay = Overlay::new(Arc::new(disk));
        overlay.write_at(4000, &[2; 5000]).unwrap();
        let mut seen = vec![0; 20480];
        overlay.read_at(0, &mut seen).unwrap();
        assert!(seen[..4000].iter().all(|&b| b == 1) && seen[9000..].iter().all(|&b| b == 1));
        assert!(seen[4000..9000].iter().all(|&b| b == 2));
        assert!(std::fs::read(&path).unwrap().iter().all(|&b| b == 1));
    }

    #[test]
    fn a_file_gives_room_back_reads_to_its_end_and_tells_what_the_host_refuses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let disk = FileDisk::open(&path, Mode::Create).unwrap();
        disk.set_len(4 * PAGE).unwrap();
        disk.write_at(0, &[1; 2 * PAGE as usize]).unwrap();
        disk.punch(0, PAGE).unwrap();
        assert_eq!(
            (disk.next_data(0), disk.next_data(3 * PAGE)),
            (Some(PAGE), None)
        );
        let mut bytes = vec![0; 3 * PAGE as usize];
        let mut read = |at| {
            let mut bufs: Vec<_> = bytes.chunks_mut(2000).map(IoSliceMut::new).collect();
            disk.read_vectored_at(at, &mut bufs)
                .map_err(|error| error.kind())
        };
        assert_eq!(
            (read(0), read(2 * PAGE)),
            (Ok(()), Err(ErrorKind::UnexpectedEof))
        );
        assert_eq!(read(u64::MAX), Err(ErrorKind::InvalidInput));
        disk.unlock();
        let reader = FileDisk::open(&path, Mode::ReadOnly).unwrap();
        assert_eq!(reader.write_at(0, &[1]).unwrap_err().done, 0);
        assert!(reader.punch(0, PAGE).is_err());
        let error = FileDisk::open(&path.join("below"), Mode::ReadOnly)
            .err()
            .unwrap();
        assert!(
            matches!(
                error,
                ImageError::Io {
                    action: "open it",
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn an_overlay_reads_as_the_file_would_where_the_file_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FileDisk::open(&dir.path().join("f"), Mode::Create).unwrap();
        disk.set_len(2 * PAGE).unwrap();
        let overlay = Overlay::new(Arc::new(disk));
        overlay.write_at(PAGE + 5, &[1, 2, 3]).unwrap();
        let mut bytes = [[0; 4], [0; 4]];
        let mut bufs = bytes.each_mut().map(|buf| IoSliceMut::new(buf));
        overlay.read_vectored_at(PAGE + 2, &mut bufs).unwrap();
        assert_eq!(bytes, [[0, 0, 0, 1], [2, 3, 0, 0]]);
        let next = [0, PAGE, PAGE + 7, 2 * PAGE].map(|at| overlay.next_data(at));
        assert_eq!(next, [Some(PAGE), Some(PAGE), Some(PAGE + 7), None]);
        // The file has no such page, so a partial write of it must fail.
        let failed = overlay.write_at(2 * PAGE - 1, &[1; 3]).unwrap_err();
        assert_eq!(
            (failed.done, failed.error.kind()),
            (1, ErrorKind::UnexpectedEof)
        );
        assert!(
            overlay
                .read_vectored_at(2 * PAGE - 1, &mut [IoSliceMut::new(&mut [0; 3])])
                .is_err()
        );
        overlay.sync().unwrap();
        overlay.unlock();
    }
}
