//! Transports. A transport translates requests of its protocol into calls on a
//! [`BlockDevice`](crate::device::BlockDevice).

pub mod holders;
pub(crate) mod latency;
pub mod nbd;
mod service;
#[cfg(feature = "ublk")]
pub mod ublk;
mod unix_socket;
mod vhost_user;

pub use service::{
    Context, Service, StopHow, default_target, device_on, image_of, orphan_error, orphaned_target,
    probe, probe_address, start, stop_left,
};

use crate::volume::Queue;
use std::io;

/// Returns the errno that a client receives for an error; every transport uses this table.
pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(match error.kind() {
        io::ErrorKind::InvalidInput => libc::EINVAL,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => libc::EPERM,
        io::ErrorKind::StorageFull => libc::ENOSPC,
        io::ErrorKind::OutOfMemory => libc::ENOMEM,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    })
}

/// Returns the kernel's request counters of `/dev/NAME`.
fn kernel_queue(name: &str) -> Option<Queue> {
    parse_stat(&std::fs::read_to_string(format!("/sys/block/{name}/stat")).ok()?)
}

/// Parses the columns of the kernel's Documentation/block/stat.rst: reads, writes, discards,
/// flushes; and all requests in flight.
fn parse_stat(stat: &str) -> Option<Queue> {
    let columns: Vec<u64> = stat
        .split_whitespace()
        .map_while(|column| column.parse().ok())
        .collect();
    let answered = [0, 4, 11, 15]
        .map(|column| columns.get(column).copied())
        .into_iter()
        .sum::<Option<u64>>()?;
    Some(Queue {
        in_flight: *columns.get(8)?,
        answered,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_line_is_read_by_its_columns() {
        let line = "  101 0 808 5 1002 7 9000 60 3 70 65 10003 0 80 1 100004 9\n";
        assert_eq!(
            parse_stat(line),
            Some(Queue {
                in_flight: 3,
                answered: 111_110
            })
        );
        assert_eq!(parse_stat("1 2 3\n"), None);
    }
}
