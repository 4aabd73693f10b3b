//! The battery: what judges a flash translation layer.
//!
//! [`payload`] makes pages that name themselves, [`model`] is the one oracle, [`workload`]
//! generates what a host does, [`rig`] puts a scheme on a small chip, [`host`] drives it beside the
//! oracle, [`cuts`] pulls the plug at every flash operation. [`sweep`] and [`crashes`] are what the
//! batteries of power cuts and host crashes are built of, [`swarm`] lets faults meet each other.
//! [`verdicts`] collects what failed. Nothing here names a scheme: the caller gives its descriptor.
#![forbid(unsafe_code)]

pub mod classes;
pub mod conformance;
pub mod coverage;
pub mod crashes;
pub mod cuts;
pub mod host;
pub mod host_crashes;
mod judge;
pub mod model;
pub mod parallel;
pub mod payload;
pub mod power_cuts;
pub mod rig;
pub mod swarm;
pub mod sweep;
pub mod verdicts;
pub mod watch;
pub mod wear;
pub mod workload;

pub use judge::{Battery, Line, Score, judge, judge_within};
pub use verdicts::{Budget, Failure, Length, Share, Verdicts};
