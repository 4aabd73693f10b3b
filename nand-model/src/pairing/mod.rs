//! Which pages share a word line: by a rule with a name, or word line by word line.

mod rule;
mod table;

pub use rule::{BITS_MAX, PairTable, Pairing};
pub use table::TABLE_PAGES_MAX;
