//! A running transport, as the rest of the daemon uses it: one [`Service`] per target. [`start`]
//! has one line per kind of target.

use super::holders;
use super::nbd::{
    self, Endpoint, ExportInfo, Limits, Listening, NbdStats, NbdUri, Server, Tls, kernel,
};
use crate::device::BlockDevice;
use crate::failure::{Exit, Failure};
use crate::target::Target;
use crate::volume::Queue;
use parking_lot::Mutex;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::watch;

/// Longest time for a stopped transport to answer the requests in flight.
const END_TIMEOUT: Duration = Duration::from_secs(6);
/// Connections between the kernel's NBD client and the server.
const KERNEL_CONNECTIONS: usize = 2;

/// A running transport.
pub trait Service: Send + Sync {
    /// Returns the address for clients, as printed in the ready line.
    fn target(&self) -> String;
    /// Lists the users that have the device open, one phrase each; the device must not be removed
    /// under them. Clients that the server can disconnect (NBD clients) are not listed. May block
    /// for a moment.
    fn holders(&self) -> Vec<String>;
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

/// Returns the target to serve if the user named none: ublk if available, else an NBD unix socket
/// in the runtime folder.
pub fn default_target(runtime: &Path) -> Target {
    #[cfg(feature = "ublk")]
    if super::ublk::probe().is_ok() {
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
        Target::Nbd(_) if recover => Err(Failure::usage(format!(
            "{target}: only /dev/ublkbN and /dev/nbdN can be reattached; start this with `ftld '{target}'`"
        ))),
        Target::NbdKernel(n) if recover => match kernel::state(*n) {
            kernel::State::Left { .. } => Ok(()),
            kernel::State::Connected { pid } => Err(nothing_to_recover(target, pid)),
            kernel::State::Free => Err(nothing_left(target)),
        },
        Target::NbdKernel(n) => kernel::probe(*n).map_err(kernel_failure),
        Target::Nbd(_) => Ok(()),
    }
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

/// Returns the device of this name (`ublkb0`, `nbd0`) if its daemon died and its users wait.
pub fn orphaned_target(name: &str) -> Option<Target> {
    let target = Target::parse(&format!("/dev/{name}")).ok()?;
    let left = match target {
        #[cfg(feature = "ublk")]
        Target::Ublk(n) => matches!(super::ublk::state(n), Ok(super::ublk::State::Quiesced)),
        Target::NbdKernel(n) => matches!(kernel::state(n), kernel::State::Left { .. }),
        _ => false,
    };
    left.then_some(target)
}

/// Returns the error for commands to the dead daemon of such a device.
pub fn orphan_error(name: &str, target: &Target) -> Failure {
    let message = format!(
        "{target} is quiesced, its daemon died: reattach with `ftld recover {target}`, or remove it, \
         failing its users' I/O, with `ftld stop --force {name}`"
    );
    Failure::new(Exit::Quiesced, message)
}

/// Stops a device of this name that a dead daemon left. With `force` the device is removed and its
/// pending I/O fails; otherwise the result is an error with the possible commands. Returns `None`
/// if there is no such device.
pub fn stop_left(name: &str, force: bool) -> Option<Result<(), Failure>> {
    if !force {
        return orphaned_target(name).map(|target| Err(orphan_error(name, &target)));
    }
    match Target::parse(&format!("/dev/{name}")).ok()? {
        // Any device of the driver, including one that was never started.
        #[cfg(feature = "ublk")]
        Target::Ublk(n) => Some(super::ublk::stop(n, true).map_err(ublk_failure)),
        Target::NbdKernel(n) if orphaned_target(name).is_some() => {
            Some(kernel::detach(n).map_err(|error| Failure::io(format!("/dev/nbd{n}"), &error)))
        }
        _ => None,
    }
}

#[cfg(feature = "ublk")]
fn probe_ublk(n: u32, recover: bool) -> Result<(), Failure> {
    use super::ublk::State;
    super::ublk::probe().map_err(ublk_failure)?;
    match recover
        .then(|| super::ublk::state(n))
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
    Err(Failure::new(
        Exit::DriverMissing,
        "this ftld was built without ublk; serve NBD instead, as in `ftld 'nbd+unix:///?socket=ftld.sock'`",
    ))
}

#[cfg(feature = "ublk")]
fn ublk_failure(error: super::ublk::Error) -> Failure {
    Failure::new(Exit::from_code(error.exit_code()), error.to_string())
}

fn kernel_failure(error: kernel::Error) -> Failure {
    Failure::new(Exit::from_code(error.exit_code()), error.to_string())
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
    match target {
        Target::Ublk(n) => ublk(*n, device, context),
        Target::NbdKernel(n) => Ok(Arc::new(KernelClient::start(*n, device, context)?)),
        Target::Nbd(uri) => Ok(Arc::new(NbdServer::start(uri, passed, device, context)?)),
    }
}

#[cfg(feature = "ublk")]
fn ublk(
    n: u32,
    device: Arc<dyn BlockDevice>,
    context: Context<'_>,
) -> Result<Arc<dyn Service>, Failure> {
    use super::ublk::{Options, Served, detach_mount_copies};
    if let Err(error) = detach_mount_copies(n) {
        tracing::warn!("copies of mounts on /dev/ublkb{n}: {error}");
    }
    let served =
        Served::start(Some(n), device, Options::new(context.image)).map_err(ublk_failure)?;
    if served.recovered() {
        tracing::info!("reattached {}", served.path().display());
    }
    Ok(Arc::new(served))
}

#[cfg(not(feature = "ublk"))]
fn ublk(n: u32, _: Arc<dyn BlockDevice>, _: Context<'_>) -> Result<Arc<dyn Service>, Failure> {
    probe_ublk(n, false).map(|()| unreachable!("no ublk in this build"))
}

#[cfg(feature = "ublk")]
impl Service for super::ublk::Served {
    fn target(&self) -> String {
        self.path().display().to_string()
    }
    fn holders(&self) -> Vec<String> {
        super::ublk::Served::holders(self)
    }
    fn kernel_queue(&self) -> Option<Queue> {
        super::kernel_queue(&format!("ublkb{}", self.n()))
    }
    fn ended(&self) -> Option<String> {
        super::ublk::Served::ended(self)
    }
    fn stop(&self, how: StopHow) -> Result<(), Failure> {
        match how {
            StopHow::Leave => {
                self.leave();
                Ok(())
            }
            StopHow::Remove => self.remove().map_err(ublk_failure),
        }
    }
}

/// A thread that signals its end.
struct Worker {
    ended: Mutex<Receiver<()>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Worker {
    fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> std::io::Result<Worker> {
        let (end, ended) = channel::<()>();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                let _end = end;
                work();
            })?;
        Ok(Worker {
            ended: Mutex::new(ended),
            thread: Mutex::new(Some(thread)),
        })
    }

    fn finished(&self) -> bool {
        let thread = self.thread.lock();
        thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(&self, what: &str) -> Result<(), Failure> {
        let ended = self.ended.lock();
        if ended.recv_timeout(END_TIMEOUT) == Err(RecvTimeoutError::Timeout) {
            return Err(Failure::failed(format!(
                "{what}: requests were still in flight after {END_TIMEOUT:?}"
            )));
        }
        let thread = self.thread.lock().take();
        match thread.map(JoinHandle::join) {
            Some(Err(_)) => Err(Failure::failed(format!("{what}: its thread panicked"))),
            _ => Ok(()),
        }
    }
}

fn small_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

/// An NBD server on a socket. When it stops, it answers the requests of its clients and then
/// disconnects them.
struct NbdServer {
    uri: String,
    stop: watch::Sender<bool>,
    stats: Arc<NbdStats>,
    worker: Worker,
}

impl NbdServer {
    fn start(
        uri: &NbdUri,
        passed: Option<Listening>,
        device: Arc<dyn BlockDevice>,
        context: Context<'_>,
    ) -> Result<Self, Failure> {
        let info = ExportInfo {
            name: uri.export.clone(),
            description: format!("ftld {}", context.name),
        };
        let (endpoint, text, tls) = (uri.endpoint.clone(), uri.to_string(), context.tls.cloned());
        let (stop, mut stopped) = watch::channel(false);
        let (tell, told) = sync_channel(1);
        let serve = move || {
            let runtime = match small_runtime() {
                Ok(runtime) => runtime,
                Err(error) => return drop(tell.send(Err(error))),
            };
            runtime.block_on(async {
                let bound = match passed {
                    Some(socket) => Server::adopt(socket, device, info, Limits::default(), tls),
                    None => Server::bind(&endpoint, device, info, Limits::default(), tls),
                };
                let server = match bound
                    .and_then(|server| Ok((server.uri()?.to_string(), server.stats(), server)))
                {
                    Ok((uri, stats, server)) => {
                        let _ = tell.send(Ok((uri, stats)));
                        server
                    }
                    Err(error) => return drop(tell.send(Err(error))),
                };
                server
                    .run(async { drop(stopped.wait_for(|stop| *stop).await) })
                    .await;
            });
        };
        let failed = |error: std::io::Error| Failure::io(&text, &error);
        let worker = Worker::spawn("ftld-nbd", serve).map_err(failed)?;
        let lost = || Failure::failed(format!("{text}: the server ended before it was ready"));
        let (uri, stats) = told.recv().map_err(|_| lost())?.map_err(failed)?;
        Ok(NbdServer {
            uri,
            stop,
            stats,
            worker,
        })
    }
}

impl Service for NbdServer {
    fn target(&self) -> String {
        self.uri.clone()
    }
    fn holders(&self) -> Vec<String> {
        Vec::new()
    }
    fn ended(&self) -> Option<String> {
        self.worker
            .finished()
            .then(|| "the NBD server ended".into())
    }
    fn stop(&self, _how: StopHow) -> Result<(), Failure> {
        let _ = self.stop.send(true);
        self.worker.join(&self.uri)
    }
    fn nbd_stats(&self) -> Option<Arc<NbdStats>> {
        Some(self.stats.clone())
    }
}

/// The NBD server on sockets of the kernel's client: `/dev/nbdN`.
struct KernelClient {
    n: u32,
    leave: watch::Sender<bool>,
    stats: Arc<NbdStats>,
    workers: Vec<Worker>,
}

impl KernelClient {
    fn start(n: u32, device: Arc<dyn BlockDevice>, context: Context<'_>) -> Result<Self, Failure> {
        if let Err(error) = holders::detach_mount_copies(&format!("nbd{n}")) {
            tracing::warn!("copies of mounts on /dev/nbd{n}: {error}");
        }
        let (leave, left) = watch::channel(false);
        let stats = Arc::<NbdStats>::default();
        let flags = nbd::Export::of(&*device, ExportInfo::default()).flags(nbd::wire::Mode::Simple);
        let mut workers = Vec::new();
        let attached = kernel::attach(
            n,
            &*device,
            flags,
            context.image,
            KERNEL_CONNECTIONS,
            |streams| {
                for stream in streams {
                    let (device, stats, left) = (device.clone(), stats.clone(), left.clone());
                    workers.push(Worker::spawn("ftld-nbd", move || {
                        serve_kernel(stream, device, &stats, left)
                    }));
                }
            },
        );
        let failed = |error: std::io::Error| Failure::io(format!("/dev/nbd{n}"), &error);
        let workers = workers
            .into_iter()
            .collect::<std::io::Result<Vec<_>>>()
            .map_err(failed)?;
        match attached {
            Ok(true) => tracing::info!("reattached /dev/nbd{n}"),
            Ok(false) => {}
            Err(error) => return Err(kernel_failure(error)),
        }
        assert_eq!(
            workers.len(),
            KERNEL_CONNECTIONS,
            "one thread serves each connection of /dev/nbd{n}"
        );
        Ok(KernelClient {
            n,
            leave,
            stats,
            workers,
        })
    }
}

/// Serves one connection until the kernel closes it. When `left` becomes true, the socket closes
/// without further replies: the kernel then keeps its requests for the next daemon, whereas a reply
/// would be final.
fn serve_kernel(
    stream: UnixStream,
    device: Arc<dyn BlockDevice>,
    stats: &NbdStats,
    mut left: watch::Receiver<bool>,
) {
    let served = small_runtime().and_then(|runtime| {
        runtime.block_on(async {
            stream.set_nonblocking(true)?;
            let stream = tokio::net::UnixStream::from_std(stream)?;
            let limits = Limits::default();
            tokio::select! {
                ended = nbd::attach_stream(stream, device, &limits, stats, std::future::pending()) => {
                    if let Err(ended) = ended {
                        tracing::warn!("kernel's NBD client: {ended}");
                    }
                }
                _ = left.wait_for(|left| *left) => {}
            }
            Ok(())
        })
    });
    if let Err(error) = served {
        tracing::error!("kernel's NBD client: {error}");
    }
}

impl Service for KernelClient {
    fn target(&self) -> String {
        format!("/dev/nbd{}", self.n)
    }
    fn holders(&self) -> Vec<String> {
        holders::of_live(&format!("nbd{}", self.n))
    }
    fn kernel_queue(&self) -> Option<Queue> {
        super::kernel_queue(&format!("nbd{}", self.n))
    }
    fn ended(&self) -> Option<String> {
        self.workers
            .iter()
            .all(Worker::finished)
            .then(|| "disconnected by another program".into())
    }
    fn stop(&self, how: StopHow) -> Result<(), Failure> {
        match how {
            StopHow::Leave => drop(self.leave.send(true)),
            StopHow::Remove => {
                kernel::detach(self.n).map_err(|error| Failure::io(self.target(), &error))?
            }
        }
        self.workers
            .iter()
            .try_for_each(|worker| worker.join(&self.target()))
    }
    fn nbd_stats(&self) -> Option<Arc<NbdStats>> {
        Some(self.stats.clone())
    }
}
