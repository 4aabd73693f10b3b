//! `ftld compare`: many replays in parallel; a table, CSV, rows of JSON, one page with plots.
//!
//! Invariants: output is in the order of the plan, in whatever order the runs end; a failed run is
//! named, and the others continue.

mod equal;
mod html;
mod plan;
mod plot;
mod table;

use crate::convert::to_u64;
pub use plan::Sweep;

use crate::failure::{Exit, Failure};
use crate::output::print;
use crate::replay::{self, Job, Row, SCHEMA};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;

/// Arguments of `ftld compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// The compared values.
    #[command(flatten)]
    pub sweep: Sweep,
    /// Runs at the same time [default: one per core]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Print comma-separated values
    #[arg(long, conflicts_with = "ndjson")]
    pub csv: bool,
    /// Print one row of JSON per run, as `ftld replay --json` does; --json is the same
    #[arg(long)]
    pub ndjson: bool,
    /// Write a page with tables and plots, which needs nothing but a browser
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print the jobs, one row of JSON each, and run none
    #[arg(long, conflicts_with_all = ["html", "csv"])]
    pub plan: bool,
    /// Run one job as --plan prints it, from a file or - for standard input, and print its row
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["workloads", "plan", "csv"])]
    pub job: Option<PathBuf>,
    /// Run nothing: read rows from files
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["workloads", "plan", "job"])]
    pub rows: Vec<PathBuf>,
}

/// Result of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Outcome {
    /// Success, with a row.
    Done(Box<Row>),
    /// Failure.
    Failed(Box<Failed>),
}

/// A job without a row.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failed {
    /// [`FAILURE_SCHEMA`].
    pub schema: String,
    /// The job.
    pub job: Job,
    /// The error message.
    pub error: String,
    /// The exit code of the error.
    pub exit: i32,
}

/// Schema name of a [`Failed`].
pub const FAILURE_SCHEMA: &str = "ftld.failure/1";

impl Outcome {
    fn line(&self) -> String {
        serde_json::to_string(self).expect("plain data") + "\n"
    }
}

/// `ftld compare`.
///
/// # Errors
/// The plan is wrong, a run failed, or a file of the results cannot be written.
pub fn compare(args: &CompareArgs, json: bool) -> Result<(), Failure> {
    let args = &CompareArgs {
        ndjson: args.ndjson || json && !args.csv,
        ..args.clone()
    };
    if let Some(file) = &args.job {
        return one(file);
    }
    if !args.rows.is_empty() {
        let outcomes = read_rows(&args.rows)?;
        if args.csv {
            print(&table::csv_head())?;
        }
        outcomes
            .iter()
            .try_for_each(|outcome| stream(args, outcome))?;
        return report(args, &outcomes);
    }
    let jobs = args.sweep.jobs()?;
    if args.plan {
        return jobs
            .iter()
            .try_for_each(|job| print(&(serde_json::to_string(job).expect("plain data") + "\n")));
    }
    if args.csv {
        print(&table::csv_head())?;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let outcomes = run_all(jobs, args.threads.unwrap_or(cores).max(1), &mut |outcome| {
        stream(args, outcome)
    })?;
    report(args, &outcomes)
}

/// Runs one job and prints its row.
fn one(file: &Path) -> Result<(), Failure> {
    let (name, text) = match file.to_str() {
        Some("-") => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            ("standard input".into(), read.map(|_| text))
        }
        _ => (file.display().to_string(), std::fs::read_to_string(file)),
    };
    let text = text.map_err(|error| Failure::io(&name, &error))?;
    let job: Job = serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("{name}: not a job: {error}")))?;
    let outcome = attempt(job);
    print(&outcome.line())?;
    match outcome {
        Outcome::Done(_) => Ok(()),
        Outcome::Failed(failed) => Err(Failure::new(Exit::from_code(failed.exit), failed.error)),
    }
}

fn attempt(job: Job) -> Outcome {
    match replay::run(&job, &mut |_, _| ()) {
        Ok(row) => Outcome::Done(Box::new(row)),
        Err(Failure {
            exit,
            message: error,
        }) => {
            let schema = FAILURE_SCHEMA.into();
            Outcome::Failed(Box::new(Failed {
                schema,
                job,
                error,
                exit: i32::from(exit.code()),
            }))
        }
    }
}

/// Runs all jobs, `threads` at a time. Calls `each` in the order of the jobs, as soon as all
/// earlier ones are done.
fn run_all(
    jobs: Vec<Job>,
    threads: usize,
    each: &mut dyn FnMut(&Outcome) -> Result<(), Failure>,
) -> Result<Vec<Outcome>, Failure> {
    let bar = ProgressBar::new(to_u64(jobs.len()));
    let style =
        ProgressStyle::with_template("{pos} of {len} runs {bar:40} {elapsed} (about {eta} left)");
    bar.set_style(style.expect("the template is right"));
    let (next, total) = (AtomicUsize::new(0), jobs.len());
    assert!(threads > 0, "no thread runs {total} jobs");
    let (tell, told) = mpsc::channel();
    let outcomes = std::thread::scope(|scope| {
        for _ in 0..threads.min(total) {
            let (tell, next, jobs) = (tell.clone(), &next, &jobs);
            scope.spawn(move || {
                while let Some((number, job)) = {
                    let number = next.fetch_add(1, Relaxed);
                    jobs.get(number).map(|job| (number, job))
                } {
                    // The receiver is gone after the output has failed.
                    if tell.send((number, attempt(job.clone()))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(tell);
        let (mut early, mut outcomes) = (BTreeMap::new(), Vec::with_capacity(total));
        for (number, outcome) in told {
            early.insert(number, outcome);
            while let Some(outcome) = early.remove(&outcomes.len()) {
                bar.suspend(|| each(&outcome))?;
                outcomes.push(outcome);
            }
            bar.inc(1);
        }
        assert!(
            early.is_empty() && outcomes.len() == total,
            "{} outcomes of {total} jobs, {} of them out of order",
            outcomes.len() + early.len(),
            early.len()
        );
        Ok(outcomes)
    });
    bar.finish_and_clear();
    outcomes
}

/// Prints a run's output in its turn; the human-readable table needs all runs.
fn stream(args: &CompareArgs, outcome: &Outcome) -> Result<(), Failure> {
    match outcome {
        _ if args.ndjson => print(&outcome.line()),
        Outcome::Done(row) if args.csv => print(&table::csv_line(row)),
        _ => Ok(()),
    }
}

/// Prints and writes the output at the end.
fn report(args: &CompareArgs, outcomes: &[Outcome]) -> Result<(), Failure> {
    let rows: Vec<&Row> = outcomes
        .iter()
        .filter_map(|outcome| {
            if let Outcome::Done(row) = outcome {
                Some(&**row)
            } else {
                None
            }
        })
        .collect();
    let failed: Vec<&Failed> = outcomes
        .iter()
        .filter_map(|outcome| {
            if let Outcome::Failed(failed) = outcome {
                Some(&**failed)
            } else {
                None
            }
        })
        .collect();
    if !args.csv && !args.ndjson {
        print(&table::text(&rows))?;
    }
    if let Some(file) = &args.html {
        let page = html::page(&rows, &failed)?;
        std::fs::write(file, page).map_err(|error| Failure::io(file.display(), &error))?;
    }
    for Failed { job, error, .. } in &failed {
        tracing::error!(
            "{} on {}: {error}",
            job.scheme.as_deref().unwrap_or("default"),
            job.workload
        );
    }
    match &failed[..] {
        [] => Ok(()),
        [only] if outcomes.len() == 1 => {
            Err(Failure::new(Exit::from_code(only.exit), only.error.clone()))
        }
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

fn read_rows(files: &[PathBuf]) -> Result<Vec<Outcome>, Failure> {
    let mut outcomes = Vec::new();
    for file in files {
        let text =
            std::fs::read_to_string(file).map_err(|error| Failure::io(file.display(), &error))?;
        for (number, line) in text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            let wrong = |why: &dyn std::fmt::Display| {
                Failure::failed(format!(
                    "{}: line {}: not a row: {why}",
                    file.display(),
                    number + 1
                ))
            };
            // An untagged enumeration would not report the cause.
            let value: serde_json::Value =
                serde_json::from_str(line).map_err(|error| wrong(&error))?;
            outcomes.push(match value["schema"].as_str() {
                Some(SCHEMA) => {
                    Outcome::Done(serde_json::from_value(value).map_err(|error| wrong(&error))?)
                }
                Some(FAILURE_SCHEMA) => {
                    Outcome::Failed(serde_json::from_value(value).map_err(|error| wrong(&error))?)
                }
                other => return Err(wrong(&format!("schema {other:?}, not {SCHEMA:?}"))),
            });
        }
    }
    Ok(outcomes)
}
