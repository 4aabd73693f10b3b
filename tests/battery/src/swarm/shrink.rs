//! Shrinks a failing plan while it still fails: fewer steps, fewer faults, a simpler device.

use super::plan::{Inside, Plan, Restart, Step};
use super::run;
use crate::classes::Classes;
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

/// The smallest failing plan found, and its error.
pub fn shrink(plan: &Plan, why: String) -> (Plan, String) {
    let mut smallest = Smallest {
        plan: plan.clone(),
        why,
        tries: 0,
    };
    loop {
        let before = smallest.plan.to_string();
        smallest.drop_steps();
        smallest.simplify_steps();
        smallest.simplify_device();
        if smallest.plan.to_string() == before || smallest.tries >= TRIES {
            return (smallest.plan, smallest.why);
        }
    }
}

struct Smallest {
    plan: Plan,
    why: String,
    tries: u32,
}

impl Smallest {
    /// Accepts the candidate if it fails, too. A plan without a layout does not count.
    fn offer(&mut self, candidate: Plan) -> bool {
        if self.tries >= TRIES || candidate.rig().is_err() {
            return false;
        }
        self.tries += 1;
        let Err(why) = outcome(&candidate, &mut Classes::default()) else {
            return false;
        };
        (self.plan, self.why) = (candidate, why);
        true
    }

    /// Removes sequences of steps: long ones first.
    fn drop_steps(&mut self) {
        let mut length = self.plan.steps.len().max(1);
        while length > 0 {
            let mut at = 0;
            while at < self.plan.steps.len() {
                let mut candidate = self.plan.clone();
                let end = candidate.steps.len().min(at + length);
                candidate.steps.drain(at..end);
                if !self.offer(candidate) {
                    at += length;
                }
            }
            length /= 2;
        }
    }

    /// Removes faults inside restarts.
    fn simplify_steps(&mut self) {
        for number in 0..self.plan.steps.len() {
            let inside = match restart_of(&mut self.plan.steps[number]) {
                Some(restart) => restart.inside.len(),
                None => continue,
            };
            self.change_restart(number, |restart| restart.crash = None);
            for at in (0..inside).rev() {
                self.change_restart(number, |restart| {
                    restart.inside.remove(at);
                });
            }
            self.change_restart(number, |restart| {
                restart.inside.iter_mut().for_each(|inside| {
                    if let Inside::Cut(_, how) = inside {
                        *how = None;
                    }
                });
            });
        }
    }

    fn change_restart(&mut self, number: usize, change: impl FnOnce(&mut Restart)) {
        let mut candidate = self.plan.clone();
        let restart = restart_of(&mut candidate.steps[number]).expect("looked at before");
        let before = restart.clone();
        change(restart);
        if *restart != before {
            self.offer(candidate);
        }
    }

    fn simplify_device(&mut self) {
        for at in (0..self.plan.device.params.len()).rev() {
            let mut candidate = self.plan.clone();
            candidate.device.params.remove(at);
            self.offer(candidate);
        }
        for at in (0..self.plan.parts.rates.len()).rev() {
            let mut candidate = self.plan.clone();
            candidate.parts.rates.remove(at);
            self.offer(candidate);
        }
        let simpler: [fn(&mut Plan); 6] = [
            |plan| plan.parts.in_flight = false,
            |plan| plan.parts.wear_out = 0,
            |plan| plan.parts.bit_errors = 0,
            |plan| plan.device.worn = false,
            |plan| plan.device.dies = (1, 1),
            |plan| plan.device.op_percent = 7,
        ];
        for simplify in simpler {
            let mut candidate = self.plan.clone();
            simplify(&mut candidate);
            if candidate.to_string() != self.plan.to_string() {
                self.offer(candidate);
            }
        }
    }
}

fn restart_of(step: &mut Step) -> Option<&mut Restart> {
    match step {
        Step::Cut(_, restart) | Step::Down(_, restart) => Some(restart),
        _ => None,
    }
}
