//! Shrinks a failing plan: fewer steps, fewer faults, a simpler device.

use super::plan::{Inside, Plan, Restart, Step};
use super::run;
use crate::classes::Classes;
use crate::shrink::{Change, Shrink, smallest};
use crate::watch::watched;

/// Maximum number of runs of smaller plans.
const TRIES: u32 = 3_000;

/// Runs a plan; a panic is a failure of the run. One that does not end ends the process.
///
/// # Errors
/// The error.
pub fn outcome(plan: &Plan, classes: &mut Classes) -> Result<(), String> {
    let described = plan.clone();
    watched(move || described.to_string(), || run(plan, classes))
}

/// The smallest failing plan found, and its error. A plan without a layout does not count.
pub fn shrink(plan: &Plan, mut why: String) -> (Plan, String) {
    let mut tries = 0;
    let small = smallest(plan, |candidate| {
        if tries >= TRIES || candidate.rig().is_err() {
            return false;
        }
        tries += 1;
        let outcome = outcome(candidate, &mut Classes::default());
        outcome.map_err(|error| why = error).is_err()
    });
    (small, why)
}

impl Shrink for Plan {
    type Step = Step;

    fn steps(&mut self) -> &mut Vec<Step> {
        &mut self.steps
    }

    fn changes(&self) -> Vec<Change<Plan>> {
        let mut changes = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            let (Step::Cut(_, restart) | Step::Down(_, restart)) = step else {
                continue;
            };
            if restart.crash.is_some() {
                changes.push(in_restart(number, |restart| restart.crash = None));
            }
            for at in (0..restart.inside.len()).rev() {
                changes.push(in_restart(number, move |restart| {
                    restart.inside.remove(at);
                }));
                if let Inside::Cut(cut, Some(_)) = restart.inside[at] {
                    changes.push(in_restart(number, move |restart| {
                        restart.inside[at] = Inside::Cut(cut, None);
                    }));
                }
            }
        }
        for at in (0..self.device.params.len()).rev() {
            changes.push(Box::new(move |plan| drop(plan.device.params.remove(at))));
        }
        for at in (0..self.parts.rates.len()).rev() {
            changes.push(Box::new(move |plan| {
                plan.parts.rates.remove(at);
            }));
        }
        let (device, parts) = (&self.device, &self.parts);
        let mut simpler = |possible: bool, change: fn(&mut Plan)| {
            if possible {
                changes.push(Box::new(change));
            }
        };
        simpler(parts.in_flight, |plan| plan.parts.in_flight = false);
        simpler(parts.wear_out > 0, |plan| plan.parts.wear_out = 0);
        simpler(parts.bit_errors > 0, |plan| plan.parts.bit_errors = 0);
        simpler(device.worn, |plan| plan.device.worn = false);
        simpler(device.planes > 0, |plan| plan.device.planes = 0);
        simpler(device.dies != (1, 1), |plan| plan.device.dies = (1, 1));
        simpler(device.op_percent != 7, |plan| plan.device.op_percent = 7);
        changes
    }
}

/// A change in the restart of this step.
fn in_restart(number: usize, change: impl Fn(&mut Restart) + 'static) -> Change<Plan> {
    Box::new(move |plan| {
        if let Step::Cut(_, restart) | Step::Down(_, restart) = &mut plan.steps[number] {
            change(restart);
        }
    })
}
