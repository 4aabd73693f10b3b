//! The stream of a device's requests, for schemes that follow it without data.
//!
//! [`Shadowed`] wraps a device. While a [`Tap`] is open, each request puts an entry into a ring,
//! and [`Requests`] takes them in the order in which the requests began: that of a replay.
//!
//! Invariants: a request takes no lock and makes no system call here. If the ring is full, its
//! entry is dropped and counted. Nothing here is stored, so power failure does not matter.

mod device;
mod order;

pub use device::Shadowed;
use ftld_kit::convert::nanos;
use ftld_traces::Op;
pub use order::Requests;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

/// Entries of the ring; about 12 MiB, from the first shadow to the end of the device.
const RING: usize = 1 << 18;

/// Changes the schemes that follow a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShadowCommand {
    /// Adds one, as `SCHEME[:KEY=VALUE,...]`.
    Add(String),
    /// Removes the one of this name.
    Rm(String),
}

/// A request of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Beginning, ns since the device started.
    pub ns: u64,
    /// Kind; a write of zeros is a trim.
    pub op: Op,
    /// First byte; 0 for a FLUSH.
    pub offset: u64,
    /// Bytes; 0 for a FLUSH.
    pub length: u64,
    /// Requests in flight when it began, itself included.
    pub depth: u32,
}

/// A request that has ended, in the ring. Without a request, it failed or has no bytes.
#[derive(Clone, Copy, Debug)]
struct Entry {
    seq: u64,
    request: Option<Request>,
}

/// The beginning of a request.
#[derive(Clone, Copy, Debug)]
struct Begun {
    seq: u64,
    ns: u64,
    depth: u32,
}

/// Passes a device's requests on.
pub struct Tap {
    origin: Instant,
    is_open: AtomicBool,
    /// Requests begun while the tap was open.
    begun: AtomicU64,
    in_flight: AtomicU64,
    dropped: AtomicU64,
    ring: OnceLock<SyncSender<Entry>>,
}

impl Default for Tap {
    fn default() -> Self {
        Tap {
            origin: Instant::now(),
            is_open: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            ring: OnceLock::new(),
        }
    }
}

impl Tap {
    /// Creates the ring. Returns the requests; `None` if they were taken before.
    pub fn take(&self) -> Option<Requests> {
        if self.ring.get().is_some() {
            return None;
        }
        let (ring, entries): (_, Receiver<Entry>) = sync_channel(RING);
        self.ring.set(ring).ok()?;
        Some(Requests::new(entries))
    }

    /// Begins or ends passing requests on.
    pub fn set_open(&self, is_open: bool) {
        self.is_open.store(is_open, Relaxed);
    }

    /// Returns the requests that the ring had no room for.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Notes the beginning of `count` requests.
    #[inline]
    fn begin(&self, count: u32) -> Option<Begun> {
        if !self.is_open.load(Relaxed) {
            return None;
        }
        let before = self.in_flight.fetch_add(count.into(), Relaxed);
        Some(Begun {
            seq: self.begun.fetch_add(count.into(), Relaxed),
            ns: nanos(self.origin.elapsed()),
            depth: u32::try_from(before)
                .unwrap_or(u32::MAX)
                .saturating_add(count),
        })
    }

    /// Passes a request on that has ended.
    #[inline]
    fn end(&self, begun: Begun, request: Option<(Op, u64, u64)>) {
        self.in_flight.fetch_sub(1, Relaxed);
        let request = request.map(|(op, offset, length)| Request {
            ns: begun.ns,
            op,
            offset,
            length,
            depth: begun.depth,
        });
        let entry = Entry {
            seq: begun.seq,
            request: request.filter(|request| request.op == Op::Flush || request.length > 0),
        };
        let ring = self.ring.get();
        if ring.is_none_or(|ring| ring.try_send(entry).is_err()) {
            self.dropped.fetch_add(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
