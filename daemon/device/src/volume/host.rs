//! Host requests, counted without a lock: operations, bytes, errors, latencies, requests in flight.
//!
//! Each thread counts in a cell of cache lines that few others write; a reader adds the cells up.

use super::histogram::{Histogram, HistogramView};
use crate::by_name::ByName;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
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
    pub(super) unaligned: AtomicU64,
    pub(super) errors: [AtomicU64; ErrorClass::COUNT],
    pub(super) wall: Histogram,
    pub(super) emulated: Histogram,
}

/// Cells of the counters. More threads share them.
const CELLS: usize = 16;

/// Threads that have counted requests so far, of any device.
static THREADS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// The cell of this thread.
    static OWN: usize = THREADS.fetch_add(1, Relaxed) % CELLS;
}

/// Counters of the requests of some threads. A request may end on another thread than it began on,
/// so a count of requests in flight has a meaning only as a sum, which wraps.
#[derive(Debug, Default)]
struct Cell {
    in_flight: InFlight,
    ops: Ops,
}

/// Requests in flight. Every request reads them, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct InFlight([AtomicU64; Op::COUNT]);

#[derive(Debug, Default)]
#[repr(align(128))]
struct Ops([OpCounter; Op::COUNT]);

/// Counters of all operations.
#[derive(Debug, Default)]
pub struct HostCounters {
    cells: Box<[Cell; CELLS]>,
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
    /// Returns the counters of an operation in which this thread counts.
    #[inline]
    pub(super) fn own(&self, op: Op) -> &OpCounter {
        &self.cells[OWN.with(|own| *own)].ops.0[op.index()]
    }

    /// Counts requests that begin.
    #[inline]
    pub(super) fn begin(&self, op: Op, requests: u64) {
        let cell = &self.cells[OWN.with(|own| *own)];
        cell.in_flight.0[op.index()].fetch_add(requests, Relaxed);
    }

    /// Counts requests that end.
    #[inline]
    pub(super) fn end(&self, op: Op, requests: u64) {
        let cell = &self.cells[OWN.with(|own| *own)];
        cell.in_flight.0[op.index()].fetch_sub(requests, Relaxed);
    }

    /// Returns the cells in which threads count.
    #[inline]
    fn used(&self) -> &[Cell] {
        &self.cells[..THREADS.load(Relaxed).min(CELLS)]
    }

    fn in_flight(&self, op: Op) -> u64 {
        let counts = self.used().iter().map(|cell| &cell.in_flight.0[op.index()]);
        at_least_none(counts.fold(0, |sum, count| sum.wrapping_add(count.load(Relaxed))))
    }

    /// Returns the bytes of succeeded requests.
    pub(super) fn bytes(&self, op: Op) -> u64 {
        let counters = self.used().iter().map(|cell| &cell.ops.0[op.index()]);
        counters.map(|counter| counter.bytes.load(Relaxed)).sum()
    }

    /// Returns the requests in flight: the depth of the host's queue as far as the volume can see
    /// it. FLUSH is not counted: it waits for a sync and leaves the flash idle.
    #[inline]
    pub(super) fn depth(&self) -> u64 {
        let of_flash = [Op::Read, Op::Write, Op::Trim, Op::WriteZeroes];
        at_least_none(self.used().iter().fold(0, |sum: u64, cell| {
            of_flash.iter().fold(sum, |sum, op| {
                sum.wrapping_add(cell.in_flight.0[op.index()].load(Relaxed))
            })
        }))
    }

    /// Returns the requests that use the flash: all but FLUSH.
    pub(super) fn queue(&self) -> Queue {
        let view = self.view();
        let answered = |op: Op| view.of(op).completed + view.of(op).errors.iter().sum::<u64>();
        let of_flash = [Op::Read, Op::Write, Op::Trim, Op::WriteZeroes];
        Queue {
            in_flight: self.depth(),
            answered: of_flash.into_iter().map(answered).sum(),
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
        for op in <Op as VariantArray>::VARIANTS {
            let of_op = &mut view.ops[op.index()];
            of_op.in_flight = self.in_flight(*op);
            for cell in self.used() {
                cell.ops.0[op.index()].add_to(of_op);
            }
        }
        view
    }
}

/// A sum over cells may have the end of a request and lack its beginning, which is a moment older.
fn at_least_none(sum: u64) -> u64 {
    sum.cast_signed().max(0).cast_unsigned()
}

impl OpCounter {
    /// Counts a request that succeeded.
    pub(super) fn complete(&self, bytes: u64) {
        let class = SIZE_BOUNDS.iter().position(|&most| bytes <= most);
        self.completed.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
        self.sizes[class.unwrap_or(SIZE_BOUNDS.len())].fetch_add(1, Relaxed);
    }

    fn add_to(&self, view: &mut OpView) {
        let add = |to: &mut u64, from: &AtomicU64| *to += from.load(Relaxed);
        add(&mut view.completed, &self.completed);
        add(&mut view.delayed, &self.delayed);
        add(&mut view.bytes, &self.bytes);
        add(&mut view.unaligned, &self.unaligned);
        let sizes = view.sizes.iter_mut().zip(&self.sizes);
        sizes.for_each(|(to, from)| add(to, from));
        let errors = view.errors.iter_mut().zip(&self.errors);
        errors.for_each(|(to, from)| add(to, from));
        view.wall.add(&self.wall.view());
        view.emulated.add(&self.emulated.view());
    }
}

impl HostView {
    /// Returns the counters of one operation.
    pub fn of(&self, op: Op) -> &OpView {
        &self.ops[op.index()]
    }
}
