//! The cache area of an image file, as the cache uses it.

use super::format::{HEAD_BYTES, bitmap_bytes};
use nand_model::CacheArea;
use std::io;

/// Positioned bytes of a cache area.
pub(crate) trait Area: Send {
    /// Fills the buffer with bytes from `at` on.
    ///
    /// # Errors
    /// The host cannot read the file.
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()>;
    /// Writes bytes from `at` on.
    ///
    /// # Errors
    /// The host refuses the write; part of the bytes may have arrived.
    fn write_at(&self, at: u64, buf: &[u8]) -> io::Result<()>;
    /// Syncs the file.
    ///
    /// # Errors
    /// The sync failed.
    fn sync(&self) -> io::Result<()>;
    /// Ends the image's use of the area.
    ///
    /// # Errors
    /// The host cannot write or sync the image's header.
    fn detach(&self) -> io::Result<()>;
    /// Refuses every later change of the image: its area contradicts what the device returned.
    fn fail(&self, error: &io::Error);
}

impl Area for CacheArea {
    fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        CacheArea::read_at(self, at, buf)
    }
    fn write_at(&self, at: u64, buf: &[u8]) -> io::Result<()> {
        CacheArea::write_at(self, at, buf)
    }
    fn sync(&self) -> io::Result<()> {
        CacheArea::sync(self)
    }
    fn detach(&self) -> io::Result<()> {
        CacheArea::detach(self)
    }
    fn fail(&self, error: &io::Error) {
        CacheArea::fail(self, error);
    }
}

/// Returns the bytes of an area with a ring of this size.
pub(super) fn area_of(ring_bytes: u64) -> u64 {
    HEAD_BYTES + bitmap_bytes(ring_bytes) + ring_bytes
}
