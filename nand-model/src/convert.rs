//! Conversions between the widths of numbers, each in one place.
//!
//! Invariants: `usize` has 64 bits, so every count and file offset of an image is a length in
//! memory, and the reverse. Where a conversion narrows, the caller knows that the value fits;
//! builds with debug assertions check it.

const _: () = assert!(usize::BITS == 64, "offsets in an image need 64-bit usize");

/// A number or count as an index or a length.
#[inline(always)]
pub const fn index(n: u32) -> usize {
    n as usize
}

/// Adds `n` to a counter of single events. Without overflow check: at one per ns, a counter of 64
/// bits lasts for 584 years.
#[inline(always)]
pub const fn count_up(counter: &mut u64, n: u64) {
    *counter = counter.wrapping_add(n);
}

/// A count as a factor of a sum that needs at most 53 bits.
#[inline(always)]
pub(crate) const fn to_real(count: u64) -> f64 {
    count as f64
}

/// A length in memory as one of the file.
#[inline(always)]
pub const fn to_u64(length: usize) -> u64 {
    length as u64
}

/// An offset or length of the file as one in memory.
#[inline(always)]
pub const fn to_usize(bytes: u64) -> usize {
    bytes as usize
}

/// A length as the number or count that it is the length of: of blocks, of pages of a block, of
/// slots.
#[inline(always)]
pub const fn to_u32(length: usize) -> u32 {
    debug_assert!(length >> 32 == 0, "a count of more than 32 bits");
    length as u32
}

/// A page offset, or one past the last, in the 16 bits that tables keep: a block has at most 4096
/// pages.
#[inline(always)]
pub const fn to_u16(offset: u32) -> u16 {
    debug_assert!(offset >> 16 == 0, "a page offset of more than 16 bits");
    offset as u16
}

/// A distance between pages of a word line, or a number of bits per cell, in the byte that tables
/// keep.
#[inline(always)]
pub(crate) const fn to_u8(n: u32) -> u8 {
    debug_assert!(n >> 8 == 0, "a number of more than 8 bits");
    n as u8
}
