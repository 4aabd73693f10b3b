//! A running transport, as the rest of the daemon uses it: one [`Service`] per target. [`start`]
//! has one line per kind of target.

mod nbd_kernel;
mod nbd_server;
mod orphan;
mod probe;
mod ublk;
mod vhost_user;
mod worker;

pub use orphan::{device_on, image_of, orphan_error, orphaned_target, stop_left};
pub use probe::{default_target, probe, probe_address};

use super::holders::Users;
use super::nbd::{Listening, NbdStats, Tls};
use crate::device::BlockDevice;
use crate::target::Target;
use crate::volume::Queue;
use ftld_kit::failure::Failure;
use nbd_kernel::KernelClient;
use nbd_server::NbdServer;
use std::sync::Arc;
use vhost_user::VhostUser;

/// A running transport.
pub trait Service: Send + Sync {
    /// Returns the address for clients, as printed in the ready line.
    fn target(&self) -> String;
    /// Returns the users that have the device open; the device must not be removed under them.
    /// Clients of a socket, which the server can disconnect, are not among them. May block for a
    /// moment.
    fn holders(&self) -> Users;
    /// Returns the reason if the service ended by itself.
    fn ended(&self) -> Option<String>;
    /// Ends the service within seconds: requests in flight are answered, later requests do not
    /// reach the device. Blocks.
    ///
    /// # Errors
    /// The device could not be removed or left cleanly.
    fn stop(&self, how: StopHow) -> Result<(), Failure>;
    /// Returns the kernel's request counters, if the target is a block device of the kernel.
    fn kernel_queue(&self) -> Option<Queue> {
        None
    }
    /// Returns the NBD server's counters, if there is a server.
    fn nbd_stats(&self) -> Option<Arc<NbdStats>> {
        None
    }
}

/// Fate of the device when its service stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopHow {
    /// Removes the device, even if open.
    Remove,
    /// Keeps the device quiesced until a daemon reattaches it; its requests wait unanswered.
    Leave,
}

/// Inputs of a transport besides the device.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Name of the instance.
    pub name: &'a str,
    /// Identity of the image: a quiesced device is reattached only if it belongs to this image.
    pub image: &'a str,
    /// TLS, for an NBD address.
    pub tls: Option<&'a Tls>,
}

/// Starts serving the device at the target; returns when the first request can be served. An NBD
/// address uses the inherited socket `passed`, if there is one.
///
/// # Errors
/// The device or socket cannot be created, or another process uses it.
pub fn start(
    target: &Target,
    passed: Option<Listening>,
    device: Arc<dyn BlockDevice>,
    context: Context<'_>,
) -> Result<Arc<dyn Service>, Failure> {
    assert!(
        device.logical_block().is_power_of_two(),
        "a logical block of {} bytes",
        device.logical_block()
    );
    assert!(
        device
            .physical_block()
            .is_multiple_of(device.logical_block()),
        "a physical block of {} bytes in logical ones of {} bytes",
        device.physical_block(),
        device.logical_block()
    );
    match target {
        Target::Ublk(n) => ublk::start(*n, device, context),
        Target::NbdKernel(n) => Ok(Arc::new(KernelClient::start(*n, device, context)?)),
        Target::Nbd(uri) => Ok(Arc::new(NbdServer::start(uri, passed, device, context)?)),
        Target::VhostUser(path) => Ok(Arc::new(VhostUser::start(path, device, context)?)),
    }
}
