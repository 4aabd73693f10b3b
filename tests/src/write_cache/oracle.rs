//! Permitted contents of each unit.

use std::collections::BTreeSet;

/// A change of the device.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) offset: u64,
    /// The new bytes.
    pub(super) data: Vec<u8>,
}

/// Contents by unit: what the last completed FLUSH covered, then every content since.
pub(super) struct Oracle {
    unit: usize,
    /// State as of the last completed FLUSH.
    base: Vec<u8>,
    /// Changes since then. The last one may have failed.
    changes: Vec<Change>,
    /// Newest acknowledged state.
    now: Vec<u8>,
    /// Whether the last change was not acknowledged.
    in_flight: bool,
}

/// Units by content after a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Units that changed since the last FLUSH and have their newest content.
    pub(super) newest: u64,
    /// Units that have a content in between.
    pub(super) between: u64,
    /// Units that have the content as of the last FLUSH.
    pub(super) base: u64,
    /// Changes of several units that are there in part.
    pub(super) torn: u64,
}

impl Oracle {
    pub(super) fn new(unit: usize, size: u64) -> Oracle {
        let zeros = vec![0; size as usize];
        Oracle {
            unit,
            base: zeros.clone(),
            changes: Vec::new(),
            now: zeros,
            in_flight: false,
        }
    }

    pub(super) fn now(&self) -> &[u8] {
        &self.now
    }

    /// Records a change that is about to be submitted.
    pub(super) fn submit(&mut self, change: Change) {
        self.changes.push(change);
        self.in_flight = true;
    }

    /// Records that the change in flight was acknowledged.
    pub(super) fn acknowledged(&mut self) {
        let change = self.changes.last().expect("submitted");
        apply(&mut self.now, change);
        self.in_flight = false;
    }

    /// Records a completed FLUSH.
    pub(super) fn flushed(&mut self) {
        self.base.clone_from(&self.now);
        self.changes.clear();
    }

    /// Records the content after a restart, which is durable.
    pub(super) fn restarted(&mut self, bytes: Vec<u8>) {
        self.now = bytes;
        self.in_flight = false;
        self.flushed();
    }

    fn units(&self) -> impl Iterator<Item = std::ops::Range<usize>> + use<'_> {
        let size = self.base.len();
        (0..size.div_ceil(self.unit)).map(move |n| n * self.unit..((n + 1) * self.unit).min(size))
    }

    /// Checks that nothing acknowledged is lost: only the change in flight is undecided, by unit.
    pub(super) fn judge_exact(&self, bytes: &[u8]) -> Result<(), String> {
        let mut further = self.now.clone();
        if let Some(change) = self.changes.last().filter(|_| self.in_flight) {
            apply(&mut further, change);
        }
        for unit in self.units() {
            let seen = &bytes[unit.clone()];
            if *seen != self.now[unit.clone()] && *seen != further[unit.clone()] {
                return Err(format!("byte {} lost an acknowledged content", unit.start));
            }
        }
        Ok(())
    }

    /// Checks that everything has the content as of the last FLUSH.
    pub(super) fn judge_base(&self, bytes: &[u8]) -> Result<(), String> {
        match bytes
            .iter()
            .zip(&self.base)
            .position(|(one, other)| one != other)
        {
            None => Ok(()),
            Some(at) => Err(format!("byte {at} survived the power cut without a FLUSH")),
        }
    }

    /// Checks that each unit has one of its contents since the last FLUSH.
    pub(super) fn judge_any(&self, bytes: &[u8]) -> Result<Seen, String> {
        let mut allowed: Vec<Vec<Vec<u8>>> = self
            .units()
            .map(|unit| vec![self.base[unit].to_vec()])
            .collect();
        let mut state = self.base.clone();
        for change in &self.changes {
            apply(&mut state, change);
            for number in self.numbers(change) {
                let unit = self.units().nth(number).expect("a unit of the device");
                allowed[number].push(state[unit].to_vec());
            }
        }
        let mut seen = Seen::default();
        for (number, unit) in self.units().enumerate() {
            let found = &bytes[unit.clone()];
            let contents = &allowed[number];
            let Some(place) = contents.iter().rposition(|content| content == found) else {
                return Err(format!(
                    "byte {} has none of its {} contents since the last FLUSH",
                    unit.start,
                    contents.len()
                ));
            };
            if contents.len() > 1 {
                match place {
                    _ if place + 1 == contents.len() => seen.newest += 1,
                    0 => seen.base += 1,
                    _ => seen.between += 1,
                }
            }
        }
        seen.torn = self.torn(bytes, &state);
        Ok(seen)
    }

    /// Counts the last changes of their units that are there in part.
    fn torn(&self, bytes: &[u8], last: &[u8]) -> u64 {
        let mut taken = BTreeSet::new();
        let mut torn = 0;
        for change in self.changes.iter().rev() {
            let (mut there, mut missing) = (false, false);
            for number in self.numbers(change) {
                if taken.insert(number) {
                    let unit = self.units().nth(number).expect("a unit of the device");
                    let is_there = bytes[unit.clone()] == last[unit];
                    there |= is_there;
                    missing |= !is_there;
                }
            }
            torn += u64::from(there && missing);
        }
        torn
    }

    fn numbers(&self, change: &Change) -> std::ops::Range<usize> {
        let (from, upto) = (
            change.offset as usize,
            change.offset as usize + change.data.len(),
        );
        from / self.unit..upto.div_ceil(self.unit)
    }

    /// Checks that the whole device has the state after a number of changes, where the next change
    /// may be there in part, by unit. Returns that number.
    pub(super) fn judge_prefix(&self, bytes: &[u8]) -> Result<usize, String> {
        let mut state = self.base.clone();
        for count in 0..=self.changes.len() {
            let next = self.changes.get(count);
            let mut further = state.clone();
            if let Some(next) = next {
                apply(&mut further, next);
            }
            let fits = self.units().all(|unit| {
                let seen = &bytes[unit.clone()];
                *seen == state[unit.clone()] || *seen == further[unit]
            });
            if fits {
                return Ok(count);
            }
            state = further;
        }
        Err(format!(
            "the device has the state after no prefix of {} changes",
            self.changes.len()
        ))
    }
}

fn apply(state: &mut [u8], change: &Change) {
    state[change.offset as usize..][..change.data.len()].copy_from_slice(&change.data);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, byte: u8, bytes: usize) -> Change {
        let data = vec![byte; bytes];
        Change { offset, data }
    }

    #[test]
    fn a_mixture_of_contents_or_of_prefixes_is_found() {
        let mut oracle = Oracle::new(4, 12);
        for change in [write(0, 1, 8), write(4, 2, 4), write(0, 3, 12)] {
            oracle.submit(change);
            oracle.acknowledged();
        }
        let state = |a: u8, b: u8, c: u8| [[a; 4], [b; 4], [c; 4]].concat();
        assert_eq!(oracle.judge_exact(&state(3, 3, 3)), Ok(()));
        assert!(oracle.judge_exact(&state(3, 2, 3)).is_err());
        let seen = oracle.judge_any(&state(3, 1, 0)).unwrap();
        let wanted = Seen {
            newest: 1,
            between: 1,
            base: 1,
            torn: 1,
        };
        assert_eq!(seen, wanted);
        let mut mixed = state(3, 1, 0);
        mixed[5] = 3;
        assert!(oracle.judge_any(&mixed).is_err(), "a unit is a mixture");
        assert_eq!(oracle.judge_prefix(&state(1, 2, 0)), Ok(1));
        assert_eq!(
            oracle.judge_prefix(&state(1, 2, 3)),
            Ok(2),
            "the last is torn"
        );
        assert!(oracle.judge_prefix(&state(3, 1, 0)).is_err());
        assert!(oracle.judge_base(&state(1, 0, 0)).is_err());
        oracle.flushed();
        assert!(oracle.judge_any(&state(1, 2, 0)).is_err(), "it was flushed");
        assert_eq!(oracle.judge_base(&state(3, 3, 3)), Ok(()));
    }
}
