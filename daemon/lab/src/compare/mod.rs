//! `ftld compare`: many replays in parallel; a table, CSV, rows of JSON, one page with plots.
//!
//! Invariants: output is in the order of the plan, in whatever order the runs end; a failed run is
//! named, and the others continue.

mod append;
mod args;
mod axis;
mod cells;
mod chart;
mod colours;
mod columns;
mod conclusion;
mod csv;
mod curves;
mod estimate;
mod figures;
mod heat;
mod html;
mod knee;
mod labels;
mod notes;
mod outcome;
mod plan;
mod progress;
mod raw_flash;
mod repeat;
mod reproduction;
mod rows;
mod svg;
mod sweep;
mod table;
mod traces;
mod units;

pub use args::CompareArgs;
pub use repeat::repeat;

use crate::replay::{Job, Row, Summary};
use append::Appended;
use csv::Csv;
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::output::{print, spares, unwritable, writable};
use outcome::{Failed, Outcome};
use progress::{Progress, Running};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError};
use traces::Traces;

/// `ftld compare`.
///
/// # Errors
/// The plan is wrong, a run failed, or a file of the results cannot be written.
pub fn compare(args: &CompareArgs, json: bool) -> Result<(), Failure> {
    let args = &CompareArgs {
        ndjson: args.ndjson || json && !args.csv,
        ..args.clone()
    };
    if let Some(page) = &args.html {
        let traces = args
            .sweep
            .workloads
            .iter()
            .map(|name| (name.as_ref(), "the trace"));
        let rows = args.rows.iter().map(|file| (file.as_ref(), "the rows"));
        traces
            .chain(rows)
            .try_for_each(|input| spares("--html", page, input))?;
        writable("--html", page)?;
    }
    let threads = args.threads.unwrap_or_else(cores).max(1);
    if let Some(file) = &args.job {
        let jobs = plan::read_jobs(file)?;
        return match args.estimate {
            true => estimate::estimate(&jobs, threads, args.ndjson),
            false => run_jobs(args, jobs),
        };
    }
    if !args.rows.is_empty() {
        let files = rows::read(&args.rows)?;
        if let Some(plan) = &args.against {
            files.check(plan, &plan::read_plan(plan)?)?;
        }
        files.has_rows()?;
        let outcomes: Vec<_> = files.rows.into_iter().map(|row| row.outcome).collect();
        if args.ndjson {
            outcomes
                .iter()
                .try_for_each(|outcome| print(&outcome.line()))?;
        }
        return report(args, &outcomes, false);
    }
    let jobs = args.sweep.jobs()?;
    if args.plan {
        return jobs.iter().try_for_each(|job| print(&plan::line(job)));
    }
    if args.estimate {
        return estimate::estimate(&jobs, threads, args.ndjson);
    }
    if let Some(file) = &args.append {
        let mut appended = Appended::open(file)?;
        let planned = jobs.len();
        let jobs = appended.remaining(jobs);
        let outcomes = run_all(jobs, threads, &mut |outcome| appended.add(outcome))?;
        return verdict(&outcomes, planned);
    }
    // With several seeds, a line has the statistics of its cell, which needs all runs.
    let single = jobs.iter().all(|job| job.seed == jobs[0].seed);
    let mut csv = Csv::default();
    let outcomes = run_all(jobs, threads, &mut |outcome| match outcome {
        _ if args.ndjson => print(&outcome.line()),
        Outcome::Done(row) if args.csv && single => print(&csv.line(row, None)),
        _ => Ok(()),
    })?;
    report(args, &outcomes, single)
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs jobs one after the other. Prints or appends each row when it is there.
fn run_jobs(args: &CompareArgs, jobs: Vec<Job>) -> Result<(), Failure> {
    let mut appended = args.append.as_deref().map(Appended::open).transpose()?;
    let planned = jobs.len();
    let jobs = match &appended {
        Some(appended) => appended.remaining(jobs),
        None => jobs,
    };
    let traces = Traces::read(&jobs);
    let mut outcomes = Vec::new();
    for job in jobs {
        let outcome = match traces.of(&job) {
            Some(failure) => Outcome::failed(job, failure.clone()),
            None => Outcome::of(job),
        };
        match &mut appended {
            Some(appended) => appended.add(&outcome)?,
            None => print(&outcome.line())?,
        }
        outcomes.push(outcome);
    }
    verdict(&outcomes, planned)
}

/// Runs all jobs, `threads` at a time, once their traces were read. Calls `each` in the order of
/// the jobs, as soon as all earlier ones are done.
fn run_all(
    jobs: Vec<Job>,
    threads: usize,
    each: &mut dyn FnMut(&Outcome) -> Result<(), Failure>,
) -> Result<Vec<Outcome>, Failure> {
    Traces::read(&jobs).all_readable()?;
    let (next, total) = (AtomicUsize::new(0), jobs.len());
    let (mut progress, running) = (Progress::new(total), Running::default());
    let threads = threads.max(1);
    let (tell, told) = mpsc::channel();
    let outcomes = std::thread::scope(|scope| {
        for _ in 0..threads.min(total) {
            let (tell, next, jobs, running) = (tell.clone(), &next, &jobs, &running);
            scope.spawn(move || {
                while let Some((number, job)) = {
                    let number = next.fetch_add(1, Relaxed);
                    jobs.get(number).map(|job| (number, job))
                } {
                    running.begin(number, job);
                    let outcome = Outcome::of(job.clone());
                    running.end(number);
                    // The receiver is gone after the output has failed.
                    if tell.send((number, outcome)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(tell);
        let (mut early, mut outcomes) = (BTreeMap::new(), Vec::with_capacity(total));
        loop {
            match told.recv_timeout(progress.wait()) {
                Ok((number, outcome)) => {
                    early.insert(number, outcome);
                    while let Some(outcome) = early.remove(&outcomes.len()) {
                        progress.bar.suspend(|| each(&outcome))?;
                        outcomes.push(outcome);
                    }
                    progress.add();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            progress.tell(&running);
        }
        assert!(
            early.is_empty() && outcomes.len() == total,
            "{} outcomes of {total} jobs, {} of them out of order",
            outcomes.len() + early.len(),
            early.len()
        );
        Ok(outcomes)
    });
    progress.bar.finish_and_clear();
    outcomes
}

/// Prints and writes the output at the end.
fn report(args: &CompareArgs, outcomes: &[Outcome], csv_done: bool) -> Result<(), Failure> {
    let rows: Vec<&Row> = outcomes.iter().filter_map(Outcome::row).collect();
    let failed: Vec<&Failed> = outcomes.iter().filter_map(Outcome::failure).collect();
    let cells = cells::cells(&rows);
    let summaries = cells::summaries(&cells);
    for warning in summaries.iter().filter_map(Summary::warning) {
        tracing::warn!("{warning}");
    }
    if args.ndjson || args.csv && !csv_done {
        if args.csv {
            print(&Csv::default().text(&cells, &summaries))?;
        } else if cells::is_repeated(&cells) {
            summaries
                .iter()
                .try_for_each(|summary| print(&summary.line()))?;
        }
        if args.ndjson {
            let knees = knee::knees(&cells);
            knees.iter().try_for_each(|knee| print(&knee.line()))?;
        }
    } else if !args.csv {
        print(&table::text(&rows))?;
    }
    if let Some(file) = &args.html {
        let page = html::page(&rows, &failed, &command());
        std::fs::write(file, page).map_err(|error| unwritable("--html", file, &error))?;
    }
    if let Some(warning) = notes::warnings(&rows) {
        tracing::warn!("{warning}");
    }
    for Failed { job, error, .. } in &failed {
        tracing::error!(
            "{} on {}: {error}",
            job.scheme.as_deref().unwrap_or("default"),
            job.workload
        );
    }
    verdict(outcomes, outcomes.len())
}

/// Returns the command line of this process.
fn command() -> Vec<String> {
    let words = std::env::args_os().skip(1);
    let words = words.map(|word| word.to_string_lossy().into_owned());
    std::iter::once("ftld".to_owned()).chain(words).collect()
}

/// Returns the failure of the runs that failed. That of a plan of one job has the job's exit code.
fn verdict(outcomes: &[Outcome], planned: usize) -> Result<(), Failure> {
    let failed: Vec<&Failed> = outcomes.iter().filter_map(Outcome::failure).collect();
    match &failed[..] {
        [] => Ok(()),
        [only] if planned == 1 => Err(Failure::new(Exit::from_code(only.exit), only.error.clone())),
        [first, ..] => Err(Failure::failed(format!(
            "{} of {} runs failed, first {} on {}: {}",
            failed.len(),
            outcomes.len(),
            first.job.scheme.as_deref().unwrap_or("default"),
            first.job.workload,
            first.error
        ))),
    }
}
