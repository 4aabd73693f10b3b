//! The chip, and the counters and buffers of its access.

use super::deferred::DeferredRun;
use super::findings::Findings;
use super::kept::MetadataCopies;
use crate::format::{Flags, OOB_SLOT, Oob};
use crate::ram::{run_pages, vec_bytes, vec_most};
use nand_model::{Chip, Geometry, Health, Nanos, Ppn, Store};

/// A chip with the counters that every program needs.
pub(crate) struct Flash {
    pub(super) chip: Chip,
    pub(super) now: Nanos,
    /// End of the latest program so far.
    pub(super) ended: Nanos,
    /// Time of a step of a mapping lookup in RAM.
    pub(super) ram_step_ns: Nanos,
    pub(super) pseq: u64,
    /// Set on every program but padding: the flags of a mount during one.
    pub(super) mark: Flags,
    /// Records of the current run, a slot each.
    pub(super) oobs: Vec<[u8; OOB_SLOT]>,
    /// Record and scheme part of the current page.
    pub(super) spare: Vec<u8>,
    pub(super) health: Vec<Health>,
    /// Results of a host read, page by page.
    pub(super) found: Vec<(Option<Oob>, bool)>,
    /// Runs that the current host read leaves to its caller; `None` if it copies them itself.
    pub(super) deferred: Option<Vec<DeferredRun>>,
    /// Only over a store that keeps no data.
    pub(super) kept: Option<MetadataCopies>,
    /// Of the mount in progress.
    pub(crate) findings: Findings,
}

/// Times of a request of several parts; see [`Flash::begin_parts`].
#[must_use]
pub(crate) struct Parts {
    /// Start of every part; `None` if one follows another.
    begin: Option<Nanos>,
    /// End of the parts so far.
    end: Nanos,
}

impl Flash {
    pub(crate) fn new(mut chip: Chip) -> Self {
        let mut kept = (!chip.store().keeps_data()).then(MetadataCopies::default);
        let left = chip.store_mut().take_data();
        if let Some(kept) = &mut kept {
            for (ppn, data) in left {
                kept.put(chip.geometry(), ppn, &data);
            }
        }
        Flash {
            chip,
            now: 0,
            ended: 0,
            ram_step_ns: 0,
            pseq: 0,
            mark: Flags::NONE,
            oobs: Vec::new(),
            spare: Vec::new(),
            health: Vec::new(),
            found: Vec::new(),
            deferred: None,
            kept,
            findings: Findings::default(),
        }
    }

    /// Returns the bytes of the buffers for runs of pages: now, and at most. A run has at most the
    /// pages of a block, or of an extent.
    pub(crate) fn ram(&self) -> (u64, u64) {
        let now = vec_bytes::<[u8; OOB_SLOT]>(self.oobs.capacity())
            + vec_bytes::<u8>(self.spare.capacity())
            + vec_bytes::<Health>(self.health.capacity())
            + vec_bytes::<(Option<Oob>, bool)>(self.found.capacity());
        let geometry = self.geometry();
        let run = run_pages(geometry.page_bytes).max(u64::from(geometry.pages_per_block));
        let most = vec_most::<[u8; OOB_SLOT]>(run)
            + vec_most::<u8>(u64::from(geometry.oob_bytes))
            + vec_most::<Health>(run)
            + vec_most::<(Option<Oob>, bool)>(run);
        (now, most)
    }

    pub(crate) fn chip(&self) -> &Chip {
        &self.chip
    }

    pub(crate) fn chip_mut(&mut self) -> &mut Chip {
        &mut self.chip
    }

    /// Returns the chip; the copies stay in its store for the next controller.
    pub(crate) fn into_chip(mut self) -> Chip {
        if let Some(kept) = self.kept.take() {
            let pages = kept.into_pages(self.chip.geometry());
            self.chip.store_mut().leave_data(pages);
        }
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

    /// Sets the time of a step of a mapping lookup in RAM.
    pub(crate) fn set_ram_step(&mut self, ns: Nanos) {
        self.ram_step_ns = ns;
    }

    /// Returns whether the steps of a mapping lookup take time.
    #[inline]
    pub(crate) fn times_ram(&self) -> bool {
        self.ram_step_ns > 0
    }

    /// Adds the time of these steps to the critical path.
    #[inline]
    pub(crate) fn add_ram_steps(&mut self, steps: u64) {
        self.now += steps * self.ram_step_ns;
    }

    /// Returns the end of the last operation on the critical path.
    pub(crate) fn now(&self) -> Nanos {
        self.now
    }

    /// Waits until all programs have ended, including those of overlapping requests, and cached
    /// ones in the cells, not only in a register. Returns that instant; a FLUSH ends with it.
    ///
    /// Operations that supersede pages permanently start here. A mapping page on one die must not
    /// be safe while a page that it names is torn on another. Likewise, a block must not be erased
    /// while the new versions of its pages are torn.
    pub(crate) fn wait(&mut self) -> Nanos {
        self.now = self.now.max(self.ended);
        self.now
    }

    /// Begins a request of several parts, pages or runs of pages. On a device of several dies, or
    /// with multi-plane commands, they start together, and each waits for its die and bus;
    /// otherwise one follows another.
    #[inline]
    pub(crate) fn begin_parts(&self) -> Parts {
        Parts {
            begin: (self.geometry().places() > 1).then_some(self.now),
            end: self.now,
        }
    }

    /// Starts the next part.
    #[inline]
    pub(crate) fn next_part(&mut self, parts: &mut Parts) {
        if let Some(begin) = parts.begin {
            parts.end = parts.end.max(self.now);
            self.now = begin;
        }
    }

    /// Makes later parts start here at the earliest: they needed the mapping that this part has
    /// just read.
    #[inline]
    pub(crate) fn delay_parts(&self, parts: &mut Parts) {
        parts.begin = parts.begin.map(|begin| begin.max(self.now));
    }

    /// Waits for all parts.
    #[inline]
    pub(crate) fn end_parts(&mut self, parts: Parts) {
        self.now = self.now.max(parts.end);
    }

    /// Records a program that ends at this instant.
    #[inline(always)]
    pub(super) fn proceed(&mut self, done: Nanos) {
        debug_assert!(
            done >= self.now,
            "a program that starts at {} ns ends at {done} ns",
            self.now
        );
        self.now = done;
        self.ended = self.ended.max(done);
    }

    /// Returns the sequence number of the last program.
    pub(crate) fn pseq(&self) -> u64 {
        self.pseq
    }

    /// Numbers the following programs above this one: a mount found it, or a version reached it.
    pub(crate) fn observe_pseq(&mut self, pseq: u64) {
        self.pseq = self.pseq.max(pseq);
    }

    /// Replaces the mark of all following programs, copies included.
    pub(crate) fn set_mark(&mut self, mark: Flags) {
        self.mark = mark;
    }

    /// Discards the kept data of a page that no scheme will read again, if the store keeps no data.
    #[inline]
    pub(crate) fn forget(&mut self, ppn: Ppn) {
        if let Some(kept) = &mut self.kept {
            kept.remove(self.chip.geometry(), ppn);
        }
    }
}
