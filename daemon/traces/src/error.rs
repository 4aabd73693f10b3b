//! Errors of reading a trace, and of the values in it and in the options of a workload.

use crate::fields::shown;
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

/// A value that is refused: its name or its text, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// A column without text.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A number of a column, out of its range.
    #[error("{0} {1} is {2}")]
    Number(&'static str, String, &'static str),
    /// A column of another form.
    #[error("{0} {1:?} {2}")]
    Column(&'static str, String, &'static str),
    /// A text of another form; an example follows.
    #[error("{0:?} is not {1}")]
    Text(String, &'static str),
    /// The value of an option.
    #[error("{0}: {1}")]
    Option(String, Box<ValueError>),
    /// Values that do not fit each other, a limit or the format.
    #[error("{0}")]
    Misfit(String),
}

impl ValueError {
    pub(crate) fn too_large(name: &'static str, text: &str) -> ValueError {
        ValueError::Number(name, shown(text), "too large")
    }

    pub(crate) fn column(name: &'static str, text: &str, fault: &'static str) -> ValueError {
        ValueError::Column(name, shown(text), fault)
    }

    pub(crate) fn of(self, option: &str) -> ValueError {
        ValueError::Option(option.into(), Box::new(self))
    }
}
