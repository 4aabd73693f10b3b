//! Counters of a server. Each engine has its own counts and adds them once per batch, so two
//! busy connections do not contend for a cache line per request.

use super::wire::command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Names of the commands, in the order of the protocol; the last one covers unknown commands.
pub const COMMANDS: [&str; 9] = [
    "read",
    "write",
    "disconnect",
    "flush",
    "trim",
    "cache",
    "write_zeroes",
    "block_status",
    "unknown",
];

/// Counts of one engine since it last added them to the server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Requests by index into [`COMMANDS`].
    pub(crate) requests: [u32; COMMANDS.len()],
    /// Requests answered with an error.
    pub(crate) errors: u64,
    /// Bytes read.
    pub(crate) read: u64,
    /// Bytes of payload received by writes.
    pub(crate) written: u64,
}

impl Tally {
    /// Counts a request.
    pub(crate) fn count(&mut self, command: u16) {
        self.requests[usize::from(command.min(command::BLOCK_STATUS + 1))] += 1;
    }
}

/// Counters and gauges of a server, shared by its connections.
#[derive(Debug, Default)]
pub struct NbdStats {
    /// Connections accepted.
    pub(crate) accepted: AtomicU64,
    /// Connections evicted for a newer one: before the end of their handshake, or stalled in the
    /// middle of a message.
    pub(crate) evicted: AtomicU64,
    /// Connections refused because all are in use, with or without a reply.
    pub(crate) refused: AtomicU64,
    /// Connections dropped for invalid or missing data.
    pub(crate) dropped: AtomicU64,
    /// Gauge: connections in the handshake.
    pub(crate) negotiating: AtomicU64,
    /// Gauge: connections in transmission.
    pub(crate) connected: AtomicU64,
    /// Gauge: requests whose reply has not been sent.
    pub(crate) in_flight: AtomicU64,
    requests: [AtomicU64; COMMANDS.len()],
    errors: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
}

/// A snapshot of [`NbdStats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NbdSnapshot {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections evicted for a newer one.
    pub evicted: u64,
    /// Connections refused because all were in use.
    pub refused: u64,
    /// Connections dropped for invalid or missing data.
    pub dropped: u64,
    /// Connections in the handshake now.
    pub negotiating: u64,
    /// Connections in transmission now.
    pub connected: u64,
    /// Requests whose reply has not been sent.
    pub in_flight: u64,
    /// Requests by index into [`COMMANDS`].
    pub requests: [u64; COMMANDS.len()],
    /// Requests answered with an error.
    pub errors: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes of payload received by writes.
    pub written: u64,
}

impl NbdStats {
    /// Returns all values, each of them up to date by itself.
    pub fn snapshot(&self) -> NbdSnapshot {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        NbdSnapshot {
            accepted: get(&self.accepted),
            evicted: get(&self.evicted),
            refused: get(&self.refused),
            dropped: get(&self.dropped),
            negotiating: get(&self.negotiating),
            connected: get(&self.connected),
            in_flight: get(&self.in_flight),
            requests: self.requests.each_ref().map(get),
            errors: get(&self.errors),
            read: get(&self.read),
            written: get(&self.written),
        }
    }

    /// Adds an engine's counts.
    pub(crate) fn add(&self, tally: &Tally) {
        let add = |counter: &AtomicU64, n: u64| {
            if n > 0 {
                counter.fetch_add(n, Relaxed);
            }
        };
        for (counter, n) in self.requests.iter().zip(tally.requests) {
            add(counter, n.into());
        }
        add(&self.errors, tally.errors);
        add(&self.read, tally.read);
        add(&self.written, tally.written);
    }
}

/// A variable part of a gauge; dropping it subtracts the part.
#[derive(Debug)]
pub(super) struct Share<'a> {
    gauge: &'a AtomicU64,
    amount: u64,
}

impl<'a> Share<'a> {
    pub(super) fn of(gauge: &'a AtomicU64, amount: u64) -> Self {
        gauge.fetch_add(amount, Relaxed);
        Share { gauge, amount }
    }

    pub(super) fn set(&mut self, amount: u64) {
        if amount != self.amount {
            // Wrapping, like the atomic itself: the sum of all shares is never negative.
            let before = self
                .gauge
                .fetch_add(amount.wrapping_sub(self.amount), Relaxed);
            debug_assert!(
                before >= self.amount,
                "a gauge of {before} contains a share of {}",
                self.amount
            );
            self.amount = amount;
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}
