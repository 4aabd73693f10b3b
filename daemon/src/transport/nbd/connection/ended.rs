//! Why a connection ended, and who is to blame.
//!
//! Always true: one bad client ends its own connection alone. Power failure does not matter here.

use crate::transport::nbd::engine::Close;
use crate::transport::nbd::handshake::End;
use crate::transport::nbd::stats::NbdStats;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Why a connection ended other than by good-bye, by closing it between two messages, or by a
/// shutdown.
#[derive(Debug, thiserror::Error)]
pub enum Ended {
    /// In the handshake.
    #[error("handshake: {0}")]
    Handshake(#[from] End),
    /// The handshake took too long.
    #[error("the handshake was not done within {0:?}")]
    Deadline(Duration),
    /// The upgrade to TLS failed: no TLS, or no certificate that we trust.
    #[error("TLS handshake: {0}")]
    Tls(#[source] io::Error),
    /// In transmission.
    #[error("{0}")]
    Transmission(Close),
    /// Silence in the middle of a message, while others waited for a place.
    #[error("made way for another client, silent in the middle of a message")]
    Evicted,
    /// Silence in the middle of a message.
    #[error("no progress for {0:?} in the middle of a message")]
    Stalled(Duration),
    /// A shutdown did not wait any longer.
    #[error("requests were still under way {0:?} after the shutdown began")]
    Undrained(Duration),
    /// The stream ended or failed.
    #[error("connection lost: {0}")]
    Stream(#[from] io::Error),
}

impl Ended {
    /// Whether the peer is to blame, rather than the network or us.
    pub fn is_hostile(&self) -> bool {
        match self {
            Ended::Handshake(end) => !matches!(end, End::Aborted),
            Ended::Transmission(close) => !matches!(close, Close::Broken),
            Ended::Deadline(_) | Ended::Stalled(_) | Ended::Evicted | Ended::Tls(_) => true,
            Ended::Undrained(_) | Ended::Stream(_) => false,
        }
    }
}

/// Counts and logs the end of a connection.
pub(crate) fn note_end(peer: &str, result: &Result<(), Ended>, stats: &NbdStats) {
    match result {
        Ok(()) => tracing::debug!(peer, "nbd client left"),
        Err(ended) if ended.is_hostile() => {
            stats.dropped.fetch_add(1, Relaxed);
            tracing::info!(peer, reason = %ended, "nbd client dropped");
        }
        Err(ended) => tracing::debug!(peer, reason = %ended, "nbd connection ended"),
    }
}
