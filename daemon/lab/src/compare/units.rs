//! Units of values: as a column of a terminal shows them, and as people write them.

use super::axis::{digits, time};
use crate::statistics::Estimate;
use ftld_kit::convert::whole;
use ftld_kit::size::show_size;

/// Unit of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A number with this many digits behind the point.
    Number(usize),
    /// Percent; the value is one of 100.
    Percent,
    /// Percent; the value is one of 1.
    Share,
    /// A duration in ns; microseconds on a terminal.
    Time,
    /// A duration in ns; seconds on a terminal.
    Seconds,
    Bytes,
}

impl Unit {
    /// Shows a value in a column, whose heading has the unit.
    pub(super) fn plain(self, value: f64) -> String {
        match self {
            Unit::Number(places) => format!("{value:.places$}"),
            Unit::Percent => format!("{value:.1}"),
            Unit::Share => format!("{:.1} %", value * 100.0),
            Unit::Time => format!("{:.1}", value / 1e3),
            Unit::Seconds => format!("{:.2}", value / 1e9),
            Unit::Bytes => show_size(whole(value)),
        }
    }

    /// Shows an estimate as people write it: `1.2 ± 0.7 s`. The interval has one digit, or two if
    /// the first is 1; the mean has as many places.
    pub(super) fn human(self, of: Estimate) -> String {
        let (factor, unit) = self.scale(of.mean);
        let Some(half) = of.half_width().map(|half| half * factor) else {
            return self.of(of.mean);
        };
        let mean = of.mean * factor;
        // Equal runs: the places of a single value.
        let places = match half > 0.0 {
            true => {
                let first = half.log10().floor();
                let is_one = half / 10_f64.powf(first) < 2.0;
                f64::from(u8::from(is_one)) - first
            }
            false if self == Unit::Number(0) => 0.0,
            false => 2.0 - mean.abs().max(1.0).log10().floor(),
        };
        let places = places.clamp(0.0, 4.0) as usize;
        format!("{mean:.places$} ± {half:.places$}{unit}")
    }

    /// Shows a single value as people write it.
    pub(super) fn of(self, value: f64) -> String {
        match self {
            Unit::Time | Unit::Seconds => time(value / 1e3),
            Unit::Number(0) => digits(value),
            _ => self.plain(value),
        }
    }

    /// Returns the factor and the unit for a value of this size.
    fn scale(self, value: f64) -> (f64, &'static str) {
        let bytes = [
            (1024.0 * 1024.0 * 1024.0, " GiB"),
            (1024.0 * 1024.0, " MiB"),
            (1024.0, " KiB"),
        ];
        match self {
            Unit::Number(_) | Unit::Percent => (1.0, ""),
            Unit::Share => (100.0, " %"),
            Unit::Time | Unit::Seconds => match value.abs() {
                ns if ns >= 999.5e6 => (1e-9, " s"),
                ns if ns >= 999.5e3 => (1e-6, " ms"),
                _ => (1e-3, " µs"),
            },
            Unit::Bytes => {
                let found = bytes.into_iter().find(|(least, _)| value >= *least);
                found.map_or((1.0, " B"), |(least, unit)| (1.0 / least, unit))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_the_unit_and_the_places_of_its_mean() {
        let of = |unit: Unit, mean: f64, half: f64| {
            let (low, high) = (Some(mean - half), Some(mean + half));
            unit.human(Estimate {
                count: 3,
                mean,
                low,
                high,
            })
        };
        assert_eq!(
            of(Unit::Time, 1_216_872_400.0, 707_389_900.0),
            "1.2 ± 0.7 s"
        );
        assert_eq!(of(Unit::Time, 2_532_492.5, 13_000.0), "2.532 ± 0.013 ms");
        assert_eq!(of(Unit::Time, 1_300_479.0, 0.0), "1.30 ± 0.00 ms");
        assert_eq!(of(Unit::Number(3), 2.642, 0.0149), "2.642 ± 0.015");
        assert_eq!(of(Unit::Number(2), 414.3, 26.4), "414 ± 26");
        assert_eq!(of(Unit::Bytes, 3_145_728.0, 524_288.0), "3.0 ± 0.5 MiB");
        let one = |unit: Unit, value| unit.human(Estimate::of(&[value]).unwrap());
        assert_eq!(one(Unit::Time, 250_700_000.0), "251 ms");
        assert_eq!(one(Unit::Seconds, 2.5e9), "2.5 s");
        assert_eq!(one(Unit::Number(3), 1.79131), "1.791");
    }
}
