//! Position of a logical page inside a superblock. Consecutive pages are striped over the chips; a
//! quarter takes as many whole rows (superpages) of all chips as fit four times into a block.

use crate::addr::Lpn;
use crate::error::FtlError;
use crate::int::to_usize;
use nand_model::{Geometry, Ppn};

/// Number of quarters in a superblock.
pub(super) const QUARTERS: u32 = 4;

/// The geometry of superblocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    geometry: Geometry,
    /// Number of blocks in a superblock.
    pub(super) chips: u32,
    /// Number of rows in a quarter.
    pub(super) rows: u32,
}

/// Position of a logical page inside its quarter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) quarter: u32,
    pub(super) row: u32,
    pub(super) chip: u32,
}

impl Shape {
    pub(super) fn new(geometry: &Geometry, chips: u32) -> Result<Self, FtlError> {
        if !(1..=64).contains(&chips) {
            return Err(FtlError::Config(format!(
                "parameter mlam.chips: {chips} is not within 1 to 64"
            )));
        }
        if geometry.pages_per_block < QUARTERS {
            let pages = geometry.pages_per_block;
            return Err(FtlError::Config(format!(
                "blocks of {pages} pages cannot be divided by {QUARTERS}"
            )));
        }
        Ok(Shape {
            geometry: *geometry,
            chips,
            rows: geometry.pages_per_block / QUARTERS,
        })
    }

    /// Returns the paper's interleaving: two ways of every channel.
    pub(super) fn default_chips(geometry: &Geometry) -> u32 {
        (geometry.channels * geometry.ways.min(2)).min(64)
    }

    pub(super) fn quarter_pages(&self) -> u32 {
        self.rows * self.chips
    }

    pub(super) fn superblock_pages(&self) -> u32 {
        QUARTERS * self.quarter_pages()
    }

    /// Returns the number of logical superblocks for this many pages.
    pub(super) fn superblocks(&self, logical_pages: u32) -> u32 {
        logical_pages.div_ceil(self.superblock_pages())
    }

    pub(super) fn superblock_of(&self, lpn: Lpn) -> u32 {
        lpn.raw() / self.superblock_pages()
    }

    pub(super) fn spot(&self, lpn: Lpn) -> Spot {
        let inside = lpn.raw() % self.quarter_pages();
        Spot {
            quarter: lpn.raw() / self.quarter_pages(),
            row: inside / self.chips,
            chip: inside % self.chips,
        }
    }

    pub(super) fn lpn(&self, Spot { quarter, row, chip }: Spot) -> Lpn {
        debug_assert!(
            row < self.rows && chip < self.chips,
            "row {row} on chip {chip} is outside the quarter"
        );
        Lpn::new(quarter * self.quarter_pages() + row * self.chips + chip)
    }

    /// Returns the logical block of a page: an eighth of the superblock, as with the paper's number
    /// of chips.
    pub(super) fn eighth(&self, lpn: Lpn) -> usize {
        let inside = u64::from(lpn.raw() % self.superblock_pages());
        to_usize(inside * 8 / u64::from(self.superblock_pages()))
    }

    /// Returns the block's row that stores a row of the quarter at `loc`.
    pub(super) fn block_row(&self, loc: u32, row: u32) -> u32 {
        debug_assert!(
            loc < QUARTERS && row < self.rows,
            "row {row} of quarter {loc} is outside the superblock"
        );
        loc * self.rows + row
    }

    /// Returns location and row of a page in a superblock's block; `None` for rows that quarters
    /// leave over.
    pub(super) fn loc_and_row(&self, ppn: Ppn) -> Option<(u32, u32)> {
        let offset = self.geometry.offset_of(ppn);
        let loc = offset / self.rows;
        (loc < QUARTERS).then_some((loc, offset % self.rows))
    }

    /// Returns the number of chip groups for superblocks.
    pub(super) fn superchips(&self) -> u32 {
        (self.geometry.dies() / self.chips).max(1)
    }

    /// Returns the die of a superchip's n-th chip: one of each channel, then the next way of each.
    pub(super) fn die(&self, superchip: u32, chip: u32) -> u32 {
        debug_assert!(chip < self.chips, "chip {chip} is outside the superchip");
        let n = (superchip * self.chips + chip) % self.geometry.dies();
        let (channel, way) = (n % self.geometry.channels, n / self.geometry.channels);
        channel * self.geometry.ways + way
    }

    /// Returns the superchip whose n-th chip is this die; the first if there is none.
    pub(super) fn superchip_of(&self, die: u32, chip: u32) -> u32 {
        (0..self.superchips())
            .find(|superchip| self.die(*superchip, chip) == die)
            .unwrap_or(0)
    }
}
