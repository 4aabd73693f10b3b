//! Conversions between integer widths, each defined once.
//!
//! Invariants: `usize` has 64 bits, so every count and offset of a device is a valid length in
//! memory, and vice versa. A narrowing conversion asserts that the value fits, which the caller
//! ensures. External values are checked before, with an error that contains the reason.

use std::time::Duration;

const _: () = assert!(usize::BITS == 64, "offsets in a device need 64-bit usize");

/// Converts a number or count to an index or a length.
#[inline(always)]
pub const fn index(n: u32) -> usize {
    n as usize
}

/// Converts a length in memory to a device length.
#[inline(always)]
pub const fn to_u64(length: usize) -> u64 {
    length as u64
}

/// Converts a device offset or length to one in memory.
#[inline(always)]
pub const fn to_usize(bytes: u64) -> usize {
    bytes as usize
}

/// Converts a length in memory to 32 bits, as in messages and page counts.
#[inline(always)]
pub const fn to_u32(length: usize) -> u32 {
    narrow(length as u64)
}

/// Converts a number of at most 32 bits.
#[inline(always)]
pub const fn narrow(n: u64) -> u32 {
    assert!(n >> 32 == 0, "a number of more than 32 bits");
    n as u32
}

/// Converts a count to `f64`: exact up to 2^53, then rounded to the nearest value.
#[inline(always)]
pub const fn to_f64(n: u64) -> f64 {
    n as f64
}

/// As [`to_f64`], for a sum that may exceed 64 bits.
#[inline(always)]
pub const fn sum_to_f64(n: u128) -> f64 {
    n as f64
}

/// Returns the integer part of a number; 0 for a negative one or NaN.
#[inline(always)]
pub const fn whole(number: f64) -> u64 {
    number as u64
}

/// Returns a duration in nanoseconds, saturating.
#[inline]
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns a duration in milliseconds, saturating.
#[inline]
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_value() {
        assert_eq!(narrow(u64::from(u32::MAX)), u32::MAX);
        assert_eq!((to_f64(1 << 53), whole(7.9)), (9_007_199_254_740_992.0, 7));
        assert_eq!((whole(-1.0), whole(f64::NAN)), (0, 0));
        assert_eq!(millis(Duration::MAX), u64::MAX);
        assert_eq!(nanos(Duration::from_millis(3)), 3_000_000);
    }

    #[test]
    #[should_panic(expected = "more than 32 bits")]
    fn what_does_not_fit_is_not_cut() {
        narrow(1 << 32);
    }
}
