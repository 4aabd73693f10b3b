//! Shrinks a failing plan while it still fails.

use super::plan::{Action, Plan};
use std::time::{Duration, Instant};

/// Runs per candidate with races in the second pass: the thread schedule varies.
const TRIES: u32 = 12;

/// Drops actions, then parts of races, then connections and parameters, while `fails` returns true
/// and time is left.
///
/// The first pass runs each candidate once, the second runs candidates with races several times.
pub fn shrink(plan: &Plan, patience: Duration, fails: impl FnMut(&Plan) -> bool) -> Plan {
    let mut search = Search {
        best: plan.clone(),
        until: Instant::now() + patience,
        tries: 1,
        fails,
    };
    search.pass();
    if has_races(&search.best) {
        search.tries = TRIES;
        search.pass();
    }
    search.best
}

fn has_races(plan: &Plan) -> bool {
    plan.actions
        .iter()
        .any(|action| matches!(action, Action::Race(..)))
}

struct Search<F> {
    best: Plan,
    until: Instant,
    /// Runs of a candidate with races.
    tries: u32,
    fails: F,
}

impl<F: FnMut(&Plan) -> bool> Search<F> {
    /// Accepts the candidate if it fails, too.
    fn offer(&mut self, candidate: Plan) -> bool {
        let tries = if has_races(&candidate) { self.tries } else { 1 };
        let failed = (0..tries).any(|_| Instant::now() < self.until && (self.fails)(&candidate));
        if failed {
            self.best = candidate;
        }
        failed
    }

    /// Drops parts until no candidate fails.
    fn pass(&mut self) {
        loop {
            let before = self.best.to_string();
            self.drop_actions();
            self.drop_racers();
            self.drop_connections();
            self.drop_params();
            if self.best.to_string() == before || Instant::now() >= self.until {
                return;
            }
        }
    }

    /// Drops actions, long runs of them first.
    fn drop_actions(&mut self) {
        let mut length = self.best.actions.len().div_ceil(2);
        while length > 0 {
            let mut at = 0;
            while at < self.best.actions.len() {
                let mut smaller = self.best.clone();
                smaller
                    .actions
                    .drain(at..(at + length).min(self.best.actions.len()));
                if !self.offer(smaller) {
                    at += length;
                }
            }
            length /= 2;
        }
    }

    fn drop_racers(&mut self) {
        for place in 0..self.best.actions.len() {
            let mut at = 0;
            while let Action::Race(asks, _) = &self.best.actions[place]
                && at < asks.len()
            {
                let mut smaller = self.best.clone();
                if let Action::Race(asks, _) = &mut smaller.actions[place] {
                    asks.remove(at);
                }
                if !self.offer(smaller) {
                    at += 1;
                }
            }
        }
    }

    fn drop_connections(&mut self) {
        while self.best.wires.len() > 1 {
            let mut smaller = self.best.clone();
            smaller.wires.pop();
            if !self.offer(smaller) {
                break;
            }
        }
    }

    fn drop_params(&mut self) {
        let mut smaller = self.best.clone();
        if smaller.cache.take().is_some() {
            self.offer(smaller);
        }
        for place in (0..self.best.params.len()).rev() {
            let mut smaller = self.best.clone();
            smaller.params.remove(place);
            self.offer(smaller);
        }
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
