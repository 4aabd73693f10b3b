//! A resolved job: the values of its preset and every default, typed and checked.
//!
//! Invariants: a wrong job is refused here, by its trace, or by its device, before anything is
//! created. The head of a recording is read once.

use super::address::Footprint;
use super::arrivals::check_rate;
use super::device::SimulatedDevice;
use super::job::{Address, Arrival, Form, Job, Method};
use super::recording::Recording;
use super::source::Source;
use ftl_core::schemes::{SCHEMES, Scheme};
use ftld_device::aging::check_age;
use ftld_device::config::{ImageRequirements, RawFlash, find_scheme};
use ftld_device::flash_device::FlashDevice;
use ftld_device::method::Precondition;
use ftld_device::options::DeviceOptions;
use ftld_device::preset::{Preset, Use, for_simulation};
use ftld_device::sys;
use ftld_kit::failure::Failure;
use ftld_kit::size::parse_size;
use ftld_traces::Workload;
use nand_model::Capacity;
use std::ops::Range;
use std::path::Path;

/// Maximum queue depth.
const DEPTH_MAX: u32 = 65_536;

/// A job that can be run.
pub(crate) struct Run {
    /// The job with the values of its preset and all defaults.
    pub(crate) job: Job,
    recording: Option<Recording>,
    device: Device,
    /// Requested RAM in bytes.
    pub(super) ram: Option<u64>,
}

/// The requested device.
enum Device {
    /// The device of the recording, and its size in bytes.
    Recorded(FlashDevice, u64),
    /// A new device.
    New(ImageRequirements, RawFlash),
}

impl Run {
    /// Resolves a job.
    ///
    /// # Errors
    /// A value is wrong, or the head of its recording cannot be read.
    pub(crate) fn resolve(job: &Job) -> Result<Run, Failure> {
        let (job, recording) = complete(job)?;
        check_method(&job.method)?;
        check_arrival(&job)?;
        check_form(&job)?;
        let asked = DeviceOptions {
            scheme: job.scheme.clone(),
            profile: job.profile.clone(),
            slc_region: job.slc_region,
            size: job.size.clone(),
            op: job.op,
            set: job.set.clone(),
            ..DeviceOptions::default()
        }
        .requirements()?;
        let (raw, ram) = check_sizes(&job)?;
        let is_default = job.preset.is_none() && raw == RawFlash::Own && ram.is_none();
        let recorded = recording.as_ref().filter(|_| is_default);
        let recorded = recorded.map(|recording| recording.device(&asked));
        let device = match (recorded.transpose()?.flatten(), &recording) {
            (Some((device, size)), _) => Device::Recorded(device, size),
            (None, Some(recording)) => {
                let mut filled = recording.fill(asked)?;
                if job.op_effective.is_some() && job.size.is_none() && is_fixed(&filled) {
                    filled.size = None;
                }
                Device::New(filled, raw)
            }
            (None, None) => Device::New(asked, raw),
        };
        Ok(Run {
            job,
            recording,
            device,
            ram,
        })
    }

    /// Returns the source of the requests.
    pub(super) fn source(&self) -> Result<Source, Failure> {
        Source::new(&self.job.workload, &self.job.method)
    }

    /// Returns the device. `touched_bytes`: as [`Run::touched_bytes`] returns it.
    pub(super) fn device(&self, touched_bytes: Option<u64>) -> Result<SimulatedDevice, Failure> {
        let (requirements, raw) = match &self.device {
            Device::Recorded(device, size) => {
                return Ok(SimulatedDevice::recorded(device.clone(), *size));
            }
            Device::New(requirements, raw) => (requirements, *raw),
        };
        let device = requirements.device(touched_bytes, raw);
        let device = device.map_err(|failure| self.without_device(failure))?;
        if let Some(touched) = touched_bytes.filter(|touched| *touched > device.size) {
            return Err(Failure::usage(format!(
                "{} touches {touched} bytes in extents of 1 MiB, more than the device of {} bytes \
                 has; if the trace is in the units of its --format, add --size {touched}, or \
                 --address fold",
                self.job.workload, device.size
            )));
        }
        let mut device = SimulatedDevice::new(device, requirements.params.clone(), self.job.seed);
        device.op_percent.take_if(|_| raw != RawFlash::Own);
        Ok(device)
    }

    /// Returns the failure of a job without a device; for a recording of several shards, with the
    /// reason that follows from them.
    fn without_device(&self, failure: Failure) -> Failure {
        let shards = self.recording.as_ref().and_then(Recording::shards);
        match shards.filter(|_| self.job.profile.is_none()) {
            None => failure,
            Some(shards) => {
                let message = format!(
                    "{}: recorded on {shards} shards, and a replay has one chip: {failure}; name a \
                     --profile whose flash follows from the size",
                    self.job.workload
                );
                Failure::new(failure.exit, message)
            }
        }
    }

    /// Returns the pages that the device contains before the first request of a recording.
    pub(super) fn content(&self, device: &SimulatedDevice) -> Result<Vec<Range<u32>>, Failure> {
        let page_bytes = u64::from(device.flash.profile.geometry.page_bytes);
        match &self.recording {
            None => Ok(Vec::new()),
            Some(recording) => recording.content(page_bytes, device.flash.config.logical_pages),
        }
    }

    /// Returns the size in bytes to which addresses are folded. `None` if they are not folded, or
    /// if the device is invalid, which its run reports.
    pub(super) fn folded_bytes(&self) -> Option<u64> {
        let is_folded = self.job.method.address == Address::Fold;
        is_folded
            .then(|| self.device(None).ok())?
            .map(|device| device.size)
    }

    /// Warns that a recording of several shards is replayed on one chip.
    pub(super) fn warn_of_shards(&self) {
        if let Some(shards) = self.recording.as_ref().and_then(Recording::shards) {
            tracing::warn!(
                "{}: recorded on {shards} shards, replayed on one chip: counters and times are not \
                 those of the device; for equal ones record a device with one shard",
                self.job.workload
            );
        }
    }

    /// Returns the bytes of the extents that the trace touches, if they determine the size of the
    /// device. Reads the trace.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub(crate) fn touched_bytes(&self) -> Result<Option<u64>, Failure> {
        if self.job.method.address != Address::Compact || self.job.size.is_some() {
            return Ok(None);
        }
        let footprint = Footprint::of(&self.source()?, &self.job.workload, &mut |_, _| ())?;
        Ok(Some(footprint.bytes()))
    }

    /// Returns the raw flash in bytes that the job takes at its over-provisioning, or `None` on a
    /// profile that fixes it. `touched_bytes`: as [`Run::touched_bytes`] returns it.
    ///
    /// # Errors
    /// No device can be laid out for the job.
    pub(crate) fn raw_flash(&self, touched_bytes: Option<u64>) -> Result<Option<u64>, Failure> {
        let profile = self.device(touched_bytes)?.flash.profile;
        let is_by_size = profile.capacity == Capacity::BySize;
        Ok(is_by_size.then(|| profile.geometry.data_bytes()))
    }

    /// Checks that the scheme fits on its raw flash and into its RAM. `touched_bytes`: as
    /// [`Run::touched_bytes`] returns it.
    ///
    /// # Errors
    /// The scheme needs more.
    pub(crate) fn check(&self, touched_bytes: Option<u64>) -> Result<(), Failure> {
        let device = self.device(touched_bytes)?;
        device.fits_memory(sys::memory_available())?;
        self.ram.map_or(Ok(()), |ram| device.check_ram(ram))
    }
}

impl Job {
    /// Returns the line of the complete job, which that of its row equals.
    pub(crate) fn key(&self) -> String {
        let complete = complete(self).map(|(job, _)| job);
        let mut job = complete.unwrap_or_else(|_| self.clone());
        job.scheme.get_or_insert_with(|| SCHEMES[0].name.to_owned());
        job.line()
    }
}

/// Returns the job with the values of its preset and all defaults, and the recording that it
/// replays, if it replays one.
fn complete(asked: &Job) -> Result<(Job, Option<Recording>), Failure> {
    let mut job = asked.clone();
    if let Some(name) = &asked.preset {
        let preset = Preset::find(name)?;
        let (device, scheme) = (
            preset.device(),
            asked.scheme.as_deref().unwrap_or(preset.scheme),
        );
        job.profile = job.profile.or(device.profile);
        job.size = job.size.or(device.size);
        // On a fixed number of blocks, effective over-provisioning determines the size.
        let profile = DeviceOptions {
            profile: job.profile.clone(),
            ..DeviceOptions::default()
        };
        if asked.op_effective.is_some() && is_fixed(&profile.requirements()?) {
            job.size.clone_from(&asked.size);
        }
        // Raw flash determines the over-provisioning.
        let is_own = asked.raw.is_none() && asked.op_effective.is_none();
        job.op = job.op.or(device.op.filter(|_| is_own));
        let scheme_of = find_scheme(scheme)?;
        job.set = preset.params(scheme_of, Use::Simulation, &asked.set);
        if asked.ram.is_some() {
            // RAM is given in place of the paper's sizes; explicit ones stay.
            let is_given = |pair: &String| asked.set.contains(pair);
            job.set
                .retain(|pair| is_given(pair) || !takes_ram(scheme_of, pair));
        }
        job.scheme = Some(scheme.to_owned());
        if job.method.age.is_none() && job.method.form.is_none() {
            job.method.precondition.get_or_insert(preset.precondition);
        }
        job.method.response_unit.get_or_insert(preset.response_unit);
    }
    check_passes(&job)?;
    let recording = Recording::open(&job.workload, &job.method)?;
    if recording.is_none() {
        let scheme = job.scheme.as_deref().unwrap_or(SCHEMES[0].name);
        job.set = for_simulation(find_scheme(scheme)?, &job.set);
    } else if job.method.age.is_none() {
        // A recording has its own beginning.
        if job.method.form.is_none() {
            job.method.precondition.get_or_insert(Precondition::New);
        }
    }
    job.method.precondition = Some(job.method.precondition());
    job.method.response_unit = Some(job.method.response_unit());
    Ok((job, recording))
}

/// Returns whether the flash has a number of blocks of its own, from which the size follows.
fn is_fixed(requirements: &ImageRequirements) -> bool {
    let profile = requirements.profile.as_ref();
    profile.is_some_and(|profile| profile.capacity != Capacity::BySize)
}

/// Returns whether this KEY=VALUE is of a parameter that takes RAM.
fn takes_ram(scheme: &Scheme, pair: &str) -> bool {
    let key = pair.split_once('=').map(|(key, _)| key);
    let mut params = scheme.ram_params.iter();
    params.any(|param| Some(param.key) == key)
}

fn check_method(method: &Method) -> Result<(), Failure> {
    if method.loops == 0 {
        return Err(Failure::usage("--loops 0: need at least 1"));
    }
    if let Some(age) = method.age {
        check_age(age)?;
        let precondition = method.precondition();
        if precondition != Precondition::Fill {
            return Err(Failure::usage(format!(
                "--age {age}: overwrites a device that was filled; leave out --precondition {}",
                precondition.name()
            )));
        }
    }
    let depth = method.depth;
    if depth == 0 || depth > DEPTH_MAX {
        return Err(Failure::usage(format!(
            "--depth {depth}: need 1 to {DEPTH_MAX}"
        )));
    }
    if depth > 1 && method.arrival != Arrival::Closed {
        return Err(Failure::usage(
            "--depth: arrivals determine the queue depth; leave it out",
        ));
    }
    if method.idle && method.arrival == Arrival::Closed {
        return Err(Failure::usage(
            "--idle: a closed loop leaves no time between requests; add --arrival trace",
        ));
    }
    Ok(())
}

/// Checks that arrivals and their rate fit.
fn check_arrival(job: &Job) -> Result<(), Failure> {
    let name = job.method.arrival.name();
    match (job.method.arrival, job.rate) {
        (Arrival::Closed, Some(rate)) => Err(Failure::usage(format!(
            "--rate {rate}: in a closed loop the device determines the rate; use --arrival trace, \
             poisson or constant"
        ))),
        (Arrival::Poisson | Arrival::Constant, None) => Err(Failure::usage(format!(
            "--arrival {name}: add --rate, the requests per second"
        ))),
        (_, rate) => rate.map_or(Ok(()), |rate| check_rate(rate).map(drop)),
    }
}

fn check_form(job: &Job) -> Result<(), Failure> {
    let method = &job.method;
    let Some(form) = method.form.map(Form::name) else {
        return Ok(());
    };
    if Workload::parse(&job.workload).is_some() {
        return Err(Failure::usage(format!(
            "--form {form}: {} is a generator, whose passes are not repeated; name a trace file, or \
             use --precondition and --warm-up",
            job.workload
        )));
    }
    if method.warm_up > 0 {
        return Err(Failure::usage(format!(
            "--form {form} determines the passes before the measurement; leave out --warm-up {}",
            method.warm_up
        )));
    }
    if method.form == Some(Form::Single) && method.loops > 1 {
        return Err(Failure::usage(format!(
            "--form single measures one pass; leave out --loops {}, or use --form looped",
            method.loops
        )));
    }
    Ok(())
}

/// Refuses a trace that can be read only once, as a pipe, if the method reads it more often.
fn check_passes(job: &Job) -> Result<(), Failure> {
    let method = &job.method;
    let precondition = method.precondition();
    let reason = match method.form {
        Some(form) => format!("--form {}", form.name()),
        None if matches!(precondition, Precondition::Trace | Precondition::Region) => {
            format!("--precondition {}", precondition.name())
        }
        None if method.loops > 1 => format!("--loops {}", method.loops),
        None if method.warm_up > 0 => format!("--warm-up {}", method.warm_up),
        None if method.address == Address::Compact => "--address compact".to_owned(),
        None if method.arrival == Arrival::Trace && job.rate.is_some() => "--rate".to_owned(),
        None => return Ok(()),
    };
    let path = Path::new(&job.workload);
    if Workload::parse(&job.workload).is_some() || !path.exists() || path.is_file() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{}: {reason} reads the trace more than once, and this is no file; save it to one",
        job.workload
    )))
}

/// Returns the requested raw flash, and RAM in bytes.
///
/// # Errors
/// One is not a size, or two options determine the over-provisioning.
pub(crate) fn check_sizes(job: &Job) -> Result<(RawFlash, Option<u64>), Failure> {
    if let Some(percent) = job.op_effective {
        let other = match (&job.raw, job.op) {
            (Some(raw), _) => Some(format!("--raw {raw}")),
            (_, Some(op)) => Some(format!("--op {op}")),
            _ => None,
        };
        if let Some(other) = other {
            return Err(Failure::usage(format!(
                "--op-effective {percent} and {other} both determine the over-provisioning; leave \
                 one out"
            )));
        }
    }
    if let (Some(raw), Some(op)) = (&job.raw, job.op) {
        return Err(Failure::usage(format!(
            "--raw {raw} and --op {op} both determine the over-provisioning; leave --op out for \
             exactly this raw flash, or --raw for the scheme's own layout"
        )));
    }
    let bytes = |option: &str, text: &Option<String>| {
        let parsed = text.as_deref().map(parse_size).transpose();
        parsed.map_err(|why| Failure::usage(format!("{option} {why}")))
    };
    let raw = match (bytes("--raw", &job.raw)?, job.op_effective) {
        (Some(raw), _) => RawFlash::Bytes(raw),
        (None, Some(percent)) => RawFlash::EffectiveOp(percent),
        (None, None) => RawFlash::Own,
    };
    Ok((raw, bytes("--ram", &job.ram)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ftld_device::method::ResponseUnit;

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
                "--depth: arrivals",
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
                    rate: Some(100.0),
                    ..Job::default()
                },
                "--rate 100: in a closed loop",
            ),
            (
                Job {
                    rate: Some(-2.0),
                    ..by(Method {
                        arrival: Arrival::Trace,
                        ..Method::default()
                    })
                },
                "--rate -2: need requests per second",
            ),
            (
                by(Method {
                    arrival: Arrival::Constant,
                    ..Method::default()
                }),
                "--arrival constant: add --rate",
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
            assert!(Run::resolve(&job).err().unwrap().message.contains(part));
        }
    }

    #[test]
    fn a_preset_says_what_no_option_says() {
        let job = Job {
            preset: Some("mnftl-paper".into()),
            ..Job::default()
        };
        let mut aged = job.clone();
        aged.method.age = Some(1.0);
        let method = Run::resolve(&aged).unwrap().job.method;
        assert_eq!(
            (method.precondition, method.age),
            (Some(Precondition::Fill), Some(1.0))
        );
        let complete = Run::resolve(&job).unwrap().job;
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
        assert_eq!(Run::resolve(&complete).unwrap().job, complete);
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
        let complete = Run::resolve(&other).unwrap().job;
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
        let wrong = Job {
            preset: Some("mnftl".into()),
            ..Job::default()
        };
        let failure = Run::resolve(&wrong).err().unwrap();
        assert!(
            failure.message.contains(
                "no preset \"mnftl\" (did you mean \"mnftl-paper\"?); there are mnftl-paper"
            ),
            "{failure}"
        );
    }
}
