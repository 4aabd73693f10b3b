//! What was begun and what was made durable, noted outside the device.

use super::objects::{Kind, Object};
use super::{Result, SECTOR};
use nix::libc::O_DIRECT;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::{fs, io};

/// Version of what is not there.
pub(super) const ABSENT: u64 = 0;

/// What the markers say of an object.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State {
    pub(super) durable: u64,
    /// What was begun and not completed.
    pub(super) under_way: Option<(Kind, u64)>,
    /// The fsync of its folder claimed that this is durable, when the device failed.
    pub(super) claimed: bool,
    /// Versions are given once.
    pub(super) newest: u64,
    /// A log's version when it was made empty.
    pub(super) log_base: u64,
}

/// The markers: all objects as they say, and where the next one goes.
pub(super) struct Markers {
    pub(super) file: File,
    pub(super) next: u64,
    /// Operations that were completed.
    pub(super) done: u64,
    pub(super) states: BTreeMap<String, State>,
}

impl Markers {
    /// Opens markers that exist, or creates the file for the first run.
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

    /// `WORD KIND OBJECT VERSION`.
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
        // A raw disk takes aligned sectors only.
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
