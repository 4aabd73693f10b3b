//! `/dev/nbdN`: the NBD server on sockets whose other ends belong to the kernel's client.
//!
//! If this process dies, the kernel holds requests back for a while and then fails them. A new
//! daemon with the same image that starts in time receives all of them. Requests sent over a dead
//! connection follow after the client's timeout of 30 s. There is no handshake: both sides are
//! configured with the agreed parameters.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::netlink::{Command, Device, Netlink};
use crate::device::BlockDevice;
use crate::sys;

/// Time in seconds for which requests wait for a new daemon.
const DEAD_SECONDS: u64 = 30;

/// Reason why a device could not be attached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The kernel has no NBD client.
    #[error(
        "this kernel offers no NBD client: load it with `modprobe nbd`, or serve the network protocol alone: \
         `ftld 'nbd+unix:///?socket=ftld.sock'`"
    )]
    DriverMissing,
    /// Netlink refused this user.
    #[error(
        "/dev/nbd{0} may not be set up by this user: run ftld as root, or serve `nbd+unix:///?socket=ftld.sock`, which needs no rights"
    )]
    Permission(u32),
    /// The device is in use.
    #[error(
        "/dev/nbd{n} is connected already, by process {pid}: choose another number, or disconnect it with `nbd-client -d /dev/nbd{n}`"
    )]
    InUse {
        /// Device number.
        n: u32,
        /// Process that connected it.
        pid: i32,
    },
    /// The device is quiesced and belongs to another image.
    #[error(
        "/dev/nbd{n} is quiesced with image {image}, its daemon died: start ftld with that image to reattach it, or \
         remove it, failing its users' I/O, with `ftld stop --force nbd{n}`"
    )]
    Left {
        /// Device number.
        n: u32,
        /// The image it belongs to.
        image: String,
    },
    /// Any other error.
    #[error("/dev/nbd{n}: {source}")]
    Io {
        /// Device number.
        n: u32,
        /// Error of the kernel.
        source: io::Error,
    },
}

impl Error {
    /// Returns the exit code, which determines a script's next step.
    pub(crate) fn exit_code(&self) -> i32 {
        match self {
            Self::Io { .. } => 1,
            Self::Left { .. } => 4,
            Self::DriverMissing => 5,
            Self::Permission(_) => 6,
            Self::InUse { .. } => 7,
        }
    }
}

/// Checks whether this kernel has an NBD client.
///
/// # Errors
/// The kernel has no NBD client, or refuses this process.
pub(crate) fn probe(n: u32) -> Result<(), Error> {
    Netlink::open()
        .map(drop)
        .map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::DriverMissing,
            _ => Error::Io { n, source },
        })
}

/// Sets up `/dev/nbdN` with `connections` connections. `serve` receives the server's ends of them
/// first, and must serve them at once on other threads: the kernel reads the partition table before
/// this function returns. `flags` are the server's transmission flags, `image` names the image.
///
/// A device that lost its daemon is reattached if the image is the same; the result is then true.
///
/// # Errors
/// The device is in use, or the kernel refuses the connections.
pub(crate) fn attach(
    n: u32,
    device: &dyn BlockDevice,
    flags: u16,
    image: &str,
    connections: usize,
    serve: impl FnOnce(Vec<UnixStream>),
) -> Result<bool, Error> {
    let command = claim(n, image)?;
    let context = |source: io::Error| match source.kind() {
        io::ErrorKind::PermissionDenied => Error::Permission(n),
        io::ErrorKind::NotFound => Error::DriverMissing,
        io::ErrorKind::ResourceBusy => Error::InUse {
            n,
            pid: connected_by(n).unwrap_or_default(),
        },
        _ => Error::Io { n, source },
    };
    let (size, block) = (device.size(), device.logical_block());
    assert!(connections > 0, "/dev/nbd{n} without a connection");
    assert!(
        block.is_power_of_two() && block >= 512,
        "/dev/nbd{n} with logical blocks of {block} bytes"
    );
    let mut netlink = Netlink::open().map_err(context)?;
    let pairs = (0..connections)
        .map(|_| UnixStream::pair())
        .collect::<io::Result<Vec<_>>>()
        .map_err(context)?;
    let (ours, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    serve(ours);
    let told = Device {
        n,
        size,
        block,
        flags,
        dead_seconds: DEAD_SECONDS,
        backend: image,
    };
    let fds: Vec<_> = theirs.iter().map(AsFd::as_fd).collect();
    netlink.serve(command, &told, &fds).map_err(context)?;
    Ok(command == Command::Reconfigure)
}

/// Disconnects `/dev/nbdN`, even if in use; see [`holders`](crate::transport::holders).
///
/// # Errors
/// The kernel refuses to disconnect the device.
pub(crate) fn detach(n: u32) -> io::Result<()> {
    Netlink::open()?.disconnect(n)
}

/// State of a device number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Not connected.
    Free,
    /// Connected by this process, which may be dead if it is no ftld daemon.
    Connected {
        /// Process number.
        pid: i32,
    },
    /// Its ftld daemon died; requests wait for a new one for a limited time.
    Left {
        /// Image that it served.
        image: String,
    },
}

/// Returns the kernel's state of device `n`.
pub(crate) fn state(n: u32) -> State {
    let Some(pid) = connected_by(n) else {
        return State::Free;
    };
    let backend = fs::read_to_string(folder(n).join("backend")).unwrap_or_default();
    let image = backend.trim_end();
    // ftld daemons set the absolute path of their image.
    if image.starts_with('/') && !sys::process_alive(pid) {
        return State::Left {
            image: image.into(),
        };
    }
    State::Connected { pid }
}

/// Returns the command to claim the device, if it is free or can be reattached.
fn claim(n: u32, image: &str) -> Result<Command, Error> {
    match state(n) {
        State::Free => Ok(Command::Connect),
        State::Left { image: left } if left == image => Ok(Command::Reconfigure),
        State::Left { image } => Err(Error::Left { n, image }),
        State::Connected { pid } => Err(Error::InUse { n, pid }),
    }
}

/// Returns the process that connected the device.
fn connected_by(n: u32) -> Option<i32> {
    fs::read_to_string(folder(n).join("pid"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

fn folder(n: u32) -> PathBuf {
    Path::new("/sys/block").join(format!("nbd{n}"))
}
