//! The oracle: the allowed contents of each page.
//!
//! Per page, `floor` is the newest value known to be durable: a FLUSH that began after its
//! acknowledgement has completed. All values submitted since are candidates too. After a recovery a
//! page reads as its floor or a candidate, whole. The value read is then the only one, through any
//! number of later cuts, until the page is written again. Trims and write-zeroes are values like
//! any other: zeros.

use crate::payload::Seen;
use std::collections::BTreeMap;

/// The value of a page that reads as zeros. All other values are unique.
pub const ZEROS: u64 = 0;

/// The allowed contents of a device.
#[derive(Clone, Debug)]
pub struct Model {
    seed: u64,
    floor: Vec<u64>,
    /// Values submitted since the floor, oldest first.
    since: BTreeMap<u32, Vec<u64>>,
}

impl Model {
    /// An empty device; its payloads contain `seed`.
    pub fn new(pages: u32, seed: u64) -> Self {
        Model {
            seed,
            floor: vec![ZEROS; pages as usize],
            since: BTreeMap::new(),
        }
    }

    /// Seed in the payloads.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Pages of the device.
    pub fn pages(&self) -> u32 {
        self.floor.len() as u32
    }

    /// Records a requested value; reads may return it from now on.
    pub fn submit(&mut self, lpn: u32, value: u64) {
        self.since.entry(lpn).or_default().push(value);
    }

    /// Records a completed FLUSH: only the newest value of each page remains.
    pub fn flushed(&mut self) {
        while let Some((lpn, values)) = self.since.pop_first() {
            self.floor[lpn as usize] = *values.last().expect("a page is listed with a value");
        }
    }

    /// Pages with values that no FLUSH covers yet.
    pub fn unflushed(&self) -> Vec<u32> {
        self.since.keys().copied().collect()
    }

    /// The newest value, which a read returns without faults.
    pub fn newest(&self, lpn: u32) -> u64 {
        self.since
            .get(&lpn)
            .and_then(|values| values.last())
            .copied()
            .unwrap_or(self.floor[lpn as usize])
    }

    /// Whether a page may read as `value` after a recovery.
    pub fn allows(&self, lpn: u32, value: u64) -> bool {
        self.floor[lpn as usize] == value
            || self
                .since
                .get(&lpn)
                .is_some_and(|values| values.contains(&value))
    }

    /// The allowed contents of a page after a recovery.
    pub fn candidates(&self, lpn: u32) -> Vec<u64> {
        let since = self.since.get(&lpn).into_iter().flatten().copied();
        std::iter::once(self.floor[lpn as usize])
            .chain(since)
            .collect()
    }

    /// Sets the page's only value.
    pub fn assume(&mut self, lpn: u32, value: u64) {
        self.since.remove(&lpn);
        self.floor[lpn as usize] = value;
    }

    /// Checks a read without faults: it must return the newest value.
    ///
    /// # Errors
    /// The page is not its newest value.
    pub fn judge(&self, lpn: u32, seen: Seen) -> Result<(), String> {
        let value = self.value(lpn, seen)?;
        let newest = self.newest(lpn);
        if value == newest {
            Ok(())
        } else {
            Err(format!(
                "page {lpn} reads as version {value}, newest is {newest}"
            ))
        }
    }

    /// Checks a read after a recovery. The value read is the page's only one from now on.
    ///
    /// # Errors
    /// The page is none of its possible values.
    pub fn settle(&mut self, lpn: u32, seen: Seen) -> Result<(), String> {
        let value = self.value(lpn, seen)?;
        if !self.allows(lpn, value) {
            let since = self.since.get(&lpn).map_or(&[][..], Vec::as_slice);
            let floor = self.floor[lpn as usize];
            let fate = if value < floor {
                "stale"
            } else {
                "never submitted here"
            };
            return Err(format!(
                "page {lpn} reads as version {value}, {fate}: durable {floor}, later {since:?}"
            ));
        }
        self.since.remove(&lpn);
        self.floor[lpn as usize] = value;
        Ok(())
    }

    /// Returns the value in a page of this run; an error if there is none.
    ///
    /// # Errors
    /// The page has another page's content, a mixture, or bytes that were never written.
    pub fn value(&self, lpn: u32, seen: Seen) -> Result<u64, String> {
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

    #[test]
    fn only_the_newest_value_is_allowed_after_a_flush() {
        let mut model = Model::new(4, 1);
        model.submit(2, 5);
        model.submit(2, 6);
        assert!(model.allows(2, ZEROS) && model.allows(2, 5) && model.allows(2, 6));
        model.flushed();
        assert!(!model.allows(2, ZEROS) && !model.allows(2, 5) && model.allows(2, 6));
        model.submit(2, ZEROS);
        assert!(model.clone().settle(2, Seen::Zeros).is_ok());
        assert!(model.settle(2, mine(2, 5)).unwrap_err().contains("stale"));
    }

    #[test]
    fn only_the_value_read_after_a_recovery_is_allowed() {
        let mut model = Model::new(4, 1);
        model.submit(0, 5);
        model.submit(0, 6);
        model.settle(0, mine(0, 5)).unwrap();
        assert!(
            model.settle(0, mine(0, 6)).is_err(),
            "a later cut may not bring back what was not there"
        );
        assert!(model.settle(0, Seen::Zeros).is_err());
        model.settle(0, mine(0, 5)).unwrap();
    }

    #[test]
    fn data_of_another_address_or_run_and_mixtures_are_refused() {
        let mut model = Model::new(4, 1);
        model.submit(0, 5);
        model.submit(1, 6);
        for seen in [
            mine(1, 6),
            Seen::Foreign,
            Seen::Mixture(None, None),
            Seen::Page {
                lpn: 0,
                version: 5,
                seed: 2,
            },
        ] {
            assert!(model.settle(0, seen).is_err(), "{seen}");
        }
        assert!(model.judge(0, mine(0, 5)).is_ok() && model.judge(0, Seen::Zeros).is_err());
    }
}
