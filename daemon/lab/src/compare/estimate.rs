//! `ftld compare --estimate`: time and memory of a plan, from short runs of some of its jobs.
//!
//! A short run has the device of its job. It ends preconditioning after one drive write of random
//! pages, and the trace after some requests. Its CPU time per page is taken for all pages of every
//! job of its kind, as if steady state came at its limit. So the time is an upper estimate if it
//! comes earlier. The memory is that of the short run.

use crate::replay::{self, Job, Sample};
use ftld_kit::convert::{to_f64, to_u64, whole};
use ftld_kit::failure::Failure;
use ftld_kit::output::print;
use ftld_kit::size::show_size;
use serde_json::json;
use std::collections::BTreeMap;

/// Sample runs, at most.
const SAMPLES: usize = 24;

/// Jobs with a like cost: scheme, profile, size, workload.
type Kind = (
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    String,
);

fn kind(job: &Job) -> Kind {
    let Job {
        preset,
        scheme,
        profile,
        size,
        workload,
        ..
    } = job.clone();
    (preset, scheme, profile, size, workload)
}

/// Costs of one job.
#[derive(Clone, Copy)]
struct Cost {
    seconds: f64,
    bytes: u64,
}

/// Prints the estimate.
pub(super) fn estimate(jobs: &[Job], threads: usize, as_json: bool) -> Result<(), Failure> {
    let mut kinds: BTreeMap<Kind, (&Job, u64)> = BTreeMap::new();
    for job in jobs {
        kinds.entry(kind(job)).or_insert((job, 0)).1 += 1;
    }
    // With more kinds than samples, those between two samples cost as much as the one before.
    let step = kinds.len().div_ceil(SAMPLES);
    let (mut costs, mut samples) = (Vec::new(), 0u64);
    for (number, (job, count)) in kinds.values().enumerate() {
        if number.is_multiple_of(step) {
            samples += 1;
            costs.push((sample(job)?, *count));
        } else {
            let like = costs.last().expect("the first kind is a sample").0;
            costs.push((like, *count));
        }
    }
    let total: f64 = costs
        .iter()
        .map(|(cost, count)| cost.seconds * to_f64(*count))
        .sum();
    let longest = costs
        .iter()
        .map(|(cost, _)| cost.seconds)
        .fold(0.0, f64::max);
    let largest = costs.iter().map(|(cost, _)| cost.bytes).max().unwrap_or(0);
    let wall = (total / to_f64(to_u64(threads))).max(longest);
    if as_json {
        return print(
            &(json!({
                "schema": "ftld.estimate/1", "jobs": jobs.len(), "samples": samples, "threads": threads,
                "cpu_seconds": total, "wall_seconds": wall, "job_cpu_seconds_max": longest,
                "job_rss_bytes_max": largest, "rss_bytes": largest * to_u64(threads),
            })
            .to_string()
                + "\n"),
        );
    }
    print(&format!(
        "{} jobs, estimated from {samples} short runs on this machine\n\
         CPU time      {}, at most {} for one job\n\
         on {threads} threads   {}\n\
         memory        {} for the largest job, {} on {threads} threads\n",
        jobs.len(),
        duration(total),
        duration(longest),
        duration(wall),
        show_size(largest),
        show_size(largest.saturating_mul(to_u64(threads)))
    ))
}

/// Returns the cost of a job by a short version of it.
fn sample(job: &Job) -> Result<Cost, Failure> {
    let Sample {
        row,
        share,
        drive_writes,
    } = replay::run_sample(job)?;
    let pages = f64::from(row.device.logical_pages);
    let before = row.precondition.drive_writes * pages;
    let measured = to_f64(row.requests.pages_read + row.requests.pages_written);
    let rounds = f64::from(job.method.passes_most());
    let all = drive_writes * pages + measured / share * rounds;
    Ok(Cost {
        seconds: row.run.cpu_seconds_total * all / (before + measured).max(1.0),
        bytes: row.run.rss_bytes,
    })
}

/// Shows a duration in the unit that people would take.
pub(super) fn duration(seconds: f64) -> String {
    match whole(seconds) {
        0..120 => format!("{seconds:.1} s"),
        120..7200 => format!("{:.1} min", seconds / 60.0),
        7200..172_800 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} days", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_the_unit_that_people_would_take() {
        assert_eq!(
            [1.25, 119.9, 600.0, 7200.0, 864_000.0].map(duration),
            ["1.2 s", "119.9 s", "10.0 min", "2.0 h", "10.0 days"]
        );
    }
}
