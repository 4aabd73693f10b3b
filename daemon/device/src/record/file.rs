//! The file of a recording before it begins, and its head.

use super::clock;
use crate::device::BlockDevice;
use crate::stack;
use ftld_kit::failure::Failure;
use ftld_kit::output::unwritable;
use ftld_kit::profile_file;
use ftld_traces::recording::{Flash, Head};
use nand_model::store::peek;
use nand_model::{Capacity, Profile};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Prefix of the name of a recorded device whose number of blocks follows from its size.
pub(crate) const RECORDED: &str = "recorded-";

/// A new, empty file. Dropped without [`NewRecording::keep`], it is removed.
pub struct NewRecording {
    file: Option<File>,
    path: PathBuf,
}

impl NewRecording {
    /// Creates the file.
    ///
    /// # Errors
    /// There is a file of this name, or the host refuses to create one.
    pub fn create(path: &Path) -> Result<NewRecording, Failure> {
        let created = File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        match created {
            Ok(file) => Ok(NewRecording {
                file: Some(file),
                path: path.to_owned(),
            }),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(Failure::usage(format!(
                    "--record {0}: the file exists, and no recording overwrites one; name another file, or move {0} away",
                    path.display()
                )))
            }
            Err(error) => Err(unwritable("--record", path, &error)),
        }
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns another handle of the file.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn handle(&self) -> Result<File, Failure> {
        let file = self.file.as_ref().expect("the file of a new recording");
        file.try_clone()
            .map_err(|error| Failure::io(self.path.display(), &error))
    }

    /// Keeps the file from now on.
    pub fn keep(mut self) {
        self.file = None;
    }
}

impl Drop for NewRecording {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Returns the head of a device's recording. `image` is its image, for a device that has one.
///
/// # Errors
/// The image cannot be read.
pub fn head_of(
    device: &dyn BlockDevice,
    image: Option<&Path>,
    has_data: bool,
) -> Result<Head, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(Head {
        program: env!("CARGO_PKG_VERSION").into(),
        size: device.size(),
        logical_block: device.logical_block(),
        physical_block: device.physical_block(),
        has_data,
        started_unix_s: now.map_or(0, |since| since.as_secs()),
        clock: clock::now(),
        flash: image.map(flash_of).transpose()?,
        write_cache: None,
    })
}

/// Returns the flash device of an image with its number of blocks.
pub fn recorded_profile(of: Profile) -> Profile {
    match of.capacity {
        Capacity::Blocks(_) => of,
        // A name of its own: with its number of blocks it is another device than the built-in one.
        Capacity::BySize => Profile {
            capacity: Capacity::Blocks(of.geometry.blocks),
            ..of
        }
        .named(&format!("{RECORDED}{}", of.name), of.source),
    }
}

fn flash_of(image: &Path) -> Result<Flash, Failure> {
    let info = peek(image).map_err(|error| stack::image_failure(&error))?;
    let label = stack::read_label(image, &info)?;
    let params = label.params.iter();
    Ok(Flash {
        scheme: label.scheme.name.into(),
        params: params
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
        profile: profile_file::to_toml(&recorded_profile(info.profile)),
        shards: info.shard.map(|shard| shard.striping.count),
        logical_pages: stack::logical_pages(&info),
        seed: stack::factory_seed(&info),
    })
}
