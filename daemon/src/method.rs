//! Measurement method of a run: preconditioning, and the unit of a response time.

use clap::ValueEnum;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// Unit of a response time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum ResponseUnit {
    /// A request: its pages start together, and it completes with the last
    PerRequest,
    /// A page: the pages of a request are served one after another
    PerPage,
    /// A record: it counts as one page, the one with its first byte, whatever its length
    PerRecord,
}

/// Preconditioning before measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Precondition {
    /// None: the device is new.
    None,
    /// Writes each page that the first round of the trace touches once, in order.
    Footprint,
    /// Writes every page once, in order.
    Fill,
    /// Writes every page once, then random pages until steady state.
    Steady,
    /// Writes every page once, then random pages, for this number of drive writes.
    Writes(f64),
}

/// Upper limit of random overwriting, in drive writes.
pub const DEVICE_WRITES_MAX: f64 = 1000.0;

impl FromStr for Precondition {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Precondition::None),
            "footprint" => Ok(Precondition::Footprint),
            "fill" => Ok(Precondition::Fill),
            "steady" => Ok(Precondition::Steady),
            _ => match text.parse() {
                Ok(writes) if (0.0..=DEVICE_WRITES_MAX).contains(&writes) => {
                    Ok(Precondition::Writes(writes))
                }
                _ => Err(format!(
                    "{text:?} is none of none, footprint, fill, steady, or a number of drive writes up to {DEVICE_WRITES_MAX}"
                )),
            },
        }
    }
}

impl fmt::Display for Precondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Precondition::None => f.write_str("none"),
            Precondition::Footprint => f.write_str("footprint"),
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
