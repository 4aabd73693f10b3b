//! Raw flash and RAM of the runs of a comparison: equal raw flash, and the refusal of too little.
//!
//! Compared runs are those of one workload on one profile, of one size and nominal
//! over-provisioning. All get as much raw flash as the scheme that needs most. Reserves, mapping
//! and checkpoints then come out of the over-provisioning, as they do on a real drive.

use crate::replay::{Job, Run};
use ftld_device::config::OP_DEFAULT;
use ftld_kit::failure::{Exit, Failure};
use std::collections::{BTreeMap, BTreeSet};

/// Value of `--raw` until the raw flash is known.
pub(super) const EQUAL: &str = "equal";

/// Settings that compared runs share: workload, profile, size, and the bits of the
/// over-provisioning.
type Group = (String, Option<String>, Option<String>, u64);

/// Bytes that each workload touches, if they determine the size of the device. That depends on
/// preset and size.
#[derive(Default)]
struct Touched(BTreeMap<(String, Option<String>, Option<String>), Option<u64>>);

impl Touched {
    fn of(&mut self, job: &Job, run: &Run) -> Option<u64> {
        let key = (job.workload.clone(), job.preset.clone(), job.size.clone());
        let known = self.0.entry(key);
        *known.or_insert_with(|| run.touched_bytes().ok().flatten())
    }
}

/// A job that shares the raw flash of its group.
struct Sharing<'a> {
    job: &'a mut Job,
    group: Group,
    touched: Option<u64>,
    /// Whether it has a layout at its own over-provisioning.
    has_own: bool,
}

/// Replaces [`EQUAL`] by the number of bytes. In a group without a layout, and on a profile that
/// fixes the raw flash, jobs keep their over-provisioning. So does a job that has no layout with
/// the shared bytes either: its own failure has the reason.
pub(super) fn share_raw_flash(jobs: &mut [Job]) {
    let mut touched = Touched::default();
    let mut most: BTreeMap<Group, u64> = BTreeMap::new();
    let mut sharing: Vec<Sharing<'_>> = Vec::new();
    for job in jobs.iter_mut() {
        if job.raw.as_deref() != Some(EQUAL) {
            continue;
        }
        job.raw = None;
        let unbounded = Job {
            ram: None,
            ..job.clone()
        };
        let Ok(run) = Run::resolve(&unbounded) else {
            continue;
        };
        let (group, touched) = (group(&run.job), touched.of(&unbounded, &run));
        let raw = run.raw_flash(touched);
        if let Ok(Some(raw)) = raw {
            let most = most.entry(group.clone()).or_default();
            *most = raw.max(*most);
        }
        sharing.push(Sharing {
            job,
            group,
            touched,
            has_own: raw.is_ok(),
        });
    }
    for Sharing {
        job,
        group,
        touched,
        has_own,
    } in sharing
    {
        let Some(raw) = most.get(&group) else {
            continue;
        };
        let equal = Job {
            raw: Some(raw.to_string()),
            op: None,
            ..job.clone()
        };
        let has_layout = || Run::resolve(&equal).and_then(|run| run.raw_flash(touched));
        if has_own || has_layout().is_ok() {
            *job = equal;
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
        let run = Run::resolve(job);
        let touched = run.as_ref().ok().and_then(|run| touched.of(job, run));
        // Neither requests nor seed change the device.
        let device = Job {
            workload: String::new(),
            seed: 0,
            ..job.clone()
        };
        if known.insert((device.line(), touched))
            && let Err(failure) = run.and_then(|run| run.check(touched))
            // Other failures stop their runs, which report them.
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

/// Returns the group of a complete job.
fn group(job: &Job) -> Group {
    let op = job.op.unwrap_or(OP_DEFAULT).to_bits();
    (
        job.workload.clone(),
        job.profile.clone(),
        job.size.clone(),
        op,
    )
}
