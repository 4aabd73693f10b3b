//! A disk over another one, whose changes stay in memory.
//!
//! Invariant: it never writes to the disk below it.

use super::disk::{Disk, WriteError};
use crate::convert::{to_u64, to_usize};
use crate::image::{PAGE, PAGE_LEN};
use std::collections::btree_map::{BTreeMap, Entry};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

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

    fn is_cached(&self, at: u64) -> bool {
        self.below.is_cached(at)
    }

    fn will_read(&self, at: u64, bytes: u64) {
        self.below.will_read(at, bytes);
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
    use crate::store::file::file_disk::{FileDisk, Mode};
    use std::io::{ErrorKind, IoSliceMut};

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
