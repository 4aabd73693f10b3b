//! Changes of the map that its pages on flash do not contain yet.
//!
//! An entry is *dirty* while its update flag is set: the map on flash does not contain it. Entries
//! are in one list per mapping page (`list.rs`), so that a write-back finds all of them without a
//! search, and RAM grows with their number. Blocks with pending pages have the reverse index
//! (`blocks.rs`), which also gives their conversion costs.

mod audit;
mod blocks;
mod list;
mod table;

pub(crate) use list::Change;
pub(crate) use table::Pending;
