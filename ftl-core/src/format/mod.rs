//! Every byte that schemes put on flash. docs/FORMAT.md mirrors this module; a change edits code,
//! document and version together.

pub mod checkpoint;
mod oob;
pub mod trim;

pub use oob::{COUNTER_FOUND_MAX, Flags, OOB_BYTES, OOB_SLOT, Oob, PageTag, Role};

/// The "no page" of mapping tables on flash, so that a fresh translation page is all ones.
pub const UNMAPPED: u32 = u32::MAX;

/// In tables in RAM: a page that is mapped and gone. Reading it is an error.
pub(crate) const LOST: u32 = UNMAPPED - 1;

/// The bytes of a number at an offset that the caller checked.
fn array_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as many bytes")
}
