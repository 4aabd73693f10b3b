//! Command line; without a subcommand, `ftld` serves a device.

use crate::commands::start_line;
use crate::crash_test::{CheckStatesArgs, CrashTestArgs, RecordedArgs};
use crate::demo::DemoArgs;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use ftl_core::near_miss;
use ftld_device::aging::ImageAge;
use ftld_device::faults::{Clear, FlushFails, Hang, Hits, Slow};
use ftld_device::inject::{BadBlock, BitErrors, PowerCut};
use ftld_device::instance::{Dirs, check_name};
use ftld_device::options::DeviceArgs;
use ftld_device::volume::parse_range;
use ftld_kit::duration::parse_seconds;
use ftld_kit::failure::{Exit, Failure};
use ftld_kit::output::{STYLES, width, wrapped_to};
use ftld_lab::compare::CompareArgs;
use ftld_lab::replay::{Provenance, ReplayArgs};
use nand_model::FORMAT_VERSION;
use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;
use strum::VariantArray;

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
    /// List the presets: scheme, device, parameters and method of a paper under one name
    Presets,
    /// List instances, and devices whose daemon died
    List {
        /// Show the images of stopped instances, too
        #[arg(short, long)]
        all: bool,
        /// Print the names alone, those of stopped instances, too; for completions.
        #[arg(long, hide = true)]
        names: bool,
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
    /// Remove the default images of stopped instances, and their logs
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
    /// Stop a running instance
    Stop {
        /// Name of the instance; not needed if only one is running
        name: Option<String>,
        /// Remove the device even if open
        #[arg(long)]
        force: bool,
        /// Stop all running instances
        #[arg(long, conflicts_with = "name")]
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
        /// Run until N events are recorded
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
    Mark {
        /// Text of the mark
        text: String,
        /// Name of the instance; not needed if only one is running
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
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

/// What can go wrong.
#[derive(Debug, Subcommand)]
pub(crate) enum Inject {
    /// Cut the flash's power: the device is removed and its daemon ends; restart to recover
    PowerCut(On<PowerCut>),
    /// Make blocks fail at their next program or erase
    #[command(
        override_usage = "ftld inject bad-block [OPTIONS]\n       <--block <N>|--count <K>> [NAME]"
    )]
    BadBlock(On<BadBlock>),
    /// Add bit errors to page reads
    #[command(
        override_usage = "ftld inject bit-errors [OPTIONS]\n       <--block <N>|--count <K>|--factor <F>> [NAME]"
    )]
    BitErrors(On<BitErrors>),
    /// Let FLUSHes fail with EIO
    FlushFails(On<FlushFails>),
    /// Let writes and trims fail with EIO
    WriteErrors(On<Hits>),
    /// Let reads fail with EIO
    ReadErrors(On<Hits>),
    /// Let requests take longer
    Slow(On<Slow>),
    /// Let requests wait
    Hang(On<Hang>),
    /// End faults of requests
    Clear {
        /// Which faults
        #[command(flatten)]
        clear: Clear,
        /// Name of the instance; not needed if only one is running
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
    },
}

/// A fault, and who suffers it.
#[derive(Args, Debug)]
pub(crate) struct On<F: Args> {
    /// Name of the instance; not needed if only one is running
    pub(crate) name: Option<String>,
    /// The fault.
    #[command(flatten)]
    pub(crate) fault: F,
}

/// Options that only a device in service has.
const SERVING: &[&str] = &[
    "metrics",
    "metrics_host",
    "latency",
    "verify",
    "tls",
    "tls_cert",
    "tls_key",
    "tls_client_ca",
    "record",
    "record_data",
    "shadow",
    "read_only",
    "write_cache",
    "cache_model",
    "cache_tear",
    "cache_plp",
    "write_cache_announce",
    "atomic_unit",
];
/// Options that only a new image has.
const MAKING: &[&str] = &[
    "preset",
    "scheme",
    "size",
    "profile",
    "slc_region",
    "op",
    "shards",
    "set",
];
/// Options for which `ftld doctor` has no check.
const UNCHECKED: &[&str] = &[
    "metrics_host",
    "latency",
    "verify",
    "record",
    "record_data",
    "shadow",
    "read_only",
    "write_cache",
    "cache_model",
    "cache_tear",
    "cache_plp",
    "write_cache_announce",
    "atomic_unit",
];

/// Commands by purpose, for the help.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Serve",
        &["demo", "create", "recover", "list", "clone", "rm"],
    ),
    (
        "Simulate",
        &[
            "replay",
            "compare",
            "workloads",
            "schemes",
            "profiles",
            "presets",
            "new-scheme",
        ],
    ),
    (
        "Look",
        &["status", "top", "where", "shadow", "inspect", "check"],
    ),
    ("Control", &["pause", "step", "resume", "mark", "stop"]),
    ("Faults", &["inject", "crash-test", "crashes"]),
    ("Set up", &["doctor", "completions", "man", "help"]),
];

/// Returns the help of the whole program, with its commands by purpose.
fn help_template(command: &clap::Command, columns: usize) -> String {
    let about = |name: &str| {
        let command = command.find_subcommand(name)?;
        Some(command.get_about()?.to_string())
    };
    let heading = |name: &str| {
        let style = STYLES.get_header();
        format!("{style}{name}:{style:#}\n")
    };
    let literal = STYLES.get_literal();
    let groups = GROUPS.map(|(group, names)| {
        let lines = names.iter().map(|name| {
            let about = about(name).unwrap_or_else(|| "Print the help of a command".into());
            let line = wrapped_to(&format!("  {name:<11}  {about}"), columns);
            // Colours come last: a line is broken by the columns that it shows.
            line.replacen(name, &format!("{literal}{name}{literal:#}"), 1)
        });
        heading(group) + &lines.collect::<String>()
    });
    format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}\n{}{{positionals}}\n\n{}{{options}}{{after-help}}",
        groups.join("\n"),
        heading("Arguments"),
        heading("Options"),
    )
}

/// Returns the command line. Commands accept all options of a device, as a configuration file has
/// them, and show those that matter to them.
pub(crate) fn command() -> clap::Command {
    command_of(width())
}

/// As [`command`], with help of this width.
fn command_of(columns: usize) -> clap::Command {
    let shown = [
        ("create", SERVING),
        ("recover", MAKING),
        ("doctor", UNCHECKED),
    ];
    let all = shown.iter().fold(Cli::command(), |all, (name, hidden)| {
        all.mut_subcommand(name, |command| {
            let command = command.after_help("The other options of `ftld` are accepted, too.");
            let hide =
                |command: clap::Command, id: &&str| command.mut_arg(id, |arg| arg.hide(true));
            hidden.iter().fold(command, hide)
        })
    });
    let template = help_template(&all, columns);
    all.help_template(template).term_width(columns)
}

impl Cli {
    /// Reads the command line and the environment. `--help` and `--version` end the process.
    ///
    /// # Errors
    /// The command line is wrong.
    pub(crate) fn read() -> Result<Cli, Failure> {
        Cli::parse_args(std::env::args_os().collect())
    }

    fn parse_args(args: Vec<OsString>) -> Result<Cli, Failure> {
        let command = command();
        let first = args.iter().skip(1).find(|word| *word != "--json");
        if let Some(word) = first.and_then(|word| word.to_str()) {
            known_command(&command, word, &args)?;
        }
        let named = named_command(&command, &args);
        let matches = command.try_get_matches_from(json_last(args));
        matches
            .and_then(|matches| Cli::of(&matches))
            .map_err(|error| match error.use_stderr() {
                true => usage(&error, &named),
                false => error.exit(),
            })
    }

    fn of(matches: &ArgMatches) -> Result<Cli, clap::Error> {
        let mut cli = Cli::from_arg_matches(matches)?;
        let matches = matches.subcommand().map_or(matches, |(_, matches)| matches);
        let device = match &mut cli.command {
            None => &mut cli.serve.device,
            Some(Command::Recover(args)) => &mut args.device,
            Some(Command::Create(args)) => &mut args.device,
            Some(Command::Doctor(args)) => args,
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

/// Whether the command line asks for JSON; also for a line that cannot be parsed.
pub(crate) fn asks_for_json() -> bool {
    options(&std::env::args_os().collect::<Vec<_>>()).any(|option| option == "--json")
}

/// The words before `--`.
fn options(args: &[OsString]) -> impl Iterator<Item = &OsString> {
    args.iter().take_while(|word| *word != "--")
}

/// Moves `--json` to the end of the options, as users may put it before a subcommand, too. Words
/// after `--` stay.
fn json_last(mut args: Vec<OsString>) -> Vec<OsString> {
    let end = options(&args).count();
    let rest = args.split_off(end);
    let before = args.len();
    args.retain(|word| word != "--json");
    if args.len() < before {
        args.push("--json".into());
    }
    args.extend(rest);
    args
}

/// Words that other programs have for a start.
const STARTS: [&str; 5] = ["start", "restart", "run", "serve", "up"];

/// Refuses a first word that is neither an option, a command nor a target.
fn known_command(command: &clap::Command, word: &str, args: &[OsString]) -> Result<(), Failure> {
    let is_target = word.contains(['/', ':']) || word.ends_with(".ftld");
    let is_known = word == "help" || command.find_subcommand(word).is_some();
    if word.is_empty() || word.starts_with('-') || is_target || is_known {
        return Ok(());
    }
    if STARTS.contains(&word) {
        let next = args.iter().skip_while(|arg| *arg != word).nth(1);
        let name = next.and_then(|name| name.to_str()).unwrap_or("NAME");
        return Err(Failure::usage(format!(
            "no command {word:?}; an instance starts with its target, and continues on its image: `{}`",
            start_line(name)
        )));
    }
    if check_name(word).is_ok() && Dirs::from_env().image(word).exists() {
        return Err(Failure::usage(format!(
            "no command {word:?}, but an instance: `{}` starts it, `ftld status {word}` shows it",
            start_line(word)
        )));
    }
    let names = command.get_subcommands().map(clap::Command::get_name);
    // A single letter is similar to every command that contains it.
    let hint = match word.len() {
        1 => String::new(),
        _ => near_miss(word, names),
    };
    Err(Failure::usage(format!(
        "no command {word:?}{hint}, and no target such as /dev/ublkb0 or nbd://127.0.0.1:10809; see `ftld --help`"
    )))
}

/// Returns the failure for a command line that clap refuses, in one line.
fn usage(error: &clap::Error, command: &str) -> Failure {
    let text = error.to_string();
    let second = text.strip_prefix("error: the subcommand '");
    if let Some((word, _)) = second.and_then(|text| text.split_once('\''))
        && word.contains(['/', ':'])
    {
        return Failure::usage(format!(
            "{word:?} is a second target; give one, and start the other device by a command of its own"
        ));
    }
    let what = text.split("\nUsage: ").next().unwrap_or(&text);
    let mut message = String::new();
    let lines = what.lines().map(str::trim);
    let is_said = |line: &&str| {
        // Nothing here takes a value that begins with a dash.
        !line.is_empty() && !line.starts_with("For more") && !line.starts_with("tip: to pass '")
    };
    for line in lines.filter(is_said) {
        let line = line.strip_prefix("error: ").unwrap_or(line);
        let line = line.strip_prefix("tip: ").unwrap_or(line);
        message += match message.chars().last() {
            None => "",
            Some(':') => " ",
            Some(_) => "; ",
        };
        message += line;
    }
    Failure::usage(format!("{message}; see `{command} --help`"))
}

/// Returns the command and subcommands that a command line begins with.
fn named_command(command: &clap::Command, args: &[OsString]) -> String {
    let (mut at, mut names) = (command, command.get_name().to_owned());
    for word in options(args).skip(1).filter(|word| *word != "--json") {
        let Some(next) = at.find_subcommand(word) else {
            break;
        };
        at = next;
        names += &format!(" {}", at.get_name());
    }
    names
}

/// Returns version, revision, features and image format.
fn long_version() -> String {
    let run = Provenance::here(None);
    let ublk = if cfg!(feature = "ublk") { "ublk, " } else { "" };
    format!(
        "{}\nrevision      {}\nfeatures      {ublk}nbd, tls\nimage format  {FORMAT_VERSION}",
        run.version,
        run.revision.as_deref().unwrap_or("unknown")
    )
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
mod tests;
