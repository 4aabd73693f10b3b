//! Every byte that schemes put on flash. docs/FORMAT.md mirrors this module; a change edits code, document and version together.

mod oob;
pub(crate) mod trim;

pub use oob::{Flags, OOB_BYTES, OOB_SLOT, Oob, PageTag, Role};

/// The "no page" of mapping tables on flash, so that a fresh translation page is all ones.
pub const UNMAPPED: u32 = u32::MAX;
