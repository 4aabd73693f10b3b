//! Checks of reads, restarts and crashes.

use super::worlds::push_new;
use super::{Change, OpId, Oracle, State, Unit, World, fill};
use std::collections::BTreeSet;
use std::ops::Range;

impl Oracle {
    /// Checks the bytes that a read, submitted at `began`, returned at `now`. Later reads must not
    /// return older content.
    pub fn read(&mut self, at: u64, bytes: &[u8], began: u64, now: u64) -> Result<(), String> {
        let range = at..at + bytes.len() as u64;
        for number in self.units_of(&range) {
            let start = number * self.unit as u64;
            let (from, upto) = (
                range.start.max(start),
                range.end.min(start + self.unit as u64),
            );
            let seen = &bytes[(from - at) as usize..(upto - at) as usize];
            let part = (from - start) as usize..(upto - start) as usize;
            let Some(mut unit) = self.units.remove(&number) else {
                if seen.iter().any(|byte| *byte != 0) {
                    return Err(self.wrong("reads as", from, seen, &[&self.zeros[part]]));
                }
                continue;
            };
            let mut worlds = Vec::new();
            for world in &unit.worlds {
                self.see(
                    number,
                    world,
                    &unit.pending,
                    (&part, seen),
                    (began, now),
                    &mut worlds,
                )?;
            }
            if worlds.is_empty() {
                let lasts: Vec<&[u8]> = unit
                    .worlds
                    .iter()
                    .map(|world| &world.last()[part.clone()])
                    .collect();
                return Err(self.wrong("reads as", from, seen, &lasts));
            }
            unit.worlds = worlds;
            self.keep(number, unit);
        }
        Ok(())
    }

    fn see(
        &self,
        number: u64,
        world: &World,
        pending: &[OpId],
        (part, seen): (&Range<usize>, &[u8]),
        (began, now): (u64, u64),
        out: &mut Vec<World>,
    ) -> Result<(), String> {
        // A read may return an entry if all later ones may have taken effect after it began.
        let last = world.line.len() - 1;
        let first = (0..=last)
            .rev()
            .take_while(|&place| place == last || world.line[place + 1].by > began)
            .last();
        let place = (first.unwrap_or(last)..=last)
            .find(|&place| world.line[place].state[part.clone()] == *seen);
        if let Some(place) = place {
            let mut found = world.clone();
            found.line[..=place]
                .iter_mut()
                .for_each(|entry| entry.by = entry.by.min(now));
            push_new(out, found);
            return Ok(());
        }
        let in_time = |later: &[OpId]| {
            later
                .iter()
                .all(|op| self.acked(*op).is_none_or(|acked| acked > began))
        };
        if world
            .others
            .iter()
            .any(|(state, later)| state[part.clone()] == *seen && in_time(later))
            || world
                .gone
                .iter()
                .any(|(state, until)| state[part.clone()] == *seen && *until > began)
        {
            push_new(out, world.clone());
            return Ok(());
        }
        for &next in pending.iter().filter(|next| !world.early.contains(next)) {
            let further = world.with(next, self.apply(next, number, world.last()));
            self.see(number, &further, pending, (part, seen), (began, now), out)?;
        }
        self.bounded(number, out)
    }

    /// Returns whether a unit may contain these bytes after a restart. With `rollback` it may also
    /// have lost data that was not durable.
    fn allows(&self, number: u64, bytes: &[u8], rollback: bool) -> bool {
        let Some(unit) = self.units.get(&number) else {
            return bytes.iter().all(|byte| *byte == 0);
        };
        let of = |world| self.left_by(world, rollback);
        (unit.worlds.iter().flat_map(of)).any(|state| state[..bytes.len()] == *bytes)
            || self
                .futures(number, unit)
                .iter()
                .any(|state| state[..bytes.len()] == *bytes)
    }

    /// Returns the contents that the end of the daemon may leave. Without `rollback` it loses what
    /// the host refused, and nothing else.
    fn left_by<'w>(&self, world: &'w World, rollback: bool) -> Vec<&'w State> {
        let in_ram = |op: &OpId| rollback || self.is_refused(*op);
        let line = world.line.iter().rev();
        let kept = line.clone().take_while(|entry| in_ram(&entry.op)).count();
        let others = world.others.iter();
        let others = others.filter(|(_, later)| later.iter().all(in_ram));
        let line = line.take(kept + 1).map(|entry| &entry.state);
        line.chain(others.map(|(state, _)| state)).collect()
    }

    /// Returns the contents that unanswered requests may still produce.
    fn futures(&self, number: u64, unit: &Unit) -> Vec<State> {
        let mut states: Vec<State> = Vec::new();
        let mut todo: Vec<(State, BTreeSet<OpId>)> = unit
            .worlds
            .iter()
            .map(|world| (world.last().clone(), world.early.clone()))
            .collect();
        let mut been: BTreeSet<(Vec<u8>, BTreeSet<OpId>)> = BTreeSet::new();
        while let Some((state, early)) = todo.pop() {
            for &next in unit.pending.iter().filter(|next| !early.contains(next)) {
                let (state, mut early) = (self.apply(next, number, &state), early.clone());
                early.insert(next);
                if been.insert((state.to_vec(), early.clone())) {
                    states.push(state.clone());
                    todo.push((state, early));
                }
            }
        }
        states
    }

    /// Checks the whole content of a device after a restart.
    pub fn judge(&self, bytes: &[u8], rollback: bool) -> Result<(), String> {
        assert_eq!(bytes.len() as u64, self.size, "the whole device");
        for (number, seen) in (0..).zip(bytes.chunks(self.unit)) {
            if !self.allows(number, seen, rollback) {
                let at = number * self.unit as u64;
                let unit = self.units.get(&number);
                let lines = unit
                    .into_iter()
                    .flat_map(|unit| &unit.worlds)
                    .flat_map(|world| &world.line);
                let line: Vec<&[u8]> = lines.map(|entry| &entry.state[..seen.len()]).collect();
                let nothing: &[u8] = &self.zeros[..seen.len()];
                let line = if line.is_empty() { vec![nothing] } else { line };
                let how = if rollback {
                    "after a crash holds"
                } else {
                    "after a restart holds"
                };
                return Err(self.wrong(how, at, seen, &line));
            }
        }
        Ok(())
    }

    /// Records a restart after which the device contains these bytes: they are durable, and nothing
    /// is pending.
    pub fn restarted(&mut self, bytes: &[u8]) {
        self.units.clear();
        for (number, seen) in (0..).zip(bytes.chunks(self.unit)) {
            if seen.iter().any(|byte| *byte != 0) {
                let mut unit = self.blank();
                let mut state = seen.to_vec();
                state.resize(self.unit, 0);
                unit.worlds[0].line[0].state = state.into();
                self.units.insert(number, unit);
            }
        }
    }

    /// Records a restart without a read: each unit contains one of its possible contents, which is
    /// durable.
    pub fn restarted_unseen(&mut self, rollback: bool) {
        let numbers: Vec<u64> = self.units.keys().copied().collect();
        for number in numbers {
            let unit = self.units.remove(&number).expect("listed");
            let mut states: Vec<State> = Vec::new();
            for world in &unit.worlds {
                states.extend(self.left_by(world, rollback).into_iter().cloned());
            }
            states.extend(self.futures(number, &unit));
            let mut worlds = Vec::new();
            for state in states {
                push_new(&mut worlds, World::of(state));
            }
            self.keep(
                number,
                Unit {
                    worlds,
                    pending: Vec::new(),
                },
            );
        }
    }

    fn wrong(&self, how: &str, at: u64, seen: &[u8], allowed: &[&[u8]]) -> String {
        let odd = |allowed: &&[u8]| {
            seen.iter()
                .zip(*allowed)
                .position(|(one, other)| one != other)
                .unwrap_or(0)
        };
        let place = allowed.iter().map(odd).max().unwrap_or(0);
        let names: Vec<_> = allowed
            .iter()
            .rev()
            .take(6)
            .map(|allowed| self.name(at, allowed, place))
            .collect();
        format!(
            "byte {} {how} {}; allowed, newest first: {}",
            at + place as u64,
            self.name(at, seen, place),
            names.join(", ")
        )
    }

    /// Describes the request that wrote a byte.
    fn name(&self, at: u64, bytes: &[u8], place: usize) -> String {
        let here = at + place as u64;
        let length = bytes.len() - place;
        let some = &bytes[place..place + length.min(8)];
        if some.iter().all(|byte| *byte == 0) {
            return "zeros".into();
        }
        let mut own = vec![0; some.len()];
        let given = self.ops.iter().rev().filter_map(|op| match op.change {
            Change::Version(version) => Some(version),
            Change::Zeros => None,
        });
        let versions = given.filter(|version| {
            fill(self.seed, *version, here, &mut own);
            let same = own
                .iter()
                .zip(some)
                .take_while(|(one, other)| one == other)
                .count();
            same >= some.len().min(2)
        });
        let versions: Vec<String> = versions
            .take(3)
            .map(|version| version.to_string())
            .collect();
        if versions.is_empty() {
            format!("{some:02x?}")
        } else {
            format!("version {}", versions.join(" or "))
        }
    }
}
