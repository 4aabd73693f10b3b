//! A new image until it gets its name.
//!
//! Invariants: an image gets its name only when it is finished and synced. If power fails before
//! that, a file `.IMAGE.new-...` is left, which a later start removes.

use super::image_failure;
use ftld_kit::failure::Failure;
use nand_model::ImageError;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Age at which an unfinished image counts as abandoned: creating one changes it all the time.
const UNFINISHED_AGE: Duration = Duration::from_secs(3600);

/// An image being created. It has a temporary name in the folder of the final one. Dropping this
/// removes the file, unless [`Unfinished::finish`] has renamed it.
pub struct Unfinished(PathBuf);

impl Unfinished {
    /// Takes a temporary name; the caller creates the file.
    pub fn named_after(image: &Path) -> Unfinished {
        Unfinished(unfinished_name(image))
    }

    /// Returns the temporary name.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Gives a complete, synced image its name.
    ///
    /// # Errors
    /// The name is taken, or the folder cannot be synced.
    pub fn finish(self, image: &Path) -> Result<(), Failure> {
        name_image(&self.0, image)?;
        sync_folder(folder_of(image))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns the folder of an image, `.` for a bare name.
pub fn folder_of(image: &Path) -> &Path {
    image
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."))
}

/// Returns the prefix of the temporary names of an image.
fn unfinished_prefix(image: &Path) -> OsString {
    let mut name = OsString::from(".");
    name.push(image.file_name().unwrap_or_default());
    name.push(".new-");
    name
}

fn unfinished_name(image: &Path) -> PathBuf {
    let mut name = unfinished_prefix(image);
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    name.push(format!("{}-{:x}", std::process::id(), now.as_nanos()));
    folder_of(image).join(name)
}

/// Removes the unfinished files of killed creators of this image.
pub fn remove_unfinished(image: &Path) {
    let prefix = unfinished_prefix(image);
    for entry in std::fs::read_dir(folder_of(image))
        .into_iter()
        .flatten()
        .flatten()
    {
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        let ours = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(prefix.as_encoded_bytes());
        if ours && age().is_some_and(|age| age > UNFINISHED_AGE) {
            tracing::warn!("removing {}: its maker was killed", entry.path().display());
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Renames a finished image to its final name; fails if that name is taken.
pub(super) fn name_image(unfinished: &Path, image: &Path) -> Result<(), Failure> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    assert_eq!(
        folder_of(unfinished),
        folder_of(image),
        "a new image is renamed in its folder"
    );
    let named = match renameat_with(CWD, unfinished, CWD, image, RenameFlags::NOREPLACE)
        .map_err(io::Error::from)
    {
        // The file system cannot rename without replacing; `Unfinished` removes the temporary name.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            std::fs::hard_link(unfinished, image)
        }
        named => named,
    };
    named.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => image_failure(&ImageError::Exists(image.into())),
        _ => Failure::io(format!("{}: naming the new image", image.display()), &error),
    })
}

pub(super) fn sync_folder(folder: &Path) -> Result<(), Failure> {
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    let synced = std::fs::File::open(folder).and_then(|open| open.sync_all());
    synced.map_err(|error| Failure::io(format!("{}: syncing", folder.display()), &error))
}
