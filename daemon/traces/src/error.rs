//! Errors of reading a trace.

use std::io;
use std::path::{Path, PathBuf};

/// Error with one message: the file, the line if there is one, and the expected form.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file is not readable on the host.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// Reading ended before the end of the file: it is truncated, or the compressed data is
    /// damaged.
    #[error("{}: after line {line}: {source}; the file is damaged or cut off: copy it again", file.display())]
    Broken {
        /// The file.
        file: PathBuf,
        /// Lines read.
        line: u64,
        /// Cause.
        source: io::Error,
    },
    /// A line is not valid.
    #[error("{}: line {line}: {what}; expected {dialect}: {expected}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Line number, from 1.
        line: u64,
        /// Reason.
        what: String,
        /// Name of the format.
        dialect: &'static str,
        /// Example of a valid line.
        expected: &'static str,
    },
    /// No format matches, or the file has no content.
    #[error("{}: {what}", file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// Content found instead.
        what: String,
    },
}

impl TraceError {
    pub(crate) fn content(file: &Path, what: impl Into<String>) -> Self {
        TraceError::Content {
            file: file.into(),
            what: what.into(),
        }
    }
}
