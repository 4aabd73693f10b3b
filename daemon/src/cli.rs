//! The command line: without a subcommand, serve.

use crate::compare::CompareArgs;
use crate::failure::Exit;
use crate::inject::{BadBlock, BitErrors, PowerCut};
use crate::options::DeviceArgs;
use crate::replay::Job;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::path::PathBuf;
use strum::VariantArray;

/// A real block device whose flash you can see, torture and compare.
#[derive(Debug, Parser)]
#[command(name = "ftld", version, args_conflicts_with_subcommands = true, after_help = epilogue())]
pub struct Cli {
    /// What to do; without one, serve.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// Serve.
    #[command(flatten)]
    pub serve: ServeArgs,
    /// Print JSON, errors on standard error included
    #[arg(long, global = true)]
    pub json: bool,
}

/// Arguments of serving.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeArgs {
    /// The device.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Go on in the background once the device is ready; the log goes to NAME.log beside the
    /// default image
    #[arg(long)]
    pub detach: bool,
    /// The process in the background that `--detach` started.
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub detached: bool,
    /// Print what would be served and where each value comes from, as a configuration file, and
    /// serve nothing
    #[arg(long)]
    pub print_config: bool,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make an image without serving it
    Create(Box<DeviceArgs>),
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
    },
    /// Mount an image, compare every table with the flash and read every page; never changes it
    Check {
        /// Path of an image, or name of an instance
        image: String,
    },
    /// Run a trace or a synthetic workload through a scheme, in emulated time and in memory; one
    /// row with --json
    #[command(
        after_help = "Examples:\n  ftld replay trace.csv.gz --address compact\n  ftld replay uniform:requests=2M,read=30% --scheme pagemap --json\n\n\
                            `ftld workloads` lists generators and trace formats; docs/REPLAY.md says what is measured."
    )]
    Replay(Box<Job>),
    /// Replay workloads under several schemes and settings, over the cores
    #[command(
        after_help = "Examples:\n  ftld compare uniform hotcold:access=95% --size 256MiB --html compare.html\n  \
                            ftld compare trace.csv.gz --address compact --scheme lazyftl,pagemap --op 7,28 --csv\n  \
                            ftld compare --plan uniform zipf > jobs.ndjson; sbatch --array=1-$(wc -l < jobs.ndjson) deploy/slurm-array.sh jobs.ndjson rows\n  \
                            ftld compare --rows rows/*.json --html compare.html\n\ndocs/REPLAY.md says what is measured."
    )]
    Compare(Box<CompareArgs>),
    /// List synthetic workloads and trace formats
    Workloads,
    /// List the flash translation layers to choose from
    Schemes,
    /// List the devices and chips to choose from
    Profiles,
    /// List the presets: scheme, device, parameters and method of a paper by one name
    Presets,
    /// List instances, and devices that a dead daemon left
    List,
    /// Show what a running instance does
    Status {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
        /// Again and again, with rates in between
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
        watch: Option<f64>,
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
    /// Let a running instance stand still for a while, to look at it: requests wait, none fails
    Pause {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
        /// For how long, such as 30s or 5m; then it goes on by itself, and after 10 minutes at most
        #[arg(long = "for", value_name = "DURATION", default_value = "30s", value_parser = seconds)]
        length: f64,
    },
    /// Let a paused instance on until the next event, such as a collection or a merge
    Step {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
        /// Until so many events were noted
        #[arg(long, value_name = "N", default_value_t = 1)]
        events: u64,
        /// Until so many requests were served, whatever they set off
        #[arg(long, value_name = "N", conflicts_with = "events")]
        requests: Option<u64>,
    },
    /// End a pause
    Resume {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
    },
    /// Let something go wrong with the flash of a running instance
    #[command(subcommand)]
    Inject(Inject),
    /// Look at this machine and say what a device lacks here, with the way out
    Doctor(Box<DeviceArgs>),
    /// Print the completions of a shell
    #[command(after_help = "For this shell only: source <(ftld completions bash)")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    Man {
        /// The folder; made if missing
        folder: PathBuf,
    },
}

/// The seconds of a duration: `90`, `90s`, `1.5m`, of a length that a pause may have.
fn seconds(text: &str) -> Result<f64, String> {
    let split = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let unit = match &text[split..] {
        "" | "s" => 1.0,
        "ms" => 0.001,
        "m" | "min" => 60.0,
        unit => return Err(format!("{unit:?} is no unit: write 30s or 5m")),
    };
    let number: f64 = text[..split]
        .trim()
        .parse()
        .map_err(|_| "write 30s or 5m".to_owned())?;
    crate::pause::length(number * unit)
        .map_err(|failure| failure.message)
        .map(|length| length.as_secs_f64())
}

/// What can go wrong.
#[derive(Debug, Subcommand)]
pub enum Inject {
    /// The flash loses power: the device fails, goes, and its daemon ends; a restart mounts what
    /// the chip kept
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
}

impl Cli {
    /// Reads the command line and the environment; wrong use ends the process with exit code 2.
    pub fn read() -> Cli {
        Cli::of(&Cli::command().get_matches()).unwrap_or_else(|error| error.exit())
    }

    fn of(matches: &ArgMatches) -> Result<Cli, clap::Error> {
        let mut cli = Cli::from_arg_matches(matches)?;
        let matches = matches.subcommand().map_or(matches, |(_, matches)| matches);
        let device = match &mut cli.command {
            None => &mut cli.serve.device,
            Some(Command::Recover(args)) => &mut args.device,
            Some(Command::Create(args) | Command::Doctor(args)) => args,
            Some(_) => return Ok(cli),
        };
        let by_env =
            |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::EnvVariable);
        device.from_env = matches
            .ids()
            .filter(by_env)
            .map(|id| id.as_str().replace('_', "-"))
            .collect();
        Ok(cli)
    }
}

fn epilogue() -> String {
    let exits = Exit::VARIANTS
        .iter()
        .map(|&exit| format!("{} {}", exit.code(), exit.meaning()))
        .collect::<Vec<_>>()
        .join(", ");
    format!(
        "Examples:\n  ftld --scheme lazyftl /dev/ublkb0\n  ftld --size 4GiB 'nbd+unix:///disk?socket=/tmp/disk.sock'\n\n\
         Exit codes: 0 done, {exits}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn json_may_stand_behind_any_command() {
        for line in [
            &["ftld", "list", "--json"][..],
            &["ftld", "inject", "power-cut", "--json"],
            &["ftld", "--json"],
        ] {
            assert!(Cli::try_parse_from(line).unwrap().json, "{line:?}");
        }
    }

    #[test]
    fn lengths_of_a_pause_are_read_as_people_write_them() {
        assert_eq!(
            ["30", "30s", "1.5m", "10min", "500ms"].map(|t| seconds(t).unwrap()),
            [30.0, 30.0, 90.0, 600.0, 0.5]
        );
        for wrong in ["", "s", "5h", "-1s", "11m", "0"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }
}
