//! Writes the file's content again unchanged: after a failed sync the page cache may have it and
//! the disk may not.
//!
//! Invariant: a rewrite writes the bytes that it read, so one that fails or is interrupted changes
//! nothing.

use super::holes::Holes;
use super::opener::{Meta, Opener, io_error};
use crate::convert::{to_u32, to_u64};
use crate::image::ImageError;

impl Opener<'_> {
    pub(super) fn rewrite_table(&self) -> Result<(), ImageError> {
        let mut table = vec![0; self.layout.table_bytes()];
        self.read(self.layout.table_at(), &mut table)?;
        debug_assert!(!table.is_empty(), "a table has an entry for each block");
        self.write_again(self.layout.table_at(), &table)
    }

    /// Writes a slot's header and records again unchanged. A hole is skipped: the content of a free
    /// slot before its punch belongs to lives that ended at or below the synced number.
    pub(super) fn rewrite_meta(&self, slot: u32) -> Result<(), ImageError> {
        let (at, meta_bytes) = (self.layout.slot_at(slot), to_u64(self.layout.meta_bytes()));
        if Holes::new(self.disk).is_hole(at, meta_bytes) {
            return Ok(());
        }
        let mut meta = Meta::default();
        self.read_meta(slot, &mut meta)?;
        self.write_again(at, &meta.bytes)
    }

    /// Writes the pages of operations beyond the synced number again unchanged, then header and
    /// records.
    pub(super) fn rewrite_late(&self, slot: u32, synced_seq: u64) -> Result<(), ImageError> {
        let mut meta = Meta::default();
        self.read_meta(slot, &mut meta)?;
        let mut data = Vec::new();
        for pages in meta.late_runs(synced_seq) {
            data.resize(pages.len() * self.layout.geometry.page_len(), 0);
            let at = self.layout.data_at(slot, to_u32(pages.start));
            self.read(at, &mut data)?;
            self.write_again(at, &data)?;
        }
        self.write_again(self.layout.slot_at(slot), &meta.bytes)
    }

    /// Writes bytes that the file already contains: a partial write changes nothing.
    pub(super) fn write_again(&self, at: u64, bytes: &[u8]) -> Result<(), ImageError> {
        self.disk
            .write_at(at, bytes)
            .map_err(|failed| io_error(self.path, "write it", failed.into()))
    }
}
