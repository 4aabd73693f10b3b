//! Reason for the end of a connection, and the side at fault.
//!
//! Invariants: a faulty client ends only its own connection. Power failure has no effect.

use crate::transport::nbd::engine::Close;
use crate::transport::nbd::handshake::End;
use crate::transport::nbd::stats::NbdStats;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Reason for the end of a connection other than DISC, a close between two messages, or a shutdown.
#[derive(Debug, thiserror::Error)]
pub enum CloseReason {
    /// The handshake failed.
    #[error("handshake: {0}")]
    Handshake(#[from] End),
    /// The handshake took too long.
    #[error("the handshake was not complete within {0:?}")]
    Deadline(Duration),
    /// The upgrade to TLS failed: no TLS, or no trusted certificate.
    #[error("TLS handshake: {0}")]
    Tls(#[source] io::Error),
    /// The transmission phase failed.
    #[error("{0}")]
    Transmission(Close),
    /// Silent in the middle of a message, while others waited for a slot.
    #[error("evicted for another client: silent in the middle of a message")]
    Evicted,
    /// Silent in the middle of a message.
    #[error("no progress for {0:?} in the middle of a message")]
    Stalled(Duration),
    /// A shutdown exceeded its deadline.
    #[error("requests were still in flight {0:?} after the shutdown began")]
    Undrained(Duration),
    /// The stream ended or failed.
    #[error("connection lost: {0}")]
    Stream(#[from] io::Error),
}

impl CloseReason {
    /// Returns whether the peer is at fault, rather than the network or the server.
    pub(crate) fn is_hostile(&self) -> bool {
        match self {
            CloseReason::Handshake(end) => !matches!(end, End::Aborted),
            CloseReason::Transmission(close) => !matches!(close, Close::Broken),
            CloseReason::Deadline(_)
            | CloseReason::Stalled(_)
            | CloseReason::Evicted
            | CloseReason::Tls(_) => true,
            CloseReason::Undrained(_) | CloseReason::Stream(_) => false,
        }
    }
}

/// Counts and logs the end of a connection.
pub(crate) fn note_end(peer: &str, result: &Result<(), CloseReason>, stats: &NbdStats) {
    match result {
        Ok(()) => tracing::debug!(peer, "nbd client left"),
        Err(ended) if ended.is_hostile() => {
            stats.dropped.fetch_add(1, Relaxed);
            tracing::info!(peer, reason = %ended, "nbd client dropped");
        }
        Err(ended) => tracing::debug!(peer, reason = %ended, "nbd connection ended"),
    }
}
