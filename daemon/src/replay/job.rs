//! What one run is told: options on the command line and a JSON object alike.

use crate::config::{DeviceOptions, Wish};
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use ftld_traces::{DIALECTS, Dialect};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// One run: a scheme, its device, what is asked of it and how that is measured. Equal jobs give equal figures.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Job {
    /// Trace file, or a synthetic workload such as zipf:read=30%; see `ftld workloads`
    pub workload: String,
    /// Flash translation layer; see `ftld schemes`
    #[arg(long, value_name = "NAME")]
    pub scheme: Option<String>,
    /// Flash device; see `ftld profiles`
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Size that the host sees [default: 1GiB; with --address compact what the trace touches]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// Over-provisioning in percent of the size [default: 7]
    #[arg(long, value_name = "PERCENT")]
    pub op: Option<f64>,
    /// Scheme parameter, may be given more than once
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Where all randomness begins
    #[arg(long, value_name = "N", default_value_t = SEED_DEFAULT)]
    pub seed: u64,
    /// What was written before the trace begins
    #[arg(long, value_name = "none|touched|fill|steady|WRITES", default_value_t = Precondition::Steady)]
    pub precondition: Precondition,
    /// Format of the trace [default: found out from its first line]
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Only the requests to this disk of the trace
    #[arg(long, value_name = "N")]
    pub disk: Option<u64>,
    /// How the trace's addresses become addresses of the device
    #[arg(long, value_enum, default_value_t = Address::Exact)]
    pub address: Address,
    /// When requests begin
    #[arg(long, value_enum, default_value_t = Arrival::Closed)]
    pub arrival: Arrival,
    /// What one response time is
    #[arg(long, value_enum, default_value_t = Average::PerRequest)]
    pub average: Average,
    /// Let the scheme work while nothing is asked of it; needs --arrival trace
    #[arg(long)]
    pub idle: bool,
    /// Requests under way at the same time in a closed loop
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub depth: u32,
    /// How often the trace is done before it is measured
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub warm_up: u32,
    /// How often the trace is done and measured
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub loops: u32,
}

/// The seed unless told otherwise.
const SEED_DEFAULT: u64 = 1;

impl Default for Job {
    fn default() -> Self {
        Job {
            workload: String::new(),
            scheme: None,
            profile: None,
            size: None,
            op: None,
            set: Vec::new(),
            seed: SEED_DEFAULT,
            precondition: Precondition::Steady,
            format: None,
            disk: None,
            address: Address::Exact,
            arrival: Arrival::Closed,
            average: Average::PerRequest,
            idle: false,
            depth: 1,
            warm_up: 0,
            loops: 1,
        }
    }
}

/// Most requests under way at the same time.
const DEPTH_MAX: u32 = 65_536;

/// How addresses of a trace become addresses of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Address {
    /// As they are; one beyond the device is an error
    Exact,
    /// Modulo the size of the device
    Fold,
    /// Extents of 1 MiB that the trace touches, one behind the other in the order of their addresses; reads the trace twice
    Compact,
}

/// When requests begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// When another is done: as many are under way as --depth says
    Closed,
    /// When the trace says so
    Trace,
}

/// What one response time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Average {
    /// That of a request: all its pages begin together, and it is done with the last
    PerRequest,
    /// That of a page: the pages of a request follow each other
    PerPage,
    /// That of one page, the one with the first byte: all that is done for a request, whatever its length
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
                Ok(writes) if (0.0..=DEVICE_WRITES_MAX).contains(&writes) => Ok(Precondition::Writes(writes)),
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
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Job {
    /// The options of the device, validated as everywhere else.
    pub(super) fn wish(&self) -> Result<Wish, Failure> {
        if self.loops == 0 {
            return Err(Failure::usage("--loops 0: a trace is done at least once"));
        }
        if self.depth == 0 || self.depth > DEPTH_MAX {
            return Err(Failure::usage(format!("--depth {}: need 1 to {DEPTH_MAX}", self.depth)));
        }
        if self.depth > 1 && self.arrival == Arrival::Trace {
            return Err(Failure::usage(
                "--depth: by timestamps as many requests are under way as have come; leave it out",
            ));
        }
        if self.idle && self.arrival == Arrival::Closed {
            return Err(Failure::usage("--idle: a closed loop leaves no time between requests; add --arrival trace"));
        }
        let (scheme, profile, size, set) =
            (self.scheme.clone(), self.profile.clone(), self.size.clone(), self.set.clone());
        DeviceOptions { scheme, profile, size, op: self.op, set, ..DeviceOptions::default() }.wish()
    }

    /// The format that was asked for.
    pub(super) fn dialect(&self) -> Result<Option<&'static Dialect>, Failure> {
        let Some(name) = &self.format else { return Ok(None) };
        let names: Vec<_> = DIALECTS.iter().map(|dialect| dialect.name).collect();
        let unknown = || Failure::usage(format!("no trace format {name:?}; there are {}", names.join(", ")));
        Dialect::find(name).map(Some).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_what_its_json_says_and_nothing_else() {
        let job = Job { workload: "x.csv".into(), precondition: Precondition::Writes(2.5), ..Job::default() };
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
        assert_eq!(serde_json::from_str::<Job>(r#"{"workload": "x.csv", "precondition": "2.5"}"#).unwrap(), job);
        for (wrong, part) in [
            (r#"{"workloda": "x"}"#, "unknown field `workloda`, expected one of `workload`"),
            (r#"{"address": "fodl"}"#, "unknown variant `fodl`, expected one of `exact`, `fold`, `compact`"),
            (r#"{"precondition": "stedy"}"#, "is none of none, touched, fill, steady"),
            (r#"{"precondition": "-1"}"#, "is none of none, touched, fill, steady"),
        ] {
            let error = serde_json::from_str::<Job>(wrong).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_makes_no_sense_names_its_option() {
        for (job, part) in [
            (Job { loops: 0, ..Job::default() }, "--loops 0"),
            (Job { depth: 0, ..Job::default() }, "--depth 0: need 1 to"),
            (Job { depth: 2, arrival: Arrival::Trace, ..Job::default() }, "--depth: by timestamps"),
            (Job { idle: true, ..Job::default() }, "add --arrival trace"),
            (Job { size: Some("big".into()), ..Job::default() }, "--size \"big\""),
            (Job { op: Some(-1.0), ..Job::default() }, "--op -1"),
        ] {
            assert!(job.wish().unwrap_err().message.contains(part));
        }
        let failure = Job { format: Some("mrs".into()), ..Job::default() }.dialect().err().unwrap();
        assert!(failure.message.contains("no trace format \"mrs\"; there are plain, msr, spc"), "{failure}");
    }
}
