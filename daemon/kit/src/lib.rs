//! Code that the parts of `ftld` share, outside the device: failures with exit codes, output, sizes
//! and durations, conversions, quoting, locks of files, and the files that describe devices.
//!
//! Nothing here keeps state between calls, except the locks. If power fails, nothing here is lost
//! but the output of the command.

#![warn(clippy::missing_errors_doc)]

pub mod convert;
pub mod descendants;
pub mod duration;
pub mod failure;
pub mod interrupt;
pub mod output;
pub mod path_json;
pub mod private_lock;
pub mod profile_file;
pub mod quote;
pub mod size;
pub mod sparse;
