//! What a server counts. Engines count for themselves and add up once per batch, so that two busy
//! connections do not fight over a cache line for every request.

use super::wire::command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Commands told apart, in the order of the protocol; the last one stands for unknown ones.
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

/// One engine's counts since it last handed them in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests by index into [`COMMANDS`].
    pub requests: [u32; COMMANDS.len()],
    /// Requests answered with an error.
    pub errors: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes of payload taken by writes.
    pub written: u64,
}

impl Tally {
    /// Counts a request.
    pub fn count(&mut self, command: u16) {
        self.requests[usize::from(command.min(command::BLOCK_STATUS + 1))] += 1;
    }
}

/// Counters and gauges of a server, shared by its connections.
#[derive(Debug, Default)]
pub struct NbdStats {
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Connections that made way for a newer one: before their handshake was done, or silent in the
    /// middle of a message.
    pub evicted: AtomicU64,
    /// Connections told, or not even told, that all are taken.
    pub refused: AtomicU64,
    /// Connections cut off for what they sent or failed to send in time.
    pub dropped: AtomicU64,
    /// Gauge: connections in the handshake.
    pub negotiating: AtomicU64,
    /// Gauge: connections in transmission.
    pub connected: AtomicU64,
    /// Gauge: requests whose reply is not on its way yet.
    pub in_flight: AtomicU64,
    requests: [AtomicU64; COMMANDS.len()],
    errors: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
}

/// [`NbdStats`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NbdSnapshot {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections that made way for a newer one.
    pub evicted: u64,
    /// Connections refused because all were taken.
    pub refused: u64,
    /// Connections cut off for what they sent or failed to send in time.
    pub dropped: u64,
    /// Connections in the handshake now.
    pub negotiating: u64,
    /// Connections in transmission now.
    pub connected: u64,
    /// Requests whose reply is not on its way yet.
    pub in_flight: u64,
    /// Requests by index into [`COMMANDS`].
    pub requests: [u64; COMMANDS.len()],
    /// Requests answered with an error.
    pub errors: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes of payload taken by writes.
    pub written: u64,
}

impl NbdStats {
    /// All values, each by itself up to date.
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
    pub fn add(&self, tally: &Tally) {
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

/// Raises a gauge by an amount that changes, and takes it back when dropped.
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
            self.gauge
                .fetch_add(amount.wrapping_sub(self.amount), Relaxed);
            self.amount = amount;
        }
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.set(0);
    }
}
