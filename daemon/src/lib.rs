//! The `ftld` daemon as a library, so that tests can run one in their own process.

pub mod device;
pub mod sys;
pub mod transport;
