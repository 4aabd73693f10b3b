//! Order of all moments of a recording.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Bits of the number of moments; a device with a million requests per second fills them in
/// 100 days.
const SEQ_BITS: u32 = 44;
const ENDED: u64 = 1 << SEQ_BITS;

/// Counter of moments and, in its upper bits, of ended requests: one atomic step takes both.
#[derive(Default)]
pub(super) struct Order(AtomicU64);

/// End of a request.
pub(super) struct Turn {
    /// Number of the moment.
    pub(super) seq: u64,
    /// Number of the request in the order in which requests ended, modulo [`Turn::next`].
    pub(super) turn: u32,
}

impl Turn {
    /// Returns the turn after this one.
    pub(super) fn next(turn: u32) -> u32 {
        (turn + 1) % (1 << (64 - SEQ_BITS))
    }
}

impl Order {
    /// Returns the number of a moment at which a request begins.
    pub(super) fn begin(&self) -> u64 {
        self.0.fetch_add(1, SeqCst) % ENDED
    }

    /// Returns the number of a moment at which a request ends, and the request's turn.
    pub(super) fn end(&self) -> Turn {
        let before = self.0.fetch_add(1 + ENDED, SeqCst);
        let turn = u32::try_from(before >> SEQ_BITS).expect("20 bits");
        Turn {
            seq: before % ENDED,
            turn,
        }
    }
}
