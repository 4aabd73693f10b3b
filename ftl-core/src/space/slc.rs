//! The region of blocks in SLC mode: its erased blocks, and the blocks that fold next.
//!
//! Streams of the host fill these blocks first; folding copies their valid pages to other blocks
//! ([`crate::gc`]). Their pages share no word line, so each is safe once it is programmed. No mount
//! opens one: what it rewrites goes to other blocks.

use super::pool::FreePool;
use super::state::Space;
use super::streams::StreamId;
use crate::int::to_u32;
use nand_model::{Chip, Pbn};

/// Erased blocks in SLC mode.
#[derive(Debug)]
pub(super) struct SlcPool {
    pub(super) pool: FreePool,
}

impl SlcPool {
    /// Creates the pool of a chip with a region.
    pub(super) fn new(chip: &Chip) -> Option<SlcPool> {
        let pool = FreePool::new(*chip.geometry());
        (chip.slc_blocks() > 0).then_some(SlcPool { pool })
    }
}

impl Space {
    /// Returns whether the stream fills blocks in SLC mode.
    pub(crate) fn is_slc_stream(&self, stream: StreamId) -> bool {
        self.streams[stream].spec.in_slc
    }

    /// Returns the number of erased blocks in SLC mode.
    pub(crate) fn free_slc_blocks(&self) -> u32 {
        self.slc.as_ref().map_or(0, |slc| to_u32(slc.pool.len()))
    }

    /// Returns the number of released blocks in SLC mode that wait for their erase.
    pub(crate) fn released_slc_blocks(&self) -> u32 {
        let chip = self.flash.chip();
        let of_region = self.released.iter();
        to_u32(
            of_region
                .filter(|released| chip.is_slc(released.block))
                .count(),
        )
    }

    /// Returns the pool of a block's mode.
    pub(super) fn pool_of(&mut self, block: Pbn) -> &mut FreePool {
        match &mut self.slc {
            Some(slc) if self.flash.chip().is_slc(block) => &mut slc.pool,
            _ => &mut self.pool,
        }
    }

    /// Takes an erased block in SLC mode, of this die and plane if they have any. Returns whether
    /// its last erase is known to have ended.
    pub(super) fn take_slc(&mut self, place: (Option<u32>, Option<u32>)) -> Option<(Pbn, bool)> {
        self.slc.as_mut()?.pool.take(false, place)
    }
}
