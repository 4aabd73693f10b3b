//! The suites that need the daemon, as one program: a test is `SUITE::NAME`. docs/TESTING.md
//! describes them.

mod concurrent_io;
mod daemon_swarm;
mod fsync_markers;
mod fuzz_corpus;
mod write_cache;
