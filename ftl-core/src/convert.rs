//! Conversions between the widths of numbers, each in one place.
//!
//! What always holds: `usize` has 64 bits, so every number and count is a length in memory, and
//! back. Where a conversion narrows, the caller knows that the value fits; builds with debug
//! assertions check that. What was read from flash is checked before it comes here.

const _: () = assert!(usize::BITS == 64, "sizes of devices need 64-bit usize");

/// A number or count as an index or a length.
#[inline(always)]
pub(crate) const fn index(n: u32) -> usize {
    n as usize
}

/// A length in memory as a count that is reported or kept on flash.
#[inline(always)]
pub(crate) const fn to_u64(length: usize) -> u64 {
    length as u64
}

/// A count or number of 64 bits as a length or index in memory.
#[inline(always)]
pub(crate) const fn to_usize(count: u64) -> usize {
    count as usize
}

/// A length as the number or count that it is the length of: of pages, of blocks, of entries.
#[inline(always)]
pub(crate) const fn to_u32(length: usize) -> u32 {
    debug_assert!(length >> 32 == 0, "a count of more than 32 bits");
    length as u32
}

/// A count or number that was worked out in 64 bits and is one of pages or blocks.
#[inline(always)]
pub(crate) const fn narrow(count: u64) -> u32 {
    debug_assert!(count >> 32 == 0, "a number of more than 32 bits");
    count as u32
}

/// A page offset or a count of a block's pages, in the 16 bits that tables keep: a block has at
/// most 4096 pages.
#[inline(always)]
pub(crate) const fn to_u16(pages: u32) -> u16 {
    debug_assert!(pages >> 16 == 0, "pages of a block in more than 16 bits");
    pages as u16
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
