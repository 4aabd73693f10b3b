//! Writes the file's content again unchanged: after a failed sync the page cache may have it and
//! the disk may not.
//!
//! Invariant: a rewrite writes the bytes that it read, so one that fails or is interrupted changes
//! nothing.

use super::{Opener, io_error};
use crate::convert::{to_u32, to_u64};
use crate::image::{Core, ImageError};

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
        if !self.holds_data(slot, to_u64(self.layout.meta_bytes())) {
            return Ok(());
        }
        let meta = self.read_meta(slot)?;
        self.write_again(self.layout.slot_at(slot), &meta)
    }

    /// Writes the pages of operations beyond the synced number again unchanged, then header and
    /// records.
    pub(super) fn rewrite_late(&self, slot: u32, synced_seq: u64) -> Result<(), ImageError> {
        let meta = self.read_meta(slot)?;
        let mut data = vec![0; self.layout.geometry.page_len()];
        for page in 0..self.layout.pages() {
            let core = Core::decode(slot, to_u32(page), self.layout.record_in(&meta, page));
            if core.is_some_and(|core| core.seq > synced_seq) {
                let at = self.layout.data_at(slot, to_u32(page));
                self.read(at, &mut data)?;
                self.write_again(at, &data)?;
            }
        }
        self.write_again(self.layout.slot_at(slot), &meta)
    }

    /// Writes bytes that the file already contains: a partial write changes nothing.
    pub(super) fn write_again(&self, at: u64, bytes: &[u8]) -> Result<(), ImageError> {
        self.disk
            .write_at(at, bytes)
            .map_err(|failed| io_error(self.path, "write it", failed.into()))
    }
}
