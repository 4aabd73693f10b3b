//! Reads and writes of an image before its use starts.

use crate::convert::to_u32;
use crate::image::{Core, ImageError, ImageInfo, Layout, SEAL_SECTOR_BYTES};
use crate::store::file::disk::Disk;
use crate::store::file::seals::FoundSeals;
use std::io;
use std::iter;
use std::ops::Range;
use std::path::Path;

/// Pages whose data is read at once: few calls, and their bytes stay in the processor's cache.
const GROUP_PAGES: usize = 32;

/// Records of one slot. One buffer serves one slot after another.
#[derive(Default)]
pub(super) struct Records {
    pub(super) slot: u32,
    pub(super) bytes: Vec<u8>,
    /// By page; `None` if no record is valid there.
    pub(super) cores: Vec<Option<Core>>,
}

impl Records {
    /// The pages of operations beyond the synced number, as runs of at most [`GROUP_PAGES`].
    pub(super) fn late_runs(&self, synced_seq: u64) -> impl Iterator<Item = Range<usize>> {
        let is_late =
            move |page: &usize| self.cores[*page].is_some_and(|core| core.seq > synced_seq);
        let (pages, mut next) = (self.cores.len(), 0);
        iter::from_fn(move || {
            let first = (next..pages).find(is_late)?;
            let most = pages.min(first + GROUP_PAGES);
            next = (first..most).find(|page| !is_late(page)).unwrap_or(most);
            Some(first..next)
        })
    }
}

/// Reads an image before its use starts.
pub(super) struct Opener<'a> {
    pub(super) path: &'a Path,
    pub(super) disk: &'a dyn Disk,
    pub(super) layout: Layout,
    pub(super) info: &'a ImageInfo,
    /// Whether changes stay out of the file.
    pub(super) read_only: bool,
}

impl Opener<'_> {
    /// Reads the records of a slot.
    pub(super) fn read_records(&self, slot: u32, records: &mut Records) -> Result<(), ImageError> {
        self.read_records_with(slot, records, |bytes| {
            self.read(self.layout.records_at(slot), bytes)
        })
    }

    /// As [`Opener::read_records`]; `read` reads the bytes.
    pub(super) fn read_records_with(
        &self,
        slot: u32,
        records: &mut Records,
        read: impl FnOnce(&mut [u8]) -> Result<(), ImageError>,
    ) -> Result<(), ImageError> {
        let Records {
            slot: own,
            bytes,
            cores,
        } = records;
        *own = slot;
        bytes.resize(self.layout.records_bytes(), 0);
        read(bytes)?;
        cores.clear();
        cores.extend(
            (0..self.layout.pages())
                .map(|page| Core::decode(slot, to_u32(page), self.layout.record_in(bytes, page))),
        );
        Ok(())
    }

    /// Reads the seal map.
    pub(super) fn read_seals(&self) -> Result<FoundSeals, ImageError> {
        let mut bytes = vec![0; self.layout.seal_sectors() * SEAL_SECTOR_BYTES];
        self.read(self.layout.seal_sector_at(0), &mut bytes)?;
        Ok(FoundSeals::decode(&bytes))
    }

    pub(super) fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), ImageError> {
        self.disk
            .read_at(at, bytes)
            .map_err(|e| io_error(self.path, "read it", e))
    }

    /// Writes, or restores the old bytes on failure: the next open would report a partial header as
    /// damage.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> Result<(), ImageError> {
        let mut before = vec![0; bytes.len()];
        self.read(at, &mut before)?;
        let Err(failed) = self.disk.write_at(at, bytes) else {
            return Ok(());
        };
        if failed.done > 0 {
            // If that fails too, the first error describes the disk's failure.
            let _ = self.disk.write_at(at, &before[..failed.done]);
        }
        Err(io_error(self.path, "write it", failed.into()))
    }
}

pub(super) fn io_error(path: &Path, action: &'static str, source: io::Error) -> ImageError {
    ImageError::Io {
        path: path.into(),
        action,
        source,
    }
}

pub(super) fn damaged(path: &Path, reason: impl ToString) -> ImageError {
    ImageError::Damaged {
        path: path.into(),
        reason: reason.to_string(),
    }
}
