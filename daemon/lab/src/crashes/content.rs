//! Contents of units. Each distinct content is stored once, in a file without a name, so memory
//! grows with the number of distinct contents alone.
//!
//! The contents of a recovery are beside those of the recording, and end with it. Their numbers
//! have the bit [`BESIDE`], and none is given twice: an image may still have the content.

use ftld_kit::convert::{index, to_u32, to_u64};
use ftld_kit::failure::Failure;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use twox_hash::XxHash3_128;

/// Number of a content; 0 is all zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Content(pub(super) u32);

/// Content of a unit that was never written, or was trimmed.
pub(super) const ZEROS: Content = Content(0);

/// Set in numbers of contents of recoveries.
const BESIDE: u32 = 1 << 31;

/// All contents of an exploration, or those of a recovery alone.
pub(super) struct Contents {
    unit_bytes: usize,
    folder: PathBuf,
    file: File,
    known: Mutex<Known>,
    zeros: Vec<u8>,
    /// Those of the recording, if these are of a recovery.
    of_recording: Option<Arc<Contents>>,
    /// Number of contents of recoveries so far.
    beside: AtomicU32,
}

struct Known {
    ids: HashMap<u128, Content>,
    /// By index in the file, behind that of zeros.
    hashes: Vec<u128>,
    /// Index of a content of this recovery.
    beside: HashMap<Content, u32>,
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
            folder: folder.to_owned(),
            file: tempfile::tempfile_in(folder)?,
            known: Mutex::new(Known {
                ids: HashMap::from([(hash, ZEROS)]),
                hashes: vec![hash],
                beside: HashMap::new(),
            }),
            zeros,
            of_recording: None,
            beside: AtomicU32::new(0),
        })
    }

    /// Creates an empty set beside that of the recording.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(super) fn of_recovery(recording: &Arc<Contents>) -> io::Result<Contents> {
        let contents = Contents::new(&recording.folder, to_u32(recording.unit_bytes))?;
        Ok(Contents {
            of_recording: Some(recording.clone()),
            ..contents
        })
    }

    /// Returns the number of contents that are stored here.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.known.lock().hashes.len() - 1
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
        let recorded = |of: &Arc<Contents>| of.known.lock().ids.get(&hash).copied();
        let recorded = || self.of_recording.as_ref().and_then(recorded);
        if let Some(id) = known.ids.get(&hash).copied().or_else(recorded) {
            return Ok(id);
        }
        let at = to_u32(known.hashes.len());
        self.file.write_all_at(bytes, self.place(at))?;
        let id = match &self.of_recording {
            None => Content(at),
            Some(recording) => {
                let number = recording.beside.fetch_add(1, Relaxed);
                assert!(number < BESIDE, "contents of recoveries have numbers");
                let id = Content(number | BESIDE);
                known.beside.insert(id, at);
                id
            }
        };
        known.ids.insert(hash, id);
        known.hashes.push(hash);
        Ok(id)
    }

    /// Finds the numbers of the contents of adjacent units.
    ///
    /// # Errors
    /// The file is full.
    pub(super) fn ids_of(&self, units: &[u8], ids: &mut [Content]) -> Result<(), Failure> {
        for (bytes, id) in units.chunks(self.unit_bytes).zip(ids) {
            *id = self.id_of(bytes).map_err(Failure::failed)?;
        }
        Ok(())
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
        let (of, at) = self.find(id);
        of.file.read_exact_at(buf, of.place(at))
    }

    /// Returns the part of a state's sum that this content of this unit has. The sum of a state is
    /// that of its units: it changes with each unit alone.
    pub(super) fn term(&self, unit: u32, content: Content) -> u128 {
        if content == ZEROS {
            return 0;
        }
        let (of, at) = self.find(content);
        let hash = of.known.lock().hashes[index(at)];
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(&hash.to_le_bytes());
        bytes[16..].copy_from_slice(&unit.to_le_bytes());
        XxHash3_128::oneshot(&bytes)
    }

    /// Returns where a content is.
    fn find(&self, id: Content) -> (&Contents, u32) {
        match (&self.of_recording, id.0 & BESIDE) {
            (_, BESIDE) => (self, self.known.lock().beside[&id]),
            (Some(recording), _) => (recording, id.0),
            (None, _) => (self, id.0),
        }
    }

    fn place(&self, at: u32) -> u64 {
        u64::from(at - 1) * to_u64(self.unit_bytes)
    }
}
