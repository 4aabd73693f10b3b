//! What the host asked for, counted without a lock: operations, bytes, errors, latencies, requests
//! under way.

use super::histogram::{Histogram, HistogramView};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use strum::{EnumCount, IntoStaticStr, VariantArray, VariantNames};

/// A verb of the host.
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
    /// Its place in a table with one entry for each.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Lower-case name, as in metric labels.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Errors the host can be given, by class.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, EnumCount, IntoStaticStr, VariantArray, VariantNames,
)]
#[strum(serialize_all = "snake_case")]
#[repr(usize)]
pub enum ErrorClass {
    /// Data lost, image unreadable, power lost, our own failure.
    Eio,
    /// No room on the host, or a write beyond the end.
    Enospc,
    /// A read or trim beyond the end.
    Einval,
    /// A write to a read-only device.
    Eperm,
}

impl ErrorClass {
    /// Its place in a table with one entry for each.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Lower-case name, as in metric labels.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Counters of one verb.
#[derive(Debug, Default)]
pub(super) struct OpCounter {
    pub(super) completed: AtomicU64,
    pub(super) held: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) in_flight: AtomicU64,
    pub(super) unaligned: AtomicU64,
    pub(super) errors: [AtomicU64; ErrorClass::COUNT],
    pub(super) wall: Histogram,
    pub(super) emulated: Histogram,
}

/// Counters of all verbs.
#[derive(Debug, Default)]
pub struct HostCounters {
    ops: [OpCounter; Op::COUNT],
    /// Waits for the host's storage.
    pub(super) sync: Histogram,
}

/// Counters of one verb at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpView {
    /// Requests that ended well.
    pub completed: u64,
    /// How many of those waited for the emulated flash before their client heard of it.
    pub held: u64,
    /// Bytes of those that ended well.
    pub bytes: u64,
    /// Requests under way.
    pub in_flight: u64,
    /// Requests that needed a part of a page.
    pub unaligned: u64,
    /// Requests that failed, by [`ErrorClass`].
    pub errors: [u64; ErrorClass::COUNT],
    /// Time by the host's clock, waiting for the lock, for a sync and for the emulated flash
    /// included.
    pub wall: HistogramView,
    /// Time the emulated flash took.
    pub emulated: HistogramView,
}

/// Requests on their way somewhere, at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    /// How many are not answered yet.
    pub under_way: u64,
    /// How many were answered so far, well or not.
    pub answered: u64,
}

/// Counters of all verbs at one moment, in the order of [`Op`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostView {
    /// One entry per verb.
    pub ops: [OpView; Op::COUNT],
    /// Time that FLUSH and FUA waited for the image to reach the host's storage.
    pub sync: HistogramView,
}

impl HostCounters {
    #[inline]
    pub(super) fn of(&self, op: Op) -> &OpCounter {
        &self.ops[op.index()]
    }

    /// Requests under way: how deep the host's queue is, as far as the volume can see. A FLUSH that
    /// waits for a sync keeps the flash free.
    #[inline]
    pub(super) fn depth(&self) -> u64 {
        let under_way = |op: Op| self.of(op).in_flight.load(Relaxed);
        [Op::Read, Op::Write, Op::Trim, Op::WriteZeroes]
            .into_iter()
            .map(under_way)
            .sum()
    }

    /// What asks for the flash: all but FLUSH.
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
            under_way: self.depth(),
            answered: flash.into_iter().map(answered).sum(),
        }
    }

    /// The counters now.
    pub fn view(&self) -> HostView {
        let mut view = HostView {
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
    fn view(&self) -> OpView {
        let mut errors = [0; ErrorClass::COUNT];
        errors
            .iter_mut()
            .zip(&self.errors)
            .for_each(|(to, from)| *to = from.load(Relaxed));
        OpView {
            completed: self.completed.load(Relaxed),
            held: self.held.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            in_flight: self.in_flight.load(Relaxed),
            unaligned: self.unaligned.load(Relaxed),
            errors,
            wall: self.wall.view(),
            emulated: self.emulated.view(),
        }
    }
}

impl HostView {
    /// Counters of one verb.
    pub fn of(&self, op: Op) -> &OpView {
        &self.ops[op.index()]
    }
}
