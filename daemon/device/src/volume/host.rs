//! Host requests, counted without a lock: operations, bytes, errors, latencies, requests in flight.

use super::histogram::{Histogram, HistogramView};
use crate::by_name::ByName;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strum::{EnumCount, IntoStaticStr, VariantArray, VariantNames};

/// A host operation.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray, VariantNames,
)]
#[strum(serialize_all = "snake_case")]
#[repr(usize)]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write,
    /// FLUSH, and the second half of FUA.
    Flush,
    /// TRIM or DISCARD.
    #[strum(serialize = "discard")]
    Trim,
    /// WRITE ZEROES.
    WriteZeroes,
}

impl Op {
    /// Returns the index of this operation in a table with one entry per operation.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the lower-case name, as in metric labels.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Errors returned to the host, by class.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray, VariantNames,
)]
#[strum(serialize_all = "snake_case")]
#[repr(usize)]
pub enum ErrorClass {
    /// Data lost, image unreadable, power lost, internal error.
    Eio,
    /// No space on the host, or a write beyond the end.
    Enospc,
    /// A read or trim beyond the end.
    Einval,
    /// A write to a read-only device.
    Eperm,
}

crate::by_name::named!(ErrorClass, Op);

impl ErrorClass {
    /// Returns the index of this class in a table with one entry per class.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the lower-case name, as in metric labels.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Upper bounds of the classes of request sizes in bytes: 512 B to 32 MiB.
pub const SIZE_BOUNDS: [u64; 12] = [
    512,
    4 << 10,
    8 << 10,
    16 << 10,
    32 << 10,
    64 << 10,
    128 << 10,
    256 << 10,
    512 << 10,
    1 << 20,
    4 << 20,
    32 << 20,
];

/// Counters of one operation.
#[derive(Debug, Default)]
pub(super) struct OpCounter {
    pub(super) completed: AtomicU64,
    pub(super) delayed: AtomicU64,
    pub(super) bytes: AtomicU64,
    sizes: [AtomicU64; SIZE_BOUNDS.len() + 1],
    pub(super) in_flight: AtomicU64,
    pub(super) unaligned: AtomicU64,
    pub(super) errors: [AtomicU64; ErrorClass::COUNT],
    pub(super) wall: Histogram,
    pub(super) emulated: Histogram,
}

/// Counters of all operations.
#[derive(Debug, Default)]
pub struct HostCounters {
    ops: [OpCounter; Op::COUNT],
    /// Requests with FUA.
    pub(super) fua: AtomicU64,
    /// Extents of reads that the scheme read again, because a page was not good outside the lock.
    pub(super) reads_repeated: AtomicU64,
    /// Waits for the host's storage.
    pub(super) sync: Histogram,
}

/// Counters of one operation at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpView {
    /// Requests that succeeded.
    pub completed: u64,
    /// Succeeded requests whose completion was delayed for the emulated flash.
    pub delayed: u64,
    /// Bytes of the succeeded requests.
    pub bytes: u64,
    /// Succeeded requests by size, not cumulative, with [`SIZE_BOUNDS`] as upper bounds. The last
    /// class has no bound. Not in the status.
    #[serde(skip)]
    pub sizes: [u64; SIZE_BOUNDS.len() + 1],
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests that covered a part of a page.
    pub unaligned: u64,
    /// Requests that failed, by [`ErrorClass`].
    #[serde(with = "ByName::<ErrorClass>")]
    pub errors: [u64; ErrorClass::COUNT],
    /// Wall-clock time, with the waits for the lock, for a sync and for the emulated flash.
    pub wall: HistogramView,
    /// Emulated flash time.
    pub emulated: HistogramView,
}

/// Requests of a queue at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// Requests without an answer yet.
    pub(crate) in_flight: u64,
    /// Requests answered so far, successful or failed.
    pub(crate) answered: u64,
}

/// Counters of all operations at one moment, in the order of [`Op`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostView {
    /// One entry per operation.
    pub ops: [OpView; Op::COUNT],
    /// Requests with FUA.
    pub fua: u64,
    /// Extents of reads that the scheme read again, because a page was not good outside the lock.
    pub reads_repeated: u64,
    /// Time that FLUSH and FUA waited for the image to reach the host's storage.
    pub sync: HistogramView,
}

impl HostCounters {
    #[inline]
    pub(super) fn of(&self, op: Op) -> &OpCounter {
        &self.ops[op.index()]
    }

    /// Returns the requests in flight: the depth of the host's queue as far as the volume can see
    /// it. FLUSH is not counted: it waits for a sync and leaves the flash idle.
    #[inline]
    pub(super) fn depth(&self) -> u64 {
        let in_flight = |op: Op| self.of(op).in_flight.load(Relaxed);
        [Op::Read, Op::Write, Op::Trim, Op::WriteZeroes]
            .into_iter()
            .map(in_flight)
            .sum()
    }

    /// Returns the requests that use the flash: all but FLUSH.
    pub(super) fn queue(&self) -> Queue {
        let flash = [Op::Read, Op::Write, Op::Trim, Op::WriteZeroes];
        let answered = |op: Op| {
            let counter = self.of(op);
            counter.completed.load(Relaxed)
                + counter
                    .errors
                    .iter()
                    .map(|count| count.load(Relaxed))
                    .sum::<u64>()
        };
        Queue {
            in_flight: self.depth(),
            answered: flash.into_iter().map(answered).sum(),
        }
    }

    /// Returns the current counters.
    pub(crate) fn view(&self) -> HostView {
        let mut view = HostView {
            fua: self.fua.load(Relaxed),
            reads_repeated: self.reads_repeated.load(Relaxed),
            sync: self.sync.view(),
            ..HostView::default()
        };
        view.ops
            .iter_mut()
            .zip(&self.ops)
            .for_each(|(to, from)| *to = from.view());
        view
    }
}

impl OpCounter {
    /// Counts a request that succeeded.
    pub(super) fn complete(&self, bytes: u64) {
        let class = SIZE_BOUNDS.iter().position(|&most| bytes <= most);
        self.completed.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.sizes[class.unwrap_or(SIZE_BOUNDS.len())].fetch_add(1, Relaxed);
    }

    fn view(&self) -> OpView {
        let mut errors = [0; ErrorClass::COUNT];
        errors
            .iter_mut()
            .zip(&self.errors)
            .for_each(|(to, from)| *to = from.load(Relaxed));
        OpView {
            completed: self.completed.load(Relaxed),
            delayed: self.delayed.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            sizes: self.sizes.each_ref().map(|count| count.load(Relaxed)),
            in_flight: self.in_flight.load(Relaxed),
            unaligned: self.unaligned.load(Relaxed),
            errors,
            wall: self.wall.view(),
            emulated: self.emulated.view(),
        }
    }
}

impl HostView {
    /// Returns the counters of one operation.
    pub fn of(&self, op: Op) -> &OpView {
        &self.ops[op.index()]
    }
}
