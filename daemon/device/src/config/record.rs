//! Options of a recording.

use crate::options::DeviceOptions;
use ftld_kit::failure::Failure;
use std::path::PathBuf;

/// A recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The file; absolute.
    pub file: PathBuf,
    /// Whether it contains the data of writes.
    pub data: bool,
}

impl DeviceOptions {
    /// Returns the recording, if one is requested.
    pub(super) fn record(&self) -> Result<Option<Record>, Failure> {
        let data = match self.record_data.as_deref() {
            None | Some("on") => true,
            Some("off") => false,
            Some(other) => {
                return Err(Failure::usage(format!(
                    "--record-data {other:?} is neither on nor off"
                )));
            }
        };
        let Some(file) = &self.record else {
            return match &self.record_data {
                None => Ok(None),
                Some(_) => Err(Failure::usage(
                    "--record-data: nothing is recorded; add --record FILE",
                )),
            };
        };
        let file = std::path::absolute(file)
            .map_err(|error| Failure::io(format!("--record {}", file.display()), &error))?;
        Ok(Some(Record { file, data }))
    }
}
