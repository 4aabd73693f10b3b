//! Polls for the next request for a short time instead of sleeping.
//!
//! Invariants: an idle client costs nothing. Power failure has no effect.

use std::time::Duration;
use tokio::time::Instant;

/// Decides whether to poll for the next request instead of sleeping. A wake-up costs more than most
/// requests, so polling speeds up a client that sends one request at a time. An idle or slow client
/// must cost nothing, so polling happens only if the previous silence was short.
pub(super) struct BusyPoll {
    limit: Duration,
    pub(super) since: Option<Instant>,
    pub(super) brisk: bool,
}

impl BusyPoll {
    /// A client is brisk if its last silence was shorter than this many times the limit.
    const BRISK: u32 = 4;

    pub(super) fn new(limit: Duration) -> Self {
        BusyPoll {
            limit,
            since: None,
            brisk: false,
        }
    }

    /// Returns whether to continue polling; called when there is nothing to do.
    pub(super) fn wants_more(&mut self) -> bool {
        if self.limit.is_zero() {
            return false;
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        self.brisk && now - since < self.limit
    }

    /// Ends the silence; called after progress.
    pub(super) fn stop(&mut self) {
        if let Some(since) = self.since.take() {
            self.brisk = since.elapsed() < self.limit * Self::BRISK;
        }
    }
}
