//! What one run is told: options on the command line and a JSON object alike.

use crate::config::{Wish, find_scheme};
use crate::failure::Failure;
use crate::method::{Average, Precondition};
use crate::options::DeviceOptions;
use crate::preset::{Preset, Use};
use clap::{Args, ValueEnum};
use ftld_traces::{DIALECTS, Dialect};
use serde::{Deserialize, Serialize};

/// One run: a scheme, its device, what is asked of it and how that is measured. Equal jobs give
/// equal figures.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Job {
    /// Trace file, or a synthetic workload such as zipf:read=30%; see `ftld workloads`
    pub workload: String,
    /// Scheme, device, parameters and method of a paper, where no option says otherwise; see `ftld
    /// presets`
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<String>,
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
    /// How it is replayed.
    #[command(flatten)]
    #[serde(flatten)]
    pub method: Method,
}

/// How a workload is replayed and measured: the same for every run of a comparison.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Method {
    /// What was written before the trace begins [default: steady]
    #[arg(long, value_name = "none|touched|fill|steady|WRITES")]
    pub precondition: Option<Precondition>,
    /// Format of the trace [default: found out from its first line]
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Only the requests to this disk of the trace
    #[arg(long, value_name = "N")]
    pub disk: Option<u64>,
    /// How a trace's addresses become addresses of the device; synthetic workloads fit by
    /// themselves
    #[arg(long, value_enum, default_value_t = Address::Exact)]
    pub address: Address,
    /// When requests begin
    #[arg(long, value_enum, default_value_t = Arrival::Closed)]
    pub arrival: Arrival,
    /// What one response time is [default: per_request]
    #[arg(long, value_enum)]
    pub average: Option<Average>,
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
            preset: None,
            scheme: None,
            profile: None,
            size: None,
            op: None,
            set: Vec::new(),
            seed: SEED_DEFAULT,
            method: Method::default(),
        }
    }
}

impl Default for Method {
    fn default() -> Self {
        Method {
            precondition: None,
            format: None,
            disk: None,
            address: Address::Exact,
            arrival: Arrival::Closed,
            average: None,
            idle: false,
            depth: 1,
            warm_up: 0,
            loops: 1,
        }
    }
}

impl Method {
    /// What is written before measuring begins.
    pub fn precondition(&self) -> Precondition {
        self.precondition.unwrap_or(Precondition::Steady)
    }

    /// What one response time is.
    pub fn average(&self) -> Average {
        self.average.unwrap_or(Average::PerRequest)
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
    /// Extents of 1 MiB that the trace touches, one behind the other in the order of their
    /// addresses; reads the trace twice
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

impl Job {
    /// The same job with everything said that its preset says or that has a default.
    pub(super) fn complete(&self) -> Result<Job, Failure> {
        let mut job = self.clone();
        if let Some(name) = &self.preset {
            let preset = Preset::find(name)?;
            let (device, scheme) = (
                preset.device(),
                self.scheme.as_deref().unwrap_or(preset.scheme),
            );
            job.profile = self.profile.clone().or(device.profile);
            job.size = self.size.clone().or(device.size);
            job.op = self.op.or(device.op);
            job.set = preset.params(find_scheme(scheme)?, Use::Simulation, &self.set);
            job.scheme = Some(scheme.to_owned());
            job.method.precondition = self.method.precondition.or(Some(preset.precondition));
            job.method.average = self.method.average.or(Some(preset.average));
        }
        job.method.precondition = Some(job.method.precondition());
        job.method.average = Some(job.method.average());
        Ok(job)
    }

    /// The options of the device, validated as everywhere else.
    pub(super) fn wish(&self) -> Result<Wish, Failure> {
        let Method {
            loops,
            depth,
            arrival,
            idle,
            ..
        } = self.method;
        if loops == 0 {
            return Err(Failure::usage("--loops 0: a trace is done at least once"));
        }
        if depth == 0 || depth > DEPTH_MAX {
            return Err(Failure::usage(format!(
                "--depth {depth}: need 1 to {DEPTH_MAX}"
            )));
        }
        if depth > 1 && arrival == Arrival::Trace {
            return Err(Failure::usage(
                "--depth: by timestamps as many requests are under way as have come; leave it out",
            ));
        }
        if idle && arrival == Arrival::Closed {
            return Err(Failure::usage(
                "--idle: a closed loop leaves no time between requests; add --arrival trace",
            ));
        }
        let (scheme, profile, size, set) = (
            self.scheme.clone(),
            self.profile.clone(),
            self.size.clone(),
            self.set.clone(),
        );
        DeviceOptions {
            scheme,
            profile,
            size,
            op: self.op,
            set,
            ..DeviceOptions::default()
        }
        .wish()
    }

    /// The format that was asked for.
    pub(super) fn dialect(&self) -> Result<Option<&'static Dialect>, Failure> {
        let Some(name) = &self.method.format else {
            return Ok(None);
        };
        let names: Vec<_> = DIALECTS.iter().map(|dialect| dialect.name).collect();
        let unknown = || {
            Failure::usage(format!(
                "no trace format {name:?}; there are {}",
                names.join(", ")
            ))
        };
        Dialect::find(name).map(Some).ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_what_its_json_says_and_nothing_else() {
        let method = Method {
            precondition: Some(Precondition::Writes(2.5)),
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
            serde_json::from_str::<Job>(r#"{"workload": "x.csv", "precondition": "2.5"}"#).unwrap(),
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
                "is none of none, touched, fill, steady",
            ),
            (
                r#"{"precondition": "-1"}"#,
                "is none of none, touched, fill, steady",
            ),
        ] {
            let error = serde_json::from_str::<Job>(wrong).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn what_makes_no_sense_names_its_option() {
        let by = |method: Method| Job {
            method,
            ..Job::default()
        };
        for (job, part) in [
            (
                by(Method {
                    loops: 0,
                    ..Method::default()
                }),
                "--loops 0",
            ),
            (
                by(Method {
                    depth: 0,
                    ..Method::default()
                }),
                "--depth 0: need 1 to",
            ),
            (
                by(Method {
                    depth: 2,
                    arrival: Arrival::Trace,
                    ..Method::default()
                }),
                "--depth: by timestamps",
            ),
            (
                by(Method {
                    idle: true,
                    ..Method::default()
                }),
                "add --arrival trace",
            ),
            (
                Job {
                    size: Some("big".into()),
                    ..Job::default()
                },
                "--size \"big\"",
            ),
            (
                Job {
                    op: Some(-1.0),
                    ..Job::default()
                },
                "--op -1",
            ),
        ] {
            assert!(job.wish().unwrap_err().message.contains(part));
        }
        let failure = by(Method {
            format: Some("mrs".into()),
            ..Method::default()
        })
        .dialect()
        .err()
        .unwrap();
        assert!(
            failure
                .message
                .contains("no trace format \"mrs\"; there are plain, msr, spc"),
            "{failure}"
        );
    }

    #[test]
    fn a_preset_says_what_no_option_says() {
        let job = Job {
            preset: Some("mnftl-paper".into()),
            ..Job::default()
        };
        let complete = job.complete().unwrap();
        assert_eq!(
            (complete.scheme.as_deref(), complete.profile.as_deref()),
            (Some("mnftl"), Some("mnftl-region"))
        );
        assert_eq!(complete.method.average(), Average::PerRecord);
        assert!(
            complete.set.contains(&"nand.pair_policy=none".to_owned()),
            "{:?}",
            complete.set
        );
        // A row's job is complete; done again it is the same.
        assert_eq!(complete.complete().unwrap(), complete);
        let method = Method {
            average: Some(Average::PerPage),
            ..Method::default()
        };
        let set = vec!["dftl.cache=4096".to_owned()];
        let other = Job {
            scheme: Some("dftl".into()),
            set,
            method,
            op: Some(28.0),
            ..job
        };
        let complete = other.complete().unwrap();
        assert_eq!(
            (complete.op, complete.method.average()),
            (Some(28.0), Average::PerPage)
        );
        assert_eq!(
            complete
                .set
                .iter()
                .filter(|pair| pair.starts_with("dftl.cache="))
                .collect::<Vec<_>>(),
            ["dftl.cache=4096"]
        );
        let failure = Job {
            preset: Some("mnftl".into()),
            ..Job::default()
        }
        .complete()
        .unwrap_err();
        assert!(
            failure.message.contains(
                "no preset \"mnftl\" (did you mean \"mnftl-paper\"?); there are mnftl-paper"
            ),
            "{failure}"
        );
    }
}
