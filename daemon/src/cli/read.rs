//! From the words of a command line to a command, or to one message.

use super::{Cli, Command, command};
use crate::start;
use clap::parser::ValueSource;
use clap::{ArgMatches, FromArgMatches};
use ftl_core::near_miss;
use ftld_device::instance::{Dirs, check_name};
use ftld_kit::failure::Failure;
use std::ffi::OsString;

impl Cli {
    /// Reads the command line and the environment. `--help` and `--version` end the process.
    ///
    /// # Errors
    /// The command line is wrong.
    pub(crate) fn read() -> Result<Cli, Failure> {
        Cli::parse_args(std::env::args_os().collect())
    }

    pub(super) fn parse_args(args: Vec<OsString>) -> Result<Cli, Failure> {
        let command = command();
        let first = args.iter().skip(1).find(|word| *word != "--json");
        if let Some(word) = first.and_then(|word| word.to_str()) {
            known_command(&command, word)?;
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
const STARTS: [&str; 4] = ["restart", "run", "serve", "up"];

/// Refuses a first word that is neither an option, a command nor a target.
fn known_command(command: &clap::Command, word: &str) -> Result<(), Failure> {
    let is_target = word.contains(['/', ':']) || word.ends_with(".ftld");
    let is_known = word == "help" || command.find_subcommand(word).is_some();
    if word.is_empty() || word.starts_with('-') || is_target || is_known {
        return Ok(());
    }
    if STARTS.contains(&word) {
        return Err(Failure::usage(format!(
            "no command {word:?}; `ftld start NAME` serves a stopped instance again, `ftld TARGET` a new one"
        )));
    }
    if check_name(word).is_ok()
        && start::names(&Dirs::from_env())
            .iter()
            .any(|name| name == word)
    {
        return Err(Failure::usage(format!(
            "no command {word:?}, but an instance: `ftld start {word}` serves it again, `ftld status {word}` shows it"
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
