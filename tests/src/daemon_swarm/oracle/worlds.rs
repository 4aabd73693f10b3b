//! Worlds of a unit: the possible orders of effect of its requests.

use super::{BASE, Entry, OpId, State, World};
use std::collections::BTreeSet;

impl World {
    pub(super) fn of(state: State) -> World {
        World {
            line: vec![Entry {
                op: BASE,
                by: 0,
                state,
            }],
            early: BTreeSet::new(),
            others: Vec::new(),
            gone: Vec::new(),
        }
    }

    pub(super) fn last(&self) -> &State {
        &self.line.last().expect("a line has a base").state
    }

    /// Returns the world in which the request takes effect, unanswered.
    pub(super) fn with(&self, op: OpId, state: State) -> World {
        let mut world = self.clone();
        world.line.push(Entry {
            op,
            by: u64::MAX,
            state,
        });
        world.early.insert(op);
        world
            .others
            .iter_mut()
            .for_each(|(_, later)| later.push(op));
        world
    }

    /// Makes the requests in `covered` durable. Reads that began after `horizon` may still arrive.
    pub(super) fn settle(
        &mut self,
        covered: impl Fn(OpId) -> bool,
        acked: impl Fn(OpId) -> Option<u64>,
        horizon: u64,
    ) {
        self.gone.retain(|(_, until)| *until > horizon);
        if let Some(place) = self.line.iter().rposition(|entry| covered(entry.op)) {
            let mut until = u64::MAX;
            for at in (0..self.line.len()).rev() {
                if at < place && until > horizon {
                    self.gone.push((self.line[at].state.clone(), until));
                }
                until = until.min(self.line[at].by);
            }
            self.line.drain(..place);
        }
        for (state, later) in std::mem::take(&mut self.others) {
            let until = later
                .iter()
                .filter_map(|op| acked(*op))
                .min()
                .unwrap_or(u64::MAX);
            if !later.iter().any(|op| covered(*op)) {
                self.others.push((state, later));
            } else if until > horizon {
                self.gone.push((state, until));
            }
        }
    }

    /// Merges a world with the same end.
    pub(super) fn join(&mut self, other: World) {
        for (place, entry) in other.line.iter().enumerate() {
            if let Some(own) = self.line.iter_mut().find(|own| own.op == entry.op) {
                own.by = own.by.max(entry.by);
            }
            let later = other.line[place + 1..]
                .iter()
                .map(|entry| entry.op)
                .collect();
            self.note(entry.state.clone(), later);
        }
        other
            .others
            .into_iter()
            .for_each(|(state, later)| self.note(state, later));
        self.gone.extend(other.gone);
    }

    fn note(&mut self, state: State, mut later: Vec<OpId>) {
        later.sort_unstable();
        let here = |place: usize| {
            self.line[place + 1..]
                .iter()
                .all(|entry| later.contains(&entry.op))
        };
        let known =
            (0..self.line.len()).any(|place| self.line[place].state == state && here(place));
        let subset = |own: &Vec<OpId>| own.iter().all(|op| later.contains(op));
        if !known
            && !self
                .others
                .iter()
                .any(|(own, after)| *own == state && subset(after))
        {
            self.others.push((state, later));
        }
    }

    pub(super) fn states(&self) -> impl Iterator<Item = &State> {
        self.line
            .iter()
            .map(|entry| &entry.state)
            .chain(self.others.iter().map(|(state, _)| state))
    }
}

/// Adds a world, or merges it: worlds with the same end continue identically.
pub(super) fn push_new(worlds: &mut Vec<World>, world: World) {
    let same = |other: &&mut World| other.early == world.early && other.last() == world.last();
    match worlds.iter_mut().find(same) {
        Some(other) => other.join(world),
        None => worlds.push(world),
    }
}
