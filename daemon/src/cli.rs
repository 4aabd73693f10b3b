//! Command line; without a subcommand, `ftld` serves a device.

use crate::compare::CompareArgs;
use crate::failure::Exit;
use crate::inject::{BadBlock, BitErrors, PowerCut};
use crate::options::DeviceArgs;
use crate::replay::ReplayArgs;
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
    /// Run in the background once the device is ready; the log is NAME.log next to the default
    /// image
    #[arg(long)]
    pub detach: bool,
    /// The process in the background that `--detach` started.
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub detached: bool,
    /// Print all values with their sources, as a configuration file, and exit
    #[arg(long)]
    pub print_config: bool,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Create an image
    Create(Box<DeviceArgs>),
    /// Show the content of an image; never changes it
    Inspect {
        /// Path of an image, or name of an instance
        image: String,
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
    /// List synthetic workloads and trace formats
    Workloads,
    /// List the flash translation layers
    Schemes,
    /// List the flash devices and chips, or show one
    Profiles {
        /// A profile, or the path of a TOML file
        name: Option<String>,
        /// Print it as a TOML file, to start one of your own from
        #[arg(long, requires = "name", conflicts_with = "json")]
        toml: bool,
    },
    /// List the presets: scheme, device, parameters and method of a paper under one name
    Presets,
    /// List instances, and devices whose daemon died
    List,
    /// Show the state of a running instance
    Status {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
        /// Print a line of rates per interval
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1")]
        watch: Option<f64>,
    },
    /// Watch all instances in the terminal
    Top {
        /// Time between two looks at the instances
        #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0)]
        delay: f64,
    },
    /// Stop a running instance
    Stop {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
        /// Remove the device even if open
        #[arg(long)]
        force: bool,
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
        /// Until N events are recorded
        #[arg(long, value_name = "N", default_value_t = 1)]
        events: u64,
        /// Until N requests are served, with all their work
        #[arg(long, value_name = "N", conflicts_with = "events")]
        requests: Option<u64>,
    },
    /// End a pause
    Resume {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
    },
    /// Inject a flash fault into a running instance
    #[command(subcommand)]
    Inject(Inject),
    /// Check prerequisites and print fixes
    Doctor(Box<DeviceArgs>),
    /// Print the completions of a shell
    #[command(after_help = "For this shell only: source <(ftld completions bash)")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder
    Man {
        /// The folder; created if missing
        folder: PathBuf,
    },
}

/// Parses a duration (`90`, `90s`, `1.5m`) into seconds; its length must be valid for a pause.
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
    /// Cut the flash's power: the device is removed and its daemon ends; restart to recover
    PowerCut(On<PowerCut>),
    /// Make blocks fail at their next program or erase
    BadBlock(On<BadBlock>),
    /// Add bit errors to page reads
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
