//! The swarm: generated runs in which faults meet each other.
//!
//! One generator ([`plan`]) draws for every run a random subset of scheme, chip, size, parameters,
//! workloads and kinds of fault; [`run`] runs it beside the oracle ([`oracle`]), which knows what
//! each combination may cost. A run is one seed. A failure shrinks itself ([`shrink`]) and has a
//! text form that stays as a regression. What happened is counted by class.

pub mod oracle;
pub mod plan;
mod run;
pub mod shrink;
pub mod situations;
mod text;
mod world;

pub use run::run;
