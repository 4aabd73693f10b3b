//! Parameters of one run: options on the command line or a JSON object.

use super::arrivals::rate;
use super::settling::PASSES_MAX;
use clap::builder::ArgPredicate;
use clap::{Args, ValueEnum};
use ftld_device::method::{Precondition, ResponseUnit};
use serde::{Deserialize, Serialize};

/// One run: a scheme, its device, its workload and the measuring method. Equal jobs give equal
/// results.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Job {
    /// Trace file, or a synthetic workload such as zipf:read=30%; see `ftld workloads`
    pub(crate) workload: String,
    /// Scheme, device, parameters and method of a paper; explicit options have priority; see `ftld
    /// presets`
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) preset: Option<String>,
    /// Flash translation layer; see `ftld schemes`
    #[arg(long, value_name = "NAME")]
    pub(crate) scheme: Option<String>,
    /// Flash device; see `ftld profiles`
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Share of the blocks in SLC mode, such as 5%, on a flash device of several bits per cell
    #[arg(long, value_name = "PERCENT", value_parser = ftld_device::options::percent, allow_hyphen_values = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) slc_region: Option<f64>,
    /// Size that the host sees [default: 1GiB; with --address compact the touched extents]
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<String>,
    /// Over-provisioning in percent of the size [default: 7]
    #[arg(long, value_name = "PERCENT", value_parser = ftld_device::options::percent, allow_hyphen_values = true)]
    pub(crate) op: Option<f64>,
    /// Good flash beyond the size, in percent of the size, in place of --op: reserves, mapping and
    /// log blocks are part of it
    #[arg(long, value_name = "PERCENT", value_parser = ftld_device::options::percent, allow_hyphen_values = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) op_effective: Option<f64>,
    /// Raw flash, bad blocks included, in place of --op: what exceeds the size is over-provisioning
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) raw: Option<String>,
    /// RAM of the scheme, as allocated: caches, buffers and pending changes are laid out within it
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ram: Option<String>,
    /// Scheme parameter; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Open loop: requests arrive at this mean number per second, whether or not the device is
    /// free; see --arrival
    #[arg(long, value_name = "N", value_parser = rate)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rate: Option<f64>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = SEED_DEFAULT)]
    pub(crate) seed: u64,
    /// Method of replay.
    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) method: Method,
}

/// Method of replay and measuring: the same for every run of a comparison.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Method {
    /// How often the trace runs, and where; see Forms in docs/REPLAY.md
    #[arg(long, value_enum)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) form: Option<Form>,
    /// Preconditioning before the trace [default: steady; of a form trace, of rotated fill]
    #[arg(long, value_enum)]
    pub(crate) precondition: Option<Precondition>,
    /// Drive writes of random pages after every page was written once, instead of steady state
    #[arg(long, value_name = "DRIVE-WRITES")]
    pub(crate) age: Option<f64>,
    /// Format of the trace [default: detected from its first line]
    #[arg(long, value_name = "NAME")]
    pub(crate) format: Option<String>,
    /// Use a recording without its end mark as far as it goes
    #[arg(long)]
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) cut_off: bool,
    /// Only the requests to this disk of the trace
    #[arg(long, value_name = "N")]
    pub(crate) disk: Option<u64>,
    /// Mapping from trace addresses to device addresses; synthetic workloads need none
    #[arg(long, value_enum, default_value_t = Address::Exact)]
    pub(crate) address: Address,
    /// Start of requests; with --rate by default trace
    #[arg(long, value_enum, default_value_t = Arrival::Closed, default_value_if("rate", ArgPredicate::IsPresent, "trace"))]
    pub(crate) arrival: Arrival,
    /// Unit of a response time [default: per_request]
    #[arg(long, value_enum)]
    pub(crate) response_unit: Option<ResponseUnit>,
    /// Run background GC when idle; needs an open loop
    #[arg(long)]
    pub(crate) idle: bool,
    /// Requests in flight with --arrival closed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) depth: u32,
    /// Warm-up passes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) warm_up: u32,
    /// Measured passes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) loops: u32,
}

/// Default seed.
pub(super) const SEED_DEFAULT: u64 = 1;

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

impl Default for Job {
    fn default() -> Self {
        Job {
            workload: String::new(),
            preset: None,
            scheme: None,
            profile: None,
            slc_region: None,
            size: None,
            op: None,
            op_effective: None,
            raw: None,
            ram: None,
            set: Vec::new(),
            rate: None,
            seed: SEED_DEFAULT,
            method: Method::default(),
        }
    }
}

impl Default for Method {
    fn default() -> Self {
        Method {
            form: None,
            precondition: None,
            age: None,
            format: None,
            cut_off: false,
            disk: None,
            address: Address::Exact,
            arrival: Arrival::Closed,
            response_unit: None,
            idle: false,
            depth: 1,
            warm_up: 0,
            loops: 1,
        }
    }
}

impl Method {
    /// Returns the preconditioning.
    pub(crate) fn precondition(&self) -> Precondition {
        let default = match (self.age, self.form) {
            (Some(_), _) => Precondition::Fill,
            // Rotated passes read pages that the first one does not touch.
            (None, Some(Form::Rotated)) => Precondition::Fill,
            (None, Some(_)) => Precondition::Trace,
            (None, None) => Precondition::Steady,
        };
        self.precondition.unwrap_or(default)
    }

    /// Returns an upper bound on the passes, warm-up included.
    pub(crate) fn passes_most(&self) -> u32 {
        let settling = match self.form {
            Some(Form::Looped | Form::Rotated) => PASSES_MAX,
            Some(Form::Single) | None => 0,
        };
        self.loops
            .saturating_add(self.warm_up)
            .saturating_add(settling)
    }

    /// Returns the unit of response times.
    pub(crate) fn response_unit(&self) -> ResponseUnit {
        self.response_unit.unwrap_or(ResponseUnit::PerRequest)
    }
}

/// Mapping from trace addresses to device addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Address {
    /// Unchanged; an address beyond the device is an error
    Exact,
    /// Modulo the size of the device
    Fold,
    /// Touched extents of 1 MiB, compacted in address order; reads the trace twice
    Compact,
}

/// Form of a trace: the state in which it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    /// One pass, on a device that the trace filled
    Single,
    /// Passes until their write amplification has settled, then the measured ones
    Looped,
    /// As looped, but each pass begins elsewhere: addresses rotate over the device
    Rotated,
}

impl Form {
    /// Returns the name, as on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Form::Single => "single",
            Form::Looped => "looped",
            Form::Rotated => "rotated",
        }
    }
}

/// Arrival of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Arrival {
    /// When another one completes: --depth requests are in flight
    Closed,
    /// At the timestamps of the trace, stretched to --rate; those of a generator are random
    Trace,
    /// At random: --rate a second on average
    Poisson,
    /// In equal intervals: --rate a second
    Constant,
}

impl Arrival {
    /// Returns the name, as on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Arrival::Closed => "closed",
            Arrival::Trace => "trace",
            Arrival::Poisson => "poisson",
            Arrival::Constant => "constant",
        }
    }
}

impl Job {
    /// Returns the job as one line of JSON. Equal jobs have equal lines.
    pub(crate) fn line(&self) -> String {
        serde_json::to_string(self).expect("a job is plain data")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_what_its_json_says_and_nothing_else() {
        let method = Method {
            age: Some(2.5),
            ..Method::default()
        };
        let job = Job {
            workload: "x.csv".into(),
            method,
            ..Job::default()
        };
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<Job>(&text).unwrap(), job);
        assert_eq!(
            serde_json::from_str::<Job>(r#"{"workload": "x.csv", "age": 2.5}"#).unwrap(),
            job
        );
        for (wrong, part) in [
            (r#"{"workloda": "x"}"#, "unknown field `workloda`"),
            (
                r#"{"address": "fodl"}"#,
                "unknown variant `fodl`, expected one of `exact`, `fold`, `compact`",
            ),
            (
                r#"{"precondition": "stedy"}"#,
                "unknown variant `stedy`, expected one of `new`, `region`, `trace`, `fill`, `steady`",
            ),
        ] {
            let error = serde_json::from_str::<Job>(wrong).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
