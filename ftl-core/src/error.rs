//! What a scheme tells its volume. The volume turns a kind into an errno once.

use nand_model::NandError;

/// Why a request did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FtlError {
    /// The host file system below the image is full: nothing was lost, the request may be tried
    /// again later.
    #[error("no space left on the host for the image")]
    HostFull,
    /// The device takes no more writes; reads and flushes go on.
    #[error("device is read-only: {0}")]
    ReadOnly(&'static str),
    /// These bytes are gone: a page that was mapped cannot be read.
    #[error("data of logical page {0} cannot be read")]
    MediaLost(u32),
    /// Power is off; only a new mount helps.
    #[error("power lost")]
    PowerLost,
    /// The host cannot read or write the image (errno).
    #[error("host I/O error on the image: {}", std::io::Error::from_raw_os_error(*.0))]
    Host(i32),
    /// What is on the flash contradicts itself, or does not belong to this scheme.
    #[error("flash content is damaged: {0}")]
    Corrupt(String),
    /// The device cannot be laid out as asked.
    #[error("{0}")]
    Config(String),
}

impl From<NandError> for FtlError {
    /// For verbs whose block and page failures were dealt with before.
    fn from(error: NandError) -> Self {
        match error {
            NandError::HostFull => FtlError::HostFull,
            NandError::PowerLost => FtlError::PowerLost,
            NandError::Host(errno) => FtlError::Host(errno),
            other => FtlError::Corrupt(other.to_string()),
        }
    }
}
