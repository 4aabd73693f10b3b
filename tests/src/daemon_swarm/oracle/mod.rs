//! Oracle of concurrent sessions: the permitted contents of each unit now and after a crash.
//!
//! A *unit* is the device's unit of atomicity. A *world* is one possible order of effect of the
//! requests on a unit. A unit has all worlds that agree with the replies so far. A world's *line*
//! is its contents in order, from the durable one on.
//!
//! Rules: a request takes effect in each unit at one instant between its submission and its reply.
//! A failed request took effect in that interval or never; it may be in RAM alone until a FLUSH or
//! the end of the daemon, which loses it. A FLUSH covers the requests answered before its
//! submission; a FUA reply covers its own request. A crash leaves in each unit one whole content of
//! its line, or one that unanswered requests make of it.

mod judge;
mod worlds;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use worlds::push_new;

/// Limit of worlds in one unit. Beyond it the plan has too many concurrent requests.
const WORLDS_MAX: usize = 400;

/// Number of a request.
pub type OpId = u32;

type State = Arc<[u8]>;

/// Change made by a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Data of this version.
    Version(u32),
    /// Zeros.
    Zeros,
}

#[derive(Clone, Debug)]
struct Op {
    change: Change,
    range: Range<u64>,
    /// Time of the reply, if there is one.
    answered: Option<u64>,
    is_refused: bool,
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    op: OpId,
    /// Time by which the request had taken effect.
    by: u64,
    state: State,
}

#[derive(Clone, Debug, PartialEq)]
struct World {
    line: Vec<Entry>,
    /// Unanswered requests that have taken effect.
    early: BTreeSet<OpId>,
    /// Contents of other orders with the same end, and the requests that took effect after each.
    others: Vec<(State, Vec<OpId>)>,
    /// Contents before the durable one, and the latest time at which a read may have returned each.
    gone: Vec<(State, u64)>,
}

#[derive(Clone, Debug)]
struct Unit {
    worlds: Vec<World>,
    pending: Vec<OpId>,
}

/// Permitted contents of a device.
#[derive(Clone, Debug)]
pub struct Oracle {
    seed: u64,
    unit: usize,
    size: u64,
    /// Units that are not all zeros.
    units: BTreeMap<u64, Unit>,
    ops: Vec<Op>,
    zeros: State,
    /// Every request without a reply was submitted after this instant, or at it.
    pub horizon: u64,
}

/// Request number of the content before the first request of [`World::line`].
const BASE: OpId = OpId::MAX;

/// Fills `out` with the bytes that `version` has from `at` on.
pub fn fill(seed: u64, version: u32, at: u64, out: &mut [u8]) {
    let mut word = (u64::MAX, [0; 8]);
    for (at, byte) in (at..).zip(out) {
        if word.0 != at / 8 {
            word = (
                at / 8,
                ((u64::from(version) << 32) | (at / 8))
                    .wrapping_add(key(seed, version))
                    .to_le_bytes(),
            );
            // A word's bytes must all differ from those of the next version.
            let spread = u64::from_le_bytes(word.1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            word.1 = (spread ^ spread >> 32).to_le_bytes();
        }
        *byte = word.1[(at % 8) as usize];
    }
}

fn key(seed: u64, version: u32) -> u64 {
    nand_model::SplitMix::new(seed ^ u64::from(version) << 17).next_u64()
}

impl Oracle {
    /// An empty device.
    pub fn new(seed: u64, unit: usize, size: u64) -> Self {
        Oracle {
            seed,
            unit,
            size,
            units: BTreeMap::new(),
            ops: Vec::new(),
            zeros: vec![0; unit].into(),
            horizon: 0,
        }
    }

    /// Returns the unit of atomicity in bytes.
    pub fn unit_bytes(&self) -> usize {
        self.unit
    }

    /// Returns the time of the successful reply.
    fn acked(&self, op: OpId) -> Option<u64> {
        let op = self.ops.get(op as usize).filter(|op| !op.is_refused)?;
        op.answered
    }

    fn is_refused(&self, op: OpId) -> bool {
        self.ops.get(op as usize).is_some_and(|op| op.is_refused)
    }

    fn units_of(&self, range: &Range<u64>) -> Range<u64> {
        let unit = self.unit as u64;
        if range.is_empty() {
            0..0
        } else {
            range.start / unit..range.end.div_ceil(unit)
        }
    }

    fn blank(&self) -> Unit {
        Unit {
            worlds: vec![World::of(self.zeros.clone())],
            pending: Vec::new(),
        }
    }

    fn apply(&self, op: OpId, number: u64, state: &State) -> State {
        let Op { change, range, .. } = &self.ops[op as usize];
        let start = number * self.unit as u64;
        let (from, upto) = (
            range.start.max(start),
            range.end.min(start + self.unit as u64),
        );
        let mut bytes = state.to_vec();
        let part = &mut bytes[(from - start) as usize..(upto - start) as usize];
        match change {
            Change::Version(version) => fill(self.seed, *version, from, part),
            Change::Zeros => part.fill(0),
        }
        if bytes.iter().all(|byte| *byte == 0) {
            self.zeros.clone()
        } else {
            bytes.into()
        }
    }

    /// Records a submitted request.
    pub fn submit(&mut self, change: Change, range: Range<u64>) -> OpId {
        let op = self.ops.len() as OpId;
        self.ops.push(Op {
            change,
            range: range.clone(),
            answered: None,
            is_refused: false,
        });
        for number in self.units_of(&range) {
            let blank = self.blank();
            self.units.entry(number).or_insert(blank).pending.push(op);
        }
        op
    }

    /// Returns the worlds that follow from `world` if the request takes effect next, or after other
    /// unanswered ones.
    fn reach(
        &self,
        number: u64,
        world: &World,
        op: OpId,
        pending: &[OpId],
        out: &mut Vec<World>,
    ) -> Result<(), String> {
        for &next in pending.iter().filter(|next| !world.early.contains(next)) {
            let further = world.with(next, self.apply(next, number, world.last()));
            if next == op {
                push_new(out, further);
            } else {
                self.reach(number, &further, op, pending, out)?;
            }
            self.bounded(number, out)?;
        }
        Ok(())
    }

    fn bounded(&self, number: u64, worlds: &[World]) -> Result<(), String> {
        let (most, unit) = (WORLDS_MAX * 10, number * self.unit as u64);
        if worlds.len() > most {
            Err(format!(
                "plan: more than {most} orders of requests at byte {unit}"
            ))
        } else {
            Ok(())
        }
    }

    /// Records the reply at `now` to a request that changes data.
    pub fn answered(
        &mut self,
        op: OpId,
        now: u64,
        well: bool,
        durable: bool,
    ) -> Result<(), String> {
        let asked = &mut self.ops[op as usize];
        (asked.answered, asked.is_refused) = (Some(now), !well);
        for number in self.units_of(&self.ops[op as usize].range.clone()) {
            let Some(mut unit) = self.units.remove(&number) else {
                continue;
            };
            let mut worlds: Vec<World> = Vec::new();
            for world in &unit.worlds {
                let mut found = Vec::new();
                if world.early.contains(&op) {
                    found.push(world.clone());
                } else {
                    self.reach(number, world, op, &unit.pending, &mut found)?;
                }
                for mut world in found {
                    let place = world.line.iter().position(|entry| entry.op == op);
                    // A FLUSH may have made the content durable and shortened the line.
                    for entry in &mut world.line[..place.map_or(0, |place| place + 1)] {
                        entry.by = entry.by.min(now);
                    }
                    if well && durable {
                        world.settle(|other| other == op, |op| self.acked(op), self.horizon);
                    }
                    world.early.remove(&op);
                    push_new(&mut worlds, world);
                }
                if !well && !world.early.contains(&op) {
                    push_new(&mut worlds, world.clone());
                }
            }
            if worlds.len() > WORLDS_MAX {
                return Err(format!(
                    "plan: {} orders of requests at byte {}",
                    worlds.len(),
                    number * self.unit as u64
                ));
            }
            unit.worlds = worlds;
            unit.pending.retain(|pending| *pending != op);
            self.keep(number, unit);
        }
        Ok(())
    }

    /// Stores a unit unless its only content is zeros.
    fn keep(&mut self, number: u64, unit: Unit) {
        let plain = unit.pending.is_empty()
            && unit.worlds.len() == 1
            && unit.worlds[0].states().count() == 1
            && unit.worlds[0].gone.is_empty()
            && Arc::ptr_eq(unit.worlds[0].last(), &self.zeros);
        if !plain {
            self.units.insert(number, unit);
        }
    }

    /// Records the successful reply to a FLUSH submitted at `began`.
    pub fn flushed(&mut self, began: u64) {
        let numbers: Vec<u64> = self.units.keys().copied().collect();
        for number in numbers {
            let mut unit = self.units.remove(&number).expect("listed");
            let answered = |op: OpId| self.ops.get(op as usize).and_then(|op| op.answered);
            let covered = |op| answered(op).is_some_and(|answered| answered < began);
            unit.worlds
                .iter_mut()
                .for_each(|world| world.settle(covered, |op| self.acked(op), self.horizon));
            self.keep(number, unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: usize = 16;

    fn bytes(version: u32, range: Range<u64>) -> Vec<u8> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        fill(1, version, range.start, &mut bytes);
        bytes
    }

    fn whole(oracle: &Oracle, parts: &[(u32, Range<u64>)]) -> Vec<u8> {
        let mut all = vec![0; oracle.size as usize];
        for (version, range) in parts {
            all[range.start as usize..range.end as usize]
                .copy_from_slice(&bytes(*version, range.clone()));
        }
        all
    }

    #[test]
    fn read_that_overlaps_a_write_returns_either_value_and_later_reads_nothing_older() {
        let mut oracle = Oracle::new(1, UNIT, 64);
        let op = oracle.submit(Change::Version(0), 0..16);
        let mut other = oracle.clone();
        oracle.read(0, &[0; 16], 1, 2).unwrap();
        oracle.read(0, &bytes(0, 0..16), 3, 4).unwrap();
        assert!(
            oracle.read(0, &[0; 16], 5, 6).is_err(),
            "a read went behind an earlier one"
        );
        other.answered(op, 3, true, false).unwrap();
        assert!(
            other.clone().read(0, &[0; 16], 4, 5).is_err(),
            "acknowledged before the read began"
        );
        other.clone().read(0, &[0; 16], 2, 5).unwrap();
        assert!(
            other.read(0, &bytes(1, 0..16), 4, 5).is_err(),
            "never submitted"
        );
    }

    #[test]
    fn read_that_overlaps_a_durable_write_may_return_the_older_value() {
        let mut oracle = Oracle::new(1, UNIT, 64);
        let op = oracle.submit(Change::Version(0), 0..16);
        oracle.answered(op, 3, true, true).unwrap();
        oracle.clone().read(0, &[0; 16], 2, 4).unwrap();
        assert!(
            oracle.clone().read(0, &[0; 16], 4, 5).is_err(),
            "acknowledged before the read began"
        );
        assert!(oracle.judge(&[0; 64], true).is_err(), "durable");
    }

    #[test]
    fn two_writes_to_parts_of_one_unit_are_both_kept() {
        let mut oracle = Oracle::new(1, UNIT, 64);
        let (one, two) = (
            oracle.submit(Change::Version(0), 0..4),
            oracle.submit(Change::Version(1), 8..12),
        );
        oracle.answered(one, 3, true, false).unwrap();
        oracle.answered(two, 4, true, false).unwrap();
        let both = whole(&oracle, &[(0, 0..4), (1, 8..12)]);
        oracle.clone().read(0, &both[..16], 5, 6).unwrap();
        for lost in [whole(&oracle, &[(0, 0..4)]), whole(&oracle, &[(1, 8..12)])] {
            assert!(
                oracle.clone().read(0, &lost[..16], 5, 6).is_err(),
                "an update was lost"
            );
            assert!(
                oracle.judge(&lost, true).is_ok() && oracle.judge(&lost, false).is_err(),
                "nothing is durable yet"
            );
        }
        oracle.flushed(5);
        assert!(oracle.judge(&both, true).is_ok());
        assert!(oracle.judge(&whole(&oracle, &[(0, 0..4)]), true).is_err());
    }

    #[test]
    fn flush_covers_requests_answered_before_it_and_fua_covers_itself() {
        let mut oracle = Oracle::new(1, UNIT, 64);
        let one = oracle.submit(Change::Version(0), 0..16);
        oracle.answered(one, 5, true, false).unwrap();
        oracle.flushed(4);
        assert!(
            oracle.judge(&[0; 64], true).is_ok(),
            "it began before the reply"
        );
        oracle.flushed(6);
        assert!(oracle.judge(&[0; 64], true).is_err());
        let two = oracle.submit(Change::Zeros, 0..16);
        oracle.answered(two, 8, true, true).unwrap();
        assert!(
            oracle.judge(&[0; 64], true).is_ok()
                && oracle.judge(&whole(&oracle, &[(0, 0..16)]), true).is_err()
        );
    }

    #[test]
    fn failed_request_is_undecided_until_a_read_and_unanswered_one_until_a_restart() {
        let mut oracle = Oracle::new(1, UNIT, 64);
        let one = oracle.submit(Change::Version(0), 0..32);
        oracle.answered(one, 5, false, false).unwrap();
        let (mut in_ram, all) = (oracle.clone(), whole(&oracle, &[(0, 0..32)]));
        in_ram.read(0, &all[..32], 6, 7).unwrap();
        assert!(in_ram.judge(&all, false).is_ok() && in_ram.judge(&[0; 64], false).is_ok());
        in_ram.flushed(8);
        assert!(
            in_ram.judge(&all, false).is_ok() && in_ram.judge(&[0; 64], false).is_err(),
            "a FLUSH writes what a read has seen"
        );
        let half = whole(&oracle, &[(0, 0..16)]);
        assert!(oracle.judge(&half, false).is_ok() && oracle.judge(&[0; 64], false).is_ok());
        oracle.read(0, &[0; 16], 6, 7).unwrap();
        assert!(
            oracle.judge(&half, false).is_err(),
            "it was seen not to have taken effect"
        );
        oracle.submit(Change::Version(1), 48..56);
        let mut torn = whole(&oracle, &[(1, 48..56)]);
        assert!(oracle.judge(&torn, true).is_ok());
        oracle.restarted(&torn);
        assert!(oracle.judge(&torn, true).is_ok() && oracle.judge(&[0; 64], true).is_err());
        torn[50] ^= 1;
        assert!(oracle.judge(&torn, true).is_err());
    }
}
