//! Time that host writes wait for other work, by the cause of that work.
//!
//! Work of one cause may contain work of another: GC needs a block, for which a conversion runs.
//! Time counts for the innermost work. It is measured where work begins and ends, at no cost per
//! page.

use nand_model::{Cause, Nanos};

/// Host writes that waited for work of one cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StallTotals {
    /// Writes that waited; a write of several pages counts once.
    pub writes: u64,
    /// Emulated time that they waited.
    pub total_ns: Nanos,
}

/// Totals by cause, and the write in progress.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalls {
    by_cause: [StallTotals; Cause::COUNT],
    /// Whether a host write is in progress. Other work is not counted.
    is_writing: bool,
    /// Causes for which this write has waited, one bit each.
    waited: u32,
    /// Time of the work that ended inside the current work.
    inner_ns: Nanos,
}

/// Work in progress.
#[must_use]
pub(crate) struct Work {
    began: Nanos,
    /// Time of earlier work inside the work around this one.
    outer_ns: Nanos,
}

impl Stalls {
    /// Returns the totals, in the order of [`Cause::ALL`].
    pub(crate) fn by_cause(&self) -> [StallTotals; Cause::COUNT] {
        self.by_cause
    }

    /// Begins a host write.
    #[inline]
    pub(crate) fn begin_write(&mut self) {
        (self.is_writing, self.waited, self.inner_ns) = (true, 0, 0);
    }

    /// Ends a host write.
    #[inline]
    pub(crate) fn end_write(&mut self) {
        self.is_writing = false;
    }

    /// Begins work at this instant.
    pub(crate) fn begin(&mut self, now: Nanos) -> Work {
        Work {
            began: now,
            outer_ns: std::mem::take(&mut self.inner_ns),
        }
    }

    /// Ends work. Work that takes no time is no stall.
    pub(crate) fn end(&mut self, work: Work, now: Nanos, cause: Cause) {
        let took = now.saturating_sub(work.began);
        let own = took.saturating_sub(self.inner_ns);
        self.inner_ns = work.outer_ns + took;
        if own == 0 || !self.is_writing {
            return;
        }
        let bit = 1 << cause.index();
        let totals = &mut self.by_cause[cause.index()];
        totals.writes += u64::from(self.waited & bit == 0);
        totals.total_ns += own;
        self.waited |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_counts_for_the_innermost_work_and_a_write_once() {
        let mut stalls = Stalls::default();
        stalls.begin_write();
        let gc = stalls.begin(100);
        let convert = stalls.begin(110);
        stalls.end(convert, 140, Cause::Convert);
        let convert = stalls.begin(150);
        stalls.end(convert, 155, Cause::Convert);
        let nothing = stalls.begin(160);
        stalls.end(nothing, 160, Cause::Wear);
        stalls.end(gc, 200, Cause::Gc);
        stalls.end_write();
        let of = |stalls: &Stalls, cause: Cause| {
            let totals = stalls.by_cause()[cause.index()];
            (totals.writes, totals.total_ns)
        };
        assert_eq!(of(&stalls, Cause::Gc), (1, 65));
        assert_eq!(of(&stalls, Cause::Convert), (1, 35));
        assert_eq!(of(&stalls, Cause::Wear), (0, 0));
        // Work in the background stalls no write.
        let gc = stalls.begin(300);
        stalls.end(gc, 400, Cause::Gc);
        assert_eq!(of(&stalls, Cause::Gc), (1, 65));
    }
}
