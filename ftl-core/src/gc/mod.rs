//! Choosing a victim. A policy looks at the block table and returns a block or nothing; it moves nothing.

mod victims;

pub(crate) use victims::VictimIndex;
