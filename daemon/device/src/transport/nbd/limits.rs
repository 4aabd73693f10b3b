//! Limits on the resources that a peer uses.

use std::time::Duration;

/// Bounds on every connection. The daemon uses the defaults, tests use smaller values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest time from accept to the end of the handshake, whatever the peer sends.
    pub handshake: Duration,
    /// Longest silence in the middle of a message, in either direction. Between messages a client
    /// may be silent forever.
    pub stall: Duration,
    /// Bound of both, `stall` and the handshake, for a connection whose place another client needs.
    pub patience: Duration,
    /// Longest time that a shutdown waits for requests in flight and their replies.
    pub drain: Duration,
    /// Time for which a handshake is not evicted when all connections are in use. Until a
    /// connection may be evicted, newcomers wait in the listener's queue.
    pub grace: Duration,
    /// Maximum number of connections. When all are in use, a newcomer evicts the oldest handshake
    /// beyond `patience`. Otherwise it evicts the longest silence beyond `patience` in the middle
    /// of a message, else the oldest handshake. Without any of them, the newcomer is refused.
    pub connections: usize,
    /// Maximum number of refusals in progress; further newcomers are closed without a reply.
    pub refusals: usize,
    /// Maximum number of options in one handshake.
    pub options: u32,
    /// Maximum bytes of one option's data; more is answered with `ERR_TOO_BIG`.
    pub option_len: u32,
    /// Maximum bytes of an oversized option's data that are read and dropped; more ends the
    /// session.
    pub option_skip: u32,
    /// Maximum bytes of an export name.
    pub name_len: usize,
    /// Maximum bytes of payload of one READ or WRITE; clients may expect at least 32 MiB.
    pub payload: u32,
    /// Maximum requests of one connection whose reply has not been sent.
    pub in_flight: usize,
    /// Bytes of unsent replies at which no further request is begun.
    pub backlog: usize,
    /// Larger reads and writes pass in pieces of this size, at multiples of it. With `backlog` it
    /// bounds the memory of one connection to about `2 * piece + backlog`. All connections together
    /// thus use less than 256 MiB. Read data delayed for the emulated flash takes at most as much
    /// again.
    pub piece: usize,
    /// Time for which a connection with its own thread polls for the next request of a brisk client
    /// before it sleeps. It yields the processor between polls. Zero disables polling.
    pub linger: Duration,
    /// Bytes of each buffer of an idle connection; a little above `backlog`, so that a busy one
    /// need not grow it.
    pub resting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            handshake: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            patience: Duration::from_millis(500),
            grace: Duration::from_millis(20),
            drain: Duration::from_secs(3),
            connections: 64,
            refusals: 16,
            options: 32,
            option_len: 4096 + 64,
            option_skip: 64 << 10,
            name_len: 4096,
            payload: 32 << 20,
            in_flight: 128,
            backlog: 256 << 10,
            piece: 1 << 20,
            linger: Duration::from_micros(50),
            resting: 320 << 10,
        }
    }
}
