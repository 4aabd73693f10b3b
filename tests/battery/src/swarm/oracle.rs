//! The oracle of the swarm: what each page may read as, when faults may leave a request half done.
//!
//! Per page, `durable` holds the values of which one survives any power cut, `later` the values
//! submitted since, and `current` the values that a read may return while nothing fails. Without
//! faults `durable` and `current` hold one value each. A failed request adds its value to
//! `current`. A completed FLUSH makes `current` durable. After a power loss a page reads as a
//! durable or a later value; after the death of the process alone, as a current one. What was read
//! is then the only value.

use crate::model::ZEROS;
use crate::payload::Seen;
use std::collections::BTreeMap;

/// What the faults of a run may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// Nothing that a FLUSH covered.
    Nothing,
    /// Pages: they become unreadable. After a restart one may read as an older value where the run
    /// says so ([`Oracle::may_read_as_older`]). All others read as they must; the device goes on.
    Pages,
    /// The same, and the device may refuse to mount or to go on: where a part lied, a die is dead
    /// or records are lost, pages contradict each other.
    Service,
}

/// Which pages may read as an older value after a restart (docs/DURABILITY.md, "What is not
/// promised").
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Older {
    /// None: a page that rots is an error.
    #[default]
    Never,
    /// Those that were trimmed: what knew of the trim is lost.
    Trimmed,
    /// Any: the newest value cannot be told from a program that a cut tore, or its record is gone.
    Any,
}

/// Values that a page may have, where there is more than one.
#[derive(Clone, Debug, Default)]
struct Open {
    durable: Vec<u64>,
    later: Vec<u64>,
    current: Vec<u64>,
}

/// What a device may hold.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// What payloads name.
    seed: u64,
    cost: Cost,
    older: Older,
    /// The durable and current value of pages that have but one.
    settled: Vec<u64>,
    open: BTreeMap<u32, Open>,
    /// Every value a page ever had, where the cost needs it.
    history: BTreeMap<u32, Vec<u64>>,
}

impl Oracle {
    /// An empty device whose payloads name `seed`.
    pub fn new(pages: u32, seed: u64) -> Oracle {
        let settled = vec![ZEROS; pages as usize];
        Oracle {
            seed,
            cost: Cost::Nothing,
            older: Older::Never,
            settled,
            open: BTreeMap::new(),
            history: BTreeMap::new(),
        }
    }

    /// The same device, from now on with faults that may cost this.
    pub fn costing(mut self, cost: Cost) -> Oracle {
        self.cost = cost;
        self.older = if cost == Cost::Service {
            Older::Any
        } else {
            Older::Never
        };
        self
    }

    /// From now on these pages may read as an older value after a restart.
    pub fn may_read_as_older(&mut self, which: Older) {
        self.older = self.older.max(which);
    }

    /// What the faults may cost.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Pages of the device.
    pub fn pages(&self) -> u32 {
        self.settled.len() as u32
    }

    /// What payloads name.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    fn open(&mut self, lpn: u32) -> &mut Open {
        let settled = self.settled[lpn as usize];
        self.open.entry(lpn).or_insert_with(|| Open {
            durable: vec![settled],
            later: Vec::new(),
            current: vec![settled],
        })
    }

    /// A request that gives this value is about to run: from now on the value may be found after a
    /// power loss.
    pub fn submit(&mut self, lpn: u32, value: u64) {
        let before = self.settled[lpn as usize];
        if self.cost >= Cost::Pages {
            let history = self
                .history
                .entry(lpn)
                .or_insert_with(|| vec![ZEROS, before]);
            history.push(value);
        }
        self.open(lpn).later.push(value);
    }

    /// The request succeeded.
    pub fn acknowledge(&mut self, lpn: u32, value: u64) {
        self.open(lpn).current = vec![value];
    }

    /// The request failed and may have been done in part.
    pub fn doubt(&mut self, lpn: u32, value: u64) {
        let current = &mut self.open(lpn).current;
        if !current.contains(&value) {
            current.push(value);
        }
    }

    /// A FLUSH completed that began after everything acknowledged so far.
    pub fn flushed(&mut self) {
        let settled = &mut self.settled;
        self.open.retain(|lpn, open| {
            if let [value] = open.current[..] {
                settled[*lpn as usize] = value;
                return false;
            }
            open.durable.clone_from(&open.current);
            open.later.clear();
            true
        });
    }

    /// Judges what a page reads as while nothing fails.
    ///
    /// # Errors
    /// What is wrong with it, with the values that were possible.
    pub fn judge(&mut self, lpn: u32, seen: Seen) -> Result<(), String> {
        let value = self.value(lpn, seen)?;
        let Some(open) = self.open.get_mut(&lpn) else {
            let newest = self.settled[lpn as usize];
            return if value == newest {
                Ok(())
            } else {
                Err(wrong(lpn, value, &[newest], "is", &self.history))
            };
        };
        if !open.current.contains(&value) {
            return Err(wrong(lpn, value, &open.current, "is one of", &self.history));
        }
        open.current = vec![value];
        if open.later.is_empty() {
            // Nothing was written since the FLUSH, so this is the value that it covered.
            open.durable = vec![value];
        }
        Ok(())
    }

    /// Judges what a page reads as after a restart. From now on it is the page's only value.
    ///
    /// # Errors
    /// What is wrong with it, with the values that were possible.
    pub fn settle(&mut self, lpn: u32, seen: Seen, power_lost: bool) -> Result<(), String> {
        let value = self.value(lpn, seen)?;
        let possible = self.possible(lpn, power_lost);
        if !possible.contains(&value) {
            return Err(wrong(lpn, value, &possible, "may be one of", &self.history));
        }
        self.open.remove(&lpn);
        self.settled[lpn as usize] = value;
        Ok(())
    }

    fn possible(&self, lpn: u32, power_lost: bool) -> Vec<u64> {
        let settled = self.settled[lpn as usize];
        let mut possible = match self.open.get(&lpn) {
            None => vec![settled],
            Some(open) if power_lost => open.durable.iter().chain(&open.later).copied().collect(),
            Some(open) => open.current.clone(),
        };
        let trimmed = possible.contains(&ZEROS);
        if self.older == Older::Any || self.older == Older::Trimmed && trimmed {
            possible.extend(self.history.get(&lpn).into_iter().flatten());
        }
        possible
    }

    /// The value that a page of this run shows.
    ///
    /// # Errors
    /// It shows none: another page's content, a mixture, or bytes that were never written.
    fn value(&self, lpn: u32, seen: Seen) -> Result<u64, String> {
        match seen {
            Seen::Zeros => Ok(ZEROS),
            Seen::Page {
                lpn: named,
                version,
                seed,
            } if named == lpn && seed == self.seed => Ok(version),
            other => Err(format!("page {lpn} reads as {other}")),
        }
    }
}

fn wrong(
    lpn: u32,
    value: u64,
    possible: &[u64],
    verb: &str,
    history: &BTreeMap<u32, Vec<u64>>,
) -> String {
    let known = history
        .get(&lpn)
        .is_some_and(|history| history.contains(&value));
    let hint = if known { " (an older value)" } else { "" };
    format!("page {lpn} reads as version {value:#x}{hint}; it {verb} {possible:x?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mine(lpn: u32, version: u64) -> Seen {
        Seen::Page {
            lpn,
            version,
            seed: 1,
        }
    }

    fn write(oracle: &mut Oracle, lpn: u32, value: u64) {
        oracle.submit(lpn, value);
        oracle.acknowledge(lpn, value);
    }

    #[test]
    fn a_power_loss_may_undo_what_no_flush_covers() {
        let mut oracle = Oracle::new(4, 1);
        write(&mut oracle, 0, 5);
        oracle.flushed();
        write(&mut oracle, 0, 6);
        assert!(oracle.clone().settle(0, mine(0, 5), true).is_ok());
        assert!(oracle.clone().settle(0, mine(0, 6), true).is_ok());
        assert!(
            oracle.clone().settle(0, Seen::Zeros, true).is_err(),
            "flushed"
        );
        assert!(
            oracle.clone().settle(0, mine(0, 5), false).is_err(),
            "only the process died"
        );
        oracle.settle(0, mine(0, 5), true).unwrap();
        assert!(
            oracle.clone().settle(0, mine(0, 6), true).is_err(),
            "what was read stays"
        );
    }

    #[test]
    fn a_failed_request_leaves_both_values_until_one_is_read() {
        let mut oracle = Oracle::new(4, 1);
        write(&mut oracle, 0, 5);
        oracle.submit(0, 6);
        oracle.doubt(0, 6);
        oracle.flushed();
        assert!(oracle.clone().settle(0, mine(0, 5), true).is_ok());
        oracle.judge(0, mine(0, 6)).unwrap();
        assert!(oracle.judge(0, mine(0, 5)).is_err());
        assert!(
            oracle.settle(0, mine(0, 5), true).is_err(),
            "the FLUSH covered the value that was read"
        );
    }

    #[test]
    fn older_values_are_allowed_after_a_restart_alone_and_only_where_that_is_said() {
        let mut oracle = Oracle::new(4, 1).costing(Cost::Pages);
        write(&mut oracle, 0, 5);
        oracle.flushed();
        write(&mut oracle, 0, 6);
        oracle.flushed();
        oracle.may_read_as_older(Older::Trimmed);
        assert!(oracle.clone().settle(0, mine(0, 5), true).is_err());
        assert!(
            oracle.clone().settle(1, mine(1, 5), true).is_err(),
            "no such value"
        );
        oracle.may_read_as_older(Older::Any);
        assert!(oracle.judge(0, mine(0, 5)).is_err());
        oracle.settle(0, mine(0, 5), true).unwrap();
        assert!(oracle.settle(0, mine(0, 7), true).is_err());
        assert!(
            oracle.settle(0, mine(1, 5), true).is_err()
                && oracle.settle(0, Seen::Foreign, true).is_err()
        );
    }
}
