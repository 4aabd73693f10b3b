//! `/dev/nbdN`: our NBD server on sockets whose other ends belong to the kernel's client.
//!
//! If this process dies, the kernel holds requests back for a while and then fails them; one that
//! comes in time with the same image gets them all, those that a dead connection took with it after
//! the client's 30 s. There is no handshake: both sides are told what was agreed.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use super::netlink::{Command, Device, Netlink};
use crate::device::BlockDevice;
use crate::sys;

/// How long requests wait for a new daemon, in seconds.
const DEAD_SECONDS: u64 = 30;

/// Why a device could not be attached.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no NBD client.
    #[error(
        "this kernel offers no NBD client: load it with `modprobe nbd`, or serve the network protocol alone: \
         `ftld 'nbd+unix:///?socket=ftld.sock'`"
    )]
    DriverMissing,
    /// Netlink refused us.
    #[error(
        "/dev/nbd{0} may not be set up by this user: run ftld as root, or serve `nbd+unix:///?socket=ftld.sock`, which needs no rights"
    )]
    Permission(u32),
    /// The device is taken.
    #[error(
        "/dev/nbd{n} is connected already, by process {pid}: choose another number, or disconnect it with `nbd-client -d /dev/nbd{n}`"
    )]
    InUse {
        /// Device number.
        n: u32,
        /// Who connected it.
        pid: i32,
    },
    /// The device waits for another image.
    #[error(
        "/dev/nbd{n} was left by a daemon that died, and waits for image {image}: start ftld with that image to take it up, or \
         remove it, failing its users' I/O, with `ftld stop --force nbd{n}`"
    )]
    Left {
        /// Device number.
        n: u32,
        /// The image it belongs to.
        image: String,
    },
    /// Anything else.
    #[error("/dev/nbd{n}: {source}")]
    Io {
        /// Device number.
        n: u32,
        /// What the kernel answered.
        source: io::Error,
    },
}

impl Error {
    /// The exit code that tells a script what to do next.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Io { .. } => 1,
            Self::Left { .. } => 4,
            Self::DriverMissing => 5,
            Self::Permission(_) => 6,
            Self::InUse { .. } => 7,
        }
    }
}

/// Whether this kernel has an NBD client.
///
/// # Errors
/// The kernel has no NBD client, or refuses this process.
pub fn probe(n: u32) -> Result<(), Error> {
    Netlink::open()
        .map(drop)
        .map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => Error::DriverMissing,
            _ => Error::Io { n, source },
        })
}

/// Sets `/dev/nbdN` up with `connections` connections and returns our ends of them, to be served at
/// once: the kernel reads the partition table before it is done, so this has to run on another
/// thread than they do; `serve` gets them before. `flags` are the server's transmission flags,
/// `image` names the image.
///
/// A device that lost its daemon goes on with the same image.
///
/// # Errors
/// The device is in use, or the kernel refuses the connections.
pub fn attach(
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
    let mut netlink = Netlink::open().map_err(context)?;
    let pairs = (0..connections)
        .map(|_| UnixStream::pair())
        .collect::<io::Result<Vec<_>>>()
        .map_err(context)?;
    let (ours, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    serve(ours);
    let told = Device {
        n,
        size: device.size(),
        block: device.logical_block(),
        flags,
        dead_seconds: DEAD_SECONDS,
        backend: image,
    };
    let fds: Vec<_> = theirs.iter().map(AsFd::as_fd).collect();
    netlink.serve(command, &told, &fds).map_err(context)?;
    Ok(command == Command::Reconfigure)
}

/// Takes `/dev/nbdN` down, whoever uses it; see [`holders`](crate::transport::holders).
///
/// # Errors
/// The kernel refuses to disconnect the device.
pub fn detach(n: u32) -> io::Result<()> {
    Netlink::open()?.disconnect(n)
}

/// Life of a device number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Not connected.
    Free,
    /// Connected by this process; one that is not ours need not live any more.
    Connected {
        /// Who.
        pid: i32,
    },
    /// Our daemon died; requests wait for a new one, but not for ever.
    Left {
        /// The image it served.
        image: String,
    },
}

/// What the kernel says of device `n`.
pub fn state(n: u32) -> State {
    let Some(pid) = connected_by(n) else {
        return State::Free;
    };
    let backend = fs::read_to_string(folder(n).join("backend")).unwrap_or_default();
    let image = backend.trim_end();
    // Our daemons name the absolute path of their image.
    if image.starts_with('/') && !sys::process_alive(pid) {
        return State::Left {
            image: image.into(),
        };
    }
    State::Connected { pid }
}

/// Whether the device is free, or ours to go on with.
fn claim(n: u32, image: &str) -> Result<Command, Error> {
    match state(n) {
        State::Free => Ok(Command::Connect),
        State::Left { image: left } if left == image => Ok(Command::Reconfigure),
        State::Left { image } => Err(Error::Left { n, image }),
        State::Connected { pid } => Err(Error::InUse { n, pid }),
    }
}

/// The process that connected the device.
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
