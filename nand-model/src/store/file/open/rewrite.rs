//! Writes the file's content again unchanged: after a failed sync the page cache may have it and
//! the disk may not.
//!
//! Invariant: a rewrite writes the bytes that it read, so one that fails or is interrupted changes
//! nothing.

use super::holes::Holes;
use super::opener::{Opener, Records, io_error};
use crate::convert::{to_u32, to_u64};
use crate::image::{ImageError, SLOT_HEADER_BYTES, TABLE_ENTRY_BYTES};

impl Opener<'_> {
    pub(super) fn rewrite_table(&self) -> Result<(), ImageError> {
        let mut table = vec![0; self.layout.table_bytes()];
        self.read(self.layout.table_at(), &mut table)?;
        debug_assert!(!table.is_empty(), "a table has an entry for each block");
        self.write_again(self.layout.table_at(), &table)
    }

    pub(super) fn rewrite_entry(&self, block: usize) -> Result<(), ImageError> {
        let (at, mut entry) = (self.layout.entry_at(block), [0; TABLE_ENTRY_BYTES]);
        self.read(at, &mut entry)?;
        self.write_again(at, &entry)
    }

    /// Writes a slot's header and records again unchanged. A hole is skipped: the content of a free
    /// slot before its punch belongs to lives that ended at or below the synced number.
    pub(super) fn rewrite_slot(&self, slot: u32) -> Result<(), ImageError> {
        self.rewrite_header_of(slot)?;
        let (at, bytes) = (self.layout.records_at(slot), self.layout.records_bytes());
        if Holes::new(self.disk).is_hole(at, to_u64(bytes)) {
            return Ok(());
        }
        let mut records = Records::default();
        self.read_records(slot, &mut records)?;
        self.write_again(at, &records.bytes)
    }

    /// Writes the pages of operations beyond the synced number again unchanged, then header and
    /// records.
    pub(super) fn rewrite_late(&self, slot: u32, synced_seq: u64) -> Result<(), ImageError> {
        let mut records = Records::default();
        self.read_records(slot, &mut records)?;
        let mut data = Vec::new();
        for pages in records.late_runs(synced_seq) {
            data.resize(pages.len() * self.layout.geometry.page_len(), 0);
            let at = self.layout.data_at(slot, to_u32(pages.start));
            self.read(at, &mut data)?;
            self.write_again(at, &data)?;
        }
        self.rewrite_header_of(slot)?;
        self.write_again(self.layout.records_at(slot), &records.bytes)
    }

    fn rewrite_header_of(&self, slot: u32) -> Result<(), ImageError> {
        let (at, mut bytes) = (self.layout.slot_header_at(slot), [0; SLOT_HEADER_BYTES]);
        self.read(at, &mut bytes)?;
        self.write_again(at, &bytes)
    }

    /// Writes bytes that the file already contains: a partial write changes nothing.
    pub(super) fn write_again(&self, at: u64, bytes: &[u8]) -> Result<(), ImageError> {
        self.disk
            .write_at(at, bytes)
            .map_err(|failed| io_error(self.path, "write it", failed.into()))
    }
}
