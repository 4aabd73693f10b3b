//! Raw flash and RAM of the runs of a comparison: equal raw flash, and the refusal of too little.
//!
//! Compared runs are those of one workload on one profile, of one size and nominal
//! over-provisioning. All get the raw flash of the scheme that takes most of it by itself.
//! Reserves, mapping and checkpoints then come out of the over-provisioning, as they do on a real
//! drive.

use crate::config::OP_DEFAULT;
use crate::failure::{Exit, Failure};
use crate::replay::{self, Job};
use std::collections::{BTreeMap, BTreeSet};

/// Value of `--raw` until the raw flash is known.
pub(super) const EQUAL: &str = "equal";

/// What compared runs have in common: workload, profile, size, and the bits of the
/// over-provisioning.
type Group = (String, Option<String>, Option<String>, u64);

/// Bytes that each workload touches, if they determine the size of the device. That depends on
/// preset and size.
#[derive(Default)]
struct Touched(BTreeMap<(String, Option<String>, Option<String>), Option<u64>>);

impl Touched {
    fn of(&mut self, job: &Job) -> Option<u64> {
        let key = (job.workload.clone(), job.preset.clone(), job.size.clone());
        let known = self.0.entry(key);
        *known.or_insert_with(|| replay::touched_bytes(job).ok().flatten())
    }
}

/// Replaces [`EQUAL`] by the number of bytes. In a group without a layout, and on a profile that
/// fixes the raw flash, jobs keep their over-provisioning.
pub(super) fn share_raw_flash(jobs: &mut [Job]) {
    let mut touched = Touched::default();
    let mut most: BTreeMap<Group, u64> = BTreeMap::new();
    let is_equal = |job: &Job| job.raw.as_deref() == Some(EQUAL);
    for job in jobs.iter().filter(|job| is_equal(job)) {
        let own = Job {
            ram: None,
            ..nominal(job)
        };
        let touched = touched.of(&own);
        if let (Some(group), Ok(Some(raw))) = (group(&own), replay::raw_flash(&own, touched)) {
            let most = most.entry(group).or_default();
            *most = raw.max(*most);
        }
    }
    for job in jobs.iter_mut().filter(|job| is_equal(job)) {
        *job = nominal(job);
        if let Some(raw) = group(job).and_then(|group| most.get(&group)) {
            (job.raw, job.op) = (Some(raw.to_string()), None);
        }
    }
}

/// Refuses jobs whose scheme does not fit on its raw flash or into its RAM, all with one message.
///
/// # Errors
/// There is such a job; the message has every reason once.
pub(super) fn check(jobs: &[Job]) -> Result<(), Failure> {
    let (mut touched, mut known) = (Touched::default(), BTreeSet::new());
    let mut reasons = Vec::new();
    for job in jobs {
        let touched = touched.of(job);
        // Neither requests nor seed change the device.
        let device = Job {
            workload: String::new(),
            seed: 0,
            ..job.clone()
        };
        if known.insert((device.line(), touched))
            && let Err(failure) = replay::check(job, touched)
            // The others are told by the runs that they stop.
            && failure.exit == Exit::Usage
            && !reasons.contains(&failure.message)
        {
            reasons.push(failure.message);
        }
    }
    match &reasons[..] {
        [] => Ok(()),
        [reason] => Err(Failure::usage(format!(
            "{reason}; nothing was run: leave this out, or give it more"
        ))),
        _ => Err(Failure::usage(format!(
            "nothing was run; leave these out, or give them more:\n  {}",
            reasons.join("\n  ")
        ))),
    }
}

/// Returns the job with the raw flash of its scheme.
fn nominal(job: &Job) -> Job {
    Job {
        raw: None,
        ..job.clone()
    }
}

fn group(job: &Job) -> Option<Group> {
    let job = job.complete().ok()?;
    let op = job.op.unwrap_or(OP_DEFAULT).to_bits();
    Some((job.workload, job.profile, job.size, op))
}
