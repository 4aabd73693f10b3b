//! Measurement method of a run: preconditioning, and the unit of a response time.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precondition {
    /// The device is new
    New,
    /// Every page once, in order, but those that the first pass touches: an erased region of a full
    /// device
    Region,
    /// Every page that the first pass of the trace touches, once, in order
    Trace,
    /// Every page once, in order; then random pages for --age drive writes
    Fill,
    /// Every page once, in order; then random pages until steady state
    Steady,
}

impl Precondition {
    /// Returns the name, as on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Precondition::New => "new",
            Precondition::Region => "region",
            Precondition::Trace => "trace",
            Precondition::Fill => "fill",
            Precondition::Steady => "steady",
        }
    }
}

/// Upper limit of `--age`, in drive writes.
pub const AGE_MAX: f64 = 1000.0;
