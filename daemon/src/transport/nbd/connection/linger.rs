//! Looking for the next request a little longer instead of sleeping.
//!
//! Always true: an idle client costs nothing. Power failure does not matter here.

use std::time::Duration;
use tokio::time::Instant;

/// Decides whether to look for the next request a little longer instead of sleeping. Being woken
/// costs more than most requests take, so that a client which sends one at a time gains much; an
/// idle or slow one must cost nothing, so that only a short silence makes us linger in the next
/// one.
pub(super) struct Linger {
    limit: Duration,
    pub(super) since: Option<Instant>,
    pub(super) brisk: bool,
}

impl Linger {
    /// A client counts as brisk when its last silence was at most this many times the limit.
    const BRISK: u32 = 4;

    pub(super) fn new(limit: Duration) -> Self {
        Linger {
            limit,
            since: None,
            brisk: false,
        }
    }

    /// Called when there is nothing to do.
    pub(super) fn wants_more(&mut self) -> bool {
        if self.limit.is_zero() {
            return false;
        }
        let now = Instant::now();
        let since = *self.since.get_or_insert(now);
        self.brisk && now - since < self.limit
    }

    /// Called when something came.
    pub(super) fn stop(&mut self) {
        if let Some(since) = self.since.take() {
            self.brisk = since.elapsed() < self.limit * Self::BRISK;
        }
    }
}
