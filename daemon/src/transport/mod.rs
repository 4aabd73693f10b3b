//! Ways into the device. A transport turns requests of its protocol into calls on a [`BlockDevice`](crate::device::BlockDevice).

pub mod holders;
pub mod latency;
pub mod nbd;
mod service;
#[cfg(feature = "ublk")]
pub mod ublk;

pub use service::{
    Context, Service, StopHow, default_target, left_by_the_dead, probe, start, stop_left, waits_for_a_daemon,
};

use std::io;

/// The number a client sees for an error; every transport answers by this table.
pub fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => libc::EPERM,
        io::ErrorKind::StorageFull => libc::ENOSPC,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    })
}
