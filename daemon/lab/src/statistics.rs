//! Statistics of repeated runs: means and ratios with their 95 % intervals.
//!
//! Runs of one cell differ in their seed alone and are taken as independent samples. Intervals are
//! those of Student's t. A ratio is paired by seed: both runs of a pair have the same requests and
//! the same factory bad blocks, so what they share cancels. The mean is taken over the logarithms
//! of the ratios, so the ratio of A to B is exactly the inverse of that of B to A.

use ftld_kit::convert::{to_f64, to_u64};
use serde::{Deserialize, Serialize};

/// Mean of a sample, and the interval that contains the mean of all runs with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Estimate {
    /// Number of values.
    pub(crate) count: u64,
    /// Mean.
    pub(crate) mean: f64,
    /// Lower end of the interval; `None` for a single value.
    pub(crate) low: Option<f64>,
    /// Upper end of the interval; `None` for a single value.
    pub(crate) high: Option<f64>,
}

impl Estimate {
    /// Returns the estimate of a sample; `None` if it is empty.
    pub(crate) fn of(sample: &[f64]) -> Option<Estimate> {
        let (mean, half) = (mean(sample)?, half_width(sample));
        Some(Estimate {
            count: to_u64(sample.len()),
            mean,
            low: half.map(|half| mean - half),
            high: half.map(|half| mean + half),
        })
    }

    /// Returns half the width of the interval; `None` for a single value.
    pub(crate) fn half_width(&self) -> Option<f64> {
        self.high.map(|high| high - self.mean)
    }
}

/// Ratio of two quantities over pairs of runs, and its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ratio {
    /// Number of pairs.
    pub(crate) count: u64,
    /// Geometric mean of the ratios of the pairs.
    pub(crate) ratio: f64,
    /// Lower end of the interval.
    pub(crate) low: f64,
    /// Upper end of the interval.
    pub(crate) high: f64,
    /// Whether there is a difference.
    pub(crate) difference: Difference,
}

/// Meaning of the interval of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Difference {
    /// The interval contains 1.
    #[serde(rename = "=")]
    None,
    /// The whole interval is below 1.
    #[serde(rename = "<")]
    Less,
    /// The whole interval is above 1.
    #[serde(rename = ">")]
    More,
}

impl Difference {
    /// Returns the mark, as in tables and JSON.
    pub(crate) const fn mark(self) -> &'static str {
        match self {
            Difference::None => "=",
            Difference::Less => "<",
            Difference::More => ">",
        }
    }
}

impl Ratio {
    /// Returns the ratio of the first to the second values. `None` for fewer than two pairs, and if
    /// a value is 0 or less, unless the values of every pair are equal.
    pub(crate) fn of_pairs(pairs: &[(f64, f64)]) -> Option<Ratio> {
        let equal = pairs.iter().all(|(a, b)| a == b);
        if pairs.len() < 2 || !equal && pairs.iter().any(|&(a, b)| a <= 0.0 || b <= 0.0) {
            return None;
        }
        let logs: Vec<f64> = pairs
            .iter()
            .map(|(a, b)| if equal { 0.0 } else { (a / b).ln() })
            .collect();
        let (mean, half) = (mean(&logs)?, half_width(&logs)?);
        let difference = if mean - half > 0.0 {
            Difference::More
        } else if mean + half < 0.0 {
            Difference::Less
        } else {
            Difference::None
        };
        Some(Ratio {
            count: to_u64(pairs.len()),
            ratio: mean.exp(),
            low: (mean - half).exp(),
            high: (mean + half).exp(),
            difference,
        })
    }
}

fn mean(sample: &[f64]) -> Option<f64> {
    (!sample.is_empty()).then(|| sample.iter().sum::<f64>() / to_f64(to_u64(sample.len())))
}

/// Returns half the width of the 95 % interval of a sample's mean; `None` for fewer than 2 values.
fn half_width(sample: &[f64]) -> Option<f64> {
    let freedom = to_u64(sample.len()).checked_sub(1).filter(|n| *n > 0)?;
    let mean = mean(sample)?;
    let squares: f64 = sample.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (squares / to_f64(freedom) / to_f64(freedom + 1)).sqrt();
    Some(student_t(freedom) * error)
}

/// 97.5 % quantiles of Student's t for 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706_205, 4.302_653, 3.182_446, 2.776_445, 2.570_582, 2.446_912, 2.364_624, 2.306_004,
    2.262_157, 2.228_139, 2.200_985, 2.178_813, 2.160_369, 2.144_787, 2.131_450, 2.119_905,
    2.109_816, 2.100_922, 2.093_024, 2.085_963, 2.079_614, 2.073_873, 2.068_658, 2.063_899,
    2.059_539, 2.055_529, 2.051_831, 2.048_407, 2.045_230, 2.042_272,
];
/// 97.5 % quantile of the normal distribution.
const NORMAL: f64 = 1.959_963_985;

/// Returns the 97.5 % quantile of Student's t: from the table, beyond it by the expansion 26.7.5 of
/// Abramowitz and Stegun, Handbook of Mathematical Functions, which is right to 5 digits there.
fn student_t(freedom: u64) -> f64 {
    assert!(freedom > 0, "a sample of one value has no variance");
    let entry = usize::try_from(freedom - 1).ok();
    if let Some(&quantile) = entry.and_then(|entry| STUDENT.get(entry)) {
        return quantile;
    }
    let (x, n) = (NORMAL, to_f64(freedom));
    let (x3, x5, x7) = (x.powi(3), x.powi(5), x.powi(7));
    x + (x3 + x) / (4.0 * n)
        + (5.0 * x5 + 16.0 * x3 + 3.0 * x) / (96.0 * n.powi(2))
        + (3.0 * x7 + 19.0 * x5 + 17.0 * x3 - 15.0 * x) / (384.0 * n.powi(3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Additional hours of sleep of ten patients, the paired example of Student's paper (The
    /// probable error of a mean, Biometrika 1908).
    const SLEEP: [f64; 10] = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4];

    fn near(found: f64, expected: f64, digits: i32) {
        assert!(
            (found - expected).abs() < 0.5 * 10f64.powi(-digits),
            "{found}, not {expected}"
        );
    }

    #[test]
    fn the_interval_is_that_of_students_example() {
        let sleep = Estimate::of(&SLEEP).unwrap();
        assert_eq!(sleep.count, 10);
        near(sleep.mean, 1.58, 12);
        // As R's t.test(extra ~ group, paired = TRUE) of this data set.
        near(sleep.low.unwrap(), 0.700_114_2, 6);
        near(sleep.high.unwrap(), 2.459_885_8, 6);
        // By hand: standard deviation 0.158114, over the root of 5, times 2.776445.
        let five = Estimate::of(&[3.0, 3.2, 2.9, 3.1, 3.3]).unwrap();
        near(five.half_width().unwrap(), 0.196_324, 6);
        let one = Estimate::of(&[3.0]).unwrap();
        assert_eq!((one.mean, one.low, one.half_width()), (3.0, None, None));
        assert_eq!(Estimate::of(&[]), None);
    }

    #[test]
    fn a_ratio_is_the_interval_of_the_logarithms() {
        let pairs = SLEEP.map(|log| (log.exp() * 7.0, 7.0));
        let ratio = Ratio::of_pairs(&pairs).unwrap();
        near(ratio.ratio, 1.58f64.exp(), 9);
        near(ratio.low.ln(), 0.700_114_2, 6);
        near(ratio.high.ln(), 2.459_885_8, 6);
        assert_eq!(ratio.difference, Difference::More);
        let back = Ratio::of_pairs(&pairs.map(|(a, b)| (b, a))).unwrap();
        near(back.ratio * ratio.ratio, 1.0, 12);
        near(back.low * ratio.high, 1.0, 12);
        assert_eq!(back.difference, Difference::Less);
    }

    /// Values that differ widely from seed to seed, and hardly within a pair: two intervals would
    /// overlap, the paired ratio still finds the 2 %.
    #[test]
    fn pairs_cancel_what_they_share() {
        let shared = [100.0, 140.0, 90.0, 120.0];
        let noise = [1.021, 1.019, 1.020, 1.022];
        let pairs: Vec<_> = shared.iter().zip(noise).map(|(b, r)| (b * r, *b)).collect();
        let ratio = Ratio::of_pairs(&pairs).unwrap();
        assert_eq!(ratio.difference, Difference::More);
        near(ratio.ratio, 1.0205, 4);
        let [a, b] = [0, 1].map(|side| {
            let values: Vec<_> = pairs
                .iter()
                .map(|pair| if side == 0 { pair.0 } else { pair.1 })
                .collect();
            Estimate::of(&values).unwrap()
        });
        assert!(a.low < b.high && b.low < a.high);
    }

    #[test]
    fn a_difference_inside_the_interval_is_none() {
        let ratio = Ratio::of_pairs(&[(1.1, 1.0), (0.95, 1.0), (1.02, 1.0)]).unwrap();
        assert!(ratio.ratio > 1.0 && ratio.low < 1.0);
        assert_eq!(ratio.difference, Difference::None);
        assert_eq!(ratio.difference.mark(), "=");
        let equal = Ratio::of_pairs(&[(0.0, 0.0), (3.0, 3.0)]).unwrap();
        assert_eq!((equal.ratio, equal.low, equal.high), (1.0, 1.0, 1.0));
        assert_eq!(equal.difference, Difference::None);
        // The same 5 % under every seed is a difference.
        let same = Ratio::of_pairs(&[(1.05, 1.0), (1.05, 1.0)]).unwrap();
        assert_eq!(same.difference, Difference::More);
        assert_eq!(Ratio::of_pairs(&[(0.0, 1.0), (3.0, 3.0)]), None);
        assert_eq!(Ratio::of_pairs(&[(2.0, 1.0)]), None);
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        near(student_t(1), 12.706_205, 6);
        near(student_t(30), 2.042_272, 6);
        for (freedom, quantile) in [(40, 2.021_075), (60, 2.000_298), (120, 1.979_930)] {
            near(student_t(freedom), quantile, 5);
        }
        let all: Vec<_> = (1..200).map(student_t).collect();
        assert!(all.is_sorted_by(|a, b| a > b) && all[198] > NORMAL);
    }
}
