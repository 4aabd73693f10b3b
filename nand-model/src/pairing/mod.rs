//! Which pages share a word line: by a rule with a name, or word line by word line.

mod rule;
mod table;

pub(crate) use rule::BITS_MAX;
pub use rule::{PairTable, Pairing};
pub(crate) use table::TABLE_PAGES_MAX;
