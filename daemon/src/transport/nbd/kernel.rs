//! `/dev/nbdN`: our NBD server on sockets whose other ends belong to the kernel's client.
//!
//! If this process dies, the kernel holds requests back for a while and then fails them; one that comes in time with the same
//! image gets them all. There is no handshake: both sides are told what was agreed.

use std::fs;
use std::future::pending;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::netlink::{Command, Device, Netlink};
use super::wire::Mode;
use super::{Ended, Export, ExportInfo, Limits, NbdStats, attach_stream};
use crate::device::BlockDevice;
use crate::sys;
use crate::transport::holders;

/// The kernel spreads its queues over them.
const CONNECTIONS: usize = 2;

/// How long a disconnected device may take to answer what is under way.
const END_TIMEOUT: Duration = Duration::from_secs(5);

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
        /// Who connected it, dead or alive.
        pid: i32,
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
            Self::DriverMissing => 5,
            Self::Permission(_) => 6,
            Self::InUse { .. } => 7,
        }
    }
}

/// A `/dev/nbdN` with the threads that serve it, one for each connection.
pub struct Attached {
    n: u32,
    recovered: bool,
    threads: Mutex<Vec<JoinHandle<Result<(), Ended>>>>,
    leave: watch::Sender<bool>,
    stats: Arc<NbdStats>,
}

impl Attached {
    /// Sets `/dev/nbdN` up for `device`; returns when it takes requests. `image` names the image: a device that lost its daemon
    /// goes on with the same one.
    pub fn start(n: u32, device: &Arc<dyn BlockDevice>, image: &str) -> Result<Self, Error> {
        let context = |source| Error::Io { n, source };
        let stats = Arc::new(NbdStats::default());
        let pairs = (0..CONNECTIONS).map(|_| UnixStream::pair()).collect::<io::Result<Vec<_>>>().map_err(context)?;
        let (ours, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        // The kernel reads the partition table before it answers, so they have to be served before.
        let (leave, left) = watch::channel(false);
        let threads = ours.into_iter().map(|stream| serve(stream, device.clone(), stats.clone(), left.clone()));
        let threads = threads.collect::<io::Result<Vec<_>>>().map_err(context)?;
        let recovered = hand_over(n, device.as_ref(), image, &theirs)?;
        Ok(Self { n, recovered, threads: Mutex::new(threads), leave, stats })
    }

    /// Its node.
    pub fn path(&self) -> PathBuf {
        Path::new("/dev").join(name(self.n))
    }

    /// Whether it was taken up from a daemon that died.
    pub fn recovered(&self) -> bool {
        self.recovered
    }

    /// What was served.
    pub fn stats(&self) -> Arc<NbdStats> {
        self.stats.clone()
    }

    /// Who uses it, one phrase each.
    pub fn holders(&self) -> Vec<String> {
        holders::of(&name(self.n))
    }

    /// Why it is served no more, if all connections ended by themselves.
    pub fn ended(&self) -> Option<String> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if threads.is_empty() || !threads.iter().all(JoinHandle::is_finished) {
            return None;
        }
        let why = threads.drain(..).filter_map(|thread| thread.join().ok()?.err()).next();
        Some(why.map_or_else(|| "disconnected by another program".into(), |error| error.to_string()))
    }

    /// Closes the sockets without another word: the kernel keeps its requests for the next daemon, whereas an answer would be final.
    pub fn leave(&self) -> Result<(), Error> {
        let threads = self.take_threads();
        let _ = self.leave.send(true);
        self.await_end(&threads)
    }

    /// Disconnects the device, even under its users: requests under way are answered, later ones fail.
    pub fn remove(&self) -> Result<(), Error> {
        let threads = self.take_threads();
        if threads.is_empty() {
            return Ok(());
        }
        let disconnected = Netlink::open().and_then(|mut netlink| netlink.disconnect(self.n));
        disconnected.map_err(|source| Error::Io { n: self.n, source })?;
        self.await_end(&threads)
    }

    fn take_threads(&self) -> Vec<JoinHandle<Result<(), Ended>>> {
        std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn await_end(&self, threads: &[JoinHandle<Result<(), Ended>>]) -> Result<(), Error> {
        let end = Instant::now() + END_TIMEOUT;
        while !threads.iter().all(JoinHandle::is_finished) {
            if Instant::now() > end {
                let source = io::Error::new(io::ErrorKind::TimedOut, "requests were still under way after 5 s");
                return Err(Error::Io { n: self.n, source });
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// One connection on a thread with a runtime of its own: it blocks nobody else.
fn serve(
    stream: UnixStream,
    device: Arc<dyn BlockDevice>,
    stats: Arc<NbdStats>,
    mut left: watch::Receiver<bool>,
) -> io::Result<JoinHandle<Result<(), Ended>>> {
    stream.set_nonblocking(true)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("ftld-nbd".into()).spawn(move || {
        let served = runtime.block_on(async {
            let stream = tokio::net::UnixStream::from_std(stream)?;
            let limits = Limits::default();
            tokio::select! {
                ended = attach_stream(stream, device, &limits, &stats, pending()) => ended,
                _ = left.wait_for(|left| *left) => Ok(()),
            }
        });
        if let Err(error) = &served {
            tracing::error!(%error, "a connection of the kernel's NBD client ended");
        }
        served
    })
}

/// Gives the kernel its ends; true if the device was there before.
fn hand_over(n: u32, device: &dyn BlockDevice, image: &str, theirs: &[UnixStream]) -> Result<bool, Error> {
    let command = claim(n, image)?;
    let context = |source: io::Error| match source.kind() {
        io::ErrorKind::PermissionDenied => Error::Permission(n),
        io::ErrorKind::NotFound => Error::DriverMissing,
        io::ErrorKind::ResourceBusy => Error::InUse { n, pid: connected_by(n).unwrap_or_default() },
        _ => Error::Io { n, source },
    };
    let told = Device {
        n,
        size: device.size(),
        block: device.logical_block(),
        flags: Export::of(device, ExportInfo::default()).flags(Mode::Simple),
        dead_seconds: DEAD_SECONDS,
        backend: image,
    };
    let fds: Vec<_> = theirs.iter().map(AsFd::as_fd).collect();
    Netlink::open().and_then(|mut netlink| netlink.serve(command, &told, &fds)).map_err(context)?;
    Ok(command == Command::Reconfigure)
}

/// Whether the device is free, or ours to go on with.
fn claim(n: u32, image: &str) -> Result<Command, Error> {
    let Some(pid) = connected_by(n) else { return Ok(Command::Connect) };
    let backend = fs::read_to_string(folder(n).join("backend")).unwrap_or_default();
    if backend.trim_end() == image && !sys::process_alive(pid) {
        return Ok(Command::Reconfigure);
    }
    Err(Error::InUse { n, pid })
}

/// The process that connected the device; it need not live any more.
fn connected_by(n: u32) -> Option<i32> {
    fs::read_to_string(folder(n).join("pid")).ok()?.trim().parse().ok()
}

fn folder(n: u32) -> PathBuf {
    Path::new("/sys/block").join(name(n))
}

fn name(n: u32) -> String {
    format!("nbd{n}")
}
