//! The two header copies of a store in use: which one is on the disk, and which may be overwritten.
//!
//! Invariants: the overwritten copy is never the newest one known to be on the disk. The synced
//! number in a header never falls. If the host fails in a write, that copy may be torn; the other
//! one is on the disk.

use crate::image::{Header, Layout};
use crate::store::file::disk::{Disk, EIO};

/// The header of a store and its copies in the file.
pub(super) struct HeaderCopies {
    /// The last header written.
    pub(super) header: Header,
    /// The header differs from both copies in the file.
    pub(super) is_unwritten: bool,
    /// Error of the last write, if it failed.
    pub(super) errno: Option<i32>,
    /// Synced numbers of the two copies in the file.
    copies: [u64; 2],
    /// The newest copy known to be on the disk.
    durable: usize,
    written: usize,
}

impl HeaderCopies {
    /// Returns the copies of a file whose copy `copy` is `header`, on the disk.
    pub(super) fn new(header: Header, copy: usize) -> HeaderCopies {
        assert!(copy < 2, "a header has two copies");
        let mut copies = [0; 2];
        copies[copy] = header.synced_seq;
        HeaderCopies {
            header,
            is_unwritten: false,
            errno: None,
            copies,
            durable: copy,
            written: copy,
        }
    }

    /// Records that the last written copy is on the disk; returns its synced number.
    pub(super) fn note_synced(&mut self) -> u64 {
        self.durable = self.written;
        self.copies[self.durable]
    }

    /// Whether both copies in the file are the header, with this synced number.
    pub(super) fn are_current(&self, synced_seq: u64) -> bool {
        !self.is_unwritten && self.copies.iter().all(|&said| said == synced_seq)
    }

    /// Writes the header with `synced_seq` into the copy that is not durable.
    pub(super) fn write(&mut self, disk: &dyn Disk, layout: &Layout, synced_seq: u64) {
        assert!(
            synced_seq >= self.header.synced_seq,
            "the header takes operation {} back to {synced_seq}",
            self.header.synced_seq
        );
        let copy = 1 - self.durable;
        self.header.generation += 1;
        self.header.synced_seq = synced_seq;
        match disk.write_at(layout.copy_at(copy), &self.header.encode()) {
            Ok(()) => {
                self.copies[copy] = synced_seq;
                self.written = copy;
                self.is_unwritten = false;
                self.errno = None;
            }
            Err(failed) => {
                // Its old content may be torn, even if no sync has covered that yet.
                (self.copies[copy], self.written) = (0, self.durable);
                self.errno = Some(failed.error.raw_os_error().unwrap_or(EIO));
            }
        }
    }
}
