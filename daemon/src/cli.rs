//! Command line; without a subcommand, `ftld` serves a device.
//!
//! This file is what the commands are; [`help`] is what they show, [`read`] how a line becomes one
//! of them, or a message.

mod help;
mod inject;
mod read;

use crate::crash_test::{CheckStatesArgs, CrashTestArgs, RecordedArgs};
use crate::demo::DemoArgs;
use crate::words::WordsOf;
use clap::{Args, Parser, Subcommand};
use ftld_device::aging::ImageAge;
use ftld_device::options::DeviceArgs;
use ftld_device::volume::parse_range;
use ftld_kit::duration::parse_seconds;
use ftld_kit::failure::Failure;
use ftld_kit::output::STYLES;
use ftld_lab::compare::CompareArgs;
use ftld_lab::replay::ReplayArgs;
pub(crate) use help::command;
use help::{epilogue, long_version};
pub(crate) use inject::Inject;
pub(crate) use read::asks_for_json;
use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

/// A real block device whose flash you can see, torture and compare.
#[derive(Debug, Parser)]
#[command(name = "ftld", version, long_version = long_version())]
#[command(args_conflicts_with_subcommands = true, after_help = epilogue(), styles = STYLES)]
pub struct Cli {
    /// What to do; without one, serve.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    /// Serve.
    #[command(flatten)]
    pub(crate) serve: ServeArgs,
    /// Print JSON, errors on standard error included
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Arguments of serving.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ServeArgs {
    /// The device.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Run in the background once the device is ready; the log is NAME.log next to the default
    /// image
    #[arg(long)]
    pub(crate) detach: bool,
    /// The process in the background that `--detach` started.
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub(crate) detached: bool,
    /// Print all values with their sources, as a configuration file, and exit
    #[arg(long)]
    pub(crate) print_config: bool,
}

/// Arguments of a new image.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CreateArgs {
    /// The device.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Write pages as a host in use would: every page in order, then random pages for a number of
    /// drive writes or until steady state; eol: steady, and all blocks at the end of their life
    #[arg(
        long,
        value_name = "DRIVE-WRITES|steady|eol",
        allow_hyphen_values = true
    )]
    pub(crate) age: Option<ImageAge>,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve a small device with a load of its own and open its page; nothing stays
    Demo(DemoArgs),
    /// Serve stopped instances again in the background, as they were started
    Start {
        /// Names of the instances
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
        /// The process in the background that serves one.
        #[arg(long, hide = true)]
        detached: bool,
    },
    /// Create an image
    Create(Box<CreateArgs>),
    /// Show the content of an image or of a recording; never changes it
    Inspect {
        /// Path of an image or a recording, or name of an instance
        image: OsString,
        /// Show every block
        #[arg(long)]
        blocks: bool,
        /// Show one page
        #[arg(long, value_name = "BLOCK:PAGE")]
        page: Option<String>,
        /// Show the current and older versions of a logical page
        #[arg(long, value_name = "N")]
        lpn: Option<u32>,
        /// Print its flash device as a TOML file for --profile
        #[arg(long, conflicts_with_all = ["blocks", "page", "lpn", "json"])]
        toml: bool,
        /// List the entries of a recording in the order of their acknowledgement; an object per
        /// line with --json
        #[arg(long, conflicts_with_all = ["blocks", "page", "lpn", "toml"])]
        entries: bool,
    },
    /// Mount an image, compare every table with the flash and read every page; never changes it
    Check {
        /// Path of an image, or name of an instance
        image: OsString,
    },
    /// Run a trace or a synthetic workload through a scheme, in emulated time and in memory; one
    /// row with --json
    #[command(
        after_help = "Examples:\n  ftld replay trace.csv.gz --address compact\n  ftld replay uniform:requests=2M,read=30% --scheme pagemap --json\n\n\
                            `ftld workloads` lists generators and trace formats; docs/REPLAY.md defines what is measured."
    )]
    Replay(Box<ReplayArgs>),
    /// Replay workloads under several schemes and settings, one run per core
    #[command(
        after_help = "Examples:\n  ftld compare uniform hotcold:access=95% --size 256MiB --html compare.html\n  \
                            ftld compare trace.csv.gz --address compact --scheme lazyftl,pagemap --op 7,28 --csv\n  \
                            ftld compare --plan uniform zipf > jobs.ndjson; deploy/slurm-array.sh jobs.ndjson rows\n  \
                            ftld compare --rows rows/*.ndjson --against jobs.ndjson --html compare.html\n\ndocs/REPLAY.md defines what is measured."
    )]
    Compare(Box<CompareArgs>),
    /// Visit the states that a power cut can leave of a recording, and run a check on each; exit
    /// code 0 if no state failed
    #[command(
        override_usage = "ftld crashes [OPTIONS] --check <COMMAND>\n       <RECORDING> [RECORDING]...",
        after_help = "Examples:\n  ftld crashes run.rec --check 'e2fsck -fn $FTLD_IMAGE'\n  \
                            ftld crashes run.rec --check ./check.sh --model flash --at flush --junit report.xml\n\n\
                            docs/CRASH_TESTING.md is a lesson."
    )]
    Crashes(Box<RecordedArgs>),
    /// Run a program on a new file system, and check the states that a power cut can leave; without
    /// root in User-Mode Linux
    #[command(
        override_usage = "ftld crash-test [OPTIONS] --check <COMMAND>\n       -- <COMMAND>...",
        after_help = "Example:\n  ftld crash-test --check ./check.sh -- ./workload.sh {}\n\n\
                            docs/CRASH_TESTING.md is a lesson."
    )]
    CrashTest(Box<CrashTestArgs>),
    /// The check of `ftld crash-test` in a machine, for states that have to be mounted.
    #[command(hide = true)]
    CheckStates(CheckStatesArgs),
    /// The first process of a machine that `ftld crash-test` starts.
    #[command(hide = true)]
    GuestInit {
        /// What the kernel appends.
        rest: Vec<OsString>,
    },
    /// List synthetic workloads and trace formats
    Workloads,
    /// List the flash translation layers, or show one
    Schemes {
        /// A scheme
        name: Option<String>,
        /// Show all of them in full
        #[arg(long, conflicts_with_all = ["name", "json"])]
        long: bool,
    },
    /// Write a crate for a scheme of your own: its map, its policy, and the battery that judges it
    #[command(
        after_help = "Example:\n  ftld new-scheme my-rule --policy && cd my-rule && cargo test -- --nocapture\n\n\
                            docs/SCHEMES.md describes the contract."
    )]
    NewScheme {
        /// Name of the scheme, its crate and its folder
        #[arg(value_name = "NAME")]
        scheme_name: String,
        /// Without a policy: those of ftld serve the map
        #[arg(long)]
        map: bool,
        /// Without a map: a table in RAM of 4 bytes per page
        #[arg(long, conflicts_with = "map")]
        policy: bool,
        /// Use this clone of ftld instead of the release
        #[arg(long, value_name = "DIR")]
        path: Option<PathBuf>,
    },
    /// List the flash devices and chips, or show one
    Profiles {
        /// A profile, or the path of a TOML file
        name: Option<String>,
        /// Print it as a TOML file, to start one of your own from
        #[arg(long, requires = "name", conflicts_with = "json")]
        toml: bool,
    },
    /// List the presets, or show one: scheme, device, parameters and method of a paper under one
    /// name
    Presets {
        /// A preset
        name: Option<String>,
    },
    /// List instances, and devices whose daemon died
    List {
        /// Show the images of stopped instances, too
        #[arg(short, long)]
        all: bool,
    },
    /// Copy an image; that of a running instance as a power cut would leave it
    #[command(
        after_help = "Requests of a running instance wait while its image is copied; on a file system with\nreflinks, such as XFS or Btrfs, that is a moment. What its write cache loses is drawn by --seed."
    )]
    Clone {
        /// Path of an image, or name of an instance
        #[arg(value_name = "NAME|IMAGE")]
        image: OsString,
        /// Path of the copy, or name of a new instance
        copy: OsString,
        /// Seed of what a running instance's write cache loses
        #[arg(long, value_name = "N")]
        seed: Option<u64>,
    },
    /// Remove what stopped instances have left: default image, log, start options, pid file
    Rm {
        /// Names of the instances
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Show the state of a running instance
    Status {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
        /// Print a line of rates per interval
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
        watch: Option<f64>,
        /// Shorten the JSON to what the text shows
        #[arg(long, requires = "json", conflicts_with = "watch")]
        brief: bool,
    },
    /// Show where a file or bytes of a device are on the flash, with dead copies
    Where {
        /// A file on a device that an instance serves; or, with ranges, the name of an instance
        #[arg(value_name = "FILE|NAME")]
        what: OsString,
        /// Bytes of the instance's device, such as 0+64KiB
        #[arg(value_name = "OFFSET+LENGTH", value_parser = parse_range)]
        ranges: Vec<Range<u64>>,
    },
    /// Watch all instances in the terminal
    Top {
        /// Time between two looks at the instances
        #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0)]
        delay: f64,
    },
    /// Stop running instances
    Stop {
        /// Names of the instances; not needed if only one is running
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        /// Remove the device even if open
        #[arg(long)]
        force: bool,
        /// Stop all running instances
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
    /// Reattach a device whose daemon died
    Recover(Box<ServeArgs>),
    /// Pause a running instance: requests wait, none fails
    Pause {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
        /// Duration, such as 30s or 5m, 10 minutes at most; then the device resumes by itself
        #[arg(long = "for", value_name = "DURATION", default_value = "30s", value_parser = seconds)]
        length: f64,
    },
    /// Run a paused instance until the next event, such as a GC run or a merge
    Step {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
        /// Run until N events are recorded; the write that is under way ends first, with its events
        #[arg(long, value_name = "N", default_value_t = 1)]
        events: u64,
        /// Run until N requests are served, with all their work
        #[arg(long, value_name = "N", conflicts_with = "events")]
        requests: Option<u64>,
    },
    /// End a pause
    Resume {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
    },
    /// Put a mark into the recording of a running instance
    #[command(allow_missing_positional = true)]
    Mark {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
        /// Text of the mark
        text: String,
    },
    /// Let another scheme follow the requests of a running instance, without data
    #[command(subcommand, arg_required_else_help = false)]
    Shadow(ShadowArgs),
    /// Inject a fault of the flash or of requests into a running instance
    #[command(subcommand, arg_required_else_help = false)]
    Inject(Inject),
    /// Check prerequisites and print fixes
    Doctor(Box<DeviceArgs>),
    /// Print the completions of a shell
    #[command(after_help = "For this shell only: source <(ftld completions bash)")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Words that complete a command line, one a line; asked by the script of a shell.
    #[command(hide = true)]
    Words {
        /// Of what
        of: WordsOf,
        /// The command line so far
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        line: Vec<OsString>,
    },
    /// Write the manual pages into a folder
    Man {
        /// The folder; created if missing
        folder: PathBuf,
    },
}

/// Parses the length of a pause into seconds.
fn seconds(text: &str) -> Result<f64, Failure> {
    ftld_device::pause::length(parse_seconds(text)?).map(|length| length.as_secs_f64())
}

/// Schemes that follow the requests.
#[derive(Debug, Subcommand)]
pub(crate) enum ShadowArgs {
    /// Add one; it begins with the device's content
    #[command(allow_missing_positional = true)]
    Add {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
        /// The scheme and what differs from the device: SCHEME[:KEY=VALUE,...], such as
        /// pagemap:op=28
        #[arg(value_name = "SHADOW")]
        shadow: String,
    },
    /// Remove one
    #[command(allow_missing_positional = true)]
    Rm {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
        /// Its name: the text that added it
        #[arg(value_name = "SHADOW")]
        shadow: String,
    },
}

#[cfg(test)]
mod tests;
