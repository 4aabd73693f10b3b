//! The choice of a target, and whether this machine can serve it.

use super::nbd_kernel::kernel_failure;
#[cfg(not(feature = "ublk"))]
use super::ublk::not_built;
#[cfg(feature = "ublk")]
use super::ublk::ublk_failure;
use crate::target::Target;
use crate::transport::nbd::{Endpoint, NbdUri, endpoint, kernel};
use crate::transport::unix_socket;
use ftld_kit::failure::{Exit, Failure};
use std::path::Path;

/// Returns the target to serve if the user named none: ublk if available, else an NBD unix socket
/// in the runtime folder.
pub fn default_target(runtime: &Path) -> Target {
    #[cfg(feature = "ublk")]
    if crate::transport::ublk::probe().is_ok() {
        return Target::Ublk(0);
    }
    Target::Nbd(NbdUri {
        endpoint: Endpoint::Unix(runtime.join("nbd.sock")),
        export: String::new(),
        tls: false,
    })
}

/// Checks whether this machine can serve the target; runs before an image is created or opened.
/// `recover` requires a device that a dead daemon left.
///
/// # Errors
/// A driver is missing or refuses this process, the device is in use, or there is no device to
/// reattach.
pub fn probe(target: &Target, recover: bool) -> Result<(), Failure> {
    match target {
        Target::Ublk(n) => probe_ublk(*n, recover),
        Target::Nbd(_) | Target::VhostUser(_) if recover => Err(Failure::usage(format!(
            "{target}: only /dev/ublkbN and /dev/nbdN can be reattached; start this with `ftld '{target}'`"
        ))),
        Target::NbdKernel(n) if recover => match kernel::state(*n) {
            kernel::State::Left { .. } => Ok(()),
            kernel::State::Connected { pid } => Err(nothing_to_recover(target, pid)),
            kernel::State::Free => Err(nothing_left(target)),
        },
        Target::NbdKernel(n) => kernel::probe(*n).map_err(kernel_failure),
        Target::Nbd(_) | Target::VhostUser(_) => Ok(()),
    }
}

/// Checks whether this process can listen at the target, if it is an address; runs before an image
/// is created or opened.
///
/// # Errors
/// The address is in use, or closed to this process.
pub fn probe_address(target: &Target) -> Result<(), Failure> {
    let probed = match target {
        Target::Nbd(uri) => endpoint::probe(&uri.endpoint),
        Target::VhostUser(path) => unix_socket::probe(path),
        Target::Ublk(_) | Target::NbdKernel(_) => Ok(()),
    };
    probed.map_err(|error| Failure::io(target, &error))
}

fn nothing_to_recover(target: &Target, pid: i32) -> Failure {
    Failure::new(
        Exit::InUse,
        format!("{target} is served by process {pid}: there is nothing to recover"),
    )
}

fn nothing_left(target: &Target) -> Failure {
    let message = format!("{target} is not quiesced; start it with `ftld {target}`");
    Failure::new(Exit::NotRunning, message)
}

#[cfg(feature = "ublk")]
fn probe_ublk(n: u32, recover: bool) -> Result<(), Failure> {
    use crate::transport::ublk::{self, State};
    ublk::probe().map_err(ublk_failure)?;
    match recover
        .then(|| ublk::state(n))
        .transpose()
        .map_err(ublk_failure)?
    {
        None | Some(State::Quiesced) => Ok(()),
        Some(State::Live { pid }) => Err(nothing_to_recover(&Target::Ublk(n), pid)),
        Some(State::Absent | State::Dead { .. }) => Err(nothing_left(&Target::Ublk(n))),
    }
}

#[cfg(not(feature = "ublk"))]
fn probe_ublk(_: u32, _: bool) -> Result<(), Failure> {
    Err(not_built())
}
