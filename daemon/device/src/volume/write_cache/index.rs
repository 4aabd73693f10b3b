//! The newest version of each dirty unit.

use std::collections::BTreeMap;
use std::ops::Range;

/// Place of a unit's content in the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    /// Position of the data.
    pub(super) at: u64,
    /// Number of its entry.
    pub(super) seq: u64,
}

/// Versions by unit.
#[derive(Debug, Default)]
pub(super) struct Index(BTreeMap<u64, Version>);

impl Index {
    pub(super) fn len(&self) -> u64 {
        ftld_kit::convert::to_u64(self.0.len())
    }

    pub(super) fn get(&self, unit: u64) -> Option<Version> {
        self.0.get(&unit).copied()
    }

    pub(super) fn put(&mut self, unit: u64, version: Version) {
        self.0.insert(unit, version);
    }

    pub(super) fn remove(&mut self, unit: u64) {
        self.0.remove(&unit);
    }

    /// Removes all units of a range; the cost follows the dirty ones.
    pub(super) fn remove_all(&mut self, units: Range<u64>) {
        while let Some((&unit, _)) = self.0.range(units.clone()).next() {
            self.0.remove(&unit);
        }
    }

    /// Returns the first dirty unit from `unit` on.
    pub(super) fn next(&self, unit: u64) -> Option<u64> {
        self.0.range(unit..).next().map(|(&unit, _)| unit)
    }

    /// Returns the dirty units of a range, ascending.
    pub(super) fn range(&self, units: Range<u64>) -> impl Iterator<Item = (u64, Version)> {
        self.0.range(units).map(|(&unit, &version)| (unit, version))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (u64, Version)> {
        self.0.iter().map(|(&unit, &version)| (unit, version))
    }
}
