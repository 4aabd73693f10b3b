//! Contents of units. Each distinct content is stored once, in a file without a name, so memory
//! grows with the number of distinct contents alone.

use ftld_kit::convert::{index, to_u32, to_u64};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use twox_hash::XxHash3_128;

/// Number of a content; 0 is all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Content(pub(super) u32);

/// Content of a unit that was never written, or was trimmed.
pub(super) const ZEROS: Content = Content(0);

/// All contents of an exploration.
pub(super) struct Contents {
    unit_bytes: usize,
    file: File,
    known: Mutex<Known>,
    zeros: Vec<u8>,
}

struct Known {
    ids: HashMap<u128, Content>,
    hashes: Vec<u128>,
}

impl Contents {
    /// Creates an empty set; its file is in `folder`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(super) fn new(folder: &Path, unit_bytes: u32) -> io::Result<Contents> {
        let zeros = vec![0; index(unit_bytes)];
        let hash = XxHash3_128::oneshot(&zeros);
        Ok(Contents {
            unit_bytes: index(unit_bytes),
            file: tempfile::tempfile_in(folder)?,
            known: Mutex::new(Known {
                ids: HashMap::from([(hash, ZEROS)]),
                hashes: vec![hash],
            }),
            zeros,
        })
    }

    /// Returns the bytes of a unit.
    pub(super) fn unit_bytes(&self) -> usize {
        self.unit_bytes
    }

    /// Returns the number of a content; a new one is stored.
    ///
    /// # Errors
    /// The file is full.
    pub(super) fn id_of(&self, bytes: &[u8]) -> io::Result<Content> {
        assert_eq!(bytes.len(), self.unit_bytes, "bytes of a unit");
        let hash = XxHash3_128::oneshot(bytes);
        let mut known = self.known.lock();
        if let Some(id) = known.ids.get(&hash) {
            return Ok(*id);
        }
        let id = Content(to_u32(known.hashes.len()));
        self.file.write_all_at(bytes, self.place(id))?;
        known.ids.insert(hash, id);
        known.hashes.push(hash);
        Ok(id)
    }

    /// Reads a content.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read(&self, id: Content, buf: &mut [u8]) -> io::Result<()> {
        if id == ZEROS {
            buf.copy_from_slice(&self.zeros);
            return Ok(());
        }
        self.file.read_exact_at(buf, self.place(id))
    }

    /// Returns the part of a state's sum that this content of this unit has. The sum of a state is
    /// that of its units: it changes with each unit alone.
    pub(super) fn term(&self, unit: u32, content: Content) -> u128 {
        if content == ZEROS {
            return 0;
        }
        let hash = self.known.lock().hashes[index(content.0)];
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(&hash.to_le_bytes());
        bytes[16..].copy_from_slice(&unit.to_le_bytes());
        XxHash3_128::oneshot(&bytes)
    }

    fn place(&self, id: Content) -> u64 {
        u64::from(id.0 - 1) * to_u64(self.unit_bytes)
    }
}
