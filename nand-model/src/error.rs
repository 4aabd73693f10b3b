//! Errors of the hardware, and of the host below the emulator. Breaking a NAND rule is not an
//! error: it panics.

use crate::addr::{Pbn, Ppn};
use crate::timing::Nanos;

/// The part of a page whose check failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The page's data bytes.
    Data,
    /// The page's spare bytes.
    Oob,
}

/// Outcome of a failed operation, and the action the caller must take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NandError {
    /// The page is used and its content is undefined. The block is bad from now on: program the
    /// data elsewhere, relocate the block's other pages, never erase it.
    #[error("program of page {0} failed; its block is bad")]
    ProgramFailed(Ppn),
    /// The block is bad from now on: never use it again.
    #[error("erase of block {0} failed; it is bad")]
    EraseFailed(Pbn),
    /// The check of this part failed: torn or decayed. The other part may still be good.
    #[error("{part:?} of page {ppn} cannot be corrected")]
    Uncorrectable {
        /// The page.
        ppn: Ppn,
        /// The part that was asked for and is lost.
        part: Part,
    },
    /// Power is off: every operation fails until the chip is powered on again.
    #[error("power lost")]
    PowerLost,
    /// The host file system is full, or a limit of the host is reached. Nothing happened to the
    /// flash: the same operation may be retried later.
    #[error("no space left on the host for the image")]
    HostFull,
    /// The host could not read or write the image (errno). The state of the page is unknown.
    #[error("host I/O error on the image: {}", std::io::Error::from_raw_os_error(*.0))]
    Host(i32),
}

impl From<std::io::Error> for NandError {
    fn from(error: std::io::Error) -> Self {
        const EIO: i32 = 5;
        const EFBIG: i32 = 27;
        const ENOSPC: i32 = 28;
        const EDQUOT: i32 = 122;
        match error.raw_os_error() {
            Some(ENOSPC | EDQUOT | EFBIG) => NandError::HostFull,
            Some(errno) => NandError::Host(errno),
            None => NandError::Host(EIO),
        }
    }
}

/// A run of programs that ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunError {
    /// Pages of the run that were programmed before the one that failed.
    pub done: u32,
    /// The instant at which the chip had programmed them.
    pub at: Nanos,
    /// The error of the next page.
    pub error: NandError,
}
