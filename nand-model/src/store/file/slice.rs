//! A part of a disk as a disk.

use super::disk::{Disk, WriteError};
use crate::convert::to_u64;
use std::io::{self, ErrorKind, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    /// The store maps the whole disk.
    fn map(&self, _bytes: u64) {}
    #[inline]
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        self.below.read_at(self.place(at, to_u64(buf.len())), buf)
    }
    #[inline]
    fn is_mapped(&self) -> bool {
        self.below.is_mapped()
    }
    #[inline]
    fn read_mapped(&self, at: u64, buf: &mut [u8]) -> Option<u32> {
        self.below
            .read_mapped(self.place(at, to_u64(buf.len())), buf)
    }
    #[inline]
    fn prefetch(&self, at: u64) {
        self.below.prefetch(self.place(at, 0));
    }
    fn read_vectored_at(&self, at: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.below.read_vectored_at(self.place(at, 0), bufs)
    }
    fn is_cached(&self, at: u64) -> bool {
        self.below.is_cached(self.place(at, 1))
    }
    fn will_read(&self, at: u64, bytes: u64) {
        self.below.will_read(self.place(at, bytes), bytes);
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
