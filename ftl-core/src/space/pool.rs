//! Erased blocks, by wear.

use nand_model::Pbn;
use std::collections::BTreeSet;

/// Erased blocks by wear. Blocks whose erase nobody confirmed are erased again when taken.
#[derive(Debug, Default)]
pub(super) struct FreePool {
    by_wear: BTreeSet<(u32, Pbn)>,
    unconfirmed: BTreeSet<Pbn>,
}

impl FreePool {
    pub(super) fn len(&self) -> usize {
        self.by_wear.len()
    }

    pub(super) fn put(&mut self, block: Pbn, erase_count: u32, confirmed: bool) {
        self.by_wear.insert((erase_count, block));
        if !confirmed {
            self.unconfirmed.insert(block);
        }
    }

    /// The least worn block, or the most worn one; and whether its last erase is known to have ended.
    pub(super) fn take(&mut self, worn: bool) -> Option<(Pbn, bool)> {
        let (_, block) = if worn { self.by_wear.pop_last()? } else { self.by_wear.pop_first()? };
        Some((block, !self.unconfirmed.remove(&block)))
    }

    /// The blocks whose last erase is known to have ended.
    pub(super) fn confirmed(&self) -> impl Iterator<Item = Pbn> {
        let blocks = self.by_wear.iter().map(|(_, block)| *block);
        blocks.filter(|block| !self.unconfirmed.contains(block))
    }
}
