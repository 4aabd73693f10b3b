//! Physical addresses: what the chip counts in.
//!
//! A [`Ppn`] is `block * 2^k + page` with `2^k` the smallest power of two that holds a block's
//! pages, so that splitting it costs a shift and a mask for every geometry. Only
//! [`Geometry`](crate::Geometry) makes and splits them.

use crate::convert::index;
use std::fmt;

/// Physical page number. Numbers are dense when a block has a power-of-two count of pages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ppn(u32);

/// Physical block number: the unit of erase.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pbn(u32);

impl Ppn {
    /// The page with this raw number; [`Geometry::contains`](crate::Geometry::contains) returns
    /// whether a chip has it.
    #[inline]
    pub const fn new(raw: u32) -> Self {
        Ppn(raw)
    }
    /// The raw number, as stored in mapping tables.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }
    /// The raw number as an index into a table of
    /// [`Geometry::page_slots`](crate::Geometry::page_slots) entries.
    #[inline]
    pub const fn index(self) -> usize {
        index(self.0)
    }
    /// `count` pages upwards from this one.
    #[inline]
    pub fn run(self, count: u32) -> impl Iterator<Item = Ppn> + Clone + use<> {
        (self.0..self.0 + count).map(Ppn)
    }
}

impl Pbn {
    /// The block with this number.
    #[inline]
    pub const fn new(raw: u32) -> Self {
        Pbn(raw)
    }
    /// The raw number.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }
    /// The number as an index into a table with one entry per block.
    #[inline]
    pub const fn index(self) -> usize {
        index(self.0)
    }
}

impl fmt::Debug for Ppn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

impl fmt::Debug for Pbn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b{}", self.0)
    }
}

impl fmt::Display for Ppn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Pbn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
