//! Checkpoints: state in RAM, written to dedicated blocks so that mount need not scan all blocks.

mod sets;
mod writer;

pub(crate) use sets::{Checkpoints, Found, KEPT};
pub(crate) use writer::{CheckpointWriter, Composed, WriteCheckpoints};
