//! From lists of schemes, workloads and settings to jobs, in a fixed order.

use crate::failure::Failure;
use crate::replay::{Address, Arrival, Average, Job, Precondition};
use crate::stack::find_scheme;
use clap::Args;
use ftl_core::schemes::{SCHEMES, Scheme};

/// What is compared: every combination is one run.
#[derive(Args, Clone, Debug)]
pub struct Sweep {
    /// Trace files and synthetic workloads; see `ftld workloads`
    pub workloads: Vec<String>,
    /// Flash translation layers [default: all of them]
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub scheme: Vec<String>,
    /// Flash devices
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub profile: Vec<String>,
    /// Sizes that the host sees
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    pub size: Vec<String>,
    /// Over-provisioning in percent
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',')]
    pub op: Vec<f64>,
    /// Values of a scheme parameter; schemes without it run as they are
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub set: Vec<String>,
    /// Where randomness begins
    #[arg(long, value_name = "N,...", value_delimiter = ',', default_value = "1")]
    pub seed: Vec<u64>,
    /// As of `ftld replay`
    #[arg(long, value_name = "none|touched|fill|steady|WRITES", default_value_t = Precondition::Steady)]
    pub precondition: Precondition,
    /// As of `ftld replay`
    #[arg(long, value_name = "NAME")]
    pub format: Option<String>,
    /// As of `ftld replay`
    #[arg(long, value_name = "N")]
    pub disk: Option<u64>,
    /// As of `ftld replay`; synthetic workloads need none
    #[arg(long, value_enum, default_value_t = Address::Exact)]
    pub address: Address,
    /// As of `ftld replay`
    #[arg(long, value_enum, default_value_t = Arrival::Closed)]
    pub arrival: Arrival,
    /// As of `ftld replay`
    #[arg(long, value_enum, default_value_t = Average::PerRequest)]
    pub average: Average,
    /// As of `ftld replay`
    #[arg(long)]
    pub idle: bool,
    /// As of `ftld replay`
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub depth: u32,
    /// As of `ftld replay`
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub warm_up: u32,
    /// As of `ftld replay`
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub loops: u32,
}

/// Every value of a list, or once what is meant where nothing was said.
fn each<T: Clone>(list: &[T]) -> Vec<Option<T>> {
    if list.is_empty() { vec![None] } else { list.iter().cloned().map(Some).collect() }
}

impl Sweep {
    /// Every job: workloads first, then settings, schemes last, so that what is to be compared stands together. Jobs that would be the
    /// same (a scheme that does not know the parameter that changes) are one.
    pub fn jobs(&self) -> Result<Vec<Job>, Failure> {
        if self.workloads.is_empty() {
            return Err(Failure::usage("no workload: name trace files or generators; see `ftld workloads`"));
        }
        let schemes: Vec<&Scheme> = match &self.scheme[..] {
            [] => SCHEMES.iter().collect(),
            names => names.iter().map(|name| find_scheme(name)).collect::<Result<_, _>>()?,
        };
        let sets = self.sets(&schemes)?;
        let mut jobs: Vec<Job> = Vec::new();
        for workload in &self.workloads {
            for base in self.devices(workload) {
                for set in &sets {
                    for scheme in &schemes {
                        let known = |pair: &&String| pair.split_once('=').is_some_and(|(key, _)| knows(scheme, key));
                        let set = set.iter().filter(known).cloned().collect();
                        let job = Job { scheme: Some(scheme.name.into()), set, ..base.clone() };
                        if !jobs.contains(&job) {
                            jobs.push(job);
                        }
                    }
                }
            }
        }
        Ok(jobs)
    }

    fn devices(&self, workload: &str) -> Vec<Job> {
        let mut jobs = Vec::new();
        // What is made up fits every device: a rule for a trace's addresses is none for it.
        let made = ftld_traces::Workload::parse(workload).is_some();
        for profile in each(&self.profile) {
            for size in each(&self.size) {
                for op in each(&self.op) {
                    for &seed in &self.seed {
                        jobs.push(Job {
                            workload: workload.into(),
                            profile: profile.clone(),
                            size: size.clone(),
                            op,
                            seed,
                            precondition: self.precondition,
                            format: self.format.clone().filter(|_| !made),
                            disk: self.disk.filter(|_| !made),
                            address: if made { Address::Exact } else { self.address },
                            arrival: self.arrival,
                            average: self.average,
                            idle: self.idle,
                            depth: self.depth,
                            warm_up: self.warm_up,
                            loops: self.loops,
                            ..Job::default()
                        });
                    }
                }
            }
        }
        jobs
    }

    /// Every combination of parameter values.
    fn sets(&self, schemes: &[&Scheme]) -> Result<Vec<Vec<String>>, Failure> {
        let mut sets = vec![Vec::new()];
        for text in &self.set {
            let wrong =
                || Failure::usage(format!("--set {text:?} is not KEY=VALUE[,VALUE]; see `ftld schemes` for the keys"));
            let (key, values) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(wrong)?;
            if !schemes.iter().any(|scheme| knows(scheme, key)) {
                let names: Vec<_> = schemes.iter().map(|scheme| scheme.name).collect();
                return Err(Failure::usage(format!("--set {key}: none of {} has this parameter", names.join(", "))));
            }
            let with = |set: &Vec<String>, value: &str| [&set[..], &[format!("{key}={value}")]].concat();
            sets = sets
                .iter()
                .flat_map(|set| values.split(',').map(|value| with(set, value)).collect::<Vec<_>>())
                .collect();
        }
        Ok(sets)
    }
}

fn knows(scheme: &Scheme, key: &str) -> bool {
    scheme.params.iter().any(|param| param.key == key)
}
