//! Invalid pages of full data blocks by group. A scheme assigns the blocks to groups; it learns at
//! once, on a device of any size, how many blocks each would free.

use crate::ram::vec_bytes;
use nand_model::Pbn;

/// Number of groups at most.
pub(crate) const GROUPS_MAX: u32 = 16;

/// A block that no group has.
const NONE: u8 = u8::MAX;

#[derive(Clone, Debug)]
pub(super) struct GroupCounts {
    /// By block: its group, or [`NONE`].
    of_block: Vec<u8>,
    /// By group.
    invalid: [u64; GROUPS_MAX as usize],
}

impl GroupCounts {
    pub(super) fn new(blocks: usize) -> Self {
        GroupCounts {
            of_block: vec![NONE; blocks],
            invalid: Default::default(),
        }
    }

    #[inline]
    pub(super) fn of(&self, block: Pbn) -> u8 {
        self.of_block[block.index()]
    }

    pub(super) fn set(&mut self, block: Pbn, group: u8) {
        debug_assert!(
            u32::from(group) < GROUPS_MAX,
            "block {block} of group {group}"
        );
        self.of_block[block.index()] = group;
    }

    /// Adds invalid pages of a block to those of its group, or takes them away.
    #[inline]
    pub(super) fn count(&mut self, block: Pbn, pages: u32, adds: bool) {
        let group = usize::from(self.of(block));
        if let Some(invalid) = self.invalid.get_mut(group) {
            match adds {
                true => *invalid += u64::from(pages),
                false => *invalid -= u64::from(pages),
            }
        }
    }

    pub(super) fn invalid(&self) -> &[u64] {
        &self.invalid
    }

    /// Compares the counts with a fresh count of these blocks and their invalid pages; returns one
    /// line per difference.
    pub(super) fn audit(&self, blocks: impl Iterator<Item = (Pbn, u32)>) -> Vec<String> {
        let mut fresh = GroupCounts {
            of_block: self.of_block.clone(),
            invalid: Default::default(),
        };
        blocks.for_each(|(block, pages)| fresh.count(block, pages, true));
        match fresh.invalid == self.invalid {
            true => Vec::new(),
            false => vec![format!(
                "groups have {:?} invalid pages, {:?} are counted",
                fresh.invalid, self.invalid
            )],
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        vec_bytes::<u8>(self.of_block.capacity())
    }
}
