//! Conversions between the widths of numbers, each in one place.
//!
//! What always holds: `usize` has 64 bits, so every count and offset of a device is a length in
//! memory, and back. Where a conversion narrows, the caller knows that the value fits, and that is
//! asserted; what comes from outside is checked before, with an error that says what is wrong.

use std::time::Duration;

const _: () = assert!(usize::BITS == 64, "offsets in a device need 64-bit usize");

/// A number or count as an index or a length.
#[inline(always)]
pub const fn index(n: u32) -> usize {
    n as usize
}

/// A length in memory as one of the device.
#[inline(always)]
pub const fn to_u64(length: usize) -> u64 {
    length as u64
}

/// An offset or length of the device as one in memory.
#[inline(always)]
pub const fn to_usize(bytes: u64) -> usize {
    bytes as usize
}

/// A length in memory in 32 bits, as messages and page counts have them.
#[inline(always)]
pub const fn to_u32(length: usize) -> u32 {
    narrow(length as u64)
}

/// A number that is known to have at most 32 bits.
#[inline(always)]
pub const fn narrow(n: u64) -> u32 {
    assert!(n >> 32 == 0, "a number of more than 32 bits");
    n as u32
}

/// A count as a number to calculate with: exact up to 2^53, then the nearest there is.
#[inline(always)]
pub const fn to_f64(n: u64) -> f64 {
    n as f64
}

/// As [`to_f64`], of a sum that may take more than 64 bits.
#[inline(always)]
pub const fn sum_to_f64(n: u128) -> f64 {
    n as f64
}

/// The whole part of a number, 0 of what is negative or not a number.
#[inline(always)]
pub const fn whole(number: f64) -> u64 {
    number as u64
}

/// A duration in nanoseconds, at most as many as there are.
#[inline]
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A duration in milliseconds, at most as many as there are.
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
