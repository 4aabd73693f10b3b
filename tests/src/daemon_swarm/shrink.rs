//! Makes a failing plan smaller while it still fails.

use super::plan::{Action, Plan};
use std::time::{Duration, Instant};

/// How often a plan that fails only now and then is tried: races are as the machine makes them.
const TRIES: u32 = 12;

/// Drops actions, then parts of races, then connections, for as long as `fails` says so and time is left.
pub fn shrink(plan: &Plan, patience: Duration, mut fails: impl FnMut(&Plan) -> bool) -> Plan {
    let until = Instant::now() + patience;
    let mut fails = |plan: &Plan| {
        let races = plan.actions.iter().any(|action| matches!(action, Action::Race(..)));
        (0..if races { TRIES } else { 1 }).any(|_| Instant::now() < until && fails(plan))
    };
    let mut best = plan.clone();
    loop {
        let before = best.actions.len() + best.wires.len();
        let mut chunk = best.actions.len().div_ceil(2).max(1);
        loop {
            let mut at = 0;
            while at < best.actions.len() {
                let mut smaller = best.clone();
                smaller.actions.drain(at..(at + chunk).min(best.actions.len()));
                if fails(&smaller) {
                    best = smaller;
                } else {
                    at += chunk;
                }
            }
            if chunk == 1 {
                break;
            }
            chunk = chunk.div_ceil(2);
        }
        shrink_races(&mut best, &mut fails);
        while best.wires.len() > 1 {
            let mut smaller = best.clone();
            smaller.wires.pop();
            if !fails(&smaller) {
                break;
            }
            best = smaller;
        }
        if best.actions.len() + best.wires.len() == before || Instant::now() >= until {
            return best;
        }
    }
}

fn shrink_races(best: &mut Plan, fails: &mut impl FnMut(&Plan) -> bool) {
    for place in 0..best.actions.len() {
        let mut at = 0;
        while let Action::Race(asks, _) = &best.actions[place]
            && at < asks.len()
        {
            let mut smaller = best.clone();
            if let Action::Race(asks, _) = &mut smaller.actions[place] {
                asks.remove(at);
            }
            if fails(&smaller) { *best = smaller } else { at += 1 }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::daemon_swarm::plan::draw;

    #[test]
    fn what_the_failure_needs_is_left() {
        let plan = draw(3);
        let needs = |plan: &Plan| {
            let holds = plan.actions.iter().filter(|action| matches!(action, Action::Fork(..))).count();
            holds >= 2
        };
        assert!(needs(&plan));
        let small = shrink(&plan, Duration::from_secs(60), needs);
        assert!(small.actions.len() == 2 && small.wires.len() == 1, "{small}");
    }
}
