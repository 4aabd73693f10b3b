//! Every byte that schemes store on flash. docs/FORMAT.md mirrors this module; a change edits code,
//! document and version together.

mod bytes;
pub mod checkpoint;
mod oob;
pub mod trim;

pub use oob::{COUNTER_FOUND_MAX, Flags, OOB_BYTES, OOB_SLOT, Oob, PageTag, Role};

/// Unmapped entry of mapping tables on flash. All ones, as an erased mapping page.
pub const UNMAPPED: u32 = u32::MAX;

/// Entry of tables in RAM: a mapped page whose data is lost. Reading it is an error.
pub(crate) const LOST: u32 = UNMAPPED - 1;
