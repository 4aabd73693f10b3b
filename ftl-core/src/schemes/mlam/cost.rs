//! What flushes and reorganisations cost, and the `k_empty` that follows.
use crate::convert::{index, to_u64};

/// What flushing costs, and what follows from it.
pub(super) struct Cost {
    /// Superblocks flushed.
    pub(super) flushed: u64,
    /// Pages copied along with flushed ones, and to put superblocks together: in this window, and
    /// since the beginning.
    pub(super) merged: [u64; 2],
    pub(super) reorganised: [u64; 2],
    /// Windows in a row without reorganisation.
    pub(super) quiet: u32,
    pub(super) fixed: Option<u32>,
    pub(super) k_empty: u32,
    /// By logical superblock: when it was written last, in superblocks flushed.
    pub(super) written: Vec<u64>,
}

impl Cost {
    pub(super) fn new(logical: u32, k_empty: Option<u32>) -> Self {
        Cost {
            flushed: 0,
            merged: [0; 2],
            reorganised: [0; 2],
            quiet: 0,
            fixed: k_empty,
            k_empty: k_empty.unwrap_or(FIRST_K_EMPTY),
            written: vec![0; index(logical)],
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        8 * to_u64(self.written.len())
    }

    /// A superblock was flushed. Where reorganisation costs more than merges, coarser mapping is
    /// worth it; where it costs nothing, finer mapping is.
    pub(super) fn note_flush(&mut self, copied: u64) {
        self.flushed += 1;
        self.merged = self.merged.map(|pages| pages + copied);
        if self.fixed.is_some() || !self.flushed.is_multiple_of(WINDOW) {
            return;
        }
        let (merged, reorganised) = (
            std::mem::take(&mut self.merged[0]),
            std::mem::take(&mut self.reorganised[0]),
        );
        self.quiet = if reorganised == 0 { self.quiet + 1 } else { 0 };
        if reorganised > merged {
            self.k_empty = (self.k_empty + 1).min(7);
        } else if merged > 2 * reorganised && self.quiet >= 2 {
            self.k_empty = self.k_empty.saturating_sub(1);
        }
        assert!(
            self.k_empty <= 7,
            "{} empty logical blocks of 8",
            self.k_empty
        );
    }

    pub(super) fn note_reorganisation(&mut self, copied: u64) {
        self.reorganised = self.reorganised.map(|pages| pages + copied);
    }

    #[cfg(test)]
    pub(super) fn k_empty(&self) -> u32 {
        self.k_empty
    }

    /// Pages copied along with flushed ones, and by reorganisation.
    #[cfg(test)]
    pub(super) fn copies(&self) -> (u64, u64) {
        (self.merged[1], self.reorganised[1])
    }
}

/// Superblocks flushed between two looks at `k_empty`.
pub(super) const WINDOW: u64 = 64;

/// Where `k_empty` begins if it adapts.
pub(super) const FIRST_K_EMPTY: u32 = 3;
