//! Axes of a plot: linear from 0, or logarithmic where the values span a large factor.

use ftld_kit::convert::{to_f64, to_u64};

/// Ratio of the largest to the smallest positive value above which an axis is logarithmic.
const LOG_SPAN: f64 = 20.0;
/// Position of the first positive value on an axis with a break: left of the break is only 0.
const BREAK: f64 = 0.07;
/// Tolerance of comparisons with powers of ten.
const ROUNDING: f64 = 1e-9;

/// An axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Axis {
    /// From 0 to `high`.
    Linear { high: f64 },
    /// From `low` to `high`, logarithmic. 0 has no logarithm: with `zero`, it is drawn left of a
    /// break.
    Log { low: f64, high: f64, zero: bool },
}

/// A grid line, and whether it has a label.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) value: f64,
    pub(super) is_labelled: bool,
}

impl Axis {
    /// Returns the axis for these values; `None` if none is above 0.
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Option<Axis> {
        let (mut low, mut high, mut zero) = (f64::INFINITY, 0.0_f64, false);
        for value in values {
            if value > 0.0 {
                (low, high) = (low.min(value), high.max(value));
            } else {
                zero = true;
            }
        }
        if high <= 0.0 {
            return None;
        }
        Some(if high > low * LOG_SPAN {
            let (low, high) = (round_down(low), round_up(high));
            Axis::Log { low, high, zero }
        } else {
            Axis::Linear { high }
        })
    }

    pub(super) fn is_log(&self) -> bool {
        matches!(self, Axis::Log { .. })
    }

    /// Returns whether the axis has a break between 0 and the first positive value.
    pub(super) fn has_break(&self) -> bool {
        matches!(self, Axis::Log { zero: true, .. })
    }

    /// Returns the position of the break, between 0 and 1.
    pub(super) const fn break_at() -> f64 {
        BREAK / 2.0
    }

    /// Returns the position of a value, from 0 to 1; values beyond an end are at that end.
    pub(super) fn at(&self, value: f64) -> f64 {
        match *self {
            Axis::Linear { high } => (value / high).clamp(0.0, 1.0),
            Axis::Log { zero: true, .. } if value <= 0.0 => 0.0,
            Axis::Log { low, high, zero } => {
                let start = if zero { BREAK } else { 0.0 };
                let share = (value.max(low) / low).ln() / (high / low).ln();
                start + (1.0 - start) * share.min(1.0)
            }
        }
    }

    /// Returns whether a value is beyond the lower end.
    pub(super) fn is_below(&self, value: f64) -> bool {
        match *self {
            Axis::Linear { .. } => value < 0.0,
            Axis::Log { low, .. } => value < low,
        }
    }

    /// Returns the grid lines in ascending order, at most `most` of them with a label.
    pub(super) fn ticks(&self, most: usize) -> Vec<Tick> {
        match *self {
            Axis::Linear { high } => linear_ticks(high, most),
            Axis::Log { low, high, zero } => {
                let labels = most.saturating_sub(usize::from(zero));
                let mut ticks = log_ticks(low, high, labels);
                if zero {
                    let (value, is_labelled) = (0.0, true);
                    ticks.insert(0, Tick { value, is_labelled });
                }
                ticks
            }
        }
    }
}

/// Returns the power of ten at or below a value, and the value's factor to it.
fn decade(value: f64) -> (f64, f64) {
    let power = 10_f64.powf((value.log10() + ROUNDING).floor());
    (power, value / power)
}

/// Returns the largest of 1, 2, 5, 10, … that does not exceed a value.
fn round_down(value: f64) -> f64 {
    let (power, factor) = decade(value);
    let steps = [5.0, 2.0, 1.0];
    let step = steps.into_iter().find(|step| factor >= step - ROUNDING);
    power * step.unwrap_or(1.0)
}

/// Returns the smallest of 1, 2, 5, 10, … that is not below a value.
fn round_up(value: f64) -> f64 {
    let (power, factor) = decade(value);
    let steps = [1.0, 2.0, 5.0, 10.0];
    let step = steps.into_iter().find(|step| factor <= step + ROUNDING);
    power * step.unwrap_or(10.0)
}

fn linear_ticks(high: f64, most: usize) -> Vec<Tick> {
    let step = round_up(high / to_f64(to_u64(most.max(2) - 1)));
    (0_u32..)
        .map(|number| f64::from(number) * step)
        .take_while(|value| *value <= high * (1.0 + ROUNDING))
        .map(|value| Tick {
            value,
            is_labelled: true,
        })
        .collect()
}

fn log_ticks(low: f64, high: f64, most: usize) -> Vec<Tick> {
    let exponent = |value: f64| (value.log10() + ROUNDING).floor() as i32;
    let within = |value: &f64| (low * (1.0 - ROUNDING)..=high * (1.0 + ROUNDING)).contains(value);
    let of = |factors: &[u32], every: i32| -> Vec<f64> {
        (exponent(low)..=exponent(high))
            .filter(|exponent| exponent % every == 0)
            .flat_map(|exponent| {
                factors
                    .iter()
                    .map(move |factor| f64::from(*factor) * 10_f64.powi(exponent))
            })
            .filter(within)
            .collect()
    };
    let choices = [
        (&[1, 2, 5][..], 1),
        (&[1], 1),
        (&[1], 2),
        (&[1], 3),
        (&[1], 6),
    ];
    let labelled = choices
        .into_iter()
        .map(|(factors, every)| of(factors, every))
        .find(|values| values.len() <= most)
        .unwrap_or_default();
    of(&[1, 2, 3, 4, 5, 6, 7, 8, 9], 1)
        .into_iter()
        .map(|value| Tick {
            value,
            is_labelled: labelled.contains(&value),
        })
        .collect()
}

/// Formats a number with 3 significant digits.
pub(super) fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        size if size >= 999.5e6 => (value / 1e9, " G"),
        size if size >= 999.5e3 => (value / 1e6, " M"),
        size if size >= 9995.0 => (value / 1e3, " k"),
        _ => (value, ""),
    };
    digits(scaled) + unit
}

/// Formats a time in microseconds with its unit.
pub(super) fn time(us: f64) -> String {
    match us.abs() {
        size if size >= 999.5e3 => digits(us / 1e6) + " s",
        size if size >= 999.5 => digits(us / 1e3) + " ms",
        _ => digits(us) + " µs",
    }
}

/// Formats a share in percent.
pub(super) fn percent(share: f64) -> String {
    digits(share * 100.0) + " %"
}

pub(super) fn digits(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    // A value that rounds up to 1 has one digit too many: a 0, which is cut off.
    let whole = (value.abs().log10() + ROUNDING).floor();
    let places = (2.0 - whole).clamp(0.0, 9.0) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').into()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, most: usize) -> Vec<String> {
        let ticks = axis.ticks(most).into_iter();
        let labelled = ticks.filter(|tick| tick.is_labelled);
        labelled.map(|tick| short(tick.value)).collect()
    }

    #[test]
    fn an_axis_is_logarithmic_from_a_factor_of_20_on() {
        let linear = Axis::of([1.0, 20.0, 0.0].into_iter()).unwrap();
        assert_eq!(linear, Axis::Linear { high: 20.0 });
        let log = Axis::of([1.07, 113.0].into_iter()).unwrap();
        let (low, high, zero) = (1.0, 200.0, false);
        assert_eq!(log, Axis::Log { low, high, zero });
        assert_eq!(Axis::of([0.0].into_iter()), None);
    }

    #[test]
    fn positions_grow_with_the_value_and_zero_is_left_of_the_break() {
        let axis = Axis::of([0.0, 0.5, 113.0].into_iter()).unwrap();
        assert!(axis.is_log() && axis.has_break());
        let at = [-1.0, 0.0, 0.5, 1.0, 10.0, 113.0, 200.0, 1e9].map(|value| axis.at(value));
        assert!(at.is_sorted(), "{at:?}");
        assert_eq!((at[1], at[2], at[6], at[7]), (0.0, BREAK, 1.0, 1.0));
        assert!(Axis::break_at() < BREAK && axis.is_below(0.4) && !axis.is_below(0.5));
    }

    #[test]
    fn ticks_are_round_and_their_labels_fit() {
        let linear = Axis::Linear { high: 4.2 };
        assert_eq!(labels(&linear, 6), ["0", "1", "2", "3", "4"]);
        let of = |low, high, zero| Axis::Log { low, high, zero };
        let narrow = of(1.0, 200.0, false);
        let all = ["1", "2", "5", "10", "20", "50", "100", "200"];
        assert_eq!(labels(&narrow, 8), all);
        assert_eq!(labels(&narrow, 7), ["1", "10", "100"]);
        assert_eq!(narrow.ticks(7).len(), 9 + 9 + 2);
        assert_eq!(labels(&of(0.5, 200.0, true), 4), ["0", "1", "10", "100"]);
        assert_eq!(labels(&of(1e-5, 1e7, false), 7).len(), 6);
        for low in [1.0, 2.0, 5.0, 1e-5, 2e6] {
            let axis = of(low, low * 100.0, false);
            let ends = [low, low * 100.0].map(short);
            let found = labels(&axis, 9);
            assert_eq!([&found[0], found.last().unwrap()], [&ends[0], &ends[1]]);
        }
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [
            0.0, 0.0123, 1.0, 1.234, 113.0, 9994.0, 12_345.0, 999_999.0, 2.5e9,
        ]
        .map(short);
        let expected = [
            "0", "0.0123", "1", "1.23", "113", "9994", "12.3 k", "1 M", "2.5 G",
        ];
        assert_eq!(shown, expected);
        let times = [0.1, 999.0, 1000.0, 2.5e6].map(time);
        assert_eq!(times, ["0.1 µs", "999 µs", "1 ms", "2.5 s"]);
        assert_eq!(
            [1e-5, 0.999, 1.0].map(percent),
            ["0.001 %", "99.9 %", "100 %"]
        );
    }
}
