//! Volume with a write cache over the simulated disk, checked against an oracle per unit: random
//! requests, FLUSH and FUA, kills, host crashes and power cuts.
//!
//! The requests of a run come one after the other, so the oracle is exact: a kill leaves every unit
//! with its newest content, a power cut with one of its contents since the last completed FLUSH.
//! With the model `ordered` a cut leaves all units as they were after the same request; only the
//! next request may have been executed in part.

mod device;
mod oracle;
mod run;

pub use device::{Setup, schemes};
pub use run::{Report, run};
