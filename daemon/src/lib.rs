//! The `ftld` daemon as a library, so that tests can run one in their own process.
//!
//! Data flows one way: a [`transport`] calls the [`device::BlockDevice`] it was given, the [`volume`] cuts the request into
//! extents and runs each under its lock in the scheme. Everything else (HTTP, control socket, signals) reads what the volume
//! published.

pub mod cli;
pub mod config;
pub mod device;
pub mod failure;
pub mod instance;
pub mod size;
pub mod sys;
pub mod target;
pub mod transport;
pub mod volume;
