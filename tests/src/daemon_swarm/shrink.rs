//! Shrinks a failing plan: fewer actions, fewer racing requests, fewer connections and parameters.

use super::plan::{Action, Plan};
use ftld_battery::shrink::{Change, Shrink, smallest};
use std::time::{Duration, Instant};

/// Runs per candidate with races in the second pass: the thread schedule varies.
const TRIES: u32 = 12;

/// Returns the smallest plan found for which `fails` returns true while time is left.
///
/// The first pass runs each candidate once, the second runs candidates with races several times.
pub fn shrink(plan: &Plan, patience: Duration, mut fails: impl FnMut(&Plan) -> bool) -> Plan {
    let until = Instant::now() + patience;
    let mut fails_in_time = |plan: &Plan| Instant::now() < until && fails(plan);
    let small = smallest(plan, &mut fails_in_time);
    if !has_races(&small) {
        return small;
    }
    smallest(&small, |candidate| {
        let tries = if has_races(candidate) { TRIES } else { 1 };
        (0..tries).any(|_| fails_in_time(candidate))
    })
}

fn has_races(plan: &Plan) -> bool {
    plan.actions
        .iter()
        .any(|action| matches!(action, Action::Race(..)))
}

impl Shrink for Plan {
    type Step = Action;

    fn steps(&mut self) -> &mut Vec<Action> {
        &mut self.actions
    }

    fn changes(&self) -> Vec<Change<Plan>> {
        let mut changes: Vec<Change<Plan>> = Vec::new();
        for (place, action) in self.actions.iter().enumerate() {
            let Action::Race(asks, _) = action else {
                continue;
            };
            for at in 0..asks.len() {
                changes.push(Box::new(move |plan| {
                    if let Action::Race(asks, _) = &mut plan.actions[place] {
                        asks.remove(at);
                    }
                }));
            }
        }
        if self.wires.len() > 1 {
            changes.push(Box::new(|plan| plan.wires.truncate(plan.wires.len() - 1)));
        }
        if self.cache.is_some() {
            changes.push(Box::new(|plan| plan.cache = None));
        }
        for place in (0..self.params.len()).rev() {
            changes.push(Box::new(move |plan| drop(plan.params.remove(place))));
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon_swarm::plan::draw;

    #[test]
    fn shrinking_keeps_the_actions_that_the_failure_needs() {
        let plan = (0..)
            .map(draw)
            .find(|plan| has_races(plan) && state_checks(plan) >= 2)
            .expect("drawn soon");
        let small = shrink(&plan, Duration::from_secs(60), |plan| {
            state_checks(plan) >= 2
        });
        assert!(
            small.actions.len() == 2 && small.wires.len() == 1,
            "{small}"
        );
    }

    #[test]
    fn intermittent_failure_is_shrunk_in_the_second_pass() {
        let plan = (0..).map(draw).find(has_races).expect("drawn soon");
        let mut runs = 0;
        let small = shrink(&plan, Duration::from_secs(60), |plan| {
            runs += 1;
            has_races(plan) && runs % 5 == 0
        });
        assert!(small.actions.len() == 1 && has_races(&small), "{small}");
    }

    fn state_checks(plan: &Plan) -> usize {
        plan.actions
            .iter()
            .filter(|action| matches!(action, Action::CheckState(..)))
            .count()
    }
}
