//! `ftld replay --seeds`: one job under several seeds, and its estimates.

use super::outcome::Outcome;
use super::{cores, run_all};
use crate::replay::{Job, MEASURES, ReplayArgs, Row, Summary};
use crate::statistics::Estimate;
use ftld_kit::failure::Failure;
use ftld_kit::output::print;
use ftld_kit::size::show_size;

/// Runs a job once per seed. Prints a row per run and their summary as JSON, or a table.
///
/// # Errors
/// The job is wrong, or a run failed; the failure names its seed.
pub fn repeat(args: &ReplayArgs, as_json: bool) -> Result<(), Failure> {
    let ReplayArgs {
        job,
        repeat,
        outputs,
    } = args;
    outputs.refuse_seeds()?;
    let with = |seed| Job {
        seed,
        ..job.clone()
    };
    let jobs = repeat.from(job.seed)?.into_iter().map(with).collect();
    let outcomes = run_all(jobs, cores(), &mut |outcome| match outcome {
        Outcome::Done(row) if as_json => print(&(row.line() + "\n")),
        Outcome::Done(_) => Ok(()),
        Outcome::Failed(failed) => Err(failed.failure()),
    })?;
    let runs: Vec<&Row> = outcomes.iter().filter_map(Outcome::row).collect();
    let summary = Summary::new(&runs, None);
    if let Some(warning) = summary.warning() {
        tracing::warn!("{warning}");
    }
    if as_json {
        print(&summary.line())
    } else {
        print(&table(&runs, &summary))
    }
}

/// Returns the estimates of a cell.
fn table(runs: &[&Row], summary: &Summary) -> String {
    let (first, last) = (runs[0], runs[runs.len() - 1]);
    let (device, ram) = (&first.device, &first.ram);
    let mut text = format!(
        "{}: scheme {}, {} runs with seeds {} to {}\n\
         first run: {} for the host on {} of raw flash, effective over-provisioning {:.1} %, RAM {} (paper), \
         {} (allocated)\n\n{:<22} {:>14} {:>31} {:>14} {:>14}\n",
        first.job.workload,
        first.scheme,
        runs.len(),
        first.job.seed,
        last.job.seed,
        show_size(device.size_bytes),
        show_size(device.raw_bytes),
        device.effective_op_percent,
        show_size(ram.paper_bytes),
        show_size(ram.allocated_bytes),
        "",
        "mean",
        "95 % interval",
        "least",
        "most"
    );
    for (name, of) in MEASURES {
        let Some(&Estimate {
            mean, low, high, ..
        }) = summary.measures.get(name)
        else {
            continue;
        };
        let values = || runs.iter().filter_map(|row| of(row));
        let (least, most) = (
            values().fold(f64::INFINITY, f64::min),
            values().fold(f64::NEG_INFINITY, f64::max),
        );
        let interval = low
            .zip(high)
            .map_or("-".into(), |(low, high)| format!("{low:.4} to {high:.4}"));
        text += &format!("{name:<22} {mean:>14.4} {interval:>31} {least:>14.4} {most:>14.4}\n");
    }
    text
}
