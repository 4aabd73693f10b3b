//! The blocks in SLC mode: their pages, their word lines and their times.
//!
//! Invariant: a block's mode follows from its number, so power failing changes no mode.

use super::device::Chip;
use crate::addr::Pbn;
use crate::pairing::{PairTable, Pairing};
use crate::profile::Profile;
use crate::store::Store;
use crate::timing::{CellTimes, Nanos};

/// What differs in the blocks of the region.
#[derive(Clone, Debug)]
pub(super) struct SlcBlocks {
    /// The first block behind the region; 0 without one.
    end: u32,
    /// Pages of a block.
    pages: u32,
    pub(super) pairs: PairTable,
    read_times: CellTimes,
    program_times: CellTimes,
    short_read_ns: Nanos,
}

impl SlcBlocks {
    /// The region of this part, whose other blocks have these pairs.
    pub(super) fn new(profile: &Profile, others: &PairTable) -> Self {
        let pages = profile.geometry.pages_per_block;
        // Tables for as many pages as the other blocks have: a read may name any page.
        let times = |ns: Nanos| CellTimes::new(&[ns; 4], others, pages);
        let (read_ns, program_ns) = profile
            .slc
            .map_or((0, 0), |region| (region.read_ns, region.program_ns));
        SlcBlocks {
            end: profile.slc_blocks(),
            pages: profile.slc_pages(),
            pairs: PairTable::new(Pairing::None, pages),
            read_times: times(read_ns),
            program_times: times(program_ns),
            short_read_ns: profile.timing.partial_read_ns.min(read_ns),
        }
    }

    /// Whether the block is in SLC mode.
    #[inline(always)]
    pub(super) fn contains(&self, block: Pbn) -> bool {
        block.raw() < self.end
    }
}

impl<S: Store> Chip<S> {
    /// Whether the block is in SLC mode.
    #[inline(always)]
    pub fn is_slc(&self, block: Pbn) -> bool {
        self.slc.contains(block)
    }

    /// Blocks in SLC mode: those with lower numbers.
    #[inline]
    pub fn slc_blocks(&self) -> u32 {
        self.slc.end
    }

    /// Pages that the block can take: fewer in SLC mode.
    #[inline(always)]
    pub fn pages_in(&self, block: Pbn) -> u32 {
        if self.is_slc(block) {
            self.slc.pages
        } else {
            self.profile.geometry.pages_per_block
        }
    }

    /// Which pages of the block share a word line: none in SLC mode.
    #[inline]
    pub fn pairs_of(&self, block: Pbn) -> &PairTable {
        if self.is_slc(block) {
            &self.slc.pairs
        } else {
            &self.pairs
        }
    }

    /// Cell times of the reads of a block.
    #[inline(always)]
    pub(super) fn read_times_of(&self, block: Pbn) -> &CellTimes {
        read_times(block, &self.slc, &self.read_times)
    }

    /// Cell time of a read of a block's spare bytes.
    #[inline(always)]
    pub(super) fn short_read_ns_of(&self, block: Pbn) -> Nanos {
        if self.is_slc(block) {
            self.slc.short_read_ns
        } else {
            self.profile.timing.partial_read_ns
        }
    }

    /// Cell times of the programs of a block.
    #[inline(always)]
    pub(super) fn program_times_of(&self, block: Pbn) -> &CellTimes {
        program_times(block, &self.slc, &self.program_times)
    }
}

/// Cell times of the programs of a block, for a caller that changes another part of the chip
/// meanwhile.
#[inline(always)]
pub(super) fn program_times<'a>(
    block: Pbn,
    slc: &'a SlcBlocks,
    others: &'a CellTimes,
) -> &'a CellTimes {
    if slc.contains(block) {
        &slc.program_times
    } else {
        others
    }
}

/// Cell times of the reads of a block, for a caller that changes another part of the chip
/// meanwhile.
#[inline(always)]
pub(super) fn read_times<'a>(
    block: Pbn,
    slc: &'a SlcBlocks,
    others: &'a CellTimes,
) -> &'a CellTimes {
    if slc.contains(block) {
        &slc.read_times
    } else {
        others
    }
}
