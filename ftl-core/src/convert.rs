//! Conversions between the widths of numbers: those of [`nand_model::convert`], and of words that
//! are packed.
//!
//! What always holds: `usize` has 64 bits, so every number and count is a length in memory, and
//! back. Where a conversion narrows, the caller knows that the value fits; builds with debug
//! assertions check that. What was read from flash is checked before it comes here.

pub(crate) use nand_model::convert::{index, to_u16, to_u32, to_u64, to_usize};

/// A count or number that was worked out in 64 bits and is one of pages or blocks.
#[inline(always)]
pub(crate) const fn narrow(count: u64) -> u32 {
    debug_assert!(count >> 32 == 0, "a number of more than 32 bits");
    count as u32
}

/// The lowest 32 bits: of clocks that are only compared over short times, of words that are packed.
#[inline(always)]
pub(crate) const fn low_u32(word: u64) -> u32 {
    word as u32
}

/// The lowest 16 bits of a word that is packed.
#[inline(always)]
pub(crate) const fn low_u16(word: u64) -> u16 {
    word as u16
}

/// The lowest byte of a word that is packed.
#[inline(always)]
pub(crate) const fn low_u8(word: u64) -> u8 {
    word as u8
}

/// A count in a formula over shares and costs, which ask for no more than 53 bits.
#[inline(always)]
pub(crate) const fn real(count: u64) -> f64 {
    count as f64
}
