//! Accepts connections, bounds their number, and ends them on shutdown.
//!
//! Invariants: at most [`Limits::connections`] sockets are served at once, whatever their state.
//! Idle or stuck connections cannot lock a client out. A newcomer evicts a connection that has not
//! finished its handshake, or that stalls in the middle of a message ([`Shared::evict_for`]).
//! Handshakes, including TLS, share the runtime of [`Server::run`]. A connection in transmission
//! has a thread with its own single-threaded runtime, because waking another thread costs more than
//! most requests.

use super::connection::{CloseReason, Opening, StallClock, negotiate, note_end, transmit};
use super::endpoint::{Listener, Listening, Socket};
use super::export::{Export, ExportInfo};
use super::limits::Limits;
use super::stats::{NbdStats, Share};
use super::tls::{Channel, Tls};
use crate::device::BlockDevice;
use crate::target::{Endpoint, NbdUri};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

/// Pause after the kernel refused to accept, most likely for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time that a shutdown grants connections beyond their own deadline.
const GRACE: Duration = Duration::from_millis(500);
/// Longest handshake of a client that is refused because all connections are in use.
const REFUSAL_DEADLINE: Duration = Duration::from_secs(2);

/// A listening NBD server for one device.
pub struct Server {
    listener: Listener,
    shared: Arc<Shared>,
}

struct Shared {
    device: Arc<dyn BlockDevice>,
    info: ExportInfo,
    limits: Limits,
    tls: Option<Tls>,
    stats: Arc<NbdStats>,
    slots: Mutex<BTreeMap<u64, Slot>>,
}

/// A connection, by order of arrival.
enum Slot {
    /// In its handshake: may be evicted.
    Negotiating {
        since: Instant,
        task: Option<AbortHandle>,
    },
    /// In transmission: evicted by dropping `_end`.
    Connected {
        silence: Arc<StallClock>,
        _end: oneshot::Sender<()>,
    },
}

impl Server {
    /// Listens. From here on clients can connect; they are served once [`run`](Self::run) is
    /// polled. Must be called inside a tokio runtime with its I/O and time drivers; takes at
    /// most 2 s.
    ///
    /// # Errors
    /// The endpoint is in use, is no socket, cannot be reached, or is beyond loopback and TLS is
    /// not required; the message names it.
    pub fn bind(
        endpoint: &Endpoint,
        device: Arc<dyn BlockDevice>,
        info: ExportInfo,
        limits: Limits,
        tls: Option<Tls>,
    ) -> io::Result<Self> {
        let listener = || Listener::bind(endpoint, tls.as_ref().is_some_and(Tls::required));
        Self::over(listener, device, info, limits, tls.clone())
    }

    /// Creates a server on a socket that listens already.
    ///
    /// # Errors
    /// The socket is beyond loopback and TLS is not required, or has no path.
    pub(crate) fn adopt(
        socket: Listening,
        device: Arc<dyn BlockDevice>,
        info: ExportInfo,
        limits: Limits,
        tls: Option<Tls>,
    ) -> io::Result<Self> {
        let listener = || Listener::adopt(socket, tls.as_ref().is_some_and(Tls::required));
        Self::over(listener, device, info, limits, tls.clone())
    }

    fn over(
        listener: impl FnOnce() -> io::Result<Listener>,
        device: Arc<dyn BlockDevice>,
        info: ExportInfo,
        limits: Limits,
        tls: Option<Tls>,
    ) -> io::Result<Self> {
        if info.name.len() > limits.name_len || info.description.len() > limits.name_len {
            let text = format!(
                "an export's name and description are limited to {} bytes",
                limits.name_len
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        assert!(
            limits.connections > 0 && limits.in_flight > 0,
            "a server of {} connections with {} requests each",
            limits.connections,
            limits.in_flight
        );
        assert!(
            limits.option_len <= limits.option_skip,
            "options are read up to {} bytes and skipped up to {}",
            limits.option_len,
            limits.option_skip
        );
        let listener = listener()?;
        let stats = Arc::default();
        let slots = Mutex::default();
        Ok(Server {
            listener,
            shared: Arc::new(Shared {
                device,
                info,
                limits,
                tls,
                stats,
                slots,
            }),
        })
    }

    /// Returns the URI of the export, with the port that the kernel chose.
    ///
    /// # Errors
    /// The kernel does not return the address; it always does for a listening socket.
    pub fn uri(&self) -> io::Result<NbdUri> {
        let Shared { info, tls, .. } = &*self.shared;
        let tls = tls.as_ref().is_some_and(Tls::required);
        Ok(NbdUri {
            endpoint: self.listener.endpoint()?,
            export: info.name.clone(),
            tls,
        })
    }

    /// Returns the counters; they stay valid after the server has ended.
    pub fn stats(&self) -> Arc<NbdStats> {
        self.shared.stats.clone()
    }

    /// Serves until `shutdown` is done. Then no connection is accepted any more (the socket file is
    /// removed). Requests in flight are finished and answered, later ones are refused with
    /// `ESHUTDOWN`, and connections close. [`Limits::drain`] bounds the shutdown.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Server { listener, shared } = self;
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        let mut next_id = 0;
        let mut newcomer = None;
        loop {
            let wait = newcomer.as_ref().and_then(|_| shared.crowded());
            if wait.is_none()
                && let Some(client) = newcomer.take()
            {
                next_id += 1;
                shared.admit(next_id, client, &stopped, &mut tasks);
            }
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(_) = tasks.join_next() => {}
                () = tokio::time::sleep(wait.unwrap_or_default()), if wait.is_some() => {}
                accepted = listener.accept(), if wait.is_none() => match accepted {
                    Ok(client) => newcomer = Some(client),
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept an NBD connection; will try again");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        drop(listener);
        let _ = stop.send(true);
        shared.evict_negotiating();
        // Connections observe the deadline themselves; this one is for a thread that hangs in the
        // device.
        let all = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(shared.limits.drain + GRACE, all).await;
    }
}

impl Shared {
    fn slots(&self) -> MutexGuard<'_, BTreeMap<u64, Slot>> {
        self.slots.lock()
    }

    /// Gives a new connection a slot, or refuses it.
    fn admit(
        self: &Arc<Self>,
        id: u64,
        (socket, peer): (Socket, Option<SocketAddr>),
        stopped: &watch::Receiver<bool>,
        tasks: &mut JoinSet<()>,
    ) {
        self.stats.accepted.fetch_add(1, Relaxed);
        let mut slots = self.slots();
        if slots.len() >= self.limits.connections && !self.evict_for(&mut slots) {
            drop(slots);
            self.refuse(socket, stopped.clone(), tasks);
            return;
        }
        assert!(
            slots.len() < self.limits.connections,
            "{} connections and a new one, limited to {}",
            slots.len(),
            self.limits.connections
        );
        assert!(
            slots.last_key_value().is_none_or(|(last, _)| *last < id),
            "connection {id} is no newer than the last"
        );
        let since = Instant::now();
        slots.insert(id, Slot::Negotiating { since, task: None });
        let shared = self.clone();
        let stopped = stopped.clone();
        let handle = tasks.spawn(async move {
            let _release = Release {
                shared: &shared,
                id,
            };
            let result = shared.serve(id, socket, stopped).await;
            let peer = peer.map_or_else(|| format!("unix#{id}"), |address| address.to_string());
            note_end(&peer, &result, &shared.stats);
        });
        slots.insert(
            id,
            Slot::Negotiating {
                since,
                task: Some(handle),
            },
        );
    }

    /// Returns the time to wait before a connection may be evicted for a newcomer; later newcomers
    /// stay in the listener's queue. Without the wait, many newcomers would evict connections that
    /// are about to finish their handshake. Newcomers would also be refused an instant too early.
    fn crowded(&self) -> Option<Duration> {
        let slots = self.slots();
        if slots.len() < self.limits.connections {
            return None;
        }
        let handshake = oldest_handshake(&slots).map(|(_, since)| since + self.limits.grace);
        let silence = longest_silence(&slots).map(|(_, since)| since + self.limits.patience);
        let first = handshake.into_iter().chain(silence).min()?;
        first.checked_duration_since(Instant::now())
    }

    /// Evicts a connection for a newcomer: a handshake beyond `patience`, else a silence beyond
    /// `patience` in the middle of a message, else any handshake. The oldest goes first. Returns
    /// whether one was evicted.
    fn evict_for(&self, slots: &mut BTreeMap<u64, Slot>) -> bool {
        let too_long = |(_, since): &(u64, Instant)| since.elapsed() >= self.limits.patience;
        let handshake = oldest_handshake(slots);
        let silence = || longest_silence(slots).filter(too_long);
        let goes = handshake.filter(too_long).or_else(silence).or(handshake);
        if let Some((id, _)) = goes {
            self.evict(slots, id);
        }
        goes.is_some()
    }

    fn evict(&self, slots: &mut BTreeMap<u64, Slot>, id: u64) {
        assert!(
            slots.contains_key(&id),
            "connection {id} is evicted and has no slot"
        );
        if let Some(Slot::Negotiating {
            task: Some(task), ..
        }) = slots.remove(&id)
        {
            task.abort();
        }
        self.stats.evicted.fetch_add(1, Relaxed);
    }

    fn evict_negotiating(&self) {
        let mut slots = self.slots();
        let negotiating = slots
            .iter()
            .filter(|(_, slot)| matches!(slot, Slot::Negotiating { .. }));
        for id in negotiating.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.evict(&mut slots, id);
        }
    }

    fn refuse(
        self: &Arc<Self>,
        socket: Socket,
        mut stopped: watch::Receiver<bool>,
        tasks: &mut JoinSet<()>,
    ) {
        self.stats.refused.fetch_add(1, Relaxed);
        tracing::warn!(
            limit = self.limits.connections,
            "NBD connection refused: all are taken"
        );
        if tasks.len() >= self.limits.connections + self.limits.refusals {
            return;
        }
        let shared = self.clone();
        tasks.spawn(async move {
            let full = shared.limits.connections;
            let export = Export::of(&*shared.device, shared.info.clone());
            let limits = Limits {
                handshake: REFUSAL_DEADLINE.min(shared.limits.handshake),
                ..shared.limits
            };
            tokio::select! {
                _ = negotiate(socket, &export, &limits, shared.tls.as_ref(), Some(full)) => {}
                _ = stopped.wait_for(|stop| *stop) => {}
            }
        });
    }

    async fn serve(
        self: &Arc<Self>,
        id: u64,
        socket: Socket,
        stopped: watch::Receiver<bool>,
    ) -> Result<(), CloseReason> {
        let (channel, opening) = {
            let _share = Share::of(&self.stats.negotiating, 1);
            let export = Export::of(&*self.device, self.info.clone());
            let agreed = negotiate(socket, &export, &self.limits, self.tls.as_ref(), None).await?;
            let (channel, session, rest) = agreed;
            let (linger, silence) = (self.limits.linger, Arc::default());
            (
                channel,
                Opening {
                    session,
                    export,
                    rest,
                    linger,
                    silence,
                },
            )
        };
        self.connected(id, opening, channel, stopped).await
    }

    /// Runs the transmission phase on a thread of its own.
    async fn connected(
        self: &Arc<Self>,
        id: u64,
        opening: Opening,
        channel: Channel<Socket>,
        stopped: watch::Receiver<bool>,
    ) -> Result<(), CloseReason> {
        let (end, evicted) = oneshot::channel();
        match self.slots().get_mut(&id) {
            Some(slot) => {
                assert!(
                    matches!(slot, Slot::Negotiating { .. }),
                    "connection {id} is in transmission already"
                );
                *slot = Slot::Connected {
                    silence: opening.silence.clone(),
                    _end: end,
                }
            }
            // Evicted just now.
            None => return Ok(()),
        }
        let (report, ended) = oneshot::channel();
        let shared = self.clone();
        std::thread::Builder::new()
            .name(format!("nbd-{id}"))
            .spawn(move || {
                // A send fails only when the server is gone and no task reads the result.
                let _ = report.send(shared.serve_thread(opening, channel, stopped, evicted));
            })?;
        ended
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the connection's thread panicked").into()))
    }

    fn serve_thread(
        &self,
        opening: Opening,
        mut channel: Channel<Socket>,
        mut stopped: watch::Receiver<bool>,
        evicted: oneshot::Receiver<()>,
    ) -> Result<(), CloseReason> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(1)
            // During busy polling, the connection's task is always ready; the runtime must check
            // the socket in every iteration.
            .event_interval(1)
            .thread_name("nbd-flush")
            .build()?;
        let result = runtime.block_on(async {
            let stop = async {
                // An error means that the server is gone, which is a shutdown as well.
                let _ = stopped.wait_for(|stop| *stop).await;
            };
            let (device, limits, stats) = (self.device.clone(), &self.limits, &*self.stats);
            channel.lower().rehome()?;
            tokio::select! {
                biased;
                ended = transmit(channel, opening, device, limits, stats, stop) => ended,
                _ = evicted => Err(CloseReason::Evicted),
            }
        });
        // Does not wait for a flush that hangs.
        runtime.shutdown_background();
        result
    }
}

fn oldest_handshake(slots: &BTreeMap<u64, Slot>) -> Option<(u64, Instant)> {
    slots.iter().find_map(|(id, slot)| match slot {
        Slot::Negotiating { since, .. } => Some((*id, *since)),
        Slot::Connected { .. } => None,
    })
}

/// Returns the connection with the longest silence in the middle of a message, and its start.
fn longest_silence(slots: &BTreeMap<u64, Slot>) -> Option<(u64, Instant)> {
    let silent = slots.iter().filter_map(|(id, slot)| match slot {
        Slot::Connected { silence, .. } => Some((*id, silence.since()?)),
        Slot::Negotiating { .. } => None,
    });
    silent.min_by_key(|(_, since)| *since)
}

/// Frees a connection's slot, however the connection ends.
struct Release<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.shared.slots().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that came earlier need not be the one that has been silent for longer.
    #[test]
    fn the_longest_silence_and_the_oldest_handshake_leave_first() {
        let connected = |silent: bool| {
            let silence = Arc::<StallClock>::default();
            if silent {
                silence.set(true);
                std::thread::sleep(Duration::from_millis(2));
            }
            let (end, _) = oneshot::channel();
            Slot::Connected { silence, _end: end }
        };
        let mut slots = BTreeMap::new();
        for (id, silent) in [(4, true), (2, true), (3, true), (1, false)] {
            slots.insert(id, connected(silent));
        }
        let left = |slots: &BTreeMap<u64, Slot>| longest_silence(slots).map(|(id, _)| id);
        for expected in [4, 2, 3] {
            assert_eq!(left(&slots), Some(expected));
            slots.remove(&expected);
        }
        assert_eq!(left(&slots), None, "one between messages is not silent");
        for id in [7, 5] {
            let since = Instant::now();
            slots.insert(id, Slot::Negotiating { since, task: None });
        }
        assert_eq!(oldest_handshake(&slots).map(|(id, _)| id), Some(5));
    }
}
