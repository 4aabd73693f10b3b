//! Costs of flushes and reorganisations, and the adaptation of `k_empty` to them (end of section
//! 4.4).
//!
//! Fine-grained mapping pays if a partial superblock is updated again before it is reorganised.
//! Then its unchanged neighbours were never copied. If it is reorganised first, its superblock is
//! copied after all. So the paper raises `k_empty` if most partial superblocks are reorganised
//! without an update; as merges cost more then, it observes these, too. It gives no figures. Here,
//! every 64 flushed superblocks, `k_empty` grows by one if more quarters were reorganised without
//! an update than were updated. Else it falls by one if flushes copied more pages than
//! reorganisations. A mount forgets which quarters wait for their update.

use super::shape::QUARTERS;
use crate::int::index;
use crate::ram::vec_bytes;

/// Flush costs and the adapted `k_empty`.
pub(super) struct Cost {
    /// Number of superblocks flushed.
    pub(super) flushed: u64,
    /// Pages copied together with flushed ones, and to reassemble superblocks: in this window, and
    /// since the beginning.
    merged: [u64; 2],
    reorganised: [u64; 2],
    /// By logical superblock, a bit for each quarter that was flushed apart and not updated since.
    apart: Vec<u8>,
    /// Quarters flushed apart that were updated, and that were reorganised without an update: in
    /// this window.
    updated: u64,
    unchanged: u64,
    fixed: Option<u32>,
    pub(super) k_empty: u32,
    /// By logical superblock: its last write, in superblocks flushed.
    pub(super) written: Vec<u64>,
}

impl Cost {
    pub(super) fn new(logical: u32, k_empty: Option<u32>) -> Self {
        Cost {
            flushed: 0,
            merged: [0; 2],
            reorganised: [0; 2],
            apart: vec![0; index(logical)],
            updated: 0,
            unchanged: 0,
            fixed: k_empty,
            k_empty: k_empty.unwrap_or(FIRST_K_EMPTY),
            written: vec![0; index(logical)],
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        vec_bytes::<u8>(self.apart.capacity()) + vec_bytes::<u64>(self.written.capacity())
    }

    /// Counts a quarter that is flushed, with new pages if it `is_updated`, and without its whole
    /// superblock if it `is_apart`.
    pub(super) fn note_quarter(&mut self, quarter: u32, is_apart: bool, is_updated: bool) {
        let bit = 1 << (quarter % QUARTERS);
        let apart = &mut self.apart[index(quarter / QUARTERS)];
        self.updated += u64::from(*apart & bit != 0 && is_updated);
        *apart = if is_apart {
            *apart | bit
        } else {
            *apart & !bit
        };
    }

    /// Counts a flushed superblock, and the unchanged pages copied for it.
    pub(super) fn note_flush(&mut self, copied: u64) {
        self.flushed += 1;
        self.merged = self.merged.map(|pages| pages + copied);
        if self.fixed.is_none() && self.flushed.is_multiple_of(WINDOW) {
            self.adapt();
        }
    }

    /// Counts a reassembled superblock, and the pages copied for it.
    pub(super) fn note_reorganisation(&mut self, logical: u32, copied: u64) {
        self.reorganised = self.reorganised.map(|pages| pages + copied);
        let apart = std::mem::take(&mut self.apart[index(logical)]);
        self.unchanged += u64::from(apart.count_ones());
    }

    fn adapt(&mut self) {
        if self.unchanged > self.updated {
            self.k_empty = (self.k_empty + 1).min(MAX_K_EMPTY);
        } else if self.merged[0] > self.reorganised[0] {
            self.k_empty = self.k_empty.saturating_sub(1);
        }
        (self.merged[0], self.reorganised[0]) = (0, 0);
        (self.updated, self.unchanged) = (0, 0);
    }

    /// Returns the pages copied together with flushed ones, and by reorganisation.
    #[cfg(test)]
    pub(super) fn copies(&self) -> (u64, u64) {
        (self.merged[1], self.reorganised[1])
    }
}

/// Number of superblocks flushed between two adaptations of `k_empty`.
const WINDOW: u64 = 64;

/// Initial `k_empty` if it adapts.
const FIRST_K_EMPTY: u32 = 3;

/// Largest `k_empty`: superblocks are always flushed whole.
pub(super) const MAX_K_EMPTY: u32 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    /// Flushes the quarters 0 to 9 apart, then updates some of them and reorganises the
    /// superblocks of all; ends the window with these copies. Returns `k_empty`.
    fn window(cost: &mut Cost, updated: u32, merged: u64, reorganised: u64) -> u32 {
        (0..10).for_each(|quarter| cost.note_quarter(quarter, true, true));
        (0..updated).for_each(|quarter| cost.note_quarter(quarter, false, true));
        (0..3).for_each(|logical| cost.note_reorganisation(logical, reorganised));
        (0..WINDOW).for_each(|_| cost.note_flush(merged));
        cost.k_empty
    }

    #[test]
    fn it_grows_if_most_partial_superblocks_are_reorganised_without_an_update() {
        let mut cost = Cost::new(3, None);
        let first = cost.k_empty;
        assert_eq!(
            window(&mut cost, 4, 1_000, 1),
            first + 1,
            "6 of 10, whatever the copies"
        );
        assert_eq!(
            window(&mut cost, 5, 1, 1_000),
            first + 1,
            "half of them; few merges"
        );
        assert_eq!(window(&mut cost, 5, 1_000, 1), first, "merges cost more");
        (0..10).for_each(|_| _ = window(&mut cost, 10, 1_000, 0));
        assert_eq!(cost.k_empty, 0);
        (0..10).for_each(|_| _ = window(&mut cost, 0, 1_000, 0));
        assert_eq!(cost.k_empty, MAX_K_EMPTY);
    }

    /// A superblock flushed whole with no new page in a quarter is no update of that quarter, and
    /// nothing is left to reorganise.
    #[test]
    fn only_new_pages_are_an_update() {
        let mut cost = Cost::new(1, None);
        (0..4).for_each(|quarter| cost.note_quarter(quarter, true, true));
        (0..4).for_each(|quarter| cost.note_quarter(quarter, false, quarter == 0));
        cost.note_reorganisation(0, 0);
        assert_eq!((cost.updated, cost.unchanged), (1, 0));
    }

    #[test]
    fn a_fixed_value_stays() {
        let mut cost = Cost::new(3, Some(5));
        assert_eq!(window(&mut cost, 0, 0, 100), 5);
        assert_eq!(window(&mut cost, 10, 100, 0), 5);
    }
}
