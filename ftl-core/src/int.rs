//! Conversions between integer widths: those of [`nand_model::convert`], and those for packed
//! words.
//!
//! Invariants: `usize` has 64 bits, so every number and count converts to a length in memory, and
//! back. Where a conversion narrows, the caller guarantees that the value fits; builds with debug
//! assertions check that. Values read from flash are checked before they are converted.

pub(crate) use nand_model::convert::{count_up, index, to_u16, to_u32, to_u64, to_usize};

/// Narrows a 64-bit result to a number of pages or blocks.
#[inline(always)]
pub(crate) const fn narrow(count: u64) -> u32 {
    debug_assert!(count >> 32 == 0, "the number has more than 32 bits");
    count as u32
}

/// Returns the lowest 32 bits: of clocks that are compared over short times only, of packed words.
#[inline(always)]
pub(crate) const fn low_u32(word: u64) -> u32 {
    word as u32
}

/// Returns the lowest 16 bits of a packed word.
#[inline(always)]
pub(crate) const fn low_u16(word: u64) -> u16 {
    word as u16
}

/// Returns the lowest byte of a packed word.
#[inline(always)]
pub(crate) const fn low_u8(word: u64) -> u8 {
    word as u8
}

/// Converts a count for a formula of shares and costs, which need at most 53 bits.
#[inline(always)]
pub(crate) const fn real(count: u64) -> f64 {
    count as f64
}
