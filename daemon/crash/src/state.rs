//! A state that a power cut can leave.

use crate::disk::Disk;
use ftld_lab::crashes::Snapshot;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// A state that a power cut can leave. The check opens the store on it.
pub struct State {
    disk: Disk,
    snapshot: Snapshot,
}

impl State {
    pub(crate) fn new(size: u64, unit: u32, snapshot: Snapshot) -> State {
        State {
            disk: Disk::left(size, unit, snapshot.clone()),
            snapshot,
        }
    }

    /// Returns the disk. Writes to it, such as a store's repairs, are in no other state.
    pub fn disk(&self) -> &Disk {
        &self.disk
    }

    /// Returns the path of a file with the state, without what was written to [`State::disk`]: for
    /// a store that needs a path. The file may be changed. It is there until the check returns.
    ///
    /// # Errors
    /// The folder of temporary files is full: `TMPDIR`, `/dev/shm` without that.
    pub fn image(&self) -> io::Result<PathBuf> {
        self.snapshot.image()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State on a {:?}", self.disk)
    }
}
