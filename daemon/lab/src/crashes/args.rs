//! Command line of `ftld crashes`.

use clap::{Args, ValueEnum};
use ftld_kit::duration::parse_seconds;
use ftld_kit::failure::Failure;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which states a power cut can leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// All acknowledged requests, in order, and nothing else: one state per point
    Prefix,
    /// Any subset of what was not flushed, unit by unit: what a volatile write cache can leave
    Cache,
    /// What the recorded scheme mounts on the recorded chip after a cut in a flash operation
    Flash,
}

/// What some drives lose beyond whole contents of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Loss {
    /// The first 3 or 7 eighths of a unit are new, the rest is old
    Shorn,
    /// A unit that was not flushed has bytes that nobody wrote
    Garbage,
    /// What was not flushed is lost on one channel, and is there on the others
    Channel,
}

/// Where power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum At {
    /// After every write, trim, FLUSH and mark
    Request,
    /// Just before every FLUSH takes effect; by the model flash, in its operations
    Flush,
    /// After every mark
    Mark,
}

/// Arguments of `ftld crashes`.
#[derive(Args, Clone, Debug)]
pub struct CrashesArgs {
    /// A recording, as `ftld --record FILE` makes it
    pub recording: PathBuf,
    /// Recordings of other devices, which lost power in the same moment.
    #[arg(skip)]
    pub others: Vec<PathBuf>,
    /// Shell command that checks one state: exit code 0 if it is good. It finds the raw image in
    /// FTLD_IMAGE, the same over NBD in FTLD_URI, in FTLD_MARK the text of the last mark before the
    /// cut, and in FTLD_WORK an empty folder
    #[arg(long, value_name = "COMMAND")]
    pub check: String,
    /// Which states a cut can leave
    #[arg(long, value_enum, default_value_t = Model::Cache)]
    pub model: Model,
    /// With --model cache: also states that violate the device's contract, as some drives leave
    /// them
    #[arg(long, value_enum, value_delimiter = ',')]
    pub loss: Vec<Loss>,
    /// Where power fails
    #[arg(long, value_enum, default_value_t = At::Request)]
    pub at: At,
    /// Leave out the points before the first mark: a cut while the software creates its files
    #[arg(long)]
    pub after_mark: bool,
    /// Leave out the points before this entry of the recording; `ftld inspect RECORDING --entries`
    /// lists them
    #[arg(long, value_name = "ENTRY", default_value_t = 0)]
    pub from: u64,
    /// Leave out the points after this entry of the recording
    #[arg(long, value_name = "ENTRY", default_value_t = u64::MAX, hide_default_value = true)]
    pub to: u64,
    /// Only every N-th point
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub every: u64,
    /// States per point; all of them if they are fewer
    #[arg(long, value_name = "K", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub states: u32,
    /// Seed of the states that are drawn
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Checks at the same time; the number of cores by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub jobs: Option<u32>,
    /// Longest time of one check, such as 30s or 2m
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = timeout)]
    pub timeout: Duration,
    /// Copy the files of an ext4 in the image, or those below a folder of it, to a folder that the
    /// check finds in FTLD_FILES, as a mount after the power cut would show them
    #[arg(long, value_name = "FOLDER", num_args = 0..=1, default_missing_value = "/")]
    pub files: Option<String>,
    /// The check stays up: it reads a line per state, the path of the raw image (with --files, of
    /// the folder), a tab and the last mark, and answers with a line, `ok` or what is wrong
    #[arg(long)]
    pub server: bool,
    /// Power fails again while the check repairs a state that it finds good: up to K states of each
    /// such recovery are checked, too. It has to be the work of a mount in User-Mode Linux
    /// (`ftld crash-test`), or go through FTLD_URI
    #[arg(long, value_name = "K", num_args = 0..=1, default_missing_value = "8", require_equals = true,
        conflicts_with = "files", value_parser = clap::value_parser!(u32).range(1..))]
    pub nested: Option<u32>,
    /// Do not count a failed state whose output contains this text: a known fault
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub ignore: Vec<String>,
    /// Stop after this time, such as 5m; what was visited is in the report
    #[arg(long = "for", value_name = "DURATION", value_parser = timeout)]
    pub time: Option<Duration>,
    /// Stop after N states failed; 0 for never
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub failures: u64,
    /// Check one case of a report again, and print the check's output
    #[arg(long, value_name = "CASE", conflicts_with_all = ["ledger", "junit", "html"])]
    pub case: Option<String>,
    /// With --case: keep the raw image there
    #[arg(long, value_name = "PATH", requires = "case")]
    pub keep: Option<PathBuf>,
    /// Keep verdicts in a file: after an interruption the same command continues
    #[arg(long, value_name = "FILE")]
    pub ledger: Option<PathBuf>,
    /// Write a JUnit report
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Write a page with the report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Use a recording that lacks its end as far as it goes
    #[arg(long)]
    pub cut_off: bool,
    /// Folder for the raw images; by default $TMPDIR, else /dev/shm, else /tmp
    #[arg(long, value_name = "FOLDER")]
    pub scratch: Option<PathBuf>,
    /// Who mounts the states for the check.
    #[arg(skip)]
    pub mounts: Option<Mounts>,
}

impl CrashesArgs {
    /// Returns the recordings of all devices.
    pub fn recordings(&self) -> impl Iterator<Item = &Path> {
        let all = std::iter::once(&self.recording).chain(&self.others);
        all.map(PathBuf::as_path)
    }

    /// Returns the options with which the check gets a state mounted.
    pub(super) fn mount_options(&self) -> Vec<String> {
        let mounts = self.mounts.as_ref();
        mounts.map_or_else(Vec::new, |mounts| mounts.options.clone())
    }
}

/// How the check finds each state mounted.
#[derive(Clone, Debug)]
pub struct Mounts {
    /// Shell command that mounts a state and runs the check on it.
    pub command: String,
    /// It stays up. The line that asks it has the path of the image, the case and the mark, with a
    /// tab between two of them.
    pub stays_up: bool,
    /// The options that ask for this.
    pub options: Vec<String>,
}

/// Parses a longest time.
fn timeout(text: &str) -> Result<Duration, Failure> {
    let seconds = parse_seconds(text)?;
    let is_time = (0.001..=86_400.0).contains(&seconds);
    let time = is_time.then(|| Duration::from_secs_f64(seconds));
    time.ok_or_else(|| Failure::usage(format!("{text:?}: need 1ms to a day, such as 30s or 2m")))
}
