//! The area of a write cache behind the slots of an image file, as plain positioned bytes. The user
//! of the area gives them a meaning.
//!
//! Invariants: the header names the area only while the file is long enough for it. If the host
//! fails while the area is attached or detached, the file may be longer than its header says, which
//! is no error. The header that clears the flag of a failed sync removes the area, too.

use super::sync::SyncHandle;
use crate::image::CacheSection;
use std::io;

/// The area of a write cache, attached or not. It may not outlive the store.
#[derive(Clone, Debug)]
pub struct CacheArea {
    pub(super) sync: SyncHandle,
    /// First byte that it reads and writes, in the area.
    pub(super) begin: u64,
}

impl CacheArea {
    /// Returns this area with positions that count from byte `begin` on.
    pub fn from(&self, begin: u64) -> CacheArea {
        let sync = self.sync.clone();
        CacheArea { sync, begin }
    }

    /// The attached area.
    pub fn section(&self) -> Option<CacheSection> {
        self.sync.cache_area()
    }

    /// Attaches an area of `bytes` in two steps: makes the file long enough, allocates the space
    /// and calls `fill`, which may use the area; then syncs the file and a header that names the
    /// area.
    ///
    /// # Errors
    ///
    /// The host refuses the length, a write or a sync; the header then names no area.
    pub fn attach(
        &self,
        bytes: u64,
        fill: impl FnOnce(&CacheArea) -> io::Result<()>,
    ) -> io::Result<()> {
        let (disk, at) = self.sync.file();
        assert!(bytes > 0, "an area of no bytes");
        assert!(self.section().is_none(), "an area is attached");
        disk.set_len(at + bytes)?;
        disk.allocate(at, bytes)?;
        fill(self)?;
        self.sync.force()?;
        self.sync
            .write_cache_area(Some(CacheSection { at, bytes }))?;
        Ok(())
    }

    /// Detaches the area, if one is attached: syncs a header without it. Then cuts everything
    /// behind the slots off the file.
    ///
    /// # Errors
    ///
    /// The host refuses a write or a sync; the area is then still attached.
    pub fn detach(&self) -> io::Result<()> {
        if self.section().is_some() {
            self.sync.write_cache_area(None)?;
        }
        let (disk, at) = self.sync.file();
        // A file that stays too long is no error.
        let _ = disk.set_len(at);
        Ok(())
    }

    /// Fills the buffer with bytes from `at` on.
    ///
    /// # Errors
    ///
    /// The host cannot read the file.
    pub fn read_at(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let (disk, begin) = self.sync.file();
        disk.read_at(begin + self.begin + at, buf)
    }

    /// Writes bytes from `at` on.
    ///
    /// # Errors
    ///
    /// The host refuses the write, or a sync failed; part of the bytes may have arrived.
    pub fn write_at(&self, at: u64, buf: &[u8]) -> io::Result<()> {
        if let Some(failure) = self.sync.failure() {
            return Err(failure.into());
        }
        let (disk, begin) = self.sync.file();
        Ok(disk.write_at(begin + self.begin + at, buf)?)
    }

    /// Syncs the file.
    ///
    /// # Errors
    ///
    /// The sync failed, now or earlier.
    pub fn sync(&self) -> io::Result<()> {
        Ok(self.sync.force()?)
    }

    /// Refuses every later change and sync of the image.
    pub fn fail(&self, error: &io::Error) {
        self.sync.fail(error);
    }
}
