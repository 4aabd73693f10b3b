//! One connection on tokio: moves bytes between a stream and the state machines, and watches the
//! clock.
//!
//! What always holds: requests run inline on the thread that polls the connection; only
//! [`crate::device::Flush::wait`] goes to the blocking pool, one thread per connection at a time,
//! while other requests go on being served. Held replies wait for one timer per connection, which
//! is there from the first of them on. Time runs against a peer only where it keeps us waiting in
//! the middle of a message, never while it waits for us. If the peer misbehaves or vanishes, the
//! connection ends and nothing else is touched.

mod ended;
mod linger;
mod negotiate;
mod transmission;

pub use ended::Ended;
pub(super) use ended::note_end;
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
/// Why the connection ended, if not by good-bye, between two messages, or by the shutdown.
pub async fn serve_stream<S>(
    stream: S,
    device: Arc<dyn BlockDevice>,
    info: ExportInfo,
    limits: &Limits,
    stats: &NbdStats,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Ended>
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

/// Serves a stream whose other end already is in transmission and takes simple replies: the
/// kernel's client on a socket handed to it. The kernel must be told the size and [`Export::flags`]
/// of [`super::wire::Mode::Simple`].
///
/// # Errors
/// As [`serve_stream`].
pub async fn attach_stream<S>(
    stream: S,
    device: Arc<dyn BlockDevice>,
    limits: &Limits,
    stats: &NbdStats,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Ended>
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

/// Where transmission starts from.
pub(super) struct Opening {
    pub(super) session: Session,
    pub(super) export: Export,
    /// Bytes of requests that came with the end of the handshake.
    pub(super) rest: Vec<u8>,
    /// How long to look for the next request before sleeping; zero where others share the thread.
    pub(super) linger: Duration,
    /// Where to say that the peer keeps us waiting.
    pub(super) silence: Arc<Silence>,
}

/// Since when a peer has been silent in the middle of a message, for whoever has to choose which
/// connection makes way.
#[derive(Default)]
pub(super) struct Silence(Mutex<Option<Instant>>);

impl Silence {
    fn set(&self, silent: bool) {
        *self.0.lock() = silent.then(Instant::now);
    }

    /// `None` while the peer keeps nobody waiting.
    pub(super) fn since(&self) -> Option<Instant> {
        *self.0.lock()
    }
}

/// The transmission phase.
pub(super) async fn transmit<S>(
    channel: Channel<S>,
    opening: Opening,
    device: Arc<dyn BlockDevice>,
    limits: &Limits,
    stats: &NbdStats,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Ended>
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
) -> Result<(), Ended>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let _share = Share::of(&stats.connected, 1);
    let mut connection = Connection::new(opening, device, limits, stats);
    let mut shutdown = pin!(shutdown);
    let result = poll_fn(|cx| connection.poll(Pin::new(&mut stream), shutdown.as_mut(), cx)).await;
    connection.publish();
    // TLS says good-bye, for which a peer that takes nothing leaves no room.
    let _ = tokio::time::timeout(limits.drain, stream.shutdown()).await;
    result
}

#[cfg(test)]
mod tests;
