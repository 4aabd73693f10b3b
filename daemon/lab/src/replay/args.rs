//! Command line of `ftld replay`: a job, whose options are in `job.rs`, its repetitions, and what
//! is written besides its row.

use super::job::Job;
use super::outputs::OutputArgs;
use clap::Args;
use ftld_kit::failure::Failure;

/// Limit of runs per cell.
const SEEDS_MAX: u64 = 10_000;

/// Repetitions of a job.
#[derive(Args, Clone, Copy, Debug)]
pub struct Repeat {
    /// Runs with N seeds, from --seed on: means, 95 % intervals, ratios
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=SEEDS_MAX))]
    pub seeds: u64,
}

impl Repeat {
    /// Returns the seeds from `first` on.
    ///
    /// # Errors
    /// The last one has more than 64 bits.
    pub(crate) fn from(&self, first: u64) -> Result<Vec<u64>, Failure> {
        let last = first.checked_add(self.seeds - 1).ok_or_else(|| {
            Failure::usage(format!(
                "--seeds {}: seeds from {first} on exceed 64 bits; choose a smaller --seed",
                self.seeds
            ))
        })?;
        Ok((first..=last).collect())
    }
}

/// Arguments of `ftld replay`.
#[derive(Args, Clone, Debug)]
pub struct ReplayArgs {
    /// The run.
    #[command(flatten)]
    pub(crate) job: Job,
    /// Its repetitions.
    #[command(flatten)]
    pub repeat: Repeat,
    /// What is written besides the row.
    #[command(flatten)]
    pub(crate) outputs: OutputArgs,
}
