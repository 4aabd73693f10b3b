//! Aging: a device is filled, then overwritten at random, as one in use is.
//!
//! Simulation ages a device in memory, `ftld create --age` one in an image.

use crate::method::AGE_MAX;
use ftl_core::{FtlError, Lpn};
use ftld_kit::convert::{index, narrow, to_f64, whole};
use ftld_kit::failure::Failure;
use nand_model::SplitMix;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Rule of the steady state: the write amplification of `windows` windows in a row differs by at
/// most a share of `tolerance`. It is not reached if random pages for `limit_drive_writes` do not
/// suffice.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteadyRule {
    /// Windows compared.
    pub windows: u32,
    /// Length of a window, in drive writes.
    pub window_drive_writes: f64,
    /// Share by which their write amplification may differ.
    pub tolerance: f64,
    /// Drive writes, after the sequential fill, at which the search ends.
    pub limit_drive_writes: f64,
}

impl Default for SteadyRule {
    fn default() -> Self {
        STEADY
    }
}

/// The rule of `--precondition steady` and `--age steady`.
const STEADY: SteadyRule = SteadyRule {
    windows: 3,
    window_drive_writes: 0.25,
    tolerance: 0.02,
    limit_drive_writes: 12.0,
};

/// Result of aging or preconditioning.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conditioned {
    /// Drive writes, with the sequential fill.
    pub drive_writes: f64,
    /// Write amplification of the last window of random overwrites, if there was one.
    pub write_amplification: Option<f64>,
    /// Whether the steady state was reached; `None` if it was not requested.
    pub steady: Option<bool>,
    /// Its rule; `None` if it was not requested.
    pub rule: Option<SteadyRule>,
}

/// How far a device is overwritten after it was filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Age {
    /// Random pages for this number of drive writes.
    DriveWrites(f64),
    /// Random pages until steady state.
    Steady,
}

/// Age of a new image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ImageAge {
    /// How far it is overwritten.
    pub(crate) written: Age,
    /// Whether its blocks are at the end of their rated life.
    pub is_worn: bool,
}

impl std::str::FromStr for ImageAge {
    type Err = Failure;

    /// Parses the value of `ftld create --age`.
    fn from_str(text: &str) -> Result<ImageAge, Failure> {
        let (written, is_worn) = match text {
            "steady" => (Age::Steady, false),
            "eol" => (Age::Steady, true),
            number => (Age::DriveWrites(drive_writes(number)?), false),
        };
        Ok(ImageAge { written, is_worn })
    }
}

fn drive_writes(text: &str) -> Result<f64, Failure> {
    let wrong = |_| Failure::usage("write a number of drive writes, steady or eol");
    let number: f64 = text.parse().map_err(wrong)?;
    check_age(number).map(|()| number)
}

/// Refuses a number of drive writes that no run completes.
///
/// # Errors
/// The number is negative, not a number or above [`AGE_MAX`].
pub fn check_age(age: f64) -> Result<(), Failure> {
    let wrong = || Failure::usage(format!("--age {age}: need 0 to {AGE_MAX} drive writes"));
    let is_age = (0.0..=AGE_MAX).contains(&age);
    is_age.then_some(()).ok_or_else(wrong)
}

/// A device that is aged.
pub trait Aged {
    /// Returns the number of logical pages.
    fn logical_pages(&self) -> u32;
    /// Writes these pages in order; `tick` receives the page after the last one written.
    ///
    /// # Errors
    /// The scheme cannot write.
    fn fill(&mut self, pages: Range<u32>, tick: &mut dyn FnMut(u32)) -> Result<(), FtlError>;
    /// Writes one page.
    ///
    /// # Errors
    /// The scheme cannot write.
    fn write_page(&mut self, lpn: Lpn) -> Result<(), FtlError>;
    /// Returns the pages programmed so far.
    fn programs(&self) -> u64;
}

/// Writes every page once in order, then random pages. `tick` receives the share done.
///
/// # Errors
/// The scheme cannot write.
pub fn overwrite(
    device: &mut impl Aged,
    age: Age,
    seed: u64,
    tick: &mut dyn FnMut(f64),
) -> Result<Conditioned, FtlError> {
    let pages = device.logical_pages();
    let (drive_writes, is_steady) = match age {
        Age::DriveWrites(number) => (number, false),
        Age::Steady => (STEADY.limit_drive_writes, true),
    };
    let limit = whole(drive_writes * f64::from(pages));
    let total = to_f64(limit + u64::from(pages));
    device.fill(0..pages, &mut |done| tick(f64::from(done) / total))?;
    let mut rng = SplitMix::new(seed);
    let window = whole(f64::from(pages) * STEADY.window_drive_writes).max(1);
    let (mut written, mut last, mut steady) = (0, Vec::new(), false);
    while written < limit && !steady {
        let count = window.min(limit - written);
        assert!(
            count > 0,
            "a window of no pages, after {written} of {limit}"
        );
        let before = device.programs();
        for _ in 0..count {
            device.write_page(Lpn::new(narrow(rng.below(u64::from(pages)))))?;
        }
        written += count;
        last.push(to_f64(device.programs() - before) / to_f64(count));
        steady = is_steady && is_settled(&last);
        tick(to_f64(u64::from(pages) + written) / total);
    }
    assert!(
        steady || written == limit,
        "{written} of {limit} pages were overwritten"
    );
    Ok(Conditioned {
        drive_writes: 1.0 + to_f64(written) / f64::from(pages),
        write_amplification: last.last().copied(),
        steady: is_steady.then_some(steady),
        rule: is_steady.then_some(STEADY),
    })
}

fn is_settled(windows: &[f64]) -> bool {
    let count = index(STEADY.windows);
    let Some(last) = windows.len().checked_sub(count).map(|at| &windows[at..]) else {
        return false;
    };
    let most = last.iter().copied().fold(0.0, f64::max);
    let least = last.iter().copied().fold(f64::INFINITY, f64::min);
    most <= least * (1.0 + STEADY.tolerance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_like_windows_in_a_row_are_settled() {
        assert!(!is_settled(&[5.0, 5.0]));
        assert!(!is_settled(&[5.0, 5.0, 5.2]));
        assert!(!is_settled(&[1.0, 3.0, 5.0, 5.0]));
        assert!(is_settled(&[1.0, 3.0, 5.0, 5.05, 4.99]));
    }

    #[test]
    fn an_age_is_a_number_or_a_word() {
        let age = |text: &str| text.parse::<ImageAge>();
        let written = |text| age(text).map(|age| (age.written, age.is_worn));
        assert_eq!(written("2.5"), Ok((Age::DriveWrites(2.5), false)));
        assert_eq!(written("steady"), Ok((Age::Steady, false)));
        assert_eq!(written("eol"), Ok((Age::Steady, true)));
        for wrong in ["old", "-1", "NaN", "1e9", ""] {
            let why = age(wrong).unwrap_err();
            assert!(why.message.contains("drive writes"), "{wrong}: {why}");
        }
    }
}
