//! The harness: everything the suites in `tests/` share. docs/TESTING.md tells how they fit
//! together and how to repeat a failure.
//!
//! [`payload`] makes pages that name themselves, [`model`] is the one oracle, [`workload`]
//! generates what a host does, [`rig`] puts a scheme on a small chip, [`host`] drives it beside the
//! oracle, [`cuts`] pulls the plug at every flash operation. [`sweep`] and [`crashes`] are what the
//! suites of power cuts and host crashes are built of. [`fuzz`] is what hostile bytes meet. Nothing
//! here names a scheme: suites iterate over the table.
#![forbid(unsafe_code)]

pub mod classes;
pub mod coverage;
pub mod crashes;
pub mod cuts;
#[cfg(feature = "programs")]
pub mod daemon_swarm;
#[cfg(feature = "programs")]
pub mod fuzz;
pub mod host;
pub mod model;
pub mod payload;
pub mod rig;
pub mod swarm;
pub mod sweep;
pub mod watch;
pub mod workload;

/// A seed from the clock.
pub fn fresh_seed() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |now| now.as_nanos() as u64)
}

/// Prints a line that is seen when a test passes, too: the test runner keeps back what goes through
/// `println!`.
pub fn announce(line: &str) {
    use std::io::Write;
    // Nobody reads it where standard error is closed.
    _ = writeln!(std::io::stderr(), "{line}");
}
