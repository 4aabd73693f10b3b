//! Request lengths.

use crate::convert::to_f64;
use crate::error::ValueError;
use crate::fields::SECTOR;
use crate::record::LENGTH_MAX;
use crate::size::{parse_size, show_size};
use rand::RngExt;
use rand_distr::{Distribution, Geometric};
use rand_pcg::Pcg64;

/// A mixture of lengths.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sizes {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq)]
struct Part {
    length: Length,
    /// Cumulative share of the requests.
    below: f64,
}

#[derive(Clone, Debug, PartialEq)]
enum Length {
    Fixed(u64),
    /// Geometrically distributed sectors, at least one. The distribution has one parameter, so the
    /// published mean determines it.
    Mean(Geometric),
}

/// Length of one request, and the default alignment of its address.
pub(super) struct Size {
    pub(super) bytes: u64,
    pub(super) grain: u64,
}

/// Upper limit of a request with a mean length: 16 times the largest mean, so truncation has no
/// effect.
const CUT: u64 = 16 << 20;

impl Sizes {
    /// Parses `4KiB`, `mean:3.17KiB`, or several lengths with shares: `4KiB/70+64KiB/30`.
    pub(super) fn parse(text: &str) -> Result<Sizes, ValueError> {
        let mut parts = Vec::new();
        let mut sum = 0.0;
        for part in text.split('+') {
            let (length, share) = part.split_once('/').unwrap_or((part, "1"));
            let wrong = || ValueError::Text(share.into(), "a share of the requests");
            let share: f64 = share.parse().map_err(|_| wrong())?;
            if !(share > 0.0 && share.is_finite()) {
                return Err(wrong());
            }
            sum += share;
            if !sum.is_finite() {
                return Err(wrong());
            }
            parts.push(Part {
                length: Length::parse(length)?,
                below: sum,
            });
        }
        parts.iter_mut().for_each(|part| part.below /= sum);
        assert!(!parts.is_empty(), "a mixture of no lengths");
        Ok(Sizes { parts })
    }

    pub(super) fn largest(&self) -> u64 {
        let of = |part: &Part| {
            if let Length::Fixed(bytes) = part.length {
                bytes
            } else {
                CUT
            }
        };
        self.parts.iter().map(of).max().unwrap_or(0)
    }

    pub(super) fn draw(&self, rng: &mut Pcg64) -> Size {
        let part = match &self.parts[..] {
            [one] => one,
            parts => {
                let at: f64 = rng.random();
                parts
                    .iter()
                    .find(|part| at < part.below)
                    .unwrap_or(&parts[parts.len() - 1])
            }
        };
        let size = match &part.length {
            Length::Fixed(bytes) => Size {
                bytes: *bytes,
                grain: natural(*bytes),
            },
            Length::Mean(sectors) => Size {
                bytes: (SECTOR * (1 + sectors.sample(rng))).min(CUT),
                grain: SECTOR,
            },
        };
        assert!(
            size.bytes > 0 && size.bytes.is_multiple_of(size.grain),
            "a request of {} bytes in units of {}",
            size.bytes,
            size.grain
        );
        debug_assert!(
            size.bytes <= self.largest(),
            "a request of {} bytes, the largest has {}",
            size.bytes,
            self.largest()
        );
        size
    }
}

/// Returns the largest power of two that divides a length, at most 1 MiB.
fn natural(bytes: u64) -> u64 {
    1 << bytes.trailing_zeros().min(20)
}

impl Length {
    fn parse(text: &str) -> Result<Length, ValueError> {
        let Some(mean) = text.strip_prefix("mean:") else {
            let bytes = parse_size(text)?;
            return match bytes {
                1..=LENGTH_MAX => Ok(Length::Fixed(bytes)),
                _ => Err(ValueError::Misfit(format!(
                    "{} is not a length from 1 byte to 1 GiB",
                    show_size(bytes)
                ))),
            };
        };
        let form =
            "a mean length from 512 bytes to 1 MiB; write for example mean:12.5KiB or mean:6490";
        let wrong = || ValueError::Text(mean.into(), form);
        // A mean may be a fraction of a byte.
        let (number, unit) = mean.split_at(
            mean.find(|c: char| !c.is_ascii_digit() && c != '.')
                .unwrap_or(mean.len()),
        );
        let unit = parse_size(&format!("1{unit}")).map_err(|_| wrong())?;
        let sectors = number.parse::<f64>().map_err(|_| wrong())? * to_f64(unit) / to_f64(SECTOR);
        if !(1.0..=to_f64(1 << 20) / to_f64(SECTOR)).contains(&sectors) {
            return Err(wrong());
        }
        Geometric::new(1.0 / sectors)
            .map(Length::Mean)
            .map_err(|_| wrong())
    }
}
