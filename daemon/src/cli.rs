//! The command line: without a subcommand, serve.

use crate::compare::CompareArgs;
use crate::inject::{BadBlock, BitErrors, PowerCut};
use crate::options::DeviceOptions;
use crate::replay::Job;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// A real block device whose flash you can see, torture and compare.
#[derive(Debug, Parser)]
#[command(
    name = "ftld",
    version,
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  ftld --scheme lazyftl /dev/ublkb0\n  ftld --size 4GiB 'nbd+unix:///disk?socket=/tmp/disk.sock'\n\n\
                  Exit codes: 0 done, 1 failed, 2 usage, 3 not running, 4 quiesced, 5 driver missing, 6 permission, 7 in use, \
                  8 image damaged, 9 power cut injected"
)]
pub struct Cli {
    /// What to do; without one, serve.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Serve.
    #[command(flatten)]
    pub serve: ServeArgs,
}

/// Arguments of serving.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeArgs {
    /// /dev/ublkbN, /dev/nbdN, nbd://HOST:PORT[/EXPORT] or nbd+unix:///[EXPORT]?socket=PATH; without one, ublk if the kernel has
    /// it, else an NBD unix socket
    pub target: Option<String>,
    /// Read options from a TOML file; flags win
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The device itself.
    #[command(flatten)]
    pub device: DeviceOptions,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make an image without serving it
    Create {
        /// Serve it later under this target (names the image)
        target: Option<String>,
        /// Read options from a TOML file; flags win
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The device itself.
        #[command(flatten)]
        device: Box<DeviceOptions>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what is in an image; never changes it
    Inspect {
        /// Path of an image, or name of an instance
        image: String,
        /// Show every block
        #[arg(long)]
        blocks: bool,
        /// Show one page
        #[arg(long, value_name = "BLOCK:PAGE")]
        page: Option<String>,
        /// Show where a logical page's content is and was
        #[arg(long, value_name = "N")]
        lpn: Option<u32>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Mount an image, compare every table with the flash; never changes it
    Check {
        /// Path of an image, or name of an instance
        image: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Run a trace or a synthetic workload through a scheme, in emulated time and in memory
    #[command(
        after_help = "Examples:\n  ftld replay trace.csv.gz --address compact\n  ftld replay uniform:requests=2M,read=30% --scheme pagemap --json\n\n\
                            `ftld workloads` lists generators and trace formats; docs/REPLAY.md says what is measured."
    )]
    Replay {
        /// What is run.
        #[command(flatten)]
        job: Box<Job>,
        /// Print one row of JSON
        #[arg(long)]
        json: bool,
    },
    /// Replay workloads under several schemes and settings, over the cores
    #[command(
        after_help = "Examples:\n  ftld compare uniform hotcold:access=95% --size 256MiB --html compare.html\n  \
                            ftld compare trace.csv.gz --address compact --scheme lazyftl,pagemap --op 7,28 --csv\n  \
                            ftld compare --plan uniform zipf > jobs.ndjson; sbatch --array=1-$(wc -l < jobs.ndjson) deploy/slurm-array.sh jobs.ndjson rows\n  \
                            ftld compare --rows rows/*.json --html compare.html\n\ndocs/REPLAY.md says what is measured."
    )]
    Compare(Box<CompareArgs>),
    /// List synthetic workloads and trace formats
    Workloads {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the flash translation layers to choose from
    Schemes {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the devices and chips to choose from
    Profiles {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the presets: scheme, device, parameters and method of a paper by one name
    Presets {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List instances
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a running instance does
    Status {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Stop a running instance
    Stop {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
        /// Remove the device even under whoever holds it
        #[arg(long)]
        force: bool,
    },
    /// Serve again what a killed daemon left behind
    Recover(Box<ServeArgs>),
    /// Let something go wrong with the flash of a running instance
    #[command(subcommand)]
    Inject(Inject),
}

/// What can go wrong.
#[derive(Debug, Subcommand)]
pub enum Inject {
    /// The flash loses power: the device fails, goes, and its daemon ends; a restart mounts what the chip kept
    PowerCut(On<PowerCut>),
    /// Blocks fail at their next program or erase
    BadBlock(On<BadBlock>),
    /// Bits are wrong when pages are read
    BitErrors(On<BitErrors>),
}

/// A fault, and who suffers it.
#[derive(Args, Debug)]
pub struct On<F: Args> {
    /// Name of the instance; not needed if only one is running
    pub name: Option<String>,
    /// The fault.
    #[command(flatten)]
    pub fault: F,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
