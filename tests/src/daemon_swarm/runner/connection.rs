//! A session on the volume, polled by the runner.

use crate::daemon_swarm::client::Client;
use crate::daemon_swarm::gate::{Gate, Watched};
use crate::daemon_swarm::plan::{Plan, Wire};
use ftld_device::transport::nbd::{ExportInfo, Limits, NbdStats, attach_stream, serve_stream};
use ftld_device::volume::Volume;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

type Session = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) device: Arc<Watched>,
    pub(super) session: Option<Session>,
    /// Result of the ended session.
    pub(super) ended: Option<Result<(), String>>,
    pub(super) stop: Option<oneshot::Sender<()>>,
    pub(super) woken: Arc<Woken>,
    /// Ended flushes seen by the runner.
    pub(super) seen: u64,
    /// Whether the session changed data since it began.
    pub(super) wrote: bool,
    /// Whether the client has ended the session.
    pub(super) left: bool,
}

impl Connection {
    /// Returns whether the session ended because a read failed after its reply had begun; that
    /// reply cannot carry an error.
    pub(super) fn is_broken(&self) -> bool {
        matches!(&self.ended, Some(Err(why)) if why.contains("in the middle of a reply"))
    }

    pub(super) fn poll(&mut self) {
        let Some(session) = &mut self.session else {
            return;
        };
        let waker = Waker::from(self.woken.clone());
        if let Poll::Ready(end) = session.as_mut().poll(&mut Context::from_waker(&waker)) {
            self.session = None;
            self.ended = Some(end);
        }
    }
}

/// Wake-up flag of a session.
#[derive(Default)]
pub(super) struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Woken {
    pub(super) fn take(&self) -> bool {
        self.0.swap(false, Ordering::SeqCst)
    }

    /// Waits for a thread that has ended a flush to report it, even on a busy machine. A session in
    /// the middle of a reply does not read reports.
    pub(super) fn wait(&self) {
        let until = Instant::now() + Duration::from_millis(20);
        while !self.0.load(Ordering::SeqCst) && Instant::now() < until {
            std::thread::yield_now();
        }
    }
}

/// Starts a session on the volume for one of the plan's connections.
pub(super) fn connect(
    plan: &Plan,
    who: usize,
    volume: &Arc<Volume>,
    gate: &Arc<Gate>,
    stats: &Arc<NbdStats>,
) -> Result<Connection, String> {
    let (wire, piece) = (plan.wires[who], plan.piece as usize);
    let limits = Limits {
        piece,
        backlog: piece.min(64 << 10),
        resting: 4096,
        ..Limits::default()
    };
    let client = Client::new(wire);
    let device = Arc::new(Watched {
        volume: volume.clone(),
        gate: gate.clone(),
        who,
        writes: Vec::new().into(),
    });
    let (stop, stopped) = oneshot::channel::<()>();
    let (pipe, served, stats) = (client.pipe.clone(), device.clone(), stats.clone());
    let session: Session = Box::pin(async move {
        let info = ExportInfo {
            name: "disk".into(),
            description: String::new(),
        };
        let stopped = async { drop(stopped.await) };
        let end = match wire {
            Wire::Attached => attach_stream(pipe, served, &limits, &stats, stopped).await,
            _ => serve_stream(pipe, served, info, &limits, &stats, stopped).await,
        };
        end.map_err(|ended| ended.to_string())
    });
    let mut connection = Connection {
        client,
        device,
        session: Some(session),
        ended: None,
        stop: Some(stop),
        woken: Arc::default(),
        seen: 0,
        wrote: false,
        left: false,
    };
    connection.client.pipe.allow(usize::MAX, usize::MAX);
    connection.poll();
    if !connection.client.negotiated()? {
        return Err(format!(
            "connection {who} is not let in: {:?}",
            connection.ended
        ));
    }
    Ok(connection)
}
