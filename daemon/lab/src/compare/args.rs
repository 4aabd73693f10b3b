//! Command line of `ftld compare`. The compared values are in `sweep.rs`, the options of a run in
//! the job of a replay.

use super::sweep::Sweep;
use clap::Args;
use std::path::PathBuf;

/// Arguments of `ftld compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// The compared values.
    #[command(flatten)]
    pub(crate) sweep: Sweep,
    /// Runs at the same time [default: one per core]
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<usize>,
    /// Print comma-separated values
    #[arg(long, conflicts_with = "ndjson")]
    pub(crate) csv: bool,
    /// Print one row of JSON per run, as `ftld replay --json` does; --json is the same
    #[arg(long)]
    pub(crate) ndjson: bool,
    /// Write a page with tables and plots, which needs nothing but a browser
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print the jobs, one row of JSON each, and run none
    #[arg(long, conflicts_with_all = ["html", "csv"])]
    pub(crate) plan: bool,
    /// Run jobs as --plan prints them, one after the other, from a file or - for standard input,
    /// and print their rows
    #[arg(long, value_name = "FILE|-", conflicts_with_all = ["workloads", "plan", "csv", "html"])]
    pub(crate) job: Option<PathBuf>,
    /// Print the time and memory that the plan takes, from short runs of some jobs
    #[arg(long, conflicts_with_all = ["html", "csv", "plan", "append", "rows"])]
    pub(crate) estimate: bool,
    /// Run nothing: read rows from files
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["workloads", "plan", "job"])]
    pub(crate) rows: Vec<PathBuf>,
    /// Check that --rows are those of the jobs in a file, one row each, and fail otherwise
    #[arg(long, value_name = "PLAN", requires = "rows")]
    pub(crate) against: Option<PathBuf>,
    /// Append rows to a file instead of printing them, and leave out jobs that have a row there
    #[arg(long, value_name = "FILE", conflicts_with_all = ["plan", "rows", "html", "csv", "ndjson"])]
    pub(crate) append: Option<PathBuf>,
}
