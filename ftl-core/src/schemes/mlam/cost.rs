//! Costs of flushes and reorganisations, and the adaptation of `k_empty` to them.
use crate::int::index;
use crate::ram::vec_bytes;

/// Flush costs and the adapted `k_empty`.
pub(super) struct Cost {
    /// Number of superblocks flushed.
    pub(super) flushed: u64,
    /// Pages copied together with flushed ones, and to reassemble superblocks: in this window, and
    /// since the beginning.
    pub(super) merged: [u64; 2],
    pub(super) reorganised: [u64; 2],
    /// Number of consecutive windows without reorganisation.
    pub(super) quiet: u32,
    pub(super) fixed: Option<u32>,
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
            quiet: 0,
            fixed: k_empty,
            k_empty: k_empty.unwrap_or(FIRST_K_EMPTY),
            written: vec![0; index(logical)],
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        vec_bytes::<u64>(self.written.capacity())
    }

    /// Counts a flushed superblock. If reorganisation costs more than merges, `k_empty` grows:
    /// coarser mapping. If reorganisation costs nothing, `k_empty` shrinks: finer mapping.
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
            "k_empty is {}, the maximum is 7",
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

    /// Returns the pages copied together with flushed ones, and by reorganisation.
    #[cfg(test)]
    pub(super) fn copies(&self) -> (u64, u64) {
        (self.merged[1], self.reorganised[1])
    }
}

/// Number of superblocks flushed between two adaptations of `k_empty`.
pub(super) const WINDOW: u64 = 64;

/// Initial `k_empty` if it adapts.
pub(super) const FIRST_K_EMPTY: u32 = 3;
