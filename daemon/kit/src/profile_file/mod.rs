//! Flash devices described by a TOML file: docs/NAND.md has the form.
//!
//! `write` prints any device, `read` makes one from such a text. What is printed and read back is
//! the same device.

mod read;
mod write;

pub use read::{from_toml, slc_share};
pub use write::{order, summary, to_toml};

use crate::failure::Failure;
use ftl_core::near_miss;
use nand_model::{PROFILES, Profile};
use std::path::Path;

/// Largest file that is read: one with the word lines of a block has about 20 KiB.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Returns a built-in profile by its name, or the device of a TOML file by its path: a text that
/// ends in `.toml` or contains a `/`.
///
/// # Errors
/// No profile has this name; the file cannot be read, or describes no device that can exist.
pub fn find(text: &str) -> Result<Profile, Failure> {
    if let Some(known) = Profile::find(text) {
        return Ok(*known);
    }
    if text.ends_with(".toml") || text.contains('/') {
        return load(Path::new(text));
    }
    let names: Vec<_> = PROFILES.iter().map(|p| p.name).collect();
    let hint = near_miss(text, names.iter().copied());
    Err(Failure::usage(format!(
        "no profile {text:?}{hint}; there are {}, or write the path of a .toml file",
        names.join(", ")
    )))
}

/// Returns the first key whose values differ between two devices. The source is not compared, nor a
/// number of blocks that follows from an image's size.
pub fn first_difference(has: &Profile, asked: &Profile) -> Option<String> {
    let text = |device: &Profile| to_toml(&device.named(device.name, ""));
    let (has, asked) = (text(has), text(asked));
    let pairs = has.lines().zip(asked.lines());
    let different = pairs.filter(|(has, asked)| has != asked).map(|(has, _)| {
        let key = has.split('=').next().unwrap_or(has);
        key.trim_matches(|c: char| c == '#' || c == ' ').to_owned()
    });
    different.into_iter().next()
}

fn load(path: &Path) -> Result<Profile, Failure> {
    let wrong =
        |why: &dyn std::fmt::Display| Failure::usage(format!("profile {}: {why}", path.display()));
    let meta = std::fs::metadata(path).map_err(|error| wrong(&error))?;
    if !meta.is_file() || meta.len() > FILE_BYTES_MAX {
        return Err(wrong(&"not a file of at most 1 MiB"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    from_toml(&text).map_err(|why| wrong(&why))
}

#[cfg(test)]
mod tests;
