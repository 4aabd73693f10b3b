//! The image file as a [`Disk`].
//!
//! Invariants: [`FileDisk`] holds its lock until it is dropped or until [`Disk::unlock`]. A map of
//! the file serves reads only, and only until it has lost a page: only `pwrite` returns an errno
//! when the host is full, and only `pread` one for a lost page.

use super::disk::{Disk, WriteError};
use crate::convert::to_u64;
use crate::image::ImageError;
use crc32c::crc32c;
use ftld_mapped_file::MappedFile;
use rustix::fs::{Advice, FallocateFlags, FlockOperation, SeekFrom};
use rustix::io::ReadWriteFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, IoSliceMut};
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;

/// Maximum number of buffers per system call (limits.h).
const IOV_MAX: usize = 1024;

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
    /// Read-only, without a lock.
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
    fn copy_mapped(&self, at: u64, buf: &mut [u8]) -> bool {
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
        if self.map.get().is_none()
            && bytes <= ram_bytes()
            && let Ok(map) = MappedFile::new(&self.file, bytes)
        {
            // Another thread may have mapped it meanwhile.
            let _ = self.map.set(map);
        }
    }

    #[inline]
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.copy_mapped(at, buf) {
            return Ok(());
        }
        self.file.read_exact_at(buf, at)
    }

    #[inline]
    fn is_mapped(&self) -> bool {
        self.map.get().is_some()
    }

    #[inline]
    fn read_mapped(&self, at: u64, buf: &mut [u8]) -> Option<u32> {
        // While the bytes are in the processor's cache.
        self.copy_mapped(at, buf).then(|| crc32c(buf))
    }

    #[inline]
    fn prefetch(&self, at: u64) {
        if let Some(map) = self.map.get() {
            map.prefetch(at);
        }
    }

    fn read_vectored_at(&self, mut at: u64, mut bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut place = at;
        let mapped = bufs.iter_mut().all(|buf| {
            let from = place;
            place = place.saturating_add(to_u64(buf.len()));
            self.copy_mapped(from, buf)
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

    fn is_cached(&self, at: u64) -> bool {
        let mut byte = [0];
        let mut bufs = [IoSliceMut::new(&mut byte)];
        // A file system that cannot tell has no disk (tmpfs), or is asked for nothing.
        rustix::io::preadv2(&self.file, &mut bufs, at, ReadWriteFlags::NOWAIT)
            != Err(rustix::io::Errno::AGAIN)
    }

    fn will_read(&self, at: u64, bytes: u64) {
        // Without the advice the host reads when it is asked.
        let _ = rustix::fs::fadvise(&self.file, at, NonZeroU64::new(bytes), Advice::WillNeed);
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
    fn is_mapped(&self) -> bool {
        self.0.is_mapped()
    }
    fn read_mapped(&self, at: u64, buf: &mut [u8]) -> Option<u32> {
        self.0.read_mapped(at, buf)
    }
    fn prefetch(&self, at: u64) {
        self.0.prefetch(at);
    }
    fn read_vectored_at(&self, at: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.0.read_vectored_at(at, bufs)
    }
    fn is_cached(&self, at: u64) -> bool {
        self.0.is_cached(at)
    }
    fn will_read(&self, at: u64, bytes: u64) {
        self.0.will_read(at, bytes);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::PAGE;

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
}
