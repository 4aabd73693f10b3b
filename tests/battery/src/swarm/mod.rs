//! The swarm: generated runs that combine faults.
//!
//! One generator ([`plan`]) draws for every run a random subset of scheme, chip, size, parameters,
//! workloads and kinds of fault. [`run`] runs it together with the oracle ([`oracle`]), which has
//! the allowed losses of each combination. A run is one seed. A failing run is shrunk ([`shrink`])
//! and kept as text for a regression test. Events are counted by class.

pub mod oracle;
pub mod plan;
mod run;
pub mod shrink;
pub mod situations;
mod world;

pub use run::run;

use crate::classes::Classes;
use crate::verdicts::Verdicts;
use ftl_core::schemes::Scheme;
use nand_model::SplitMix;
use plan::Plan;

/// Seed of a run in a sequence of runs that begins at `first`.
pub fn seed_of_run(first: u64, number: u64) -> u64 {
    SplitMix::new(first ^ number.rotate_left(32)).next_u64()
}

/// Draws and runs one of a scheme's runs, with the parameters of the budget in its plan: the case
/// `scheme/swarm/SEED`. Counts its events.
pub fn judge(scheme: &'static Scheme, number: u64, verdicts: &mut Verdicts, classes: &mut Classes) {
    let seed = seed_of_run(verdicts.budget().seed, number);
    let params = verdicts.budget().params.clone();
    verdicts.case(&format!("{}/swarm/{seed}", scheme.name), || {
        let mut plan = Plan::of(scheme, seed);
        for (key, value) in params.iter() {
            plan.device.params.retain(|(other, _)| other != key);
            plan.device.params.push((key.to_owned(), value.to_owned()));
        }
        shrink::outcome(&plan, classes)
    });
}
