//! How a run is measured: what is written before, and what one response time is.

use clap::ValueEnum;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// What one response time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Average {
    /// That of a request: all its pages begin together, and it is done with the last
    PerRequest,
    /// That of a page: the pages of a request follow each other
    PerPage,
    /// That of one page, the one with the first byte: all that is done for a request, whatever its
    /// length
    PerRecord,
}

/// What is written before measuring begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Precondition {
    /// Nothing: the device is new.
    None,
    /// Every page that the first round of the trace touches, once, in order.
    Touched,
    /// Every page once, in order.
    Fill,
    /// Every page once, then random pages until the write amplification no longer changes.
    Steady,
    /// Every page once, then random pages, so many times the device.
    Writes(f64),
}

/// Random overwriting ends here at the latest.
pub const DEVICE_WRITES_MAX: f64 = 1000.0;

impl FromStr for Precondition {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Precondition::None),
            "touched" => Ok(Precondition::Touched),
            "fill" => Ok(Precondition::Fill),
            "steady" => Ok(Precondition::Steady),
            _ => match text.parse() {
                Ok(writes) if (0.0..=DEVICE_WRITES_MAX).contains(&writes) => {
                    Ok(Precondition::Writes(writes))
                }
                _ => Err(format!(
                    "{text:?} is none of none, touched, fill, steady, or how many times the device is overwritten, up to {DEVICE_WRITES_MAX}"
                )),
            },
        }
    }
}

impl fmt::Display for Precondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Precondition::None => f.write_str("none"),
            Precondition::Touched => f.write_str("touched"),
            Precondition::Fill => f.write_str("fill"),
            Precondition::Steady => f.write_str("steady"),
            Precondition::Writes(writes) => write!(f, "{writes}"),
        }
    }
}

impl Serialize for Precondition {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Precondition {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}
