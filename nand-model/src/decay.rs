//! The bit error model and the ECC of a part.
//!
//! [`ErrorModel::rber`] computes a raw bit error rate from wear, age and reads. Each codeword has a
//! fixed quantile, drawn from seed, page and life. Its number of wrong bits is that quantile
//! of a Poisson variable with the current rate. So the errors of a codeword never decrease, reads
//! of a page under the same conditions give the same result, and over many pages the counts follow
//! the rate. The bytes are not changed: a read returns corrected data, or an error and no data.

use crate::convert::index;
use crate::invalid::{Invalid, ensure};
use crate::rng::SplitMix;

/// A part's raw bit error rate, by name or by its own constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorModel {
    /// SLC. Ours: 1e-9 when new, a few 1e-5 at 100,000 cycles after three months.
    Slc,
    /// MLC of about 30 nm. Constants of unknown source that could not be checked.
    Mlc3xnm,
    /// MLC of about 20 nm: Kim, Choi, Min (FAST'19) as coded in SimpleSSD's read reclaim.
    Mlc2ynm,
    /// TLC of 72 layers: the constants labelled so in a public simulator, after the same paper.
    Tlc72l,
    /// The constants of a device described by a file.
    Own(ErrorLaw),
}

/// Constants of the raw bit error rate `e + a PE^k + b PE^m days^n + g PE^p reads^q`, reads counted
/// per block since its erase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ErrorLaw {
    /// Rate of a new block.
    pub e: f64,
    /// Factor of wear.
    pub a: f64,
    /// Exponent of the cycles in wear.
    pub k: f64,
    /// Factor of retention.
    pub b: f64,
    /// Exponent of the cycles in retention.
    pub m: f64,
    /// Exponent of the days in retention.
    pub n: f64,
    /// Factor of read disturb.
    pub g: f64,
    /// Exponent of the cycles in read disturb.
    pub p: f64,
    /// Exponent of the reads in read disturb.
    pub q: f64,
    /// Upper bound of the reads per block in the formula: more reads count as this number.
    pub reads_max: f64,
}

/// No constant is NaN, because [`Profile::validate`](crate::Profile::validate) refuses it.
impl Eq for ErrorLaw {}

const SLC: ErrorLaw = ErrorLaw {
    e: 1e-9,
    a: 5e-14,
    k: 1.6,
    b: 5e-14,
    m: 1.2,
    n: 1.0,
    g: 1e-15,
    p: 0.8,
    q: 1.0,
    reads_max: 1e5,
};
const MLC_3XNM: ErrorLaw = ErrorLaw {
    e: 5.06e-8,
    a: 1.05e-14,
    k: 2.16,
    b: 9.31e-14,
    m: 1.80,
    n: 0.80,
    g: 4.17e-15,
    p: 1.07,
    q: 1.45,
    reads_max: 1e5,
};
const MLC_2YNM: ErrorLaw = ErrorLaw {
    e: 8.34e-5,
    a: 3.30e-11,
    k: 1.71,
    b: 5.56e-19,
    m: 2.49,
    n: 3.33,
    g: 6.26e-13,
    p: 1.76,
    q: 0.47,
    reads_max: 1e5,
};
const TLC_72L: ErrorLaw = ErrorLaw {
    e: 1.48e-3,
    a: 3.90e-10,
    k: 2.05,
    b: 6.28e-5,
    m: 0.14,
    n: 0.54,
    g: 3.73e-9,
    p: 0.33,
    q: 1.71,
    reads_max: 1e3,
};

/// Limits of the fits: beyond them the formulas give absurd rates (8.6e-2 after a year).
const DAYS_MAX: f64 = 90.0;
const RBER_MAX: f64 = 5e-3;
/// Largest exponent with which no product overflows.
const EXPONENT_MAX: f64 = 10.0;

impl ErrorModel {
    /// Every model with a name.
    pub const NAMED: [(&'static str, ErrorModel); 4] = [
        ("slc", ErrorModel::Slc),
        ("mlc-3xnm", ErrorModel::Mlc3xnm),
        ("mlc-2ynm", ErrorModel::Mlc2ynm),
        ("tlc-72l", ErrorModel::Tlc72l),
    ];

    /// Name of the model; none if the device has its own constants.
    pub fn name(self) -> Option<&'static str> {
        let named = ErrorModel::NAMED.iter().find(|(_, model)| *model == self);
        named.map(|(name, _)| *name)
    }

    /// Its constants.
    pub const fn law(self) -> ErrorLaw {
        match self {
            ErrorModel::Slc => SLC,
            ErrorModel::Mlc3xnm => MLC_3XNM,
            ErrorModel::Mlc2ynm => MLC_2YNM,
            ErrorModel::Tlc72l => TLC_72L,
            ErrorModel::Own(law) => law,
        }
    }

    /// Checks that the formula gives a rate, whatever the wear.
    pub(crate) fn validate(self) -> Result<(), Invalid> {
        let law = self.law();
        let constants = [
            ("e", law.e, 1.0),
            ("a", law.a, 1.0),
            ("b", law.b, 1.0),
            ("g", law.g, 1.0),
            ("k", law.k, EXPONENT_MAX),
            ("m", law.m, EXPONENT_MAX),
            ("n", law.n, EXPONENT_MAX),
            ("p", law.p, EXPONENT_MAX),
            ("q", law.q, EXPONENT_MAX),
        ];
        for (name, value, most) in constants {
            ensure((0.0..=most).contains(&value), Invalid::BitErrors, || {
                format!("{name} is {value}, need 0 to {most}")
            })?;
        }
        let reads_max = law.reads_max;
        ensure((0.0..=1e9).contains(&reads_max), Invalid::BitErrors, || {
            format!("reads_max is {reads_max}, need 0 to 1e9")
        })
    }

    /// The raw bit error rate of a block after `erases` erases, `days` after its first program,
    /// with `reads` reads since its erase. Age is limited to 90 days, reads to the model's limit,
    /// and the result to 5e-3.
    pub fn rber(self, erases: u32, days: f64, reads: u32) -> f64 {
        let ErrorLaw {
            e,
            a,
            k,
            b,
            m,
            n,
            g,
            p,
            q,
            reads_max,
        } = self.law();
        let (pe, days, reads) = (
            f64::from(erases),
            days.clamp(0.0, DAYS_MAX),
            f64::from(reads).min(reads_max),
        );
        let rate =
            e + a * pe.powf(k) + b * pe.powf(m) * days.powf(n) + g * pe.powf(p) * reads.powf(q);
        debug_assert!(rate >= 0.0, "a bit error rate of {rate}");
        rate.min(RBER_MAX)
    }
}

/// Error correction of a part: the correctable bits, and the read retries with shifted read
/// voltages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ecc {
    /// Data bytes per codeword; the OOB is one codeword.
    pub codeword_bytes: u32,
    /// Correctable wrong bits per codeword.
    pub bits: u32,
    /// Read retries; each senses the page again and takes as long as a read.
    pub retries: u32,
}

/// Share of the wrong bits that remain after a read retry. Ours.
const RETRY_LEAVES: f64 = 0.75;

/// Result of correcting one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Correction {
    /// Bits corrected in the correctable codewords.
    pub(crate) bits: u32,
    /// Read retries.
    pub(crate) retries: u32,
    /// A codeword was close to the ECC limit, or beyond it at the first try.
    pub(crate) near_limit: bool,
    pub(crate) data_lost: bool,
    pub(crate) oob_lost: bool,
}

impl Ecc {
    /// Wrong bits per codeword from which the data should be rewritten: three quarters of the
    /// correctable bits.
    pub(crate) const fn refresh_bits(&self) -> u32 {
        self.bits * 3 / 4
    }

    /// Reads the codewords of a page at a raw bit error rate; `data` and `oob` are the bytes of the
    /// wanted parts, 0 for none. `seed` identifies the page in its block's life.
    pub(crate) fn correct(&self, mut rber: f64, seed: u64, data: u32, oob: u32) -> Correction {
        let mut correction = self.sense(rber, seed, data, oob);
        while (correction.data_lost || correction.oob_lost) && correction.retries < self.retries {
            rber *= RETRY_LEAVES;
            let retries = correction.retries + 1;
            correction = Correction {
                retries,
                near_limit: true,
                ..self.sense(rber, seed, data, oob)
            };
        }
        correction
    }

    /// Reads a data codeword with this many wrong bits.
    pub(crate) fn correct_bits(&self, wrong: u32) -> Correction {
        let (mut left, mut retries) = (wrong, 0);
        while left > self.bits && retries < self.retries {
            left = (f64::from(left) * RETRY_LEAVES) as u32;
            retries += 1;
        }
        debug_assert!(left <= wrong, "retries make no bits wrong");
        let data_lost = left > self.bits;
        let bits = if data_lost { 0 } else { left };
        Correction {
            bits,
            retries,
            near_limit: wrong >= self.refresh_bits(),
            data_lost,
            oob_lost: false,
        }
    }

    fn sense(&self, rber: f64, seed: u64, data: u32, oob: u32) -> Correction {
        assert!(self.codeword_bytes > 0, "codewords of no bytes");
        let mut quantiles = SplitMix::new(seed);
        let mut wrong_bits =
            |bytes: u32| wrong_bits(quantiles.unit(), rber * 8.0 * f64::from(bytes), self.bits);
        let mut correction = Correction::default();
        let mut note = |wrong: u32| {
            correction.near_limit |= wrong >= self.refresh_bits();
            let lost = wrong > self.bits;
            correction.bits += if lost { 0 } else { wrong };
            lost
        };
        // The OOB first, so that its errors do not depend on the other parts that are read.
        let oob_lost = note(wrong_bits(oob));
        let mut data_lost = false;
        for at in (0..data).step_by(index(self.codeword_bytes)) {
            data_lost |= note(wrong_bits(self.codeword_bytes.min(data - at)));
        }
        Correction {
            data_lost,
            oob_lost,
            ..correction
        }
    }
}

/// Wrong bits of a codeword: the `quantile` of a Poisson variable. Values above `limit` are
/// equivalent; the function returns `limit + 1` for them.
fn wrong_bits(quantile: f64, mean: f64, limit: u32) -> u32 {
    debug_assert!(
        (0.0..1.0).contains(&quantile) && mean >= 0.0,
        "quantile {quantile} of {mean} wrong bits"
    );
    let mut chance = (-mean).exp();
    let (mut wrong, mut sum) = (0, chance);
    while sum <= quantile && wrong <= limit {
        wrong += 1;
        chance *= mean / f64::from(wrong);
        sum += chance;
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    const MLC: Ecc = Ecc {
        codeword_bytes: 1024,
        bits: 24,
        retries: 3,
    };

    #[test]
    fn rates_are_those_of_the_published_law() {
        let about = |seen: f64, wanted: f64| {
            assert!(
                (seen / wanted - 1.0).abs() < 0.06,
                "{seen:e}, not {wanted:e}"
            )
        };
        let mlc = |erases, days, reads| ErrorModel::Mlc2ynm.rber(erases, days, reads);
        about(mlc(0, 0.0, 0), 8.34e-5);
        about(mlc(3_000, 0.0, 0), 1.12e-4);
        about(mlc(3_000, 30.0, 10_000), 2.0e-4);
        about(mlc(3_000, 90.0, 0), 9.3e-4);
        about(mlc(5_000, 30.0, 10_000), 3.8e-4);
        about(mlc(10_000, 30.0, 10_000), 1.25e-3);
    }

    #[test]
    fn rates_grow_with_everything_and_stay_below_their_limit() {
        for decay in [ErrorModel::Slc, ErrorModel::Mlc3xnm, ErrorModel::Mlc2ynm] {
            let rate = |erases, days, reads| decay.rber(erases, days, reads);
            assert!(rate(1_000, 9.0, 9) > rate(500, 9.0, 9), "{decay:?} wear");
            assert!(rate(1_000, 30.0, 9) > rate(1_000, 9.0, 9), "{decay:?} age");
            assert!(
                rate(1_000, 9.0, 5_000) > rate(1_000, 9.0, 9),
                "{decay:?} reads"
            );
            assert!(rate(u32::MAX, 1e9, u32::MAX) <= RBER_MAX);
            assert_eq!(
                rate(1_000, 90.0, 100_000),
                rate(1_000, 400.0, 10_000_000),
                "{decay:?}: no further than the fit"
            );
        }
        assert!(ErrorModel::Slc.rber(100_000, 90.0, 10_000) < 3e-5);
    }

    /// Mean, variance and tail against the binomial distribution of independent bits.
    #[test]
    fn errors_are_distributed_as_the_rate_says() {
        const PAGES: u64 = 200_000;
        for rber in [8.34e-5, 4e-4, 1e-3, 2.5e-3] {
            let one = |page| MLC.sense(rber, SplitMix::new(page).next_u64(), 1024, 0);
            let (mut sum, mut squares, mut lost, mut near) = (0.0, 0.0, 0u64, 0u64);
            for page in 0..PAGES {
                let seen = one(page);
                let bits = if seen.data_lost {
                    MLC.bits as f64 + 1.0
                } else {
                    seen.bits as f64
                };
                (sum, squares) = (sum + bits, squares + bits * bits);
                lost += seen.data_lost as u64;
                near += seen.near_limit as u64;
            }
            let (mean, wanted) = (sum / PAGES as f64, 8192.0 * rber);
            let variance = squares / PAGES as f64 - mean * mean;
            if wanted < 10.0 {
                assert!(
                    (mean / wanted - 1.0).abs() < 0.01,
                    "{rber:e}: mean {mean}, not {wanted}"
                );
                assert!(
                    (variance / wanted - 1.0).abs() < 0.03,
                    "{rber:e}: variance {variance}, not {wanted}"
                );
            }
            for (counted, above) in [(lost, MLC.bits), (near, MLC.refresh_bits() - 1)] {
                let expected = PAGES as f64 * binomial_tail(8192, rber, above);
                let spread = 4.0 * expected.sqrt() + 0.02 * expected + 3.0;
                assert!(
                    (counted as f64 - expected).abs() < spread,
                    "{rber:e}: {counted} above {above}, not {expected}"
                );
            }
        }
    }

    /// Probability of more than `limit` wrong bits of `bits`.
    fn binomial_tail(bits: u32, rber: f64, limit: u32) -> f64 {
        let mut chance = (bits as f64 * (-rber).ln_1p()).exp();
        let mut sum = chance;
        for wrong in 0..limit {
            chance *= (bits - wrong) as f64 / (wrong + 1) as f64 * rber / (1.0 - rber);
            sum += chance;
        }
        1.0 - sum
    }

    #[test]
    fn errors_only_become_more_and_a_read_repeats() {
        for page in 0..2_000 {
            let seed = SplitMix::new(page).next_u64();
            let mut before = MLC.correct(0.0, seed, 4096, 218);
            assert_eq!(before, Correction::default());
            for step in 1..=60 {
                let rber = 1e-4 * step as f64;
                let now = MLC.correct(rber, seed, 4096, 218);
                assert_eq!(now, MLC.correct(rber, seed, 4096, 218));
                assert!(
                    now.retries >= before.retries && now.data_lost >= before.data_lost,
                    "page {page} step {step}"
                );
                assert!(now.near_limit >= before.near_limit);
                assert!(
                    now.retries == 0 || now.near_limit,
                    "a retry says that the data should be written anew"
                );
                before = now;
            }
        }
    }

    #[test]
    fn retries_bring_back_what_the_first_try_cannot_correct() {
        let count = |retries| {
            let ecc = Ecc { retries, ..MLC };
            (0..20_000)
                .filter(|page| {
                    ecc.correct(3e-3, SplitMix::new(*page).next_u64(), 4096, 0)
                        .data_lost
                })
                .count()
        };
        let lost: Vec<usize> = (0..4).map(count).collect();
        assert!(
            lost[0] > 10_000 && lost.is_sorted_by(|a, b| a > b) && lost[3] < 200,
            "{lost:?}"
        );
    }

    #[test]
    fn a_given_number_of_wrong_bits_is_corrected_as_far_as_retries_help() {
        let seen = [1, 18, 24, 25, 61, 62].map(|wrong| MLC.correct_bits(wrong));
        assert_eq!(
            seen.map(|seen| seen.data_lost),
            [false, false, false, false, false, true]
        );
        assert_eq!(
            seen.map(|seen| seen.near_limit),
            [false, true, true, true, true, true]
        );
        assert_eq!(seen.map(|seen| seen.retries), [0, 0, 0, 1, 3, 3]);
        assert_eq!(seen.map(|seen| seen.bits), [1, 18, 24, 18, 24, 0]);
    }

    #[test]
    fn a_part_that_is_not_read_is_not_lost() {
        let huge = 0.2;
        assert_eq!(MLC.correct(huge, 1, 0, 0), Correction::default());
        let both = MLC.correct(huge, 1, 4096, 218);
        assert!(both.data_lost && both.oob_lost && both.near_limit && both.retries == MLC.retries);
        let oob = MLC.correct(huge, 1, 0, 218);
        assert!(oob.oob_lost && !oob.data_lost);
    }
}
