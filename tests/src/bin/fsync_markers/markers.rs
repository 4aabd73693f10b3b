//! Log of started and durable changes, stored outside the device.

use super::objects::{Kind, Object};
use super::{Result, SECTOR};
use nix::libc::O_DIRECT;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::{fs, io};

/// Version of a missing object.
pub(super) const ABSENT: u64 = 0;

/// State of an object according to the markers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub(super) durable: u64,
    /// Change in flight.
    pub(super) under_way: Option<(Kind, u64)>,
    /// Whether the fsync of its folder reported the change in flight as durable, when the device
    /// failed.
    pub(super) claimed: bool,
    /// Newest version assigned; a version is assigned once.
    pub(super) newest: u64,
    /// Version of a log at its last truncation.
    pub(super) log_base: u64,
}

/// Markers: the recorded state of all objects, and the position of the next marker.
pub(super) struct Markers {
    pub(super) file: File,
    pub(super) next: u64,
    /// Completed operations.
    pub(super) done: u64,
    pub(super) states: BTreeMap<String, State>,
}

impl Markers {
    /// Opens existing markers, or creates the file for the first run.
    pub(super) fn open_or_create(path: &Path) -> Result<Markers> {
        if !path.exists() {
            File::create(path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Markers::open(path)
    }

    pub(super) fn open(path: &Path) -> Result<Markers> {
        let failed = |error: io::Error| format!("{}: {error}", path.display());
        let is_disk = fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        let reader = options.open(path).map_err(failed)?;
        let file = options
            .custom_flags(if is_disk { O_DIRECT } else { 0 })
            .open(path)
            .map_err(failed)?;
        let mut markers = Markers {
            file,
            next: 0,
            done: 0,
            states: BTreeMap::new(),
        };
        let mut sector = [0; SECTOR];
        while reader
            .read_exact_at(&mut sector, markers.next * SECTOR as u64)
            .is_ok()
            && sector[0] != 0
        {
            let text = String::from_utf8_lossy(&sector);
            markers
                .apply(text.trim_end())
                .ok_or_else(|| format!("{}: not a marker: {text}", path.display()))?;
            markers.next += 1;
        }
        Ok(markers)
    }

    /// Applies a marker `WORD KIND OBJECT VERSION`.
    fn apply(&mut self, text: &str) -> Option<()> {
        let [word, kind, object, version] = text.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let kind = Kind::ALL.into_iter().find(|known| known.name() == kind)?;
        let version: u64 = version.parse().ok()?;
        let state = self.states.entry(object.into()).or_default();
        state.newest = state.newest.max(version);
        match word {
            "begin" => state.under_way = Some((kind, version)),
            "claimed" => state.claimed = true,
            _ => {
                self.done += u64::from(word == "done");
                (state.under_way, state.claimed, state.durable) = (None, false, version);
                if kind == Kind::Truncate {
                    state.log_base = version;
                }
            }
        }
        Some(())
    }

    pub(super) fn note(
        &mut self,
        word: &str,
        kind: Kind,
        object: Object,
        version: u64,
    ) -> io::Result<()> {
        // A raw disk accepts aligned sectors only.
        let mut room = [b' '; 2 * SECTOR];
        let skip = room.as_ptr().align_offset(SECTOR);
        let text = format!("{word} {} {} {version}", kind.name(), object.name());
        let sector = &mut room[skip..][..SECTOR];
        sector[..text.len()].copy_from_slice(text.as_bytes());
        sector[SECTOR - 1] = b'\n';
        self.file.write_all_at(sector, self.next * SECTOR as u64)?;
        self.next += 1;
        self.apply(&text).expect("a marker of ours");
        Ok(())
    }

    pub(super) fn of(&self, object: Object) -> State {
        self.states.get(&object.name()).copied().unwrap_or_default()
    }
}
