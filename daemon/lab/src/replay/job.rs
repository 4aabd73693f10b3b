//! Parameters of one run: options on the command line or a JSON object.

use super::device::SimulatedDevice;
use super::ram::takes_ram;
use super::recording;
use super::replayer::LATEST;
use crate::aging::check_age;
use crate::config::{ImageRequirements, find_scheme};
use crate::failure::Failure;
use crate::method::{Precondition, ResponseUnit};
use crate::options::DeviceOptions;
use crate::preset::{Preset, Use, for_simulation};
use clap::{Args, ValueEnum};
use ftl_core::schemes::SCHEMES;
use ftld_traces::{DIALECTS, TraceFormat};
use serde::{Deserialize, Serialize};

/// One run: a scheme, its device, its workload and the measuring method. Equal jobs give equal
/// results.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Job {
    /// Trace file, or a synthetic workload such as zipf:read=30%; see `ftld workloads`
    pub workload: String,
    /// Scheme, device, parameters and method of a paper; explicit options have priority; see `ftld
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
    /// Size that the host sees [default: 1GiB; with --address compact the touched extents]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// Over-provisioning in percent of the size [default: 7]
    #[arg(long, value_name = "PERCENT", value_parser = crate::options::percent)]
    pub op: Option<f64>,
    /// Raw flash, bad blocks included, in place of --op: what exceeds the size is over-provisioning
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<String>,
    /// RAM of the scheme, as allocated: caches, buffers and pending changes are laid out within it
    #[arg(long, value_name = "SIZE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ram: Option<String>,
    /// Scheme parameter; repeatable
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = SEED_DEFAULT)]
    pub seed: u64,
    /// Method of replay.
    #[command(flatten)]
    #[serde(flatten)]
    pub method: Method,
}

/// Method of replay and measuring: the same for every run of a comparison.
#[derive(Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Method {
    /// Preconditioning before the trace [default: steady]
    #[arg(long, value_enum)]
    pub precondition: Option<Precondition>,
    /// Drive writes of random pages after every page was written once, instead of steady state
    #[arg(long, value_name = "DRIVE-WRITES")]
    pub age: Option<f64>,
    /// Format of the trace [default: detected from its first line]
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// Use a recording without its end mark as far as it goes
    #[arg(long)]
    #[serde(skip_serializing_if = "is_false")]
    pub cut_off: bool,
    /// Only the requests to this disk of the trace
    #[arg(long, value_name = "N")]
    pub disk: Option<u64>,
    /// Mapping from trace addresses to device addresses; synthetic workloads need none
    #[arg(long, value_enum, default_value_t = Address::Exact)]
    pub address: Address,
    /// Start of requests
    #[arg(long, value_enum, default_value_t = Arrival::Closed)]
    pub arrival: Arrival,
    /// Unit of a response time [default: per_request]
    #[arg(long, value_enum)]
    pub response_unit: Option<ResponseUnit>,
    /// Run background GC when idle; needs --arrival trace
    #[arg(long)]
    pub idle: bool,
    /// Requests in flight with --arrival closed
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub depth: u32,
    /// Warm-up passes
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub warm_up: u32,
    /// Measured passes
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub loops: u32,
}

/// Default seed.
const SEED_DEFAULT: u64 = 1;

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
            size: None,
            op: None,
            raw: None,
            ram: None,
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
    pub fn precondition(&self) -> Precondition {
        let default = match self.age {
            Some(_) => Precondition::Fill,
            None => Precondition::Steady,
        };
        self.precondition.unwrap_or(default)
    }

    /// Returns the unit of response times.
    pub fn response_unit(&self) -> ResponseUnit {
        self.response_unit.unwrap_or(ResponseUnit::PerRequest)
    }
}

/// Maximum queue depth.
const DEPTH_MAX: u32 = 65_536;

/// Mapping from trace addresses to device addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Address {
    /// Unchanged; an address beyond the device is an error
    Exact,
    /// Modulo the size of the device
    Fold,
    /// Touched extents of 1 MiB, compacted in address order; reads the trace twice
    Compact,
}

/// Arrival of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// When another one completes: --depth requests are in flight
    Closed,
    /// At the timestamps of the trace
    Trace,
}

impl Job {
    /// Returns the job as one line of JSON. Equal jobs have equal lines.
    pub fn line(&self) -> String {
        serde_json::to_string(self).expect("a job is plain data")
    }

    /// Returns the line of the complete job, which that of its row equals.
    pub fn key(&self) -> String {
        let mut job = self.complete().unwrap_or_else(|_| self.clone());
        job.scheme.get_or_insert_with(|| SCHEMES[0].name.to_owned());
        job.line()
    }

    /// Returns the same job with the values of its preset and all defaults filled in.
    pub(crate) fn complete(&self) -> Result<Job, Failure> {
        let mut job = self.clone();
        if let Some(name) = &self.preset {
            let preset = Preset::find(name)?;
            let (device, scheme) = (
                preset.device(),
                self.scheme.as_deref().unwrap_or(preset.scheme),
            );
            job.profile = self.profile.clone().or(device.profile);
            job.size = self.size.clone().or(device.size);
            // Raw flash determines the over-provisioning.
            job.op = self.op.or(device.op.filter(|_| self.raw.is_none()));
            let scheme_of = find_scheme(scheme)?;
            job.set = preset.params(scheme_of, Use::Simulation, &self.set);
            if self.ram.is_some() {
                // RAM is given in place of the paper's sizes; explicit ones stay.
                let own = |pair: &String| self.set.contains(pair);
                job.set
                    .retain(|pair| own(pair) || !takes_ram(scheme_of, pair));
            }
            job.scheme = Some(scheme.to_owned());
            if self.method.age.is_none() {
                let own = self.method.precondition;
                job.method.precondition = own.or(Some(preset.precondition));
            }
            job.method.response_unit = self.method.response_unit.or(Some(preset.response_unit));
        }
        let recorded = recording::head(&job)?;
        if recorded.is_none() {
            let scheme = job.scheme.as_deref().unwrap_or(SCHEMES[0].name);
            job.set = for_simulation(find_scheme(scheme)?, &job.set);
        }
        if job.method.age.is_none() && job.method.precondition.is_none() {
            // A recording has its own beginning.
            job.method.precondition = recorded.map(|_| Precondition::None);
        }
        job.method.precondition = Some(job.method.precondition());
        job.method.response_unit = Some(job.method.response_unit());
        Ok(job)
    }

    /// Returns the options of the device, with the usual validation.
    pub(super) fn requirements(&self) -> Result<ImageRequirements, Failure> {
        let Method {
            loops,
            depth,
            arrival,
            idle,
            age,
            ..
        } = self.method;
        if loops == 0 {
            return Err(Failure::usage("--loops 0: need at least 1"));
        }
        if let Some(age) = age {
            check_age(age)?;
            if self.method.precondition() != Precondition::Fill {
                return Err(Failure::usage(format!(
                    "--age {age}: overwrites a device that was filled; leave out --precondition {}",
                    self.method.precondition().name()
                )));
            }
        }
        if depth == 0 || depth > DEPTH_MAX {
            return Err(Failure::usage(format!(
                "--depth {depth}: need 1 to {DEPTH_MAX}"
            )));
        }
        if depth > 1 && arrival == Arrival::Trace {
            return Err(Failure::usage(
                "--depth: timestamps determine the queue depth; leave it out",
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
        let options = DeviceOptions {
            scheme,
            profile,
            size,
            op: self.op,
            set,
            ..DeviceOptions::default()
        };
        recording::fill(self, options.requirements()?)
    }

    /// Returns the bytes of the device to which addresses are folded, if they are. What is wrong with
    /// the device is told by its run.
    pub(super) fn folded_bytes(&self) -> Option<u64> {
        if self.method.address != Address::Fold {
            return None;
        }
        let job = self.complete().ok()?;
        let bench = SimulatedDevice::new(&job, &job.requirements().ok()?, None);
        Some(bench.ok()?.size)
    }

    /// Checks that all passes of a trace end within emulated time, if its timestamps determine it.
    ///
    /// # Errors
    /// They do not.
    pub(super) fn fits_time(&self, last_ns: u64) -> Result<(), Failure> {
        let Method {
            loops,
            warm_up,
            arrival,
            ..
        } = self.method;
        let passes = u64::from(loops) + u64::from(warm_up);
        let ends = last_ns.checked_mul(passes);
        match ends.filter(|ends| *ends <= LATEST) {
            None if arrival == Arrival::Trace => Err(Failure::usage(format!(
                "{}: {passes} passes by its timestamps take more than 292 years; check the unit of its times \
                 (--format), or take fewer --loops",
                self.workload
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the requested trace format.
    pub(super) fn dialect(&self) -> Result<Option<&'static TraceFormat>, Failure> {
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
        TraceFormat::find(name).map(Some).ok_or_else(unknown)
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
                "unknown variant `stedy`, expected one of `none`, `footprint`, `fill`, `steady`",
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
                "--depth: timestamps",
            ),
            (
                by(Method {
                    idle: true,
                    ..Method::default()
                }),
                "add --arrival trace",
            ),
            (
                by(Method {
                    age: Some(-1.0),
                    ..Method::default()
                }),
                "--age -1: need 0 to 1000 drive writes",
            ),
            (
                by(Method {
                    age: Some(2.0),
                    precondition: Some(Precondition::Steady),
                    ..Method::default()
                }),
                "--age 2: overwrites a device that was filled; leave out --precondition steady",
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
            assert!(job.requirements().unwrap_err().message.contains(part));
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
        let mut aged = job.clone();
        aged.method.age = Some(1.0);
        let method = aged.complete().unwrap().method;
        assert_eq!(
            (method.precondition, method.age),
            (Some(Precondition::Fill), Some(1.0))
        );
        let complete = job.complete().unwrap();
        assert_eq!(
            (complete.scheme.as_deref(), complete.profile.as_deref()),
            (Some("mnftl"), Some("mnftl-region"))
        );
        assert_eq!(complete.method.response_unit(), ResponseUnit::PerRecord);
        assert!(
            complete.set.contains(&"nand.pair_policy=none".to_owned()),
            "{:?}",
            complete.set
        );
        // A row's job is complete; completing it again changes nothing.
        assert_eq!(complete.complete().unwrap(), complete);
        let method = Method {
            response_unit: Some(ResponseUnit::PerPage),
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
            (complete.op, complete.method.response_unit()),
            (Some(28.0), ResponseUnit::PerPage)
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
