//! The oracle of the swarm: the allowed contents of each page when faults may leave a request half
//! done.
//!
//! Per page, `durable` contains the values of which one survives any power cut, `later` the values
//! submitted since, and `current` the values that a read without faults may return. Without faults
//! `durable` and `current` have one value each. A failed request adds its value to `current`. A
//! completed FLUSH makes `current` durable. After a power loss a page reads as a durable or a later
//! value; after the death of the process alone, as a current one. The value read is then the only
//! one. A value *in RAM*, which the host refused to write, is an exception: reads find it, and the
//! death of the process loses it.

use crate::model::ZEROS;
use crate::payload::Seen;
use std::collections::{BTreeMap, BTreeSet};

/// The losses that the faults of a run may cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cost {
    /// No flushed data is lost.
    Nothing,
    /// Pages: they become unreadable. After a restart a page may read as an older value if the run
    /// allows it ([`Oracle::may_read_as_older`]). All others read correctly; the device continues.
    Pages,
    /// The same, and the device may refuse to mount or to continue: after a silent fault, a dead
    /// die or lost records, pages contradict each other.
    Service,
}

/// The pages that may read as an older value after a restart (docs/DURABILITY.md#limitations).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Older {
    /// None: a decayed page is an error.
    #[default]
    Never,
    /// This page: its newest value is indistinguishable from a torn program, or its record is lost.
    Page(u32),
    /// Trimmed pages: the record of the trim is lost.
    Trimmed,
    /// Any: the newest value is indistinguishable from a torn program, or its record is lost.
    Any,
}

/// Values of a page with more than one.
#[derive(Clone, Debug, Default)]
struct Open {
    durable: Vec<u64>,
    later: Vec<u64>,
    current: Vec<u64>,
}

/// The allowed contents of a device.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// Seed in the payloads.
    seed: u64,
    cost: Cost,
    older: Older,
    /// Pages that may read as an older value, besides those of `older`.
    older_pages: BTreeSet<u32>,
    /// The durable and current value of pages with only one.
    settled: Vec<u64>,
    open: BTreeMap<u32, Open>,
    /// Pages whose current value may be in RAM alone.
    in_ram: BTreeSet<u32>,
    /// Every earlier value of each page; empty unless `cost` allows older values.
    history: BTreeMap<u32, Vec<u64>>,
}

impl Oracle {
    /// An empty device whose payloads contain `seed`.
    pub fn new(pages: u32, seed: u64) -> Oracle {
        let settled = vec![ZEROS; pages as usize];
        Oracle {
            seed,
            cost: Cost::Nothing,
            older: Older::Never,
            older_pages: BTreeSet::new(),
            settled,
            open: BTreeMap::new(),
            in_ram: BTreeSet::new(),
            history: BTreeMap::new(),
        }
    }

    /// Returns the oracle of a device that from now on has faults with these possible losses.
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
        match which {
            Older::Page(lpn) => drop(self.older_pages.insert(lpn)),
            which => self.older = self.older.max(which),
        }
    }

    /// The losses that the faults may cause.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// Pages of the device.
    pub fn pages(&self) -> u32 {
        self.settled.len() as u32
    }

    /// Seed in the payloads.
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

    /// Records the value of a request before it runs: a power loss may expose it from now on.
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
        self.in_ram.remove(&lpn);
    }

    /// The host refused the request: its value may be in RAM until [`Oracle::left_ram`].
    pub fn refuse(&mut self, lpn: u32, value: u64) {
        self.doubt(lpn, value);
        self.in_ram.insert(lpn);
    }

    /// The host has written all values that were in RAM.
    pub fn left_ram(&mut self) {
        self.in_ram.clear();
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

    /// Checks a read without faults.
    ///
    /// # Errors
    /// The error, with the possible values.
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
        if self.in_ram.contains(&lpn) {
            return Ok(());
        }
        open.current = vec![value];
        if open.later.is_empty() {
            // Nothing was written since the FLUSH, so the FLUSH covered this value.
            open.durable = vec![value];
        }
        Ok(())
    }

    /// Checks a read after a restart. The value read is the page's only one from now on.
    ///
    /// # Errors
    /// The error, with the possible values.
    pub fn settle(&mut self, lpn: u32, seen: Seen, power_lost: bool) -> Result<(), String> {
        let value = self.value(lpn, seen)?;
        let possible = self.possible(lpn, power_lost);
        if !possible.contains(&value) {
            return Err(wrong(lpn, value, &possible, "may be one of", &self.history));
        }
        self.open.remove(&lpn);
        self.in_ram.remove(&lpn);
        self.settled[lpn as usize] = value;
        Ok(())
    }

    /// The page cannot be read after a restart: whichever value survived may appear later.
    pub fn leave_open(&mut self, lpn: u32, power_lost: bool) {
        let possible = self.possible(lpn, power_lost);
        self.in_ram.remove(&lpn);
        *self.open(lpn) = Open {
            durable: possible.clone(),
            later: Vec::new(),
            current: possible,
        };
    }

    fn possible(&self, lpn: u32, power_lost: bool) -> Vec<u64> {
        let settled = self.settled[lpn as usize];
        let mut possible = match self.open.get(&lpn) {
            None => vec![settled],
            Some(open) if power_lost => open.durable.iter().chain(&open.later).copied().collect(),
            Some(open) => open.current.clone(),
        };
        let trimmed = possible.contains(&ZEROS);
        if self.older == Older::Any
            || self.older == Older::Trimmed && trimmed
            || self.older_pages.contains(&lpn)
        {
            possible.extend(self.history.get(&lpn).into_iter().flatten());
        }
        possible
    }

    /// Returns the value that a page has, as this run wrote it.
    ///
    /// # Errors
    /// The page has another page's content, a mixture, or bytes that were never written.
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
    fn power_loss_may_undo_unflushed_writes_only() {
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
    fn an_unreadable_page_keeps_the_values_of_the_restart() {
        let mut oracle = Oracle::new(4, 1).costing(Cost::Service);
        for value in [5, 6] {
            write(&mut oracle, 0, value);
            oracle.flushed();
        }
        write(&mut oracle, 0, 7);
        assert!(oracle.clone().judge(0, mine(0, 5)).is_err());
        oracle.leave_open(0, true);
        oracle.judge(0, mine(0, 5)).unwrap();
        assert!(oracle.judge(0, mine(0, 7)).is_err(), "what was read stays");
        let mut oracle = Oracle::new(4, 1);
        write(&mut oracle, 0, 5);
        oracle.flushed();
        write(&mut oracle, 0, 6);
        oracle.leave_open(0, true);
        assert!(oracle.judge(0, Seen::Zeros).is_err(), "flushed");
        oracle.judge(0, mine(0, 5)).unwrap();
    }

    #[test]
    fn both_values_are_allowed_after_a_failed_request_until_one_is_read() {
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
    fn older_values_are_allowed_only_after_a_restart_and_for_declared_pages() {
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
        oracle.may_read_as_older(Older::Page(1));
        assert!(oracle.clone().settle(0, mine(0, 5), true).is_err());
        oracle.may_read_as_older(Older::Page(0));
        assert!(oracle.clone().settle(0, mine(0, 5), true).is_ok());
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
