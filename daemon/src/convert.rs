//! Conversions between integer types, which the crates share.

pub(crate) use ftld_traces::convert::*;
