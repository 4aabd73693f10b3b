//! Interface of a store to its file, in few methods, so that tests can record calls and make them
//! fail.

use crate::convert::to_u64;
use std::io::{self, IoSliceMut};
use std::time::Duration;

/// Error number that the callers of a store get for a failed sync.
pub(super) const EIO: i32 = 5;

/// A read that takes longer has waited for the host's disk.
pub(super) const SLOW: Duration = Duration::from_micros(50);

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
    /// Prepares for many reads of the first `bytes` bytes, if that makes them faster.
    fn map(&self, _bytes: u64) {}

    /// Fills the buffer; bytes that were never written are zero.
    ///
    /// # Errors
    ///
    /// The host cannot read them, or the file ends before.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Returns whether [`Disk::read_mapped`] reads.
    fn is_mapped(&self) -> bool {
        false
    }

    /// Fills the buffer from mapped bytes and returns their CRC32C; otherwise, its content is
    /// undefined.
    fn read_mapped(&self, _at: u64, _buf: &mut [u8]) -> Option<u32> {
        None
    }

    /// Announces a read of bytes from `at` on, if they are mapped.
    fn prefetch(&self, _at: u64) {}

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

    /// Whether reading this byte needs no disk.
    fn is_cached(&self, _at: u64) -> bool {
        true
    }

    /// Tells the host that these bytes will be read soon.
    fn will_read(&self, _at: u64, _bytes: u64) {}

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
    /// The host refused it.
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
