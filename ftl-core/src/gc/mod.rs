//! Garbage collection: choosing a victim, emptying it, and what else moves pages without the host
//! asking. A policy looks at the block table and returns a block or nothing; the collector moves.

mod collector;
pub(crate) mod placement;
pub(crate) mod policy;
mod scrub;
mod settings;
mod victims;

pub(crate) use collector::{Collect, Gc};
pub(crate) use scrub::{PARAM as SCRUB_PARAM, Scrub};
pub(crate) use settings::{Settings, docs};
pub(crate) use victims::VictimIndex;
