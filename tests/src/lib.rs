//! Code shared by the suites in `tests/`, besides the battery (`ftld_battery`). docs/TESTING.md
//! describes their structure and how to repeat a failure.
//!
//! [`suite`] is their command line, [`amplification`] measures page maps, [`daemon_swarm`] checks
//! the daemon, [`write_cache`] its write cache,
//! [`fuzz`] contains the fuzz targets. Except for the measured reference, this crate
//! names no scheme: suites iterate over the table.
#![forbid(unsafe_code)]

pub mod amplification;
#[cfg(feature = "programs")]
pub mod daemon_swarm;
#[cfg(feature = "programs")]
pub mod fuzz;
pub mod suite;
#[cfg(feature = "programs")]
pub mod write_cache;

/// Returns a seed from the clock.
pub fn fresh_seed() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(1, |now| now.as_nanos() as u64)
}

/// Prints a line that is visible when a test passes, too: the test runner captures `println!`.
pub fn announce(line: &str) {
    use std::io::Write;
    // A closed standard error is not an error.
    _ = writeln!(std::io::stderr(), "{line}");
}
