//! Volume with a write cache over the simulated disk, checked against an oracle per unit: random
//! requests, FLUSH and FUA, kills, host crashes and power cuts.
//!
//! The requests of a run come one after the other, so the oracle is exact: a kill leaves every unit
//! with its newest content, a power cut with one of its contents since the last completed FLUSH.
//! With the model `ordered` all units together are the state after one of the requests, and only
//! the next request may be there in part.

mod device;
mod oracle;
mod run;

pub use device::{Setup, schemes};
pub use run::{Report, run};
