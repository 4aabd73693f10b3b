//! Errors that a scheme returns to its volume. The volume maps each kind to an errno.

use nand_model::NandError;

/// Reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FtlError {
    /// The host file system below the image is full: nothing was lost; the caller may retry later.
    #[error("no space left on the host for the image")]
    HostFull,
    /// The device accepts no more writes; reads and flushes still work.
    #[error("device is read-only: {0}")]
    ReadOnly(&'static str),
    /// A mapped page is unreadable: its data is lost.
    #[error("data of logical page {0} cannot be read")]
    MediaLost(u32),
    /// Power is off; a new mount is required.
    #[error("power lost")]
    PowerLost,
    /// The host cannot read or write the image (errno).
    #[error("host I/O error on the image: {}", std::io::Error::from_raw_os_error(*.0))]
    Host(i32),
    /// The flash content contradicts itself, or does not belong to this scheme.
    #[error("flash content is damaged: {0}")]
    Corrupt(String),
    /// The configuration does not fit the device.
    #[error("{0}")]
    Config(String),
}

impl From<NandError> for FtlError {
    /// Converts an error of an operation whose block and page failures were handled before.
    fn from(error: NandError) -> Self {
        match error {
            NandError::HostFull => FtlError::HostFull,
            NandError::PowerLost => FtlError::PowerLost,
            NandError::Host(errno) => FtlError::Host(errno),
            other => FtlError::Corrupt(other.to_string()),
        }
    }
}
