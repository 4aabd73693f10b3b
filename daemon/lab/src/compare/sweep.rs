//! Jobs in a fixed order, from lists of schemes, workloads and settings.

use super::raw_flash;
use crate::replay::{Address, Job, Method, Repeat, Run, check_sizes, rate};
use clap::Args;
use ftl_core::near_miss;
use ftl_core::schemes::{self, Scheme};
use ftld_device::config::find_scheme;
use ftld_device::preset::Preset;
use ftld_kit::failure::Failure;
use std::collections::{BTreeSet, HashSet};

/// Compared values: every combination is one run.
#[derive(Args, Clone, Debug)]
pub(crate) struct Sweep {
    /// Trace files and synthetic workloads; see `ftld workloads`
    pub(crate) workloads: Vec<String>,
    /// Presets: scheme, device, parameters and method of a paper, where no option says otherwise;
    /// see `ftld presets`
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) preset: Vec<String>,
    /// Flash translation layers [default: the preset's; without one, all of them]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub(crate) scheme: Vec<String>,
    /// Flash devices: names of `ftld profiles`, or TOML files
    #[arg(long, value_name = "NAME|FILE.toml,...", value_delimiter = ',')]
    pub(crate) profile: Vec<String>,
    /// Shares of the blocks in SLC mode, such as 0%,5%, on flash devices of several bits per cell
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', value_parser = ftld_device::options::percent, allow_hyphen_values = true)]
    pub(crate) slc_region: Vec<f64>,
    /// Sizes that the host sees
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    pub(crate) size: Vec<String>,
    /// Over-provisioning in percent
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', value_parser = ftld_device::options::percent, allow_hyphen_values = true)]
    pub(crate) op: Vec<f64>,
    /// Effective over-provisioning of every scheme in percent, in place of --op and --raw
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', value_parser = ftld_device::options::percent, allow_hyphen_values = true)]
    pub(crate) op_effective: Vec<f64>,
    /// Raw flash, bad blocks included: equal, the most that any compared scheme takes at the
    /// nominal --op; own, each scheme's layout at --op; or sizes, in place of --op
    #[arg(
        long,
        value_name = "equal|own|SIZE,...",
        value_delimiter = ',',
        default_value = "equal"
    )]
    pub(crate) raw: Vec<String>,
    /// RAM of every scheme, as allocated
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    pub(crate) ram: Vec<String>,
    /// Values of a scheme parameter; schemes without it run as they are
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub(crate) set: Vec<String>,
    /// Open loops: mean numbers of requests per second
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = rate)]
    pub(crate) rate: Vec<f64>,
    /// Random seeds; runs that differ in their seed alone form a cell
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1")]
    pub(crate) seed: Vec<u64>,
    /// Repetitions of every cell.
    #[command(flatten)]
    pub(crate) repeat: Repeat,
    /// Method of `ftld replay`.
    #[command(flatten)]
    pub(crate) method: Method,
}

/// Value of `--raw`: each scheme's own layout.
const OWN: &str = "own";

fn is_size(raw: &str) -> bool {
    raw != OWN && raw != raw_flash::EQUAL
}

/// Returns every value of a list, or one `None` for an empty list.
fn each<T: Clone>(list: &[T]) -> Vec<Option<T>> {
    if list.is_empty() {
        vec![None]
    } else {
        list.iter().cloned().map(Some).collect()
    }
}

impl Sweep {
    /// Returns every job: workloads first, then settings, schemes last, so that compared runs are
    /// adjacent. Equal jobs (a scheme without the varied parameter) are merged.
    ///
    /// # Errors
    /// No workload is named, one is wrong, a preset, scheme or setting does not exist, or a scheme
    /// needs more than the requested raw flash or RAM.
    pub(crate) fn jobs(&self) -> Result<Vec<Job>, Failure> {
        if self.workloads.is_empty() {
            return Err(Failure::usage(
                "no workload: name trace files or generators; see `ftld workloads`",
            ));
        }
        for workload in &self.workloads {
            if let Some(Err(wrong)) = ftld_traces::Workload::parse(workload) {
                return Err(Failure::usage(wrong));
            }
        }
        self.check_raw()?;
        let seeds = self.seeds()?;
        let mut under: Vec<(Option<&String>, Vec<&Scheme>)> = Vec::new();
        for preset in each(&self.preset.iter().collect::<Vec<_>>()) {
            under.push((preset, self.schemes(preset)?));
        }
        let sets = self.sets(
            &under
                .iter()
                .flat_map(|(_, schemes)| schemes.iter().copied())
                .collect::<Vec<_>>(),
        )?;
        assert!(
            !sets.is_empty() && under.iter().all(|(_, schemes)| !schemes.is_empty()),
            "{} settings for {} presets leave nothing to run",
            sets.len(),
            under.len()
        );
        let (mut jobs, mut seen) = (Vec::new(), HashSet::new());
        for workload in &self.workloads {
            for base in self.devices(workload, &seeds) {
                for set in &sets {
                    for (preset, scheme) in under
                        .iter()
                        .flat_map(|(preset, of)| of.iter().map(move |of| (preset, of)))
                    {
                        let known = |pair: &&String| {
                            pair.split_once('=')
                                .is_some_and(|(key, _)| scheme.knows(key))
                        };
                        let set = set.iter().filter(known).cloned().collect();
                        let preset = preset.cloned();
                        let job = Job {
                            preset,
                            scheme: Some(scheme.name.into()),
                            set,
                            ..base.clone()
                        };
                        if seen.insert(job.line()) {
                            jobs.push(job);
                        }
                    }
                }
            }
        }
        raw_flash::share_raw_flash(&mut jobs);
        if self.method.form.is_some() {
            jobs.iter()
                .try_for_each(|job| Run::resolve(job).map(drop))?;
        }
        let is_bounded =
            !(self.ram.is_empty() && self.op_effective.is_empty() && self.slc_region.is_empty());
        if is_bounded || self.raw.iter().any(|raw| is_size(raw)) {
            raw_flash::check(&jobs)?;
        }
        Ok(jobs)
    }

    /// Checks the values of `--raw` and `--ram`, before any run.
    fn check_raw(&self) -> Result<(), Failure> {
        let op = self.op.first().copied();
        let op_effective = self.op_effective.first().copied();
        let ram = self.ram.iter().map(|ram| Job {
            ram: Some(ram.clone()),
            ..Job::default()
        });
        let raw = self.raw.iter().filter(|raw| is_size(raw)).map(|raw| Job {
            raw: Some(raw.clone()),
            op,
            op_effective,
            ..Job::default()
        });
        let op = Job {
            op,
            op_effective,
            ..Job::default()
        };
        ram.chain(raw)
            .chain([op])
            .try_for_each(|job| check_sizes(&job).map(drop))
    }

    /// Returns the schemes that run under a preset, or without one.
    fn schemes(&self, preset: Option<&String>) -> Result<Vec<&'static Scheme>, Failure> {
        match (&self.scheme[..], preset) {
            ([], None) => Ok(schemes::all().collect()),
            ([], Some(name)) => Ok(vec![find_scheme(Preset::find(name)?.scheme)?]),
            (names, _) => names.iter().map(|name| find_scheme(name)).collect(),
        }
    }

    /// Returns the seeds of every cell.
    fn seeds(&self) -> Result<Vec<u64>, Failure> {
        match (&self.seed[..], self.repeat.seeds) {
            ([first], _) => self.repeat.from(*first),
            (seeds, 1) => Ok(seeds.to_vec()),
            (_, _) => Err(Failure::usage(
                "--seeds counts from one --seed; leave it out, or name one seed",
            )),
        }
    }

    /// Returns every over-provisioning with every raw flash and every RAM.
    fn flash_and_ram(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        let of_own = each(&self.op).into_iter().map(|op| (op, None));
        let effective = self.op_effective.iter().map(|op| (None, Some(*op)));
        let is_effective = !self.op_effective.is_empty();
        for (op, op_effective) in of_own.filter(|_| !is_effective).chain(effective) {
            for raw in &self.raw {
                for ram in each(&self.ram) {
                    let is_raw = |raw: &String| raw != OWN && !is_effective;
                    let raw = Some(raw.clone()).filter(is_raw);
                    jobs.push(Job {
                        op,
                        op_effective,
                        raw,
                        ram,
                        ..Job::default()
                    });
                }
            }
        }
        jobs
    }

    /// Returns every flash device: each profile, with each SLC region or without one.
    fn flash_devices(&self) -> Vec<(Option<String>, Option<f64>)> {
        let mut devices = Vec::new();
        for profile in each(&self.profile) {
            for slc_region in each(&self.slc_region) {
                devices.push((
                    profile.clone(),
                    slc_region.filter(|percent| *percent != 0.0),
                ));
            }
        }
        devices
    }

    fn devices(&self, workload: &str, seeds: &[u64]) -> Vec<Job> {
        let mut jobs = Vec::new();
        // A synthetic workload fits every device, so address rules for traces do not apply.
        let made = ftld_traces::Workload::parse(workload).is_some();
        for (profile, slc_region) in self.flash_devices() {
            for size in each(&self.size) {
                for base in self.flash_and_ram() {
                    for rate in each(&self.rate) {
                        for &seed in seeds {
                            jobs.push(Job {
                                workload: workload.into(),
                                profile: profile.clone(),
                                slc_region,
                                size: size.clone(),
                                rate,
                                seed,
                                method: Method {
                                    format: self.method.format.clone().filter(|_| !made),
                                    disk: self.method.disk.filter(|_| !made),
                                    address: if made {
                                        Address::Exact
                                    } else {
                                        self.method.address
                                    },
                                    ..self.method.clone()
                                },
                                ..base.clone()
                            });
                        }
                    }
                }
            }
        }
        jobs
    }

    /// Returns every combination of parameter values.
    fn sets(&self, schemes: &[&Scheme]) -> Result<Vec<Vec<String>>, Failure> {
        let mut sets = vec![Vec::new()];
        for text in &self.set {
            let wrong = || {
                Failure::usage(format!(
                    "--set {text:?} is not KEY=VALUE[,VALUE]; see `ftld schemes NAME` for the keys"
                ))
            };
            let (key, values) = text
                .split_once('=')
                .filter(|(key, _)| !key.is_empty())
                .ok_or_else(wrong)?;
            if !schemes.iter().any(|scheme| scheme.knows(key)) {
                let names: Vec<_> = schemes.iter().map(|scheme| scheme.name).collect();
                let known = schemes.iter().flat_map(|scheme| scheme.all_params());
                let hint = near_miss(key, known.map(|param| param.key));
                let others = schemes::all().filter(|scheme| scheme.knows(key));
                let others: Vec<_> = others.map(|scheme| scheme.name).collect();
                let others = match others.is_empty() {
                    true => String::new(),
                    false => format!(
                        "; {} would; leave it out, or add one of these",
                        others.join(", ")
                    ),
                };
                return Err(Failure::usage(format!(
                    "--set {key}: none of {} has this parameter{hint}{others}",
                    names.join(", ")
                )));
            }
            let without: BTreeSet<&str> = schemes
                .iter()
                .filter(|scheme| !scheme.knows(key))
                .map(|scheme| scheme.name)
                .collect();
            if !without.is_empty() {
                let names: Vec<_> = without.into_iter().collect();
                tracing::info!(
                    "--set {key}: not for {}, without this parameter",
                    names.join(", ")
                );
            }
            let with =
                |set: &Vec<String>, value: &str| [&set[..], &[format!("{key}={value}")]].concat();
            sets = sets
                .iter()
                .flat_map(|set| {
                    values
                        .split(',')
                        .map(|value| with(set, value))
                        .collect::<Vec<_>>()
                })
                .collect();
        }
        Ok(sets)
    }
}
