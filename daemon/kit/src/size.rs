//! Sizes as a user writes them, which the crates share.

pub use ftld_traces::size::*;
