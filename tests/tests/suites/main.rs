//! The suites of the table of schemes, as one program: a test is `SUITE::NAME`. docs/TESTING.md
//! describes them.

mod catalogue;
mod conformance;
mod differential;
mod faulty_parts;
mod host_crash;
mod power_cut;
mod recovery_scenarios;
mod regressions;
mod swarm;
mod wear;
mod write_amplification;
