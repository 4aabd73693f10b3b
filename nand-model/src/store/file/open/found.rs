//! The contents of an image, as an open finds them.

use crate::convert::index;
use crate::image::{ImageInfo, Layout, Mark};
use crate::store::file::counts::Counts;
use crate::store::file::file_store::Block;
use crate::store::file::slots::Slots;
use std::collections::HashMap;

/// Upper bound of erases of a block; counting on from there must not overflow.
pub(in crate::store::file) const ERASES_MAX: u32 = 1 << 31;

/// The contents of an image, in memory.
pub(super) struct Found {
    pub(super) blocks: Vec<Block>,
    pub(super) counts: Counts,
    pub(super) unhealthy: HashMap<u32, Mark>,
    pub(super) slots: Slots,
    /// Positions of records with marks whose cause was undone.
    pub(super) void_marks: Vec<u64>,
}

/// The pages of a block, as their records tell.
#[derive(Default)]
pub(super) struct BlockPages {
    pub(super) block: usize,
    /// Programs of each page.
    pub(super) counts: Vec<u8>,
    /// Marks by physical page.
    pub(super) marks: Vec<(u32, Mark)>,
    /// As [`Found::void_marks`].
    pub(super) void_marks: Vec<u64>,
}

impl BlockPages {
    /// Those of a block without a programmed page.
    pub(super) fn blank(block: usize, pages: usize) -> BlockPages {
        BlockPages {
            block,
            counts: vec![0; pages],
            ..BlockPages::default()
        }
    }
}

impl Found {
    pub(super) fn adopt(&mut self, pages: BlockPages) {
        self.counts.set(pages.block, &pages.counts);
        self.unhealthy.extend(pages.marks);
        self.void_marks.extend(pages.void_marks);
    }

    /// The contents of an image without any program.
    pub(super) fn new(layout: Layout, info: &ImageInfo) -> Self {
        let slots = Slots {
            blank: (0..layout.slots).rev().collect(),
            roomy: vec![false; index(layout.slots)],
            ..Slots::default()
        };
        let blocks = vec![Block::default(); layout.geometry.block_slots()];
        Found {
            blocks,
            counts: Counts::new(info),
            unhealthy: HashMap::new(),
            slots,
            void_marks: Vec::new(),
        }
    }
}
