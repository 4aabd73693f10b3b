//! The block device of `ftld`: from a request of the kernel, an NBD client or a guest to the
//! pages of a scheme.
//!
//! Data flows one way. A [`transport`] calls its [`device::BlockDevice`]; the [`volume`] splits the
//! request into extents and runs each in the scheme, under its lock. Everything else reads the
//! volume's snapshots ([`status`]). [`stack`] connects the modules of an instance; [`config`] has
//! its settings.
//!
//! If power fails, an acknowledged and flushed write is on the image: [`volume`] says how.

#![warn(clippy::missing_errors_doc)]

pub mod aging;
pub mod background;
mod by_name;
pub mod config;
pub mod counters;
pub mod device;
pub mod faults;
pub mod flash_device;
#[cfg(any(test, feature = "test-support"))]
pub mod fresh_status;
pub mod inject;
pub mod instance;
pub mod method;
pub mod options;
pub mod pages;
pub mod pause;
pub mod preset;
pub mod record;
pub mod service_counters;
pub mod shadow;
pub mod shutdown;
pub mod stack;
pub mod stall;
pub mod status;
pub mod sys;
pub mod target;
pub mod transport;
pub mod volume;
