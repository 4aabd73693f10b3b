//! Trims of an earlier daemon that a power cut may have undone on the flash.

use std::collections::BTreeMap;
use std::ops::Range;

/// Trimmed units, as the end of each range by its first unit. Ranges neither overlap nor touch.
#[derive(Debug, Default)]
pub(super) struct Trims(BTreeMap<u64, u64>);

impl Trims {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, units: Range<u64>) {
        let (mut first, mut end) = (units.start, units.end);
        while let Some((&at, &behind)) = self.0.range(..=end).next_back()
            && behind >= first
        {
            (first, end) = (first.min(at), end.max(behind));
            self.0.remove(&at);
        }
        self.0.insert(first, end);
    }

    /// Returns at most `most` units of the first range.
    pub(super) fn first(&self, most: u64) -> Option<Range<u64>> {
        let (&first, &end) = self.0.first_key_value()?;
        Some(first..end.min(first.saturating_add(most)))
    }

    /// Removes units that [`Trims::first`] returned.
    pub(super) fn remove(&mut self, units: Range<u64>) {
        let end = self.0.remove(&units.start).expect("units of a trim");
        if units.end < end {
            self.0.insert(units.end, end);
        }
    }

    /// Returns whether a unit is trimmed, and the first unit from there on that may differ in that.
    pub(super) fn at(&self, unit: u64) -> (bool, u64) {
        match self.0.range(..=unit).next_back() {
            Some((_, &end)) if end > unit => (true, end),
            _ => {
                let next = self.0.range(unit..).next();
                (false, next.map_or(u64::MAX, |(&first, _)| first))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_leave_piece_by_piece() {
        let mut trims = Trims::default();
        for units in [10..20, 30..40, 20..22, 5..6, 35..50, 8..31] {
            trims.add(units);
        }
        assert_eq!(
            [4, 5, 6, 8, 49, 50].map(|unit| trims.at(unit)),
            [
                (false, 5),
                (true, 6),
                (false, 8),
                (true, 50),
                (true, 50),
                (false, u64::MAX)
            ]
        );
        let mut pieces = Vec::new();
        while let Some(units) = trims.first(30) {
            trims.remove(units.clone());
            pieces.push(units);
        }
        assert_eq!(pieces, [5..6, 8..38, 38..50]);
        assert!(trims.is_empty());
    }
}
