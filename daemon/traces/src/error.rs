//! Why a trace cannot be read.

use std::io;
use std::path::{Path, PathBuf};

/// One message that names the file, the line where there is one, and what was expected.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The host cannot read the file.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Reading ended before the file did: it was cut off, or the compressed data is damaged.
    #[error("{}: after line {line}: {source}; the file is damaged or cut off", file.display())]
    Broken {
        /// The file.
        file: PathBuf,
        /// Lines read.
        line: u64,
        /// Why.
        source: io::Error,
    },
    /// A line says nothing sensible.
    #[error("{}: line {line}: {what}; expected {dialect}: {expected}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        what: String,
        /// Name of the format.
        dialect: &'static str,
        /// What a line of it looks like.
        expected: &'static str,
    },
    /// No format fits, or there is nothing to read.
    #[error("{}: {what}", file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// What is there instead.
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
