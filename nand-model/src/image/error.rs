//! Errors of creating or opening an image: the file, the reason and the remedy, in one line each.

use crate::invalid::Invalid;
use std::path::PathBuf;

/// An image that cannot be created or opened.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// There is no such file.
    #[error("{path}: no such image; create it first, or check the path", path = .0.display())]
    NotFound(PathBuf),
    /// A new image must not replace a file.
    #[error("{path}: file exists and is not overwritten; choose another path", path = .0.display())]
    Exists(PathBuf),
    /// A directory, device, pipe or symbolic link.
    #[error("{path}: not a regular file (symbolic links are not followed); name the image itself", path = .0.display())]
    NotRegular(PathBuf),
    /// Another process has locked the file.
    #[error("{path}: in use by another process; stop that one first", path = .0.display())]
    InUse(PathBuf),
    /// Neither header copy starts with the magic bytes.
    #[error("{path}: not an ftld image, and it is left as it is; check the path", path = .0.display())]
    NotAnImage(PathBuf),
    /// Written by another version of the program.
    #[error(
        "{path}: image format version {found}, this build knows {known}; use the version of ftld that wrote it",
        path = .path.display()
    )]
    UnknownVersion {
        /// The file.
        path: PathBuf,
        /// Version in the header.
        found: u32,
        /// Version of this build.
        known: u32,
    },
    /// Both header copies fail their check.
    #[error("{path}: both header copies are damaged; restore the image from a copy", path = .0.display())]
    HeaderDamaged(PathBuf),
    /// The header's check holds, but its values contradict each other.
    #[error("{path}: the header contradicts itself ({reason}); restore the image from a copy", path = .path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// The contradiction.
        reason: Invalid,
    },
    /// The file was cut off.
    #[error(
        "{path}: {allocated_bytes} bytes long, its header says {wanted_bytes}; it was cut off, restore it from a copy",
        path = .path.display()
    )]
    TooShort {
        /// The file.
        path: PathBuf,
        /// Its length.
        allocated_bytes: u64,
        /// The length its header asks for.
        wanted_bytes: u64,
    },
    /// A part after the header is damaged.
    #[error("{path}: damaged: {reason}; restore the image from a copy", path = .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Damage found.
        reason: String,
    },
    /// No image can be made of the requested parameters.
    #[error("{path}: no such image can be made: {reason}", path = .path.display())]
    BadSpec {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: Invalid,
    },
    /// The host refused.
    #[error("{path}: cannot {action}: {source}", path = .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The action that failed.
        action: &'static str,
        /// The host's reason.
        source: std::io::Error,
    },
}
