//! What the suites in `tests/` share beside the battery (`ftld_battery`). docs/TESTING.md tells how
//! they fit together and how to repeat a failure.
//!
//! [`suite`] is their command line, [`amplification`] what page maps are measured by.
//! [`daemon_swarm`] judges the daemon, [`fuzz`] is what hostile bytes meet. But for the
//! reference that is measured nothing here names a scheme: suites iterate over the table.
#![forbid(unsafe_code)]

pub mod amplification;
#[cfg(feature = "programs")]
pub mod daemon_swarm;
#[cfg(feature = "programs")]
pub mod fuzz;
pub mod suite;

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
