//! One connection on tokio: moves bytes between a stream and the state machines, and enforces
//! timeouts.
//!
//! Invariants: requests run inline on the thread that polls the connection. Only
//! [`crate::device::Flush::wait`] runs in the blocking pool, on one thread per connection at a
//! time, while other requests are served. Delayed replies share one timer per connection, created
//! for the first of them. Timeouts run only while the peer stalls in the middle of a message, never
//! while it waits for the server. If the peer misbehaves or disconnects, only its connection ends.

mod busy_poll;
mod close_reason;
mod negotiate;
mod transmission;

pub use close_reason::CloseReason;
pub(super) use close_reason::note_end;
pub(super) use negotiate::negotiate;

use super::export::{Export, ExportInfo};
use super::handshake::Session;
use super::limits::Limits;
use super::stats::{NbdStats, Share};
use super::tls::Channel;
use crate::device::BlockDevice;
use parking_lot::Mutex;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;
use transmission::Connection;

/// Serves one client on a connected stream from the greeting on, until it leaves or `shutdown` is
/// done. Runs on the caller's tokio runtime, which needs its drivers for time and I/O.
///
/// # Errors
/// The reason for the end of the connection, unless it is DISC, a close between two messages, or
/// the shutdown.
pub async fn serve_stream<S>(
    stream: S,
    device: Arc<dyn BlockDevice>,
    info: ExportInfo,
    limits: &Limits,
    stats: &NbdStats,
    shutdown: impl Future<Output = ()>,
) -> Result<(), CloseReason>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let export = Export::of(&*device, info);
    let (channel, session, rest) = {
        let _share = Share::of(&stats.negotiating, 1);
        negotiate(stream, &export, limits, None, None).await?
    };
    let opening = Opening {
        session,
        export,
        rest,
        linger: Duration::ZERO,
        silence: Arc::default(),
    };
    transmit(channel, opening, device, limits, stats, shutdown).await
}

/// Serves a stream whose peer already is in transmission and takes simple replies: the kernel's
/// client on a socket handed to it. The kernel must be configured with the size and
/// [`Export::flags`] of [`super::wire::Mode::Simple`].
///
/// # Errors
/// As [`serve_stream`].
pub async fn attach_stream<S>(
    stream: S,
    device: Arc<dyn BlockDevice>,
    limits: &Limits,
    stats: &NbdStats,
    shutdown: impl Future<Output = ()>,
) -> Result<(), CloseReason>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let export = Export::of(&*device, ExportInfo::default());
    let (session, linger, silence) = (Session::SIMPLE, Duration::ZERO, Arc::default());
    let opening = Opening {
        session,
        export,
        rest: Vec::new(),
        linger,
        silence,
    };
    transmit(
        Channel::Plain(stream),
        opening,
        device,
        limits,
        stats,
        shutdown,
    )
    .await
}

/// Start of the transmission phase.
pub(crate) struct Opening {
    pub session: Session,
    pub export: Export,
    /// Bytes of requests that followed the handshake.
    pub rest: Vec<u8>,
    /// Time to poll for the next request before sleeping; zero if others share the thread.
    pub linger: Duration,
    /// Shared record of the peer's silence.
    pub silence: Arc<StallClock>,
}

/// Start of a peer's silence in the middle of a message, used to choose the connection to evict.
#[derive(Default)]
pub(crate) struct StallClock(Mutex<Option<Instant>>);

impl StallClock {
    pub(super) fn set(&self, silent: bool) {
        *self.0.lock() = silent.then(Instant::now);
    }

    /// Returns the start of the silence; `None` if the peer is not silent in the middle of a
    /// message.
    pub(super) fn since(&self) -> Option<Instant> {
        *self.0.lock()
    }
}

/// Runs the transmission phase.
pub(super) async fn transmit<S>(
    channel: Channel<S>,
    opening: Opening,
    device: Arc<dyn BlockDevice>,
    limits: &Limits,
    stats: &NbdStats,
    shutdown: impl Future<Output = ()>,
) -> Result<(), CloseReason>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    match channel {
        Channel::Plain(stream) => {
            transmit_on(stream, opening, device, limits, stats, shutdown).await
        }
        Channel::Tls(stream) => {
            transmit_on(*stream, opening, device, limits, stats, shutdown).await
        }
    }
}

async fn transmit_on<S>(
    mut stream: S,
    opening: Opening,
    device: Arc<dyn BlockDevice>,
    limits: &Limits,
    stats: &NbdStats,
    shutdown: impl Future<Output = ()>,
) -> Result<(), CloseReason>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let _share = Share::of(&stats.connected, 1);
    let mut connection = Connection::new(opening, device, limits, stats);
    let mut shutdown = pin!(shutdown);
    let result = poll_fn(|cx| connection.poll(Pin::new(&mut stream), shutdown.as_mut(), cx)).await;
    connection.publish();
    // TLS sends a closing message, which blocks if the peer reads nothing.
    let _ = tokio::time::timeout(limits.drain, stream.shutdown()).await;
    result
}

#[cfg(test)]
mod tests;
