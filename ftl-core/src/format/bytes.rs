//! Numbers in pages.

/// Returns the bytes of a number at an offset that the caller checked.
pub(super) fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has N bytes")
}
