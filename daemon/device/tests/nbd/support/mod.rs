//! Support of the NBD suites: a server in this process.
pub(crate) mod certificates;
pub(crate) mod ram;

use ftld_device::device::BlockDevice;
use ftld_device::transport::nbd::{Endpoint, ExportInfo, Limits, NbdStats, NbdUri, Server, Tls};
use ram::Ram;
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

pub(crate) const MIB: u64 = 1 << 20;

/// Waits for what happens on another thread; fails after ten seconds.
pub(crate) fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "never happened: {what}"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A server on a unix socket, on a thread of its own; stopped when dropped.
pub(crate) struct Serving {
    pub(crate) socket: PathBuf,
    pub(crate) served_at: NbdUri,
    pub(crate) stats: Arc<NbdStats>,
    pub(crate) folder: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// On a unix socket in a folder of its own.
    pub(crate) fn start(device: Arc<dyn BlockDevice>, limits: Limits) -> Self {
        Serving::start_at(tempfile::tempdir().unwrap(), None, device, limits, None)
    }

    /// On a unix socket in the folder unless told otherwise.
    fn start_at(
        folder: tempfile::TempDir,
        endpoint: Option<Endpoint>,
        device: Arc<dyn BlockDevice>,
        limits: Limits,
        tls: Option<Tls>,
    ) -> Self {
        let socket = folder.path().join("s");
        let endpoint = endpoint.unwrap_or_else(|| Endpoint::Unix(socket.clone()));
        let (stop, stopped) = oneshot::channel();
        let (ready, started) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let info = ExportInfo {
                    name: "disk".into(),
                    description: "a disk".into(),
                };
                let server = Server::bind(&endpoint, device, info, limits, tls).unwrap();
                ready.send((server.stats(), server.uri().unwrap())).unwrap();
                server.run(async { drop(stopped.await) }).await;
            });
        });
        let (stats, served_at) = started.recv().unwrap();
        Serving {
            socket,
            served_at,
            stats,
            folder,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///disk?socket={}", self.socket.display())
    }

    /// Begins the shutdown.
    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    /// Waits for the end of the server.
    pub(crate) fn join(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A server over memory.
pub(crate) struct Rig {
    pub(crate) ram: Arc<Ram>,
    serving: Serving,
}

impl Rig {
    pub(crate) fn new() -> Self {
        Rig::with(Ram::new(64 * MIB), Limits::default())
    }

    pub(crate) fn with_limits(limits: Limits) -> Self {
        Rig::with(Ram::new(64 * MIB), limits)
    }

    pub(crate) fn with(ram: Ram, limits: Limits) -> Self {
        Rig::start(tempfile::tempdir().unwrap(), None, ram, limits, None)
    }

    /// On a unix socket in the folder unless told otherwise.
    pub(crate) fn start(
        folder: tempfile::TempDir,
        endpoint: Option<Endpoint>,
        ram: Ram,
        limits: Limits,
        tls: Option<Tls>,
    ) -> Self {
        let ram = Arc::new(ram);
        Rig {
            serving: Serving::start_at(folder, endpoint, ram.clone(), limits, tls),
            ram,
        }
    }
}

impl Deref for Rig {
    type Target = Serving;
    fn deref(&self) -> &Serving {
        &self.serving
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut Serving {
        &mut self.serving
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.ram.gate.set_closed(false);
    }
}
