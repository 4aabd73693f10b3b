//! Data blocks: the physical block of a logical block, and the offsets of its pages.
//!
//! On chips that take pages in any order, a page has its own offset, and no table is needed. On
//! others, pages are appended in order of arrival, and a table has their offsets. In both cases
//! a data block takes each logical page once, so both kinds of block fill up alike.

use crate::addr::{Lbn, Lpn};
use crate::format::UNMAPPED;
use crate::int::{index, to_u16};
use crate::ram::vec_bytes;
use nand_model::{Geometry, Pbn, Ppn};

/// Offset of a page that the data block does not contain.
const NO_OFFSET: u16 = u16::MAX;

/// The block map.
pub(crate) struct DataBlocks {
    geometry: Geometry,
    /// By logical block: its data block.
    blocks: Vec<u32>,
    /// By physical block: the logical block whose data block it is.
    owners: Vec<u32>,
    /// By logical page: its offset in the data block. Empty if pages have their own offsets.
    offsets: Vec<u16>,
}

impl DataBlocks {
    pub(crate) fn new(geometry: &Geometry, logical_pages: u32, in_place: bool) -> Self {
        let logical_blocks = logical_pages.div_ceil(geometry.pages_per_block);
        DataBlocks {
            geometry: *geometry,
            blocks: vec![UNMAPPED; index(logical_blocks)],
            owners: vec![UNMAPPED; geometry.block_slots()],
            offsets: vec![NO_OFFSET; if in_place { 0 } else { index(logical_pages) }],
        }
    }

    /// Returns whether pages have their own offsets.
    pub(crate) fn in_place(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Returns the data block, if there is one.
    #[inline]
    pub(crate) fn block(&self, lbn: Lbn) -> Option<Pbn> {
        Some(self.blocks[lbn.index()])
            .filter(|block| *block != UNMAPPED)
            .map(Pbn::new)
    }

    /// Returns the logical block whose data block this is.
    #[inline]
    pub(crate) fn owner(&self, block: Pbn) -> Option<Lbn> {
        Some(self.owners[block.index()])
            .filter(|lbn| *lbn != UNMAPPED)
            .map(Lbn::new)
    }

    /// Returns the physical page of the logical page in the data block, or the one reserved for it.
    #[inline]
    pub(crate) fn ppn_of(&self, lpn: Lpn) -> Option<Ppn> {
        let (lbn, offset) = lpn.split(self.geometry.pages_per_block);
        let block = self.block(lbn)?;
        match self.offsets.get(lpn.index()) {
            None => Some(self.geometry.page(block, offset)),
            Some(&NO_OFFSET) => None,
            Some(offset) => Some(self.geometry.page(block, u32::from(*offset))),
        }
    }

    /// Makes a block the data block of a logical block that has none.
    pub(crate) fn set_block(&mut self, lbn: Lbn, block: Pbn) {
        assert!(
            self.block(lbn).is_none(),
            "logical block {lbn} already has a data block"
        );
        assert!(
            self.owner(block).is_none(),
            "block {block} is already the data block of another logical block"
        );
        self.blocks[lbn.index()] = block.raw();
        self.owners[block.index()] = lbn.raw();
    }

    /// Records that a page is in the data block.
    #[inline]
    pub(crate) fn set_page(&mut self, lpn: Lpn, ppn: Ppn) {
        let (lbn, home) = lpn.split(self.geometry.pages_per_block);
        let offset = self.geometry.offset_of(ppn);
        debug_assert_eq!(
            self.block(lbn),
            Some(self.geometry.block_of(ppn)),
            "page {ppn} of logical page {lpn} is not in its data block"
        );
        if let Some(known) = self.offsets.get_mut(lpn.index()) {
            debug_assert_eq!(
                *known, NO_OFFSET,
                "logical page {lpn} is already in the data block, at offset {known}"
            );
            *known = to_u16(offset);
        } else {
            debug_assert_eq!(
                offset, home,
                "page {ppn} of logical page {lpn} is not at its own offset"
            );
        }
    }

    /// Removes and returns the data block of a logical block.
    pub(crate) fn take_block(&mut self, lbn: Lbn) -> Option<Pbn> {
        let block = self.block(lbn)?;
        assert_eq!(
            self.owner(block),
            Some(lbn),
            "data block {block} of logical block {lbn} has another owner"
        );
        self.blocks[lbn.index()] = UNMAPPED;
        self.owners[block.index()] = UNMAPPED;
        if !self.in_place() {
            let first = lbn.page(self.geometry.pages_per_block, 0).index();
            let end = self.offsets.len().min(first + self.geometry.block_pages());
            self.offsets[first..end].fill(NO_OFFSET);
        }
        Some(block)
    }

    /// Returns the allocated bytes of the block map.
    pub(crate) fn bytes(&self) -> u64 {
        vec_bytes::<u32>(self.blocks.capacity() + self.owners.capacity())
    }

    /// Returns the allocated bytes of the pages' offsets.
    pub(crate) fn offset_bytes(&self) -> u64 {
        vec_bytes::<u16>(self.offsets.capacity())
    }
}
