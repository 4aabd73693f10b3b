//! Conversions between integer types, which the crates share.

pub use ftld_traces::convert::*;
