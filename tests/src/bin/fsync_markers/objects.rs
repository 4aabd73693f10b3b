//! Files changed by workers, and the content of each version.

use super::SLOT_BYTES;
use super::{NAMES, SLOTS, WORKERS};
use nand_model::SplitMix;
use std::path::{Path, PathBuf};

/// Changes of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Write another file, fsync it, rename it over the object, fsync the folder.
    Replace,
    /// Create, write and fsync the file, then fsync the folder.
    Create,
    /// Unlink the file and fsync the folder.
    Unlink,
    /// Overwrite a page of a file in place, then fdatasync.
    Overwrite,
    /// Append a record to a file, then fsync.
    Append,
    /// Truncate a log, then fsync.
    Truncate,
}

impl Kind {
    pub(super) const ALL: [Kind; 6] = [
        Kind::Replace,
        Kind::Create,
        Kind::Unlink,
        Kind::Overwrite,
        Kind::Append,
        Kind::Truncate,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Replace => "replace",
            Kind::Create => "create",
            Kind::Unlink => "unlink",
            Kind::Overwrite => "overwrite",
            Kind::Append => "append",
            Kind::Truncate => "truncate",
        }
    }
}

/// A file, or a page of one, with one version at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Object {
    /// File that is replaced as a whole.
    File { worker: u32, name: u32 },
    /// File that is created and unlinked.
    Guest { worker: u32, name: u32 },
    /// Page of a file.
    Slot { worker: u32, slot: u32 },
    /// Log that grows; its version is the number of its records and the earlier ones.
    Log { worker: u32 },
}

impl Object {
    pub(super) fn name(self) -> String {
        match self {
            Object::File { worker, name } => format!("{worker}/file{name}"),
            Object::Guest { worker, name } => format!("{worker}/guest{name}"),
            Object::Slot { worker, slot } => format!("{worker}/slots@{slot}"),
            Object::Log { worker } => format!("{worker}/log"),
        }
    }

    pub(super) fn path(self, folder: &Path) -> PathBuf {
        let name = self.name();
        folder.join(name.split('@').next().unwrap_or(&name))
    }

    pub(super) fn of(worker: u32) -> impl Iterator<Item = Object> {
        let files = (0..NAMES).map(move |name| Object::File { worker, name });
        let guests = (0..NAMES).map(move |name| Object::Guest { worker, name });
        let slots = (0..SLOTS).map(move |slot| Object::Slot { worker, slot });
        files
            .chain(guests)
            .chain(slots)
            .chain([Object::Log { worker }])
    }

    pub(super) fn all() -> impl Iterator<Item = Object> {
        (0..WORKERS).flat_map(Object::of)
    }

    /// Returns the bytes of this version, name and version included; they are unique to the object.
    pub(super) fn content(self, version: u64) -> Vec<u8> {
        let mut text = format!("{} {version}\n", self.name()).into_bytes();
        let seed = text.iter().fold(version, |seed, byte| {
            seed.wrapping_mul(1099511628211) ^ u64::from(*byte)
        });
        let mut rng = SplitMix::new(seed);
        let len = match self {
            Object::Slot { .. } => SLOT_BYTES,
            Object::Log { .. } => 64 + rng.below(6000) as usize,
            // Mostly small, some larger than several pages of a large page-cache write.
            _ if rng.one_in(8) => 1 + rng.below(200 << 10) as usize,
            _ => 1 + rng.below(16 << 10) as usize,
        };
        while text.len() < len {
            text.extend(rng.next_u64().to_le_bytes());
        }
        text.truncate(len.max(40));
        text
    }
}
