//! What a peer may cost us.

use std::time::Duration;

/// Bounds on every connection; the defaults are what the daemon runs with, tests shrink them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From accept to the end of the handshake, however busy the peer keeps us.
    pub handshake: Duration,
    /// Longest silence in the middle of a message, in either direction. Between messages a client
    /// may be silent for ever.
    pub stall: Duration,
    /// The same, and the longest handshake, of a connection that another one wants to take the
    /// place of.
    pub patience: Duration,
    /// How long a shutdown waits for requests under way and their replies.
    pub drain: Duration,
    /// How long a handshake is left alone when all connections are taken. Until somebody may be
    /// made to go, newcomers wait in the listener's queue.
    pub grace: Duration,
    /// Connections at once. When all are taken, the oldest handshake beyond `patience` makes way
    /// for a newcomer, else the longest silence in the middle of a message beyond it, else the
    /// oldest handshake; without any of them the newcomer is told so.
    pub connections: usize,
    /// Newcomers being told so at once; more are closed without a word.
    pub refusals: usize,
    /// Options in one handshake.
    pub options: u32,
    /// Bytes of one option's data; more is answered `ERR_TOO_BIG`.
    pub option_len: u32,
    /// Bytes of an oversized option's data that are read and dropped; more ends the session.
    pub option_skip: u32,
    /// Bytes of an export name.
    pub name_len: usize,
    /// Bytes of payload of one READ or WRITE; at least 32 MiB is what clients may expect.
    pub payload: u32,
    /// Requests of one connection whose reply is not on its way yet.
    pub in_flight: usize,
    /// Bytes of replies after which no further request is begun until they are on their way.
    pub backlog: usize,
    /// Larger reads and writes pass in pieces of this size, at multiples of it. With `backlog` it
    /// bounds what one connection has in memory: at most about `2 * piece + backlog`, and so what
    /// all of them do, less than 256 MiB; as much again while read data is held for the emulated
    /// flash.
    pub piece: usize,
    /// How long a connection with a thread of its own looks for the next request of a brisk client
    /// before it sleeps. It gives the processor away to whoever wants it meanwhile. Zero never
    /// lingers.
    pub linger: Duration,
    /// Bytes of either buffer of an idle connection; a little above `backlog`, so that a busy one
    /// need not stretch.
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
