//! Garbage collection: choosing and emptying a victim, and other relocations without a host
//! request. A policy reads the block table and returns a block or none; the collector relocates its
//! pages.

mod collector;
pub(crate) mod fold;
pub(crate) mod pace;
pub(crate) mod placement;
pub(crate) mod policy;
mod scrub;
mod selected;
mod settings;
mod state;

pub(crate) use collector::GarbageCollect;
pub(crate) use scrub::PARAM as SCRUB_PARAM;
pub(crate) use selected::Own;
pub(crate) use settings::{FreeBlocks, Settings, docs};
pub(crate) use state::GcState;
