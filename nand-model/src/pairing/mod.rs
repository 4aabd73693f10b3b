//! Which pages share a word line: by a rule with a name, or word line by word line.

mod rule;
mod word_lines;

pub(crate) use rule::BITS_MAX;
pub use rule::{PairTable, Pairing};
pub(crate) use word_lines::TABLE_PAGES_MAX;
