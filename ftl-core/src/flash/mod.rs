//! The schemes' only door to the chip: encodes and decodes the OOB record, hands out program
//! sequence numbers, and carries the instant along a request's critical path.

mod kept;
mod program;
mod read;

use crate::format::{Flags, OOB_SLOT, Oob};
use kept::Kept;
use nand_model::{Chip, Geometry, Health, Nanos, Ppn, Store};

/// A chip with the counters that every program needs.
pub(crate) struct Flash<S> {
    chip: Chip<S>,
    now: Nanos,
    /// When the last program that was begun will have ended.
    ended: Nanos,
    pseq: u64,
    /// Set on every program but filler: [`Flags::PROVISIONAL`] while a mount runs.
    mark: Flags,
    /// Records of the run at hand, a slot each.
    oobs: Vec<[u8; OOB_SLOT]>,
    /// Record and scheme part of the page at hand.
    spare: Vec<u8>,
    health: Vec<Health>,
    /// What a host read found, page by page.
    found: Vec<(Option<Oob>, bool)>,
    /// Only over a store that keeps no data.
    kept: Option<Kept>,
}

impl<S: Store> Flash<S> {
    pub(crate) fn new(chip: Chip<S>) -> Self {
        let kept = (!chip.store().keeps_data()).then(Kept::default);
        Flash {
            chip,
            now: 0,
            ended: 0,
            pseq: 0,
            mark: Flags::NONE,
            oobs: Vec::new(),
            spare: Vec::new(),
            health: Vec::new(),
            found: Vec::new(),
            kept,
        }
    }

    pub(crate) fn chip(&self) -> &Chip<S> {
        &self.chip
    }

    pub(crate) fn chip_mut(&mut self) -> &mut Chip<S> {
        &mut self.chip
    }

    pub(crate) fn into_chip(self) -> Chip<S> {
        self.chip
    }

    #[inline]
    pub(crate) fn geometry(&self) -> &Geometry {
        self.chip.geometry()
    }

    /// Sets the instant at which the next operation may start.
    pub(crate) fn begin(&mut self, at: Nanos) {
        self.now = at;
    }

    /// When the last operation on the critical path was done.
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Waits until all programs have ended, also those of requests that overlap with this one.
    /// Returns when.
    ///
    /// What supersedes pages for good starts here: a mapping page on one die must not be safe while
    /// a page it names is torn on another; nor may a block be gone while the pages that replace its
    /// own are torn.
    pub(crate) fn wait(&mut self) -> Nanos {
        self.now = self.now.max(self.ended);
        self.now
    }

    /// A program ends at this instant.
    #[inline(always)]
    pub(super) fn proceed(&mut self, done: Nanos) {
        self.now = done;
        self.ended = self.ended.max(done);
    }

    /// Sequence number of the last program.
    pub(crate) fn pseq(&self) -> u64 {
        self.pseq
    }

    /// Mount found a program with this number.
    pub(crate) fn saw_pseq(&mut self, pseq: u64) {
        self.pseq = self.pseq.max(pseq);
    }

    /// Marks what is programmed from now on, copies included, instead of what was marked before.
    pub(crate) fn set_mark(&mut self, mark: Flags) {
        self.mark = mark;
    }

    /// Nobody will read this page again: where the store keeps no data, neither does the
    /// controller.
    #[inline]
    pub(crate) fn forget(&mut self, ppn: Ppn) {
        if let Some(kept) = &mut self.kept {
            kept.remove(self.chip.geometry(), ppn);
        }
    }
}
