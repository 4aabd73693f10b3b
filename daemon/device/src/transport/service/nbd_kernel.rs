//! The service of `/dev/nbdN`: the kernel's NBD client on sockets of this process.

use super::worker::{Worker, small_runtime};
use super::{Context, Service, StopHow};
use crate::device::BlockDevice;
use crate::transport::holders::{self, Users};
use crate::transport::kernel_queue;
use crate::transport::nbd::{self, ExportInfo, Limits, NbdStats, kernel};
use crate::volume::Queue;
use ftld_kit::failure::{Exit, Failure};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use tokio::sync::watch;

/// Connections between the kernel's NBD client and the server.
const KERNEL_CONNECTIONS: usize = 2;

/// The NBD server on sockets of the kernel's client: `/dev/nbdN`.
pub(super) struct KernelClient {
    n: u32,
    leave: watch::Sender<bool>,
    stats: Arc<NbdStats>,
    workers: Vec<Worker>,
}

impl KernelClient {
    pub(super) fn start(
        n: u32,
        device: Arc<dyn BlockDevice>,
        context: Context<'_>,
    ) -> Result<Self, Failure> {
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
    fn holders(&self) -> Users {
        holders::of_live(&format!("nbd{}", self.n))
    }
    fn kernel_queue(&self) -> Option<Queue> {
        kernel_queue(&format!("nbd{}", self.n))
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

pub(super) fn kernel_failure(error: kernel::Error) -> Failure {
    Failure::new(Exit::from_code(error.exit_code()), error.to_string())
}
