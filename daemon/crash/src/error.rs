//! Errors of a run and its exploration.

use std::fmt;

/// Why a run cannot be recorded or explored.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The disk has no unit, or a part of one.
    #[error("a disk of {size} bytes: the size is a multiple of its unit, {unit} bytes, and not 0")]
    Size {
        /// Bytes of the disk.
        size: u64,
        /// Bytes of a unit.
        unit: u32,
    },
    /// No disk has such a unit.
    #[error("a unit of {0} bytes: it is a power of two from 512 to 65536")]
    Unit(u32),
    /// The recorded closure returned an error.
    #[error("the recorded closure failed after {entries} entries: {reason}")]
    Failed {
        /// Requests and marks recorded before.
        entries: usize,
        /// Error of the closure.
        reason: String,
    },
    /// The recorded closure wrote nothing and set no mark.
    #[error(
        "the recorded closure wrote nothing and set no mark, so a power cut has nothing to lose; \
         write to the disk that it gets"
    )]
    Nothing,
    /// The lab refuses: no such case, no point of this kind, no space for temporary files.
    #[error("{0}")]
    Lab(String),
}

/// As [`fmt::Display`]: a test that returns the error prints it so.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<ftld_kit::failure::Failure> for Error {
    fn from(failure: ftld_kit::failure::Failure) -> Error {
        Error::Lab(failure.message)
    }
}
